"""Makes sentencepiece models: of the tokenizer.json of a BPE model, and of a larger model."""

import base64
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import Any

from nmt.errors import NmtError, importing
from nmt.text.subword import processor_of

FILE = "sentencepiece.bpe.model"
EXTRA = "huggingface"
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces
_BPE = 2  # the type of a model
_SPACE = "▁"
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
    proto = protobuf().ModelProto()
    proto.trainer_spec.model_type = _BPE
    proto.normalizer_spec.precompiled_charsmap = b"".join(rules)
    for piece, kind in _META.items():
        proto.pieces.add(piece=piece, score=0, type=kind)
    for rank, piece in enumerate(pieces):
        proto.pieces.add(piece=piece, score=-rank, type=_NORMAL)
    return bytes(proto.SerializeToString())


def needed_pieces(model: bytes, lines: Iterable[str]) -> set[str]:
    """Returns the pieces by which lines are segmented as now: theirs, those they are merged of, and all characters."""
    processor = processor_of(model)
    scores = scores_of(processor)
    needed = {piece for piece in scores if len(piece) == 1}
    of_lines = {piece for line in lines for piece in processor.encode(line, out_type=str)}
    for piece in of_lines & scores.keys():
        _merge(list(piece), scores, needed)
    return needed


def missing_characters(
    model: bytes, lines: Iterable[str], count: int, unchanged: Iterable[str]
) -> dict[str, list[str]]:
    """Returns the characters of lines that have no piece, the most frequent first, and the pieces that spell them now.

    These are the piece of unknown characters, or bytes. Control characters are left out, and those that occur once.

    Args:
        count: the most characters to return.
        unchanged: lines whose segmentation stays.
    """
    processor = processor_of(model)

    def counts_of(lines: Iterable[str]) -> Counter[str]:
        return Counter(chain.from_iterable(str(processor.normalize(line)) for line in lines))

    counts, known = counts_of(lines), scores_of(processor).keys() | counts_of(unchanged).keys() | {" "}
    frequent = (character for character, n in counts.most_common() if n > 1 and character not in known)
    missing = (character for character in frequent if unicodedata.category(character) != "Cc")
    return {
        character: [piece for piece in processor.id_to_piece(processor.encode(character)) if piece != _SPACE]
        for character in islice(missing, count)
    }


def extended(
    model: bytes, lines: Iterable[str], count: int, unchanged: Iterable[str], names: Iterable[str]
) -> dict[str, list[str]]:
    """Returns new pieces, in the order of their merges, and the pieces of the model that each of them replaces.

    This continues byte-pair encoding (Sennrich et al. 2016) on the words of lines as the model segments them: the union
    of adjacent pieces that is most frequent becomes a piece, `count` times. All new merges come after the old ones.

    Args:
        unchanged: lines whose segmentation stays.
        names: tokens that the model has besides; no piece gets such a name, or that of another piece.
    """
    processor = processor_of(model)
    scores = scores_of(processor)
    replaced = {piece: [piece] for piece in scores}

    def words_of(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
        words: Counter[tuple[str, ...]] = Counter()
        for line in lines:
            pieces = processor.encode(line, out_type=str)
            starts = [i for i, piece in enumerate(pieces) if piece.startswith(_SPACE) or not i]
            words.update(tuple(pieces[start:end]) for start, end in pairwise([*starts, len(pieces)]))
        return words

    def unions(word: Sequence[str]) -> list[str]:
        return [left + right for left, right in pairwise(word) if left in replaced and right in replaced]

    forbidden = {*names, *processor.id_to_piece(list(range(len(processor))))}
    forbidden.update(union for word in words_of(unchanged) for union in unions(word))
    words = [(list(word), occurrences) for word, occurrences in words_of(lines).items()]
    counts, users = Counter[str](), defaultdict[str, set[int]](set)
    for i, (word, occurrences) in enumerate(words):
        for union in unions(word):
            counts[union] += occurrences
            users[union].add(i)
    heap = [(-n, union) for union, n in counts.items() if n > 1 and union not in forbidden]
    heapify(heap)
    new: dict[str, list[str]] = {}
    while heap and len(new) < count:
        negative, union = heappop(heap)
        if -negative != counts[union] or union in new:
            continue
        scores[union] = min(scores.values()) - 1 if not new else scores[next(reversed(new))] - 1
        for i in users[union]:
            word, occurrences = words[i]
            if union not in (before := unions(word)):
                continue
            for left, right in pairwise(word):
                if left + right == union and union not in new:
                    new[union] = replaced[union] = replaced[left] + replaced[right]
            _merge(word, scores, set())
            change = Counter(unions(word))
            change.subtract(before)
            for other, difference in change.items():
                counts[other] += difference * occurrences
                users[other].add(i)
                if difference and counts[other] > 1 and other not in forbidden:
                    heappush(heap, (-counts[other], other))
    return new


def scores_of(processor: Any) -> dict[str, float]:
    """Returns the score of each piece of text, by which sentencepiece merges."""
    kinds = processor.is_control, processor.is_unknown, processor.is_byte
    ids = (i for i in range(len(processor)) if not any(is_kind(i) for is_kind in kinds))
    return {processor.id_to_piece(i): processor.get_score(i) for i in ids}


def _merge(parts: list[str], scores: Mapping[str, float], merged: set[str]) -> None:
    """Merges adjacent pieces in place, the best union first, as sentencepiece does; adds each union to `merged`."""
    while unions := [
        (scores[pair[0] + pair[1]], -i) for i, pair in enumerate(pairwise(parts)) if "".join(pair) in scores
    ]:
        i = -max(unions)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        merged.add(parts[i])


def changed(
    model: bytes, kept: Collection[str] | None = None, more: Iterable[str] = (), control: Collection[str] = ()
) -> bytes:
    """Returns a sentencepiece model with some of the pieces of a model, and more, which are merged after all others.

    Args:
        kept: the pieces to keep, besides the special ones; None for all.
        control: pieces that no text has, and that are dropped from decoded text.
    """
    proto = protobuf().ModelProto.FromString(model)
    pieces = [each for each in proto.pieces if kept is None or each.type != _NORMAL or each.piece in kept]
    last = min(piece.score for piece in pieces)
    del proto.pieces[:]
    proto.pieces.extend(pieces)
    for rank, piece in enumerate(more, start=1):
        proto.pieces.add(piece=piece, score=last - rank, type=_NORMAL)
    names = {each.piece for each in pieces}
    for piece in control:
        if piece not in names:
            proto.pieces.add(piece=piece, type=_CONTROL)
    proto.trainer_spec.vocab_size = len(proto.pieces)
    return bytes(proto.SerializeToString())


def protobuf() -> Any:
    """Returns the module that reads and writes models of sentencepiece, which needs the package protobuf."""
    with importing("protobuf", "a change of a sentencepiece model", extra=EXTRA):
        from sentencepiece import sentencepiece_model_pb2
    return sentencepiece_model_pb2
