"""Computes the attention weights of a sentence pair and draws them, as in the paper's appendix."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nmt.config import RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.model.attention import recording
from nmt.model.transformer import MultiHeadAttention
from nmt.text.directions import Direction
from nmt.text.subword import with_bos, with_eos
from nmt.translate.encoding import WIDTH_MULTIPLE
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.translator import Translator
from nmt.translate.units import Unit

Kind = Literal["encoder", "decoder", "cross"]

_LONGEST = 200  # pieces on either side; a drawing of more is unreadable
_FIELDS = "name", "query_side", "key_side", "about"
_ABOUT_CROSS = "Each piece of the translation is predicted with attention to the source pieces."
_ABOUT_DECODER = "Each piece that the decoder reads attends to itself and to the pieces before it."
# What the page calls each kind of attention, in the order of the choices on the page.
_KINDS: dict[Kind, tuple[str, str, str, str]] = {
    "cross": ("Cross-attention", "translation, predicted", "source", _ABOUT_CROSS),
    "encoder": ("Encoder self-attention", "source", "source", "Each source piece attends to all source pieces."),
    "decoder": ("Decoder self-attention", "translation, as read", "translation", _ABOUT_DECODER),
}


@dataclass(frozen=True)
class Attention:
    """The weights of one kind of attention in all layers and heads.

    Attributes:
        queries, keys: the pieces at the positions of the queries and keys.
        weights_LHQS: the attention weights; for every query, the weights of all keys sum to 1.
    """

    queries: list[str]
    keys: list[str]
    weights_LHQS: Tensor


Attentions = dict[Kind, Attention]


def attention_of(checkpoint: str, source: str, target: str | None, direction: Direction | None = None) -> Attentions:
    """Returns the attention weights of a checkpoint's model on a sentence pair, computed in fp32 on the CPU."""
    engine = PyTorchEngine.load(checkpoint, runtime=RuntimeConfig(device="cpu", precision="fp32"))
    return attention_in(engine, source, target, direction)


@torch.no_grad()
def attention_in(engine: PyTorchEngine, source: str, target: str | None, direction: Direction | None) -> Attentions:
    """Returns the attention weights of a loaded model on a sentence pair of a direction.

    In decoder self-attention, the queries are labelled with the pieces that the decoder reads. In cross-attention,
    they are labelled with the pieces that it predicts, which are one position later.
    """
    codec, (model,) = engine.codec.directed(direction), engine.models
    (source_ids,) = codec.encode_source([source])
    _check(source_ids, "--source")
    if target is None:
        # Learned positions may not allow the usual lengths.
        positions = model.config.learned_positions or 2 * _LONGEST
        longest = min(_LONGEST, positions - WIDTH_MULTIPLE)
        offset = max(0, min(SearchConfig.max_length_offset, positions - longest - 1))
        search = SearchConfig(max_source_length=longest, max_length_offset=offset)
        ((best, *_),) = Translator(engine).hypotheses([Unit(source, direction=codec.direction)], search)
        target_ids = codec.target.ids(best.pieces)
    else:
        (target_ids,) = codec.encode_target([codec.config.cased_for(source, target)])
    _check(target_ids, "--target" if target is not None else "the translation")
    before, behind = codec.language_tokens(codec.direction)
    source_ids, target_ids = [*before, *source_ids, *behind], [*codec.given_ids(codec.direction), *target_ids]
    device, attentions = engine.runtime.device, [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    with torch.autocast(device.type, enabled=False), recording(attentions) as recorded:
        model(*(torch.from_numpy(ids)[None].to(device) for ids in (with_eos(source_ids), with_bos(target_ids))))
    sources = codec.source.pieces(with_eos(source_ids).tolist())
    inputs = codec.target.pieces(with_bos(target_ids).tolist())
    predictions = codec.target.pieces(with_eos(target_ids).tolist())
    drawn: Attentions = {
        "encoder": Attention(sources, sources, _stacked(recorded, model.encoder, "self_attention")),
        "cross": Attention(predictions, sources, _stacked(recorded, model.decoder, "cross_attention")),
    }
    if model.config.decoder == "attention":
        drawn["decoder"] = Attention(inputs, inputs, _stacked(recorded, model.decoder, "self_attention"))
    return drawn


def _check(ids: list[int], what: str) -> None:
    if not 0 < len(ids) <= _LONGEST:
        raise NmtError(f"{what} has {len(ids):,} pieces, but 1 to {_LONGEST} can be drawn; give another sentence")


def _stacked(recorded: dict[nn.Module, Tensor], layers: nn.ModuleList, name: str) -> Tensor:
    return torch.cat([recorded[getattr(layer, name)] for layer in layers]).float().cpu()  # of one sentence


def page_data(attentions: Attentions) -> dict[str, Any]:
    """Returns the data of the page as JSON values; weights are base64 of little-endian float32 in the order LHQS."""
    kinds = {}
    for name, names in _KINDS.items():
        if name not in attentions:  # the decoder has an SSRU
            continue
        attention, (layers, heads, _, _) = attentions[name], attentions[name].weights_LHQS.shape
        weights = base64.b64encode(attention.weights_LHQS.numpy().astype("<f4").tobytes()).decode()
        pieces = {"queries": attention.queries, "keys": attention.keys}
        fields = dict(zip(_FIELDS, names, strict=True))
        kinds[name] = {**fields, **pieces, "layers": layers, "heads": heads, "weights": weights}
    return {"kinds": kinds, "shown": {"kind": "cross", "layer": kinds["cross"]["layers"], "head": 1}}
