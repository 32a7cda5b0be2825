"""Reads and changes sentencepiece models."""

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any

from nmt.errors import importing
from nmt.text.subword import processor_of

NORMAL, UNKNOWN, CONTROL = 1, 2, 3  # types of pieces


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
    pieces = [each for each in proto.pieces if kept is None or each.type != NORMAL or each.piece in kept]
    last, names = min(piece.score for piece in pieces), {piece.piece for piece in pieces}
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    for rank, piece in enumerate(more, start=1):
        proto.pieces.add(piece=piece, score=last - rank, type=NORMAL)
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
