"""Adds languages and pieces to the vocabulary of a model of several languages, imported or trained here."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import chain, islice, pairwise

import torch

from nmt import console
from nmt.checkpoint import Checkpoint, load_checkpoint
from nmt.checkpoint_format import CALIBRATIONS
from nmt.config import SelectionConfig
from nmt.errors import NmtError
from nmt.interop.sentencepiece_model import changed, merge, scores_of
from nmt.text.codec import Preparer, TextCodec
from nmt.text.corpus import is_regular, read_lines
from nmt.text.languages import matching
from nmt.text.subword import Subword, processor_of
from nmt.text.words import SPACE


def extended_checkpoint(path: str, selection: SelectionConfig) -> Checkpoint:
    """Returns a checkpoint with more languages and pieces; everything else stays as it is.

    A new piece begins as the mean of the pieces that it replaces.

    Raises:
        NmtError: the model translates one pair of languages only, nothing can be added to its vocabulary, or
            nothing is to be added.
    """
    checkpoint = load_checkpoint(path, verify=True)
    text, old = checkpoint.codec.config, checkpoint.codec.target
    if not text.languages:
        raise NmtError(f"{path} translates {text.in_words} only; train a model of several (nmt preprocess --languages)")
    if not isinstance(old, Subword) or old.kind != "bpe" or checkpoint.codec.source is not old:
        problem = f"{path} has a vocabulary of the kind {text.subword}, which cannot be extended"
        raise NmtError(f"{problem}; take a model of the kind bpe, or give these options to nmt import huggingface")
    if not selection.add_language and not selection.add_pieces:
        raise NmtError("there is nothing to add; give --add-language or --add-pieces")
    tokens = dict(zip(text.languages, text.language_pieces, strict=True))
    new_tokens, copied = new_languages(selection.add_language, tokens, old.vocabulary)
    model, replaced = changed(old.model, control=copied), {token: [origin] for token, origin in copied.items()}
    if selection.add_pieces:
        model, pieces = with_new_pieces(model, selection, [], Preparer(text, "target").prepare)
        replaced |= pieces
    tokens |= new_tokens
    vocabulary = Subword(model, "bpe")
    new = vocabulary.vocabulary[len(old) :]
    weights = dict(checkpoint.weights)
    for name in {"target_embedding.weight", "output_bias"} & weights.keys():
        means = [weights[name][old.ids(replaced[piece])].float().mean(0) for piece in new]
        weights[name] = torch.cat((weights[name], *(mean[None].to(weights[name].dtype) for mean in means)))
    config = replace(text, languages=tuple(tokens), language_pieces=tuple(tokens.values()))
    # These pieces learn in full, whatever stays frozen when the model is tuned.
    provenance = {name: value for name, value in checkpoint.provenance.items() if name != CALIBRATIONS}
    provenance |= {"added_pieces": [*checkpoint.provenance.get("added_pieces", ()), *new]}
    return Checkpoint(checkpoint.model_config, TextCodec(config, vocabulary, vocabulary), weights, provenance)


def new_languages(
    pairs: Sequence[str], tokens: Mapping[str, str], names: Collection[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the tokens of the languages of `--add-language`, and the token that each of these begins as a copy of.

    Args:
        pairs: the codes of a new language and of a related one, such as tyv_Cyrl=kaz_Cyrl.
        tokens: the token of each language of the model.
        names: the names of all pieces and tokens of the model.

    Raises:
        NmtError: a language is not new, its token has the name of a piece, or no related language is named.
    """
    new: dict[str, str] = {}
    copied: dict[str, str] = {}
    for pair in pairs:
        code, _, related = pair.partition("=")
        is_code = code.isprintable() and code.split() == [code] and "," not in pair
        if not is_code or not related or code in tokens or code in new:
            problem = f"--add-language {pair} does not name a new language and a related one"
            raise NmtError(f"{problem}; give one such as tyv_Cyrl=kaz_Cyrl")
        related = matching(related, list(tokens))
        new[code] = token = tokens[related].replace(related, code)
        if token in names:
            raise NmtError(f"--add-language {pair} needs the token {token}, but a piece of the model has this name")
        copied[token] = tokens[related]
    return new, copied


def with_new_pieces(
    model: bytes, selection: SelectionConfig, names: Iterable[str], prepare: Callable[[str], str] = str
) -> tuple[bytes, dict[str, list[str]]]:
    """Returns a sentencepiece model with the pieces of `--add-pieces`, and the pieces that each of them replaces.

    Args:
        names: tokens that the model has besides, whose names no piece gets.
        prepare: converts a raw line to what the model segments.
    """

    def text(files: Sequence[str]) -> Iterator[str]:
        return map(prepare, chain.from_iterable(map(read_lines, files)))

    for file in (*selection.add_pieces, *selection.unchanged, *selection.pieces_of):
        if not is_regular(file):
            raise NmtError(f"{file} is no file, but it is read several times; save its text in a file first")
    characters = _missing_characters(model, text(selection.add_pieces), selection.pieces, text(selection.unchanged))
    if characters:
        console.info(f"{len(characters):,} new characters: {console.listed(list(characters))}")
    larger, count = changed(model, more=characters), selection.pieces - len(characters)
    merged = _merged_pieces(larger, text(selection.add_pieces), count, text(selection.unchanged), names)
    console.info(f"{len(merged):,} new pieces: {console.listed(list(merged))}")
    larger = changed(larger, more=merged)
    old, new = processor_of(model), processor_of(larger)
    for file in dict.fromkeys([*selection.unchanged, *selection.pieces_of]):
        same = [old.encode(line) == new.encode(line) for line in text([file])]
        share = f"{sum(same) / max(1, len(same)):.2%} of {len(same):,} lines"
        console.info(f"{file}: {share} have the same pieces as before")
    for piece, parts in merged.items():
        merged[piece] = list(chain.from_iterable(characters.get(part, [part]) for part in parts))
    return larger, characters | merged


def _missing_characters(
    model: bytes, lines: Iterable[str], count: int, unchanged: Iterable[str]
) -> dict[str, list[str]]:
    """Returns the characters of lines that have no piece, the most frequent first, and the pieces that spell them now.

    These are the piece of unknown characters, or bytes. Control characters are left out, and those that occur once.

    Args:
        count: the most characters to return.
        unchanged: lines whose segmentation stays.
    """
    processor = processor_of(model)

    def characters(lines: Iterable[str]) -> Counter[str]:
        return Counter(chain.from_iterable(str(processor.normalize(line)) for line in lines))

    known = scores_of(processor).keys() | characters(unchanged).keys() | {" "}
    frequent = (c for c, n in characters(lines).most_common() if n > 1 and c not in known)
    missing = (c for c in frequent if unicodedata.category(c) != "Cc")
    return {
        c: [piece for piece in processor.id_to_piece(processor.encode(c)) if piece != SPACE]
        for c in islice(missing, count)
    }


def _merged_pieces(
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
    worst, replaced = min(scores.values()), {piece: [piece] for piece in scores}

    def segmented_words(lines: Iterable[str]) -> Counter[tuple[str, ...]]:
        words: Counter[tuple[str, ...]] = Counter()
        for line in lines:
            pieces = processor.encode(line, out_type=str)
            starts = [i for i, piece in enumerate(pieces) if piece.startswith(SPACE) or not i]
            words.update(tuple(pieces[start:end]) for start, end in pairwise([*starts, len(pieces)]))
        return words

    def unions(word: Sequence[str]) -> list[str]:
        return [left + right for left, right in pairwise(word) if left in replaced and right in replaced]

    forbidden = {*names, *processor.id_to_piece(list(range(len(processor))))}
    forbidden.update(union for word in segmented_words(unchanged) for union in unions(word))
    words = [(list(word), occurrences) for word, occurrences in segmented_words(lines).items()]
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
        worst -= 1
        scores[union] = worst
        for i in users[union]:
            word, occurrences = words[i]
            if union not in (old := unions(word)):
                continue
            for left, right in pairwise(word):
                if left + right == union and union not in new:
                    new[union] = replaced[union] = replaced[left] + replaced[right]
            merge(word, scores)
            change = Counter(unions(word))
            change.subtract(old)
            for other, difference in change.items():
                counts[other] += difference * occurrences
                users[other].add(i)
                if difference and counts[other] > 1 and other not in forbidden:
                    heappush(heap, (-counts[other], other))
    return new
