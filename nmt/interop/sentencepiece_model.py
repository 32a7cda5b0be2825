"""Changes sentencepiece models, and converts them from and to tokenizer.json.

That is the format of the `tokenizers` library, which transformers.js reads too. It gives the ids of the codec for
sentencepiece models of the kind bpe. A model of the kind unigram cannot spell characters without a piece in
transformers.js, which gives them the unknown piece. An imported MarianMT model has one vocabulary for two
sentencepiece models. Its scores are those of the source model.
"""

import base64
import json
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from nmt.errors import NmtError, importing
from nmt.text.codec import TextCodec
from nmt.text.subword import EOS, UNK, processor_of
from nmt.text.words import SPACE

SENTENCEPIECE_MODEL = "sentencepiece.bpe.model"  # the file of a BPE model in a folder that may have tokenizer.json
_NORMAL, _UNKNOWN, CONTROL = 1, 2, 3  # types of pieces
_BPE = 2  # the type of a model
# Added pieces are never split. Decoding drops special pieces.
_ADDED = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
# The steps from pieces to text: ▁ becomes a space, and bytes become characters.
_DECODERS = [
    {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]  # fmt: skip


def needed_pieces(model: bytes, lines: Iterable[str]) -> set[str]:
    """Returns the pieces by which lines are segmented as now: theirs, those they are merged of, and all characters."""
    processor = processor_of(model)
    scores = scores_of(processor)
    needed = {piece for piece in scores if len(piece) == 1}
    pieces = {piece for line in lines for piece in processor.encode(line, out_type=str)}
    for piece in pieces & scores.keys():
        needed |= merge(list(piece), scores)
    return needed


def scores_of(processor: Any) -> dict[str, float]:
    """Returns the score of each piece of text, by which sentencepiece merges."""
    kinds = processor.is_control, processor.is_unknown, processor.is_byte
    ids = (i for i in range(len(processor)) if not any(is_kind(i) for is_kind in kinds))
    return {processor.id_to_piece(i): processor.get_score(i) for i in ids}


def merge(parts: list[str], scores: Mapping[str, float]) -> set[str]:
    """Merges adjacent pieces in place, the best union first, as sentencepiece does. Returns the unions."""
    merged = set()
    while unions := [(scores[x + y], -i) for i, (x, y) in enumerate(pairwise(parts)) if x + y in scores]:
        i = -max(unions)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        merged.add(parts[i])
    return merged


def changed(
    model: bytes, kept: Collection[str] | None = None, more: Iterable[str] = (), control: Iterable[str] = ()
) -> bytes:
    """Returns a sentencepiece model with some of the pieces of a model, and more, which are merged after all others.

    Args:
        kept: the pieces to keep, besides the special ones; None for all.
        control: pieces that no text has, and that are dropped from decoded text.
    """
    proto = protobuf().ModelProto.FromString(model)
    pieces = [each for each in proto.pieces if kept is None or each.type != _NORMAL or each.piece in kept]
    last, names = min(piece.score for piece in pieces), {piece.piece for piece in pieces}
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    for rank, piece in enumerate(more, start=1):
        proto.pieces.add(piece=piece, score=last - rank, type=_NORMAL)
    for piece in control:
        if piece not in names:
            proto.pieces.add(piece=piece, type=CONTROL)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return bytes(proto.SerializeToString())


def protobuf() -> Any:
    """Returns the module that reads and writes models of sentencepiece, which needs the package protobuf."""
    with importing("protobuf", "a change of a sentencepiece model", extra="huggingface"):
        from sentencepiece import sentencepiece_model_pb2
    return sentencepiece_model_pb2


def from_tokenizer_json(tokenizer: Mapping[str, Any], origin: Path) -> bytes:
    """Returns the sentencepiece model that segments as the BPE model of a tokenizer.json.

    sentencepiece merges the adjacent pieces whose union has the best score, so the score of a piece is the rank of
    the merges that make it.
    """
    model, special = tokenizer["model"], {"<unk>": _UNKNOWN, "<s>": CONTROL, "</s>": CONTROL}
    vocabulary: dict[str, int] = model["vocab"]
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    merged = [union for union, _ in groupby(left + right for left, right in merges)]
    added = {token["content"] for token in tokenizer["added_tokens"]} | special.keys()
    ranked = dict.fromkeys([*merged, *sorted(vocabulary, key=lambda piece: vocabulary[piece])])
    pieces = [piece for piece in ranked if piece not in added]
    splits = ((piece[:i], piece[i:]) for piece in pieces for i in range(1, len(piece)))
    possible = sum(left in vocabulary and right in vocabulary for left, right in splits)
    if model.get("type") != "BPE" or len(set(merged)) < len(merged) or possible != len(set(merges)):
        raise NmtError(f"{origin} does not merge pieces as sentencepiece does; add the model's {SENTENCEPIECE_MODEL}")
    steps = tokenizer["normalizer"] or {}
    steps = [step for step in steps.get("normalizers", [steps]) if step.get("type") not in (None, "Replace", "Strip")]
    if others := [step["type"] for step in steps if step["type"] != "Precompiled"]:
        raise NmtError(f"{origin} normalises text with {others[0]}; add the model's {SENTENCEPIECE_MODEL}")
    rules = [base64.b64decode(step["precompiled_charsmap"], validate=True) for step in steps]
    proto = protobuf().ModelProto()
    proto.trainer_spec.model_type = _BPE
    proto.normalizer_spec.precompiled_charsmap = b"".join(rules)
    for piece, kind in special.items():
        proto.pieces.add(piece=piece, score=0, type=kind)
    for rank, piece in enumerate(pieces):
        proto.pieces.add(piece=piece, score=-rank, type=_NORMAL)
    return bytes(proto.SerializeToString())


def tokenizer_json(codec: TextCodec) -> bytes:
    """Returns the file for a codec whose languages share a vocabulary."""
    pieces, source = codec.source.vocabulary, codec.source.model
    scores = scores_of(processor_of(source))
    if codec.config.subword == "bpe":
        model = _bpe(pieces, scores)
    else:
        # Pieces that only the target model has get a score so low that they do not take part in the segmentation.
        rows = [[piece, scores.get(piece, -1e4 if i > EOS else 0.0)] for i, piece in enumerate(pieces)]
        model = {"type": "Unigram", "unk_id": UNK, "byte_fallback": True, "vocab": rows}
    eos = pieces[EOS]
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    end = {"SpecialToken": {"id": eos, "type_id": 0}}
    added = [*range(EOS + 1), *codec.source.ids([*codec.config.tags, *codec.config.language_pieces])]
    content = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": pieces[i], **_ADDED, "special": i <= EOS} for i in added],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(source)},
        "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "never", "split": True},
        "post_processor": {
            "type": "TemplateProcessing", "single": [first, end], "pair": [first, second, end],
            "special_tokens": {eos: {"id": eos, "ids": [EOS], "tokens": [eos]}},
        },
        "decoder": {"type": "Sequence", "decoders": _DECODERS}, "model": model,
    }  # fmt: skip
    return _as_json(content)


def nllb_tokenizer_json(vocabulary: dict[str, int], added: Mapping[str, int], model: bytes) -> bytes:
    """Returns the file of a BPE model as transformers has it for NLLB-200; `added` are ids of special tokens."""
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    rules = [step for step in _normalizers(model) if step["type"] == "Precompiled"]
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    bpe = _bpe(list(vocabulary), scores_of(processor_of(model)))
    content = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": piece, **_ADDED, "special": True} for piece, i in added.items()],
        "normalizer": {"type": "Sequence", "normalizers": [*rules, spaces]},
        "pre_tokenizer": space, "decoder": space,
        "model": bpe | {"unk_token": "<unk>", "byte_fallback": False, "vocab": vocabulary},
    }  # fmt: skip
    return _as_json(content)


def _as_json(content: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(content, ensure_ascii=False)}\n".encode()


def _normalizers(model: bytes) -> list[dict[str, Any]]:
    """Returns what a sentencepiece model does to text before it segments it."""
    spec = protobuf().ModelProto.FromString(model).normalizer_spec
    steps: list[dict[str, Any]] = []
    if spec.precompiled_charsmap:
        rules = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": rules})
    if spec.remove_extra_whitespaces:
        # Only U+0020 counts as a space, while the normaliser "Strip" would also remove others.
        spaces = {f"^ +|[ {SPACE}]+$": "", " +": " "}
        steps += [{"type": "Replace", "pattern": {"Regex": p}, "content": c} for p, c in spaces.items()]
    if spec.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE})
    return steps


def _bpe(pieces: list[str], scores: Mapping[str, float]) -> dict[str, Any]:
    """Returns a model that merges as sentencepiece does: the adjacent pieces whose union has the best score first."""
    merged = sorted(scores, key=lambda piece: (-scores[piece], piece))
    splits = ([piece[:i], piece[i:]] for piece in merged for i in range(1, len(piece)))
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    options = {"unk_token": pieces[UNK], "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    merges = [[left, right] for left, right in splits if left in scores and right in scores]
    return {"type": "BPE", "dropout": None, **options, "vocab": vocabulary, "merges": merges}
