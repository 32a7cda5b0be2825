"""Exports a checkpoint in the ONNX format, for ONNX Runtime and transformers.js.

The exported folder has the layout of the MarianMT models that `optimum` exports: `onnx/encoder_model.onnx` and
three forms of the decoder. `decoder_model` computes the first positions, `decoder_with_past_model` the others, and
`decoder_model_merged` does both. The export needs the packages `onnx` and `onnxruntime`.

Shapes: B sentences, S source and T target positions of a call, P target positions of earlier calls, D d_model, H
heads, K d_k, V target vocabulary.
"""

import errno
import logging
import os
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.checkpoint import Checkpoint, build_model
from nmt.config import Facts
from nmt.errors import NmtError, importing
from nmt.files import new_folder
from nmt.interop.conversion import POSITIONS, check_supported
from nmt.interop.huggingface import marian_files
from nmt.interop.huggingface_text import FAST_TOKENIZER, check_text
from nmt.interop.model_card import onnx_card
from nmt.interop.sentencepiece_model import tokenizer_json
from nmt.model.transformer import sinusoids
from nmt.text.subword import BOS, EOS, PAD

with importing("onnx", "nmt export onnx or web", extra="onnx"):
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import TensorProto, helper, numpy_helper

GRAPHS = "onnx"
ENCODER, FIRST, LATER, MERGED = "encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged"
# Whether a decoder can do the first call for a sentence, and whether it can do the later ones.
_DECODERS = {FIRST: (True, False), LATER: (False, True), MERGED: (True, True)}
# The name of a quantised graph is that of the graph in fp32 with this ending, which is what transformers.js opens.
QUANTIZED = "_quantized"
_SOURCE = "batch_size", "encoder_sequence_length"  # the shape of source ids
_HIDDEN = -1e9  # is added to the scores of positions that attention must not see
# The greatest difference between the logits of the model and those of an exported graph in fp32.
_TOLERANCE = 1e-3
# The greatest mean divergence between the probabilities of the model and those of a graph in int8, in nats a
# piece. A transformer_tiny trained on Multi30k has 0.002.
_MOST_DIVERGENCE = 0.1
# The most bytes of weights in the file of a graph, which must be below 2 GiB. More weights are in a file beside it.
_MOST_BYTES = 2_000_000_000


def export_onnx(checkpoint: Checkpoint, origin: str, output: str, facts: Facts) -> None:
    """Writes the folder `output`: all graphs in fp32 and in int8, the settings, and the tokenizer."""
    check_exportable(checkpoint, origin, "nmt export onnx")
    with new_folder(output, "--output") as folder:
        write_model(checkpoint, origin, folder, _DECODERS)
        files = [file for name in (ENCODER, MERGED) for file in (folder / GRAPHS).glob(f"{name}.onnx*")]
        sizes = [file.stat().st_size for file in files]
        (folder / "README.md").write_text(onnx_card(checkpoint, origin, facts, sum(sizes)), encoding="utf-8")


def check_exportable(checkpoint: Checkpoint, origin: str, form: str) -> None:
    """Raises an error unless the graphs and the tokenizer can hold the model; `form` is the command, for messages."""
    check_text(checkpoint.codec, origin, form)
    check_supported(checkpoint.model_config, origin, form, ["norm", "sinusoids"])
    if not checkpoint.codec.config.joint_vocab:
        vocabularies = f"{form} has one vocabulary for both languages, but {origin} has two"
        raise NmtError(f"{vocabularies}; translate with nmt generate")


def write_model(checkpoint: Checkpoint, origin: str, folder: Path, decoders: Collection[str]) -> None:
    """Writes the settings, the tokenizer, and `onnx/NAME.onnx` and `onnx/NAME_quantized.onnx` for each graph.

    The graphs are the encoder and the decoders with these names. Weights that are too large for the file of a
    graph are in `onnx/NAME.onnx_data`.

    Raises:
        NmtError: the graphs in int8 would translate badly.
    """
    files = marian_files(checkpoint.model_config, checkpoint.codec)
    for name, content in (files | {FAST_TOKENIZER: tokenizer_json(checkpoint.codec)}).items():
        (folder / name).write_bytes(content)
    # Imported here, because onnxruntime starts threads when it is imported.
    with importing("onnxruntime", "nmt export onnx or web", extra="onnx"):
        from onnxruntime import InferenceSession
        from onnxruntime.quantization import QuantType, quantize_dynamic

    graphs = folder / GRAPHS
    graphs.mkdir()
    sizes: dict[str, int] = {}
    for name in (ENCODER, *decoders):
        graph = _encoder(checkpoint) if name == ENCODER else _decoder(checkpoint, *_DECODERS[name])
        sizes[name] = sum(constant.nbytes for constant in graph.constants.values())
        is_large, data = sizes[name] > _MOST_BYTES, f"{name}.onnx_data"
        onnx.save(graph.model(), graphs / f"{name}.onnx", save_as_external_data=is_large, location=data)
        if is_large:  # onnx lets only the user read this file
            (graphs / data).chmod((graphs / f"{name}.onnx").stat().st_mode)
    logging.disable(logging.WARNING)  # onnxruntime recommends optimisations that change nothing here
    try:
        for name, size in sizes.items():
            # Processors without VNNI instructions add two products of 8-bit numbers in 16 bits. With weights of 7
            # bits (`reduce_range`), the sum does not overflow.
            options = {"weight_type": QuantType.QInt8, "per_channel": True, "reduce_range": True}
            options["use_external_data_format"] = size // 4 > _MOST_BYTES
            quantize_dynamic(graphs / f"{name}.onnx", graphs / f"{name}{QUANTIZED}.onnx", **options)
    except DecodeError as error:  # onnx writes a copy of each graph, ignores a full disk, and cannot read the copy
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
    finally:
        logging.disable(logging.NOTSET)
    _check(checkpoint, origin, decoders, cache(lambda name: InferenceSession(graphs / f"{name}.onnx")))


def _check(checkpoint: Checkpoint, origin: str, decoders: Collection[str], load: Callable[[str], Any]) -> None:
    """Raises an error unless the graphs, which `load` returns, compute what the model does for random pieces."""
    random, codec = torch.Generator().manual_seed(0), checkpoint.codec
    source = torch.randint(EOS + 1, len(codec.source), (8, 6), generator=random)
    source[0, 5], source[1:, 3:] = EOS, torch.tensor([EOS, PAD, PAD])
    target = torch.randint(EOS + 1, len(codec.target), (8, 8), generator=random)
    target[:, 0] = BOS
    with torch.no_grad():
        expected_BTV = build_model(checkpoint, origin)(source, target)
    log_p = expected_BTV.log_softmax(-1)
    for pair in ((FIRST, LATER), (MERGED, MERGED)):
        if pair[0] in decoders:
            exact_BTV, quantized_BTV = (
                _logits(load(ENCODER + ending), [load(name + ending) for name in pair], source.numpy(), target.numpy())
                for ending in ("", QUANTIZED)
            )
            difference = (exact_BTV - expected_BTV).abs().max().item()
            if not difference < _TOLERANCE:
                raise RuntimeError(f"the logits of {' and '.join(pair)} differ by {difference} from those of the model")
            log_q = quantized_BTV.log_softmax(-1)
            divergence = (log_p.exp() * (log_p - log_q)).sum(-1).mean().item()  # Kullback-Leibler, in nats
            if not divergence < _MOST_DIVERGENCE:
                why = f"its probabilities would diverge by {divergence:.2g} nats a piece"
                advice = f"and at most {_MOST_DIVERGENCE} are allowed; use nmt export ctranslate2 or huggingface"
                raise NmtError(f"{origin} would translate badly in int8: {why}, {advice}")


def _logits(encoder: Any, decoders: Sequence[Any], source: np.ndarray, target: np.ndarray) -> Tensor:
    """Returns the logits BTV of targets. The first decoder computes the first half, and the second one the rest."""
    mask = (source != PAD).astype(np.int64)
    (encoded,) = encoder.run(None, {"input_ids": source, "attention_mask": mask})
    values = {"encoder_hidden_states": encoded, "encoder_attention_mask": mask}
    logits = []
    for decoder, ids, cached in zip(decoders, np.split(target, 2, axis=1), (False, True), strict=True):
        values |= {"input_ids": ids, "use_cache_branch": np.array([cached])}
        inputs = {}
        for declared in decoder.get_inputs():
            _, heads, _, d_k = declared.shape if declared.name not in values else (0, 0, 0, 0)
            inputs[declared.name] = values.get(declared.name, np.zeros((len(ids), heads, 0, d_k), np.float32))
        outputs = dict(zip((output.name for output in decoder.get_outputs()), decoder.run(None, inputs), strict=True))
        logits.append(outputs.pop("logits"))
        values |= {name.replace("present", "past_key_values"): value for name, value in outputs.items()}
    return torch.from_numpy(np.concatenate(logits, axis=1))


class _Graph:
    """The nodes of an ONNX graph; a decoder that is called `later` takes the keys and values of earlier calls.

    Methods return the names of the values that their nodes compute.
    """

    def __init__(self, checkpoint: Checkpoint, later: bool = False) -> None:
        self.config, self.weights = checkpoint.model_config, {n: w.float() for n, w in checkpoint.weights.items()}
        self.is_pre, self.later = self.config.norm == "pre", later
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def model(self) -> Any:
        """Returns the graph with its inputs and outputs, as an `onnx.ModelProto`."""
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "transformer", self.inputs, self.outputs, constants)
        return helper.make_model(graph, producer_name="nmt", opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def declare(self, declared: list[Any], name: str, kind: int, *shape: int | str) -> str:
        """Adds an input or an output with a shape of numbers and names."""
        declared.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def op(self, kind: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Adds a node with one output, which gets a new name if none is given."""
        output = name or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], output, **attributes))
        return output

    def constant(self, value: float | list[int]) -> str:
        """Adds a small array; equal ones are one constant."""
        array = np.asarray(value, np.float32 if isinstance(value, float) else np.int64)
        name = f"{array.dtype}_{array.tolist()}"
        self.constants[name] = array
        return name

    def weight(self, name: str, array: Tensor | None = None) -> str:
        """Adds a weight of the checkpoint, or another array with its name."""
        self.constants[name] = np.ascontiguousarray((self.weights[name] if array is None else array).numpy())
        return name

    def linear(self, x: str, name: str) -> str:
        """Returns the product of x and the transposed weight, plus the bias if there is one."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", self.weights[f"{name}.weight"].T))
        return self.op("Add", product, self.weight(f"{name}.bias")) if f"{name}.bias" in self.weights else product

    def norm(self, x: str, name: str) -> str:
        """Returns LayerNorm(x)."""
        scale, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def residual(self, x: str, name: str, sublayer: Callable[[str, str], str]) -> str:
        """Returns x plus the output of a sublayer, with the LayerNorm before the sublayer or after the sum."""
        norm = f"{name}_residual.norm"
        sums = self.op("Add", x, sublayer(self.norm(x, norm) if self.is_pre else x, name))
        return sums if self.is_pre else self.norm(sums, norm)

    def size(self, x: str, axis: int) -> str:
        """Returns the size of an axis, as an array of one number."""
        return self.op("Shape", x, start=axis, end=axis + 1)

    def embed(self, pieces: str, first: str, end: str) -> str:
        """Returns the scaled embedding of pieces plus the encodings of the positions from `first` to before `end`."""
        encodings = self.weight("positions", sinusoids(POSITIONS, self.config))
        positions = self.op("Slice", encodings, first, end, self.constant([0]))
        return self.op("Add", self.op("Mul", pieces, self.constant(self.config.d_model**0.5)), positions)

    def feed_forward(self, x: str, name: str) -> str:
        """Returns the output of a feed-forward sublayer."""
        inner = self.linear(x, f"{name}.inner")
        if self.config.activation == "relu":
            inner = self.op("Relu", inner)
        elif self.config.activation == "swish":
            inner = self.op("Mul", inner, self.op("Sigmoid", inner))
        else:
            erf = self.op("Erf", self.op("Mul", inner, self.constant(0.5**0.5)))
            share = self.op("Mul", self.op("Add", erf, self.constant(1.0)), self.constant(0.5))
            inner = self.op("Mul", inner, share)
        return self.linear(inner, f"{name}.outer")

    def by_head(self, x: str, projections: int) -> list[str]:
        """Returns the projections BHTK in a joint product, whose columns have the order projection, head, K."""
        c = self.config
        shape = self.constant([0, 0, projections * c.heads, c.d_k])
        heads = self.op("Transpose", self.op("Reshape", x, shape), perm=[0, 2, 1, 3])
        if projections == 1:
            return [heads]
        ends = [self.constant([i * c.heads]) for i in range(projections + 1)]
        return [self.op("Slice", heads, *bounds, self.constant([1])) for bounds in pairwise(ends)]

    def attention(self, x: str, name: str, mask: str, encoded: str | None = None) -> str:
        """Returns the output of attention to x or to the encoder output, with a mask of numbers to add to the scores.

        Args:
            encoded: the encoder output, empty if its keys and values are only given; None for self-attention.
        """
        if encoded is None:
            q, k, v = self.by_head(self.linear(x, f"{name}.query_key_value"), 3)
        else:
            (q,) = self.by_head(self.linear(x, f"{name}.query"), 1)
            k, v = self.by_head(self.linear(encoded, f"{name}.key_value"), 2) if encoded else ("", "")
        if name.startswith("decoder"):
            k, v = (self.cached(name, kind, new) for kind, new in (("key", k), ("value", v)))
        scaled = self.op("Mul", q, self.constant(self.config.d_k**-0.5))
        scores = self.op("MatMul", scaled, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        attended = self.op("MatMul", self.op("Softmax", self.op("Add", scores, mask), axis=-1), v)
        joined = self.op("Reshape", self.op("Transpose", attended, perm=[0, 2, 1, 3]), self.constant([0, 0, -1]))
        return self.linear(joined, f"{name}.output")

    def cached(self, name: str, kind: str, new: str) -> str:
        """Returns earlier and new keys or values BHSK, and makes them an output; without `new`, the earlier ones."""
        _, layer, sublayer = name.split(".")
        stack, length = "decoder", "{}_decoder_sequence_length"
        if sublayer == "cross_attention":
            stack, length = "encoder", "encoder_sequence_length_{}"
        name, past, heads, d_k = f"{layer}.{stack}.{kind}", "", self.config.heads, self.config.d_k
        if self.later:
            shape = "batch_size", heads, length.format("past"), d_k
            past = self.declare(self.inputs, f"past_key_values.{name}", TensorProto.FLOAT, *shape)
        if not new:
            return past
        shape = "batch_size", heads, length.format("present"), d_k
        present = self.declare(self.outputs, f"present.{name}", TensorProto.FLOAT, *shape)
        return self.op("Concat", past, new, axis=2, name=present) if past else self.op("Identity", new, name=present)

    def source_mask(self, name: str) -> str:
        """Declares the input with 1 for source positions and 0 for padding; returns the mask B11S to add."""
        visible = self.declare(self.inputs, name, TensorProto.INT64, *_SOURCE)
        padding = self.op("Sub", self.constant(1.0), self.op("Cast", visible, to=TensorProto.FLOAT))
        return self.op("Unsqueeze", self.op("Mul", padding, self.constant(_HIDDEN)), self.constant([1, 2]))

    def encoder_output(self) -> str:
        """Declares the encoder output; returns it, or no positions of it if its keys and values are given."""
        shape = *_SOURCE, self.config.d_model
        encoded = self.declare(self.inputs, "encoder_hidden_states", TensorProto.FLOAT, *shape)
        if not self.later:
            return encoded
        cached = self.declare(self.inputs, "use_cache_branch", TensorProto.BOOL, 1)
        needed = self.op("Mul", self.op("Cast", self.op("Not", cached), to=TensorProto.INT64), self.size(encoded, 1))
        return self.op("Slice", encoded, self.constant([0]), needed, self.constant([1]))

    def causal_mask(self, earlier: str, end: str) -> str:
        """Returns the mask, T × (P + T), that hides from each position those after it."""
        zero, step = self.constant(0), self.constant(1)
        first, last = (self.op("Squeeze", x) for x in (earlier, end))
        rows = self.op("Unsqueeze", self.op("Range", first, last, step), self.constant([1]))
        hidden = self.op("Greater", self.op("Range", zero, last, step), rows)
        return self.op("Where", hidden, self.constant(_HIDDEN), self.constant(0.0))


def _encoder(checkpoint: Checkpoint) -> _Graph:
    """Returns the graph from source ids BS to the encoder output BSD."""
    graph = _Graph(checkpoint)
    ids = graph.declare(graph.inputs, "input_ids", TensorProto.INT64, *_SOURCE)
    mask = graph.source_mask("attention_mask")
    shared = "source_embedding.weight" not in graph.weights
    embedding = graph.weight(f"{'target' if shared else 'source'}_embedding.weight")
    x = graph.embed(graph.op("Gather", embedding, ids), graph.constant([0]), graph.size(ids, 1))
    for i in range(graph.config.encoder_layers):
        x = graph.residual(x, f"encoder.{i}.self_attention", partial(graph.attention, mask=mask))
        x = graph.residual(x, f"encoder.{i}.feed_forward", graph.feed_forward)
    graph.op("Identity", graph.norm(x, "encoder_norm") if graph.is_pre else x, name="last_hidden_state")
    graph.declare(graph.outputs, "last_hidden_state", TensorProto.FLOAT, *_SOURCE, graph.config.d_model)
    return graph


def _decoder(checkpoint: Checkpoint, first: bool, later: bool) -> _Graph:
    """Returns a graph from target ids BT to logits BTV and the keys and values for the next call.

    Args:
        first: whether it can compute the keys and values of the encoder output, which the first call needs.
        later: whether it takes keys and values of earlier calls.
    """
    graph, target = _Graph(checkpoint, later), ("batch_size", "decoder_sequence_length")
    embedding_VD = graph.weights["target_embedding.weight"]
    ids = graph.declare(graph.inputs, "input_ids", TensorProto.INT64, *target)
    graph.declare(graph.outputs, "logits", TensorProto.FLOAT, *target, len(embedding_VD))
    mask, encoded = graph.source_mask("encoder_attention_mask"), graph.encoder_output() if first else ""
    earlier = graph.size("past_key_values.0.decoder.key", 2) if later else graph.constant([0])
    end = graph.op("Add", earlier, graph.size(ids, 1))
    self_attention = partial(graph.attention, mask=graph.causal_mask(earlier, end))
    softmax_DV = graph.weight("target_embedding.weight", embedding_VD.T)
    pieces = graph.op("Transpose", graph.op("Gather", softmax_DV, ids, axis=1), perm=[1, 2, 0])
    if graph.config.sinusoids == "marian":  # which begins a target with a vector of zeros
        is_bos = graph.op("Unsqueeze", graph.op("Equal", ids, graph.constant(BOS)), graph.constant([2]))
        pieces = graph.op("Where", is_bos, graph.constant(0.0), pieces)
    x = graph.embed(pieces, earlier, end)
    for i in range(graph.config.decoder_layers):
        x = graph.residual(x, f"decoder.{i}.self_attention", self_attention)
        x = graph.residual(x, f"decoder.{i}.cross_attention", partial(graph.attention, mask=mask, encoded=encoded))
        x = graph.residual(x, f"decoder.{i}.feed_forward", graph.feed_forward)
    logits = graph.op("MatMul", graph.norm(x, "decoder_norm") if graph.is_pre else x, softmax_DV)
    if graph.config.output_bias:
        logits = graph.op("Add", logits, graph.weight("output_bias"))
    graph.op("Identity", logits, name="logits")
    return graph
