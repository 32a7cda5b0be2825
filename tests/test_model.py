"""The Transformer equals torch's own layers and the paper's formulas, and decoding steps equal a full pass."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.data.layout import Block, Layout
from nmt.data.loader import Side, make_side
from nmt.errors import NmtError
from nmt.model.attention import Additive, DotProduct, attend
from nmt.model.cost import parameters, training_flops
from nmt.model.dropout import Dropout, random_mask
from nmt.model.incremental import start, step
from nmt.model.masks import self_attention_mask
from nmt.model.positions import LearnedPositions, SinusoidalPositions, sinusoids
from nmt.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Residual,
    Transformer,
)
from nmt.registry import ARCHITECTURES

SMALL = ModelConfig(encoder_layers=2, decoder_layers=3, d_model=32, d_ff=48, heads=4, d_k=8, d_v=8, dropout=0.1)
SIXTEEN = replace(SMALL, d_model=16)
VOCABULARY = 50
SOURCES = [[5, 6, 7, 3], [8, 3], [9, 10, 11, 12, 3]]
TARGETS = [[2, 5, 6], [2, 7, 8, 9, 10], [2, 5]]


def side(*blocks: list[list[int]]) -> Side:
    return make_side([[np.array(sentence) for sentence in block] for block in blocks])


def decoded(ours: Transformer, source: Side, target: Side) -> Tensor:
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


def copy_attention(source: MultiHeadAttention, target: nn.MultiheadAttention) -> None:
    inputs = [source.query_key_value] if hasattr(source, "query_key_value") else [source.query, source.key_value]
    biased = source.output.bias is not None
    target.load_state_dict(
        {
            "in_proj_weight": torch.cat([part.weight for part in inputs]),
            "in_proj_bias": torch.cat([part.bias for part in inputs]) if biased else torch.zeros(3 * SMALL.d_model),
            "out_proj.weight": source.output.weight,
            "out_proj.bias": source.output.bias if biased else torch.zeros(SMALL.d_model),
        }
    )


def copy_rest(
    layer: EncoderLayer | DecoderLayer, norms: list[tuple[nn.LayerNorm, Residual]], target: nn.Module
) -> None:
    target.linear1.load_state_dict(layer.feed_forward.inner.state_dict())  # type: ignore[union-attr]
    target.linear2.load_state_dict(layer.feed_forward.outer.state_dict())  # type: ignore[union-attr]
    for norm, residual in norms:
        norm.load_state_dict(residual.norm.state_dict())


def torch_encoder(layer: EncoderLayer) -> nn.TransformerEncoderLayer:
    made = nn.TransformerEncoderLayer(SMALL.d_model, SMALL.heads, SMALL.d_ff, batch_first=True).eval()
    copy_attention(layer.self_attention, made.self_attn)
    norms = [(made.norm1, layer.self_attention_residual), (made.norm2, layer.feed_forward_residual)]
    copy_rest(layer, norms, made)
    return made


def torch_decoder(layer: DecoderLayer) -> nn.TransformerDecoderLayer:
    made = nn.TransformerDecoderLayer(SMALL.d_model, SMALL.heads, SMALL.d_ff, batch_first=True).eval()
    copy_attention(layer.self_attention, made.self_attn)
    copy_attention(layer.cross_attention, made.multihead_attn)
    norms = [
        (made.norm1, layer.self_attention_residual),
        (made.norm2, layer.cross_attention_residual),
        (made.norm3, layer.feed_forward_residual),
    ]
    copy_rest(layer, norms, made)
    return made


def formula_positions(length: int, width: int) -> Tensor:
    """Returns the position encodings of paper §3.5, computed number by number."""
    table = torch.zeros(length, width, dtype=torch.float64)
    for position in range(length):
        for i in range(0, width, 2):
            table[position, i] = math.sin(position / 10000 ** (i / width))
            table[position, i + 1] = math.cos(position / 10000 ** (i / width))
    return table


def embedded(ours: Transformer, sentences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Returns embeddings times √d_model plus positions, BSD, and a mask of the padding, BS."""
    tokens = padded(sentences)
    x = ours.target_embedding.weight[tokens] * math.sqrt(SMALL.d_model)
    return x + formula_positions(tokens.shape[1], SMALL.d_model).float(), tokens == 0


def torch_transformer(ours: Transformer) -> nn.Transformer:
    """Returns torch's whole model with the same weights, without norms behind the last layers, as in the paper."""
    made = nn.Transformer(
        SMALL.d_model, SMALL.heads, SMALL.encoder_layers, SMALL.decoder_layers, SMALL.d_ff, batch_first=True
    )
    made.encoder.layers = nn.ModuleList(map(torch_encoder, ours.encoder))  # type: ignore[arg-type]
    made.decoder.layers = nn.ModuleList(map(torch_decoder, ours.decoder))  # type: ignore[arg-type]
    made.encoder.norm = made.decoder.norm = None
    return made.eval()


@torch.no_grad()
@pytest.mark.parametrize("activation, function", [("relu", F.relu), ("gelu", F.gelu), ("swish", F.silu)])
@pytest.mark.parametrize("biases", [False, True])
def test_the_model_and_torchs_transformer_have_the_same_logits(
    activation: str, function: Callable[[Tensor], Tensor], biases: bool
) -> None:
    ours = model(replace(SMALL, activation=activation, attention_biases=biases, output_bias=biases))
    (source, padding), (target, _) = embedded(ours, SOURCES), embedded(ours, TARGETS)
    causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": causal}
    theirs = torch_transformer(ours)
    for layer in (*theirs.encoder.layers, *theirs.decoder.layers):
        layer.activation, layer.activation_relu_or_gelu = function, 0  # the latter would choose another function
    expected = F.linear(theirs(source, target, **masks), ours.target_embedding.weight, ours.output_bias)
    found = ours(padded(SOURCES), padded(TARGETS))
    real = padded(TARGETS) != 0
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)


@torch.no_grad()
def test_encoding_and_decoding_blocks_equals_torchs_layers() -> None:
    ours = model()
    memory, source_padding = embedded(ours, SOURCES)
    for layer in ours.encoder:
        memory = torch_encoder(layer)(memory, src_key_padding_mask=source_padding)  # type: ignore[arg-type]
    x, _ = embedded(ours, TARGETS)
    causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    for layer in ours.decoder:
        x = torch_decoder(layer)(x, memory, tgt_mask=causal, memory_key_padding_mask=source_padding)  # type: ignore[arg-type]
    expected = x @ ours.target_embedding.weight.T

    # The batch has two blocks of different widths, one after the other. The first has padding.
    found = ours.logits(decoded(ours, side(SOURCES[:2], SOURCES[2:]), side(TARGETS[:2], TARGETS[2:])))
    first, second = found[:10].view(2, 5, -1), found[10:].view(1, 2, -1)
    for ours_BTV, row, length in ((first[0], 0, 3), (first[1], 1, 5), (second[0], 2, 2)):
        torch.testing.assert_close(ours_BTV[:length], expected[row, :length], rtol=0, atol=1e-5)


# Changes of the paper's model. Step-by-step decoding must follow each of them.
VARIANTS = {
    "free d_k and d_v": {"d_k": 5, "d_v": 11},
    "pre-norm": {"norm": "pre"},
    "not scaled": {"attention": "dot-product"},
    "additive": {"attention": "additive", "d_k": 3},
    "learned positions": {"learned_positions": 50},
    "window of 1": {"attention_window": 1},
    "window of 3": {"attention_window": 3},
    "window of 4": {"attention_window": 4},
    "biases": {"attention_biases": True, "output_bias": True},
    "gelu": {"activation": "gelu"},
    "swish": {"activation": "swish"},
    "positions of fairseq": {"sinusoids": "fairseq"},
}


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("shared", [True, False])
def test_decoding_step_by_step_equals_the_full_pass(shared: bool, variant: str) -> None:
    ours = model(replace(SMALL, **VARIANTS[variant]), shared=shared)
    source, beam = side(SOURCES), 2
    targets = [[2, *((7 * row + 3 * i) % 40 + 4 for i in range(6))] for row in range(len(SOURCES) * beam)]
    repeated = side([sentence for sentence in SOURCES for _ in range(beam)])
    expected = ours.logits(decoded(ours, repeated, side(targets))).view(len(targets), 7, -1)
    cache = start(ours, source.ids_F, source.layout, beam)
    for i in range(7):
        found, cache = step(ours, torch.tensor([t[i] for t in targets]), cache)
        torch.testing.assert_close(found, expected[:, i], rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    ("beam", "steps", "window"), [(3, 40, None), (1, 3, None), (20, 4, None), (3, 9, 4), (2, 70, 20)]
)
def test_a_cache_follows_its_hypotheses(beam: int, steps: int, window: int | None) -> None:
    """Hypotheses change places, a sentence leaves the batch, and the cache outgrows its first size."""
    ours, draw = model(replace(SMALL, attention_window=window)), random.Random(steps)
    source = side(SOURCES)
    cache = start(ours, source.ids_F, source.layout, beam)
    sentences = [0, 1, 2]
    tokens: list[list[list[int]]] = [[[] for _ in range(beam)] for _ in sentences]  # by sentence and hypothesis
    for number in range(steps):
        tokens = [[[*earlier, draw.randrange(4, 50)] for earlier in hypotheses] for hypotheses in tokens]
        targets = [target for hypotheses in tokens for target in hypotheses]
        found, cache = step(ours, torch.tensor([target[-1] for target in targets]), cache)
        sources = side([SOURCES[s] for s in sentences for _ in range(beam)])
        full = ours.logits(decoded(ours, sources, side(targets))).view(len(targets), number + 1, -1)
        torch.testing.assert_close(found, full[:, -1], rtol=0, atol=1e-5)
        chosen = [2, 0] if number == 1 else list(range(len(sentences)))
        parents = [[draw.randrange(beam) for _ in range(beam)] for _ in chosen]
        sentences = [sentences[b] for b in chosen]
        tokens = [[tokens[b][w] for w in row] for b, row in zip(chosen, parents, strict=True)]
        cache = cache.select(torch.tensor(parents), torch.tensor(chosen) if number == 1 else None)
    if window:  # the cache drops positions that no later position attends to
        assert all(layer.keys_BHPK.shape[2] <= max(window, 16) * beam for layer in cache.layers)


@torch.no_grad()
def test_a_position_attends_neither_to_the_future_nor_to_padding() -> None:
    ours = model()
    alone = ours(padded([SOURCES[1]]), padded([TARGETS[0]]))
    found = ours(padded([SOURCES[1], SOURCES[2]]), padded([[*TARGETS[0], 40, 41], TARGETS[1]]))
    torch.testing.assert_close(found[0, :3], alone[0], rtol=0, atol=1e-5)


def test_a_sentence_of_padding_alone_gives_numbers() -> None:
    with torch.no_grad():
        assert model()(padded([SOURCES[1], [0, 0]]), padded([TARGETS[0], TARGETS[1]])).isfinite().all()


def assert_equal_with_gradients(found: Tensor, expected: Tensor, inputs: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected)
    gradient = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, gradient), torch.autograd.grad(expected, inputs, gradient)
    )


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("width", [1, 7, 40])
def test_cpu_attention_and_its_gradient_equal_those_of_torch(width: int, scaled: bool) -> None:
    torch.manual_seed(0)
    shapes = [(3, 2, 5, 4), (3, 2, width, 4), (3, 2, width, 6)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    bias = torch.zeros(3, 1, 1, width, dtype=torch.float64).masked_fill(torch.rand(3, 1, 1, width) < 0.4, -torch.inf)
    bias[..., 0] = 0
    found = DotProduct(4, 0.0, scaled=scaled)(*inputs, bias)
    expected = F.scaled_dot_product_attention(*inputs, attn_mask=bias, scale=0.5 if scaled else 1)
    assert_equal_with_gradients(found, expected, inputs)


def test_attention_drops_weights_and_scales_the_others() -> None:
    torch.manual_seed(0)
    q, k, v = inputs = [torch.randn(3, 2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    torch.manual_seed(1)
    found = DotProduct(4, 0.3, scaled=True).train()(q, k, v)
    torch.manual_seed(1)
    keep, scale = random_mask(torch.Size((3, 2, 7, 7)), 0.3)
    assert_equal_with_gradients(found, ((q @ k.mT / 2).softmax(-1) * keep * scale) @ v, inputs)
    assert torch.equal(DotProduct(4, 0.3, scaled=True).eval()(q, k, v), DotProduct(4, 0.0, scaled=True)(q, k, v))


@pytest.mark.parametrize("keys", [5, 5000])
def test_dropout_without_gradients_is_dropout(keys: int) -> None:
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
    found = attended.unflatten(0, (len(lengths), width)).transpose(1, 2)
    visible = torch.zeros(len(lengths), 1, width, width, dtype=torch.bool)
    for b, length in enumerate(lengths):
        for i in range(length):
            visible[b, 0, i, list(neighbourhood(i, length, size, causal))] = True
    is_real = visible.any(-1).squeeze(1)
    # Padding attends to everything, because a softmax over nothing is not a number.
    expected = F.scaled_dot_product_attention(*inputs, attn_mask=visible | ~visible.any(-1, keepdim=True))
    assert_equal_with_gradients(found.transpose(1, 2)[is_real], expected.transpose(1, 2)[is_real], inputs)


@torch.no_grad()
def test_a_window_as_wide_as_the_sentences_changes_nothing() -> None:
    ids, real = (padded(SOURCES), padded(TARGETS)), padded(TARGETS) != 0
    found, expected = model(replace(SMALL, attention_window=9))(*ids), model()(*ids)
    torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)


def test_pre_norm_layers_equal_those_of_torch() -> None:
    config = replace(SMALL, norm="pre")
    ours = model(config)
    memory, padding = embedded(ours, SOURCES)
    for layer in ours.encoder:
        made = torch_encoder(layer)  # type: ignore[arg-type]
        made.norm_first = True
        memory = made(memory, src_key_padding_mask=padding)
    found = ours.encode(side(SOURCES).ids_F, side(SOURCES).layout).unflatten(0, (len(SOURCES), -1))
    torch.testing.assert_close(found[~padding], ours.encoder_norm(memory)[~padding], rtol=0, atol=1e-5)


def test_activation_dropout_applies_to_the_inner_layer() -> None:
    torch.manual_seed(0)
    config = replace(SMALL, d_model=8, d_ff=16, activation_dropout=0.5)
    layer, x = FeedForward(config).train(), torch.randn(5, 8)
    torch.manual_seed(1)
    found = layer(x)
    torch.manual_seed(1)
    keep, scale = random_mask(torch.Size((5, 16)), 0.5)
    torch.testing.assert_close(found, layer.outer(layer.inner(x).relu() * keep * scale))


def test_positions_beyond_the_learned_ones_are_refused() -> None:
    positions = LearnedPositions(8, 3)
    assert torch.equal(positions(torch.tensor([2, 0]), 3), positions.table[[2, 0]])
    with pytest.raises(NmtError, match="has 4 positions, but the model has learned 3"):
        positions(torch.tensor([3]), 4)


def test_cpu_attention_under_autocast_computes_in_fp32() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 7, 8).bfloat16().requires_grad_() for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = DotProduct(8, 0.0, scaled=True)(q, k, v)
    assert found.dtype == torch.bfloat16
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = F.scaled_dot_product_attention(*wide)
    torch.testing.assert_close(found.double(), expected, rtol=2**-8, atol=1e-6)  # rounded once, at the end
    gradient = torch.randn(3, 2, 7, 8).bfloat16()
    found_gradients = torch.autograd.grad(found, (q, k, v), gradient)
    expected_gradients = torch.autograd.grad(expected, wide, gradient.double())
    for a, b in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2**-8, atol=1e-4)


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


def test_positions_follow_the_formula_and_grow() -> None:
    torch.testing.assert_close(sinusoids(60, SIXTEEN).double(), formula_positions(60, 16), rtol=0, atol=1e-6)
    positions = SinusoidalPositions(SIXTEEN, length=4)
    found = positions(torch.tensor([50, 0]), 51)
    torch.testing.assert_close(found.double(), formula_positions(51, 16)[[50, 0]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_count_of_parameters_is_right(name: str) -> None:
    with torch.device("meta"):
        made = Transformer(ARCHITECTURES[name], 37_000, 37_000, shared=True)
    assert sum(p.numel() for p in made.parameters()) == parameters(ARCHITECTURES[name], 37_000)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_count_of_parameters_is_right_for_variants(variant: str) -> None:
    config = replace(SMALL, **VARIANTS[variant])
    assert sum(p.numel() for p in model(config).parameters()) == parameters(config, VOCABULARY)


def test_training_flops_equal_a_count_by_hand() -> None:
    """Each weight and token takes six operations: a multiplication and an addition, once forwards and twice backwards.

    Every source token also passes through the keys and values of the decoder's cross-attention.
    """
    config = replace(SMALL, encoder_layers=1, decoder_layers=1, d_model=4, d_ff=6, heads=1, d_k=4, d_v=4)
    attention, feed_forward, softmax = 4 * 16, 2 * 24, 10 * 4
    by_source_token = attention + feed_forward + attention // 2
    by_target_token = attention + attention // 2 + feed_forward + softmax
    assert training_flops(config, 10, 5, 7) == 6 * (5 * by_source_token + 7 * by_target_token)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_is_where_the_paper_puts_it(norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training pass equals one in float64 that follows the paper's formulas and uses the same masks.

    Dropout applies to the sums of embeddings and positions, and to the output of every sub-layer.
    """
    config = replace(SMALL, encoder_layers=1, decoder_layers=1, dropout=0.4, norm=norm)
    ours = model(config).train()
    masks: list[Tensor] = []

    def drawn(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
        assert probability == 0.4
        masks.append(torch.rand(shape) >= 0.4)
        return masks[-1], 1 / 0.6

    monkeypatch.setattr("nmt.model.dropout.random_mask", drawn)
    source, target = [5, 6, 7, 3], [2, 5, 6]
    found = decoded(ours, side([source]), side([target]))
    weights = {name: tensor.double() for name, tensor in ours.state_dict().items()}
    order = iter(masks)

    def dropped(x: Tensor) -> Tensor:
        return x * next(order) / 0.6

    def normed(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def sublayer(x: Tensor, name: str, function: Callable[[Tensor], Tensor]) -> Tensor:
        if norm == "pre":
            return x + dropped(function(normed(x, f"{name}_residual.norm")))
        return normed(x + dropped(function(x)), f"{name}_residual.norm")

    def attention(x: Tensor, memory: Tensor, joint: Tensor, output: Tensor, causal: bool) -> Tensor:
        query, key, value = joint.chunk(3)
        heads = []
        for h in range(4):
            q, k, v = (y @ part[8 * h : 8 * h + 8].T for y, part in ((x, query), (memory, key), (memory, value)))
            scores = q @ k.T / math.sqrt(8)
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf) if causal else scores
            heads.append(scores.softmax(-1) @ v)
        return torch.cat(heads, -1) @ output.T

    def own(name: str, causal: bool) -> Callable[[Tensor], Tensor]:
        joint, output = weights[f"{name}.query_key_value.weight"], weights[f"{name}.output.weight"]
        return lambda x: attention(x, x, joint, output, causal)

    def feed_forward(name: str) -> Callable[[Tensor], Tensor]:
        w1, b1, w2, b2 = (
            weights[f"{name}.{part}"] for part in ("inner.weight", "inner.bias", "outer.weight", "outer.bias")
        )
        return lambda x: (x @ w1.T + b1).clamp(min=0) @ w2.T + b2

    def embedded_tokens(tokens: list[int]) -> Tensor:
        return dropped(weights["target_embedding.weight"][tokens] * math.sqrt(32) + formula_positions(len(tokens), 32))

    x = sublayer(embedded_tokens(source), "encoder.0.self_attention", own("encoder.0.self_attention", False))
    memory = sublayer(x, "encoder.0.feed_forward", feed_forward("encoder.0.feed_forward"))
    memory = normed(memory, "encoder_norm") if norm == "pre" else memory
    y = sublayer(embedded_tokens(target), "decoder.0.self_attention", own("decoder.0.self_attention", True))
    name = "decoder.0.cross_attention"
    joint = torch.cat((weights[f"{name}.query.weight"], weights[f"{name}.key_value.weight"]))
    y = sublayer(y, name, lambda q: attention(q, memory, joint, weights[f"{name}.output.weight"], False))
    y = sublayer(y, "decoder.0.feed_forward", feed_forward("decoder.0.feed_forward"))
    y = normed(y, "decoder_norm") if norm == "pre" else y
    assert next(order, None) is None
    torch.testing.assert_close(found.double(), y, rtol=0, atol=1e-4)


def test_weights_are_initialised_with_the_right_distribution() -> None:
    """Matrices are uniform within ±√(6 / (inputs + outputs)). Embeddings are normal with variance 1 / d_model."""
    config = replace(SMALL, d_model=64, d_ff=256, learned_positions=300)
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
