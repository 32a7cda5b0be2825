"""The Transformer equals torch's own layers and the paper's formulas, and decoding steps equal a full pass."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.sides import BatchSide, make_side
from nmt.errors import NmtError
from nmt.model.architectures import ARCHITECTURES, parameters, training_flops, weight_shapes
from nmt.model.attention import Additive, DotProduct, attend
from nmt.model.cpu_kernels import Dropout, linear, random_mask
from nmt.model.device import is_native
from nmt.model.masks import Block, Layout, self_attention_mask
from nmt.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    LearnedPositions,
    MultiHeadAttention,
    SinusoidalPositions,
    Transformer,
    pack,
    start,
    step,
)

SMALL = ModelConfig(encoder_layers=2, decoder_layers=3, d_model=32, d_ff=48, heads=4, d_k=8, d_v=8, dropout=0.1)
VOCABULARY = 50
SOURCES = [[5, 6, 7, 3], [8, 3], [9, 10, 11, 12, 3]]
TARGETS = [[2, 5, 6], [2, 7, 8, 9, 10], [2, 5]]


def side(*blocks: list[list[int]]) -> BatchSide:
    return make_side([[np.array(sentence) for sentence in block] for block in blocks])


def decoded(ours: Transformer, source: BatchSide, target: BatchSide) -> Tensor:
    """Returns the decoder output MD at all flat target positions."""
    return ours.decode(target.ids_F, target.layout, ours.encode(source.ids_F, source.layout), source.layout)


def padded(sentences: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(s) for s in sentences], batch_first=True)


def model(config: ModelConfig = SMALL, *, shared: bool = True) -> Transformer:
    torch.manual_seed(0)
    made = Transformer(config, VOCABULARY, VOCABULARY, shared=shared).eval()
    for name, weight in made.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(weight, std=0.1)
    return made


@torch.no_grad()
def copy_attention(source: MultiHeadAttention, target: nn.MultiheadAttention) -> None:
    inputs = [source.query_key_value] if hasattr(source, "query_key_value") else [source.query, source.key_value]
    for name, parts in {"in_proj_": inputs, "out_proj.": [source.output]}.items():
        target.get_parameter(f"{name}weight").copy_(torch.cat([part.weight for part in parts]))
        biases = [torch.zeros(len(part.weight)) if part.bias is None else part.bias for part in parts]
        target.get_parameter(f"{name}bias").copy_(torch.cat(biases))


def copy_layer(source: EncoderLayer | DecoderLayer, target: nn.Module) -> None:
    attentions = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
    names = [name for name in attentions if hasattr(source, name)]
    for name in names:
        copy_attention(getattr(source, name), getattr(target, attentions[name]))
    for index, name in enumerate([*names, "feed_forward"], 1):
        norm = getattr(source, f"{name}_residual").norm
        target.get_submodule(f"norm{index}").load_state_dict(norm.state_dict())
    target.get_submodule("linear1").load_state_dict(source.feed_forward.inner.state_dict())
    target.get_submodule("linear2").load_state_dict(source.feed_forward.outer.state_dict())


def torch_transformer(ours: Transformer) -> nn.Transformer:
    """Returns torch's whole model with the same weights and without dropout.

    As in the paper, no norm follows the last layer, except with pre-norm.
    """
    c = ours.config
    made = nn.Transformer(c.d_model, c.heads, c.encoder_layers, c.decoder_layers, c.d_ff, dropout=0, batch_first=True)
    made.encoder.use_nested_tensor = False
    for name in ("encoder", "decoder"):
        stack, norm = getattr(made, name), getattr(ours, f"{name}_norm")
        for source, target in zip(getattr(ours, name), stack.layers, strict=True):
            copy_layer(source, target)  # type: ignore[arg-type]
            target.norm_first = c.norm == "pre"
        if c.norm == "pre":
            stack.norm.load_state_dict(norm.state_dict())
        else:
            stack.norm = None
    return made.eval()


def formula_positions(length: int, width: int) -> Tensor:
    """Returns the position encodings of paper §3.5, computed number by number."""
    angles = [[position / 10000 ** (i / width) for i in range(0, width, 2)] for position in range(length)]
    rows = [[function(angle) for angle in row for function in (math.sin, math.cos)] for row in angles]
    return torch.tensor(rows, dtype=torch.float64)


def embedded(ours: Transformer, sentences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Returns embeddings times √d_model plus positions, BSD, and a mask of the padding, BS."""
    tokens = padded(sentences)
    x = ours.target_embedding.weight[tokens] * math.sqrt(SMALL.d_model)
    return x + formula_positions(tokens.shape[1], SMALL.d_model).float(), tokens == 0


@torch.no_grad()
@pytest.mark.parametrize("norm, activation, function, biases", [
    ("post", "relu", F.relu, False), ("post", "gelu", F.gelu, True), ("pre", "swish", F.silu, False),
])  # fmt: skip
def test_the_model_and_torchs_transformer_have_the_same_logits(
    norm: Literal["pre", "post"], activation: str, function: Callable[[Tensor], Tensor], biases: bool
) -> None:
    ours = model(replace(SMALL, norm=norm, activation=activation, attention_biases=biases, output_bias=biases))
    (source, padding), (target, _) = embedded(ours, SOURCES), embedded(ours, TARGETS)
    causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": causal}
    theirs = torch_transformer(ours)
    for layer in (*theirs.encoder.layers, *theirs.decoder.layers):
        layer.activation, layer.activation_relu_or_gelu = function, 0  # the latter would choose another function
    expected = F.linear(theirs(source, target, **masks), ours.target_embedding.weight, ours.output_bias)
    logits, real = ours(padded(SOURCES), padded(TARGETS)), padded(TARGETS) != 0
    torch.testing.assert_close(logits[real], expected[real], rtol=0, atol=1e-5)
    # The batch has two blocks of different widths, one after the other. The first has padding.
    blocks = ours.logits(decoded(ours, side(SOURCES[:2], SOURCES[2:]), side(TARGETS[:2], TARGETS[2:])))
    block_logits = torch.cat((blocks[:3], blocks[5:]))
    torch.testing.assert_close(block_logits, expected[real], rtol=0, atol=1e-5)


# Changes of the paper's model. Step-by-step decoding must follow each of them.
VARIANTS = {
    "free d_k and d_v": {"d_k": 5, "d_v": 11},
    "pre-norm": {"norm": "pre"},
    "not scaled": {"attention": "dot-product"},
    "additive": {"attention": "additive", "d_k": 3},
    "learned positions": {"learned_positions": 50},
    **{f"window of {size}": {"attention_window": size} for size in (1, 3, 20)},
    "biases": {"attention_biases": True, "output_bias": True},
    "positions of fairseq": {"sinusoids": "fairseq"},
    "SSRU": {"decoder": "ssru"},
    "SSRU of Marian": {"decoder": "ssru", "sinusoids": "marian", "norm": "pre"},
    "two vocabularies": {},
}


@torch.no_grad()
@pytest.mark.parametrize("beam, steps, variant", [
    (3, 40, ""), (1, 3, ""), (20, 4, ""), (3, 9, "window of 3"), (2, 70, "window of 20"), *((2, 7, v) for v in VARIANTS)
])  # fmt: skip
def test_decoding_step_by_step_equals_the_full_pass(beam: int, steps: int, variant: str) -> None:
    """Hypotheses change places, a sentence leaves the batch, and the cache outgrows its first size."""
    config, draw = replace(SMALL, **VARIANTS.get(variant, {})), random.Random(steps)
    ours, source = model(config, shared=variant != "two vocabularies"), side(SOURCES)
    cache = start(ours, source.ids_F, source.layout, beam)
    sentences = [0, 1, 2]
    tokens: list[list[list[int]]] = [[[] for _ in range(beam)] for _ in sentences]  # by sentence and hypothesis
    for position in range(steps):
        tokens = [[[*earlier, draw.randrange(4, 50)] for earlier in hypotheses] for hypotheses in tokens]
        targets = [target for hypotheses in tokens for target in hypotheses]
        logits, cache = step(ours, torch.tensor([target[-1] for target in targets]), cache)
        sources = side([SOURCES[s] for s in sentences for _ in range(beam)])
        full = ours.logits(decoded(ours, sources, side(targets))).view(len(targets), position + 1, -1)
        torch.testing.assert_close(logits, full[:, -1], rtol=0, atol=1e-5)
        chosen = [2, 0] if position == 1 else list(range(len(sentences)))
        parents = [[draw.randrange(beam) for _ in range(beam)] for _ in chosen]
        sentences = [sentences[b] for b in chosen]
        tokens = [[tokens[b][w] for w in row] for b, row in zip(chosen, parents, strict=True)]
        cache = cache.select(torch.tensor(parents), torch.tensor(chosen) if position == 1 else None)
    if window := config.attention_window:  # the cache drops positions that no later position attends to
        assert all(layer.own[0].shape[2] <= 2 * max(window, 16) * beam for layer in cache.layers)


def test_a_sentence_of_padding_alone_gives_numbers() -> None:
    with torch.no_grad():
        assert model()(padded([SOURCES[1], [0, 0]]), padded([TARGETS[0], TARGETS[1]])).isfinite().all()


def assert_equal_with_gradients(outputs: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(outputs, expected)
    gradient = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad(output, inputs, gradient) for output in (outputs, expected)))


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("width", [1, 7, 40])
def test_cpu_attention_and_its_gradient_equal_those_of_torch(width: int, scaled: bool) -> None:
    torch.manual_seed(0)
    shapes = [(3, 2, 5, 4), (3, 2, width, 4), (3, 2, width, 6)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    bias = torch.zeros(3, 1, 1, width, dtype=torch.float64).masked_fill(torch.rand(3, 1, 1, width) < 0.4, -torch.inf)
    bias[..., 0] = 0
    outputs = DotProduct(4, 0.0, scaled=scaled)(*inputs, bias)
    expected = F.scaled_dot_product_attention(*inputs, attn_mask=bias, scale=0.5 if scaled else 1)
    assert_equal_with_gradients(outputs, expected, inputs)


def test_attention_drops_weights_and_scales_the_others() -> None:
    torch.manual_seed(0)
    q, k, v = inputs = [torch.randn(3, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    torch.manual_seed(1)
    outputs = DotProduct(4, 0.3, scaled=True).train()(q, k, v)
    torch.manual_seed(1)
    keep, scale = random_mask(torch.Size((3, 2, 7, 7)), 0.3)
    assert_equal_with_gradients(outputs, ((q @ k.mT / 2).softmax(-1) * keep * scale) @ v, inputs)
    assert torch.equal(DotProduct(4, 0.3, scaled=True).eval()(q, k, v), DotProduct(4, 0.0, scaled=True)(q, k, v))


@pytest.mark.parametrize("keys", [5, 5000])
def test_dropout_without_gradients_is_dropout(keys: int) -> None:
    torch.manual_seed(0)
    function = DotProduct(8, 0.5, scaled=True).train()
    q, k, v = (torch.randn(2, 3, length, 8) for length in (4, keys, keys))
    with torch.no_grad():
        assert not torch.equal(function(q, k, v), function(q, k, v))


def test_additive_attention_follows_its_formula() -> None:
    torch.manual_seed(0)
    attention = Additive(heads=2, d_k=4, dropout=0.0).double()
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in [(1, 2, 3, 4), (1, 2, 5, 4)]]
    q, k = inputs
    v = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    rows = []
    for head in range(2):
        scores = [[attention.direction_HK[head] @ torch.tanh(a + b) for b in k[0, head]] for a in q[0, head]]
        weights = torch.stack([torch.stack(row).exp() / torch.stack(row).exp().sum() for row in scores])
        rows.append(weights @ v[0, head])
    assert_equal_with_gradients(attention(q, k, v), torch.stack(rows)[None], [*inputs, attention.direction_HK])


def neighbourhood(i: int, length: int, size: int, causal: bool) -> set[int]:
    """Returns the `size` visible positions nearest to i. Of two equally near positions, the earlier comes first."""
    visible = range(i + 1) if causal else range(length)
    return set(sorted(visible, key=lambda j: (abs(i - j), j))[:size])


@settings(max_examples=50)
@given(st.data())
def test_restricted_attention_attends_to_the_nearest_positions(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    size, causal = data.draw(st.integers(1, 45)), data.draw(st.booleans())
    width = max(lengths) + data.draw(st.integers(0, 3))
    torch.manual_seed(0)
    inputs = [torch.randn(len(lengths), 2, width, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    positions = torch.arange(width).repeat(len(lengths))
    layout = Layout(positions, torch.tensor(lengths), width, (Block(len(lengths), width, True),))
    mask = self_attention_mask(layout, size, causal=causal)
    flat = [x.transpose(1, 2).flatten(0, 1) for x in inputs]
    attended = attend(*flat, mask, DotProduct(4, 0.0, scaled=True))
    outputs = attended.unflatten(0, (len(lengths), width)).transpose(1, 2)
    visible = torch.zeros(len(lengths), 1, width, width, dtype=torch.bool)
    for b, i in ((b, i) for b, length in enumerate(lengths) for i in range(length)):
        visible[b, 0, i, list(neighbourhood(i, lengths[b], size, causal))] = True
    is_real = visible.any(-1).squeeze(1)
    # Padding attends to everything, because a softmax over nothing is not a number.
    expected = F.scaled_dot_product_attention(*inputs, attn_mask=visible | ~visible.any(-1, keepdim=True))
    assert_equal_with_gradients(outputs.transpose(1, 2)[is_real], expected.transpose(1, 2)[is_real], inputs)


def test_positions_beyond_the_learned_ones_are_refused() -> None:
    positions = LearnedPositions(8, 3)
    assert torch.equal(positions(torch.tensor([2, 0]), 3), positions.table[[2, 0]])
    with pytest.raises(NmtError, match="has 4 positions, but the model has learnt 3"):
        positions(torch.tensor([3]), 4)


def test_cpu_attention_under_autocast_computes_in_fp32() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 7, 8).bfloat16().requires_grad_() for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = DotProduct(8, 0.0, scaled=True)(q, k, v)
    assert outputs.dtype == torch.bfloat16
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = F.scaled_dot_product_attention(*wide)
    torch.testing.assert_close(outputs.double(), expected, rtol=2**-8, atol=1e-6)  # rounded once, at the end
    gradient = torch.randn(3, 2, 7, 8).bfloat16()
    gradients = [x.double() for x in torch.autograd.grad(outputs, (q, k, v), gradient)]
    expected_gradients = torch.autograd.grad(expected, wide, gradient.double())
    torch.testing.assert_close(gradients, [*expected_gradients], rtol=2**-8, atol=1e-4)


def test_dropout_drops_its_share_scales_the_rest_and_depends_on_the_seed() -> None:
    dropout, x = Dropout(0.3).train(), torch.ones(300_000, requires_grad=True)
    torch.manual_seed(1)
    first = dropout(x)
    kept = first != 0
    assert kept.float().mean() == pytest.approx(0.7, abs=0.005)
    assert first[kept].unique().item() == pytest.approx(1 / 0.7, rel=1e-4)
    torch.testing.assert_close(torch.autograd.grad(first.sum(), x)[0], first.detach())
    torch.manual_seed(1)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(dropout(x), first)
    assert torch.equal(dropout.eval()(x), x)
    assert Dropout(0.999999).train()(x).isfinite().all()


def test_positions_follow_the_formula_and_grow() -> None:
    positions = SinusoidalPositions(replace(SMALL, d_model=16), length=4)
    vectors = positions(torch.tensor([50, 0]), 51)
    torch.testing.assert_close(vectors.double(), formula_positions(51, 16)[[50, 0]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [*ARCHITECTURES, *VARIANTS])
def test_the_count_of_parameters_is_right(name: str) -> None:
    config = ARCHITECTURES[name] if name in ARCHITECTURES else replace(SMALL, **VARIANTS[name])
    for source_size in (0, 500):
        shapes = weight_shapes(config, 37_000, source_size)
        assert parameters(config, 37_000, source_size) == sum(map(math.prod, shapes.values()))


def test_training_flops_equal_a_count_by_hand() -> None:
    """Each weight and token takes six operations: a multiplication and an addition, once forwards and twice backwards.

    Every source token also passes through the keys and values of the decoder's cross-attention.
    """
    config = replace(SMALL, encoder_layers=1, decoder_layers=1, d_model=4, d_ff=6, heads=1, d_k=4, d_v=4)
    attention, feed_forward, softmax = 4 * 16, 2 * 24, 10 * 4
    source_token_weights = attention + feed_forward + attention // 2
    target_token_weights = attention + attention // 2 + feed_forward + softmax
    assert training_flops(config, 10, 5, 7) == 6 * (5 * source_token_weights + 7 * target_token_weights)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_is_where_the_paper_puts_it(norm: Literal["pre", "post"], monkeypatch: pytest.MonkeyPatch) -> None:
    """It applies to the sums of embeddings and positions, to the output of every sub-layer, and to inner activations.

    A training pass of torch's layers, with the same masks in these places, gives the same numbers.
    """
    config = replace(SMALL, encoder_layers=1, decoder_layers=1, dropout=0.4, activation_dropout=0.2, norm=norm)
    ours = model(config).train()
    probabilities: list[float] = []
    masks: list[Tensor] = []

    def drawn(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
        probabilities.append(probability)
        masks.append((torch.rand(shape) >= probability) / (1 - probability))
        return masks[-1] != 0, 1 / (1 - probability)

    class Repeated(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * next(order)

    monkeypatch.setattr("nmt.model.cpu_kernels.random_mask", drawn)
    outputs = decoded(ours, side(SOURCES[:1]), side(TARGETS[:1]))
    assert probabilities == [0.4, 0.4, 0.2, 0.4, 0.4, 0.4, 0.4, 0.2, 0.4]
    order, theirs = iter(masks), torch_transformer(ours).train()
    for layer in (theirs.encoder.layers[0], theirs.decoder.layers[0]):
        for name in [name for name, part in layer.named_children() if isinstance(part, nn.Dropout)]:
            setattr(layer, name, Repeated())
    memory = theirs.encoder(Repeated()(embedded(ours, SOURCES[:1])[0]))
    causal = nn.Transformer.generate_square_subsequent_mask(3)
    expected = theirs.decoder(Repeated()(embedded(ours, TARGETS[:1])[0]), memory, causal)
    assert next(order, None) is None
    torch.testing.assert_close(outputs, expected[0], rtol=0, atol=1e-5)


def test_weights_are_initialised_with_the_right_distribution() -> None:
    """Matrices are uniform within ±√(6 / (inputs + outputs)). Embeddings are normal with variance 1 / d_model."""
    config = replace(SMALL, d_model=64, d_ff=256, learned_positions=300)
    torch.manual_seed(0)
    ours = Transformer(config, 4000, 4000, shared=True)
    for name, weight in ours.named_parameters():
        if "embedding" in name or "positions" in name:
            assert weight.std().item() == pytest.approx(64**-0.5, rel=0.03)
            assert weight.mean().item() == pytest.approx(0, abs=0.01)
        elif name.endswith("norm.weight"):
            assert (weight == 1).all()
        elif name.endswith("bias"):
            assert (weight == 0).all()
        else:
            bound = math.sqrt(6 / sum(weight.shape))
            assert weight.abs().max().item() == pytest.approx(bound, rel=0.01)
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN")
@pytest.mark.parametrize("has_bias", [True, False])
def test_large_products_by_onednn_are_right(monkeypatch: pytest.MonkeyPatch, has_bias: bool) -> None:
    """As on AMD's processors. With gradients, they are torch's own."""
    x, weight, bias = torch.randn(300, 512), torch.randn(600, 512), torch.randn(600)
    expected = (x.double() @ weight.double().T + (bias.double() if has_bias else 0)).float()
    monkeypatch.setattr("nmt.model.cpu_kernels.prefers_onednn", lambda: True)
    weight.requires_grad_()
    torch.testing.assert_close(linear(x, weight, bias if has_bias else None), expected, atol=1e-3, rtol=0)
    monkeypatch.setattr(F, "linear", lambda *_: pytest.fail("this is not oneDNN"))
    with torch.no_grad():
        product = linear(x, weight, bias if has_bias else None)
    torch.testing.assert_close(product, expected, atol=1e-3, rtol=0)


@pytest.mark.skipif(not is_native(torch.bfloat16, "cpu"), reason="needs products in bfloat16")
@pytest.mark.parametrize("vocabulary", [VOCABULARY, 2**16 + 3])
@torch.no_grad()
def test_a_packed_model_gives_the_same_numbers(vocabulary: int) -> None:
    torch.manual_seed(0)
    model = Transformer(SMALL, vocabulary, vocabulary, shared=True).eval()
    sides = [torch.randint(4, VOCABULARY, (3, length)) for length in (7, 5)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = model(*sides)
        pack(model)
        assert torch.equal(model(*sides).to(expected.dtype), expected)
        shorter = model(sides[0], sides[1][:, :2]).to(expected.dtype)  # in the same memory
    torch.testing.assert_close(shorter, expected[:, :2], atol=0.1, rtol=0)
