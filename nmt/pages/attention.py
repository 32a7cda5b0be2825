"""The attention weights of a sentence pair, as numbers, as data for a page, and as a picture (paper's appendix).

Shapes: see docs/architecture.md; Q queries, S keys, F flat positions of queries and G of keys, L layers, H heads.
"""

import base64
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nmt.config import RuntimeConfig, SearchConfig
from nmt.decoding.translator import Translator
from nmt.errors import NmtError
from nmt.model.attention import attend
from nmt.model.transformer import MultiHeadAttention, Transformer
from nmt.text.subword import BOS, EOS

Kind = Literal["encoder", "decoder", "cross"]

_LONGEST = 200  # pieces of a side; more make no picture
_ROW, _COLUMN, _GAP, _MARGIN = 20, 150, 260, 26  # pixels in the static picture


@dataclass(frozen=True)
class Attention:
    """One kind of attention in all layers and heads.

    Attributes:
        queries, keys: the pieces.
        weights_LHQS: every row sums to 1.
    """

    queries: list[str]
    keys: list[str]
    weights_LHQS: Tensor


@torch.no_grad()
def attention_of(checkpoint: str, source: str, target: str | None) -> dict[Kind, Attention]:
    """What the model attends to when it reads raw text `source` and writes raw text `target`, or its own translation.

    Computed in fp32 on the CPU. The queries of decoder self-attention are the pieces the decoder has read, and those of
    attention over the source the pieces it is about to write, one position later.

    Raises:
        NmtError: the checkpoint cannot be read, or a side has no pieces or too many.
    """
    translator = Translator.load(checkpoint, runtime=RuntimeConfig(device="cpu", precision="fp32"))
    codec, (model,) = translator.codec, translator.models
    (source_ids,) = codec.encode_source([source])
    _check(source_ids, "--source")
    if target is None:
        room = (model.config.learned_positions or math.inf) - _LONGEST - 1
        search = SearchConfig(max_source_length=_LONGEST, max_length_offset=int(max(0, min(50, room))))
        ((best, *_),) = translator.hypotheses([source], search)
        target_ids = codec.target.ids(best.pieces)
    else:
        (target_ids,) = codec.encode_target([target])
    _check(target_ids, "--target" if target is not None else "the translation")
    written = [*target_ids, EOS]
    with _recording(model) as recorded:
        model(torch.tensor([[*source_ids, EOS]]), torch.tensor([[BOS, *target_ids]]))
    sources, labels = codec.source.pieces([*source_ids, EOS]), codec.target.pieces(written)
    inputs = codec.target.pieces([BOS, *target_ids])
    return {
        "encoder": Attention(sources, sources, _stacked(recorded, model.encoder, "self_attention")),
        "decoder": Attention(inputs, inputs, _stacked(recorded, model.decoder, "self_attention")),
        "cross": Attention(labels, sources, _stacked(recorded, model.decoder, "cross_attention")),
    }


def _check(ids: list[int], what: str) -> None:
    if not 0 < len(ids) <= _LONGEST:
        raise NmtError(f"{what} has {len(ids):,} pieces, but 1 to {_LONGEST} can be drawn; give another sentence")


@contextmanager
def _recording(model: Transformer) -> Iterator[dict[nn.Module, Tensor]]:
    """Fills a dict with the weights HQS of every attention that is computed within, of one sentence.

    They come out of the very computation the model makes, as attention over values that are the identity matrix.
    """
    recorded: dict[nn.Module, Tensor] = {}

    def record(module: nn.Module, inputs: tuple[Any, ...], _: Tensor) -> None:
        assert isinstance(module, MultiHeadAttention)
        x_FD, encoded_ND, mask = inputs
        q_FHK, k_GHK, _ = module.projections(x_FD, encoded_ND)
        identity_GHG = torch.eye(len(k_GHK))[:, None].expand(-1, module.heads, -1)
        recorded[module] = attend(q_FHK, k_GHK, identity_GHG, mask, module.function).transpose(0, 1)

    hooks = [m.register_forward_hook(record) for m in model.modules() if isinstance(m, MultiHeadAttention)]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def _stacked(recorded: dict[nn.Module, Tensor], layers: nn.ModuleList, name: str) -> Tensor:
    return torch.stack([recorded[getattr(layer, name)] for layer in layers])


def page_data(found: dict[Kind, Attention]) -> dict[str, Any]:
    """The data of the page: the weights of every kind as base64 of little-endian float32, in the order LHQS."""
    return {
        kind: {
            "queries": attention.queries,
            "keys": attention.keys,
            "layers": attention.weights_LHQS.shape[0],
            "heads": attention.weights_LHQS.shape[1],
            "weights": base64.b64encode(attention.weights_LHQS.numpy().astype("<f4").tobytes()).decode(),
        }
        for kind, attention in found.items()
    }


def head_as_svg(attention: Attention, layer: int, head: int) -> str:
    """One head as an SVG picture: queries to the left, keys to the right, the thicker a line the larger its weight.

    Raises:
        NmtError: there is no such layer or head; both are counted from 1.
    """
    layers, heads, _, _ = attention.weights_LHQS.shape
    for flag, number, most in (("--layer", layer, layers), ("--head", head, heads)):
        if not 1 <= number <= most:
            raise NmtError(f"{flag} must be 1 to {most}, but is {number}")
    weights_QS = attention.weights_LHQS[layer - 1, head - 1].tolist()
    height = 2 * _MARGIN + _ROW * max(len(attention.queries), len(attention.keys))
    left, right = _COLUMN, _COLUMN + _GAP

    def y(position: int) -> int:
        return _MARGIN + _ROW * position

    lines = [
        f'<line x1="{left}" y1="{y(n)}" x2="{right}" y2="{y(k)}" stroke-opacity="{weight:.3f}"/>'
        for n, row in enumerate(weights_QS)
        for k, weight in enumerate(row)
        if weight >= 0.005
    ]
    texts = [
        f'<text x="{x}" y="{y(i) + 5}" text-anchor="{anchor}">{escape(piece)}</text>'
        for x, anchor, pieces in ((left - 8, "end", attention.queries), (right + 8, "start", attention.keys))
        for i, piece in enumerate(pieces)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * _COLUMN + _GAP} {height}" '
            f'width="{2 * _COLUMN + _GAP}" height="{height}">',
            f'<rect width="{2 * _COLUMN + _GAP}" height="{height}" fill="white"/>',
            '<g stroke="#2f5fd0" stroke-width="2">',
            *lines,
            '</g>\n<g font-family="sans-serif" font-size="14">',
            *texts,
            "</g>\n</svg>\n",
        ]
    )
