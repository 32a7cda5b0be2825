"""Makes sentencepiece models: of the tokenizer.json of a BPE model, and of a larger model."""

import base64
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import sentencepiece

from nmt.errors import NmtError, importing

FILE = "sentencepiece.bpe.model"
EXTRA = "'attention-nmt[huggingface]'"
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces
_BPE = 2  # the type of a model
# The first pieces of a model that is made.
_META = {"<unk>": _UNKNOWN, "<s>": _CONTROL, "</s>": _CONTROL}


def of_tokenizer(tokenizer: Mapping[str, Any], origin: Path) -> bytes:
    """Returns the sentencepiece model that segments as the BPE model of a tokenizer.json.

    sentencepiece merges the adjacent pieces whose union has the best score, so the score of a piece is the rank of the
    merges that make it.
    """
    model = tokenizer["model"]
    vocabulary: dict[str, int] = model["vocab"]
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    merged = [union for union, _ in groupby(left + right for left, right in merges)]
    special = {token["content"] for token in tokenizer["added_tokens"]} | _META.keys()
    in_order = dict.fromkeys([*merged, *sorted(vocabulary, key=lambda piece: vocabulary[piece])])
    pieces = [piece for piece in in_order if piece not in special]
    possible = sum(
        piece[:i] in vocabulary and piece[i:] in vocabulary for piece in pieces for i in range(1, len(piece))
    )
    if model.get("type") != "BPE" or len(set(merged)) < len(merged) or possible != len(set(merges)):
        raise NmtError(f"{origin} does not merge pieces as sentencepiece does; add the {FILE} of the model")
    steps = tokenizer["normalizer"] or {}
    steps = [step for step in steps.get("normalizers", [steps]) if step.get("type") == "Precompiled"]
    rules = [base64.b64decode(step["precompiled_charsmap"], validate=True) for step in steps]
    proto = _protobuf().ModelProto()
    proto.trainer_spec.model_type = _BPE
    proto.normalizer_spec.precompiled_charsmap = b"".join(rules)
    for piece, kind in _META.items():
        proto.pieces.add(piece=piece, score=0, type=kind)
    for rank, piece in enumerate(pieces):
        proto.pieces.add(piece=piece, score=-rank, type=_NORMAL)
    return bytes(proto.SerializeToString())


def needed_pieces(model: bytes, lines: Iterable[str]) -> set[str]:
    """Returns the pieces by which lines are segmented as now: theirs, those they are merged of, and all characters."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(len(processor))
    scores = {processor.id_to_piece(i): processor.get_score(i) for i in ids if not processor.is_control(i)}
    needed = {piece for piece in scores if len(piece) == 1}
    of_lines = {piece for line in lines for piece in processor.encode(line, out_type=str)}
    for piece in of_lines & scores.keys():
        parts = list(piece)
        while len(parts) > 1:
            _, i = max((scores.get(left + right, -float("inf")), -i) for i, (left, right) in enumerate(pairwise(parts)))
            parts[-i : 2 - i] = [parts[-i] + parts[1 - i]]
            needed.add(parts[-i])
    return needed


def reduced(model: bytes, pieces: Collection[str]) -> bytes:
    """Returns a sentencepiece model with some of the pieces of a model, and its special ones."""
    proto = _protobuf().ModelProto.FromString(model)
    kept = [piece for piece in proto.pieces if piece.type != _NORMAL or piece.piece in pieces]
    del proto.pieces[:]
    proto.pieces.extend(kept)
    proto.trainer_spec.vocab_size = len(kept)
    return bytes(proto.SerializeToString())


def _protobuf() -> Any:
    with importing("protobuf", "a change of a sentencepiece model", EXTRA):
        from sentencepiece import sentencepiece_model_pb2
    return sentencepiece_model_pb2
