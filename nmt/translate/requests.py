"""Requests to translate a line, as text and as ids, and the hypotheses for them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from nmt import console
from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.search.api import Phrase, Required
from nmt.text.codec import TextCodec
from nmt.text.glossary import Glossary
from nmt.text.subword import UNK
from nmt.text.words import AlignedWords, Given

# Source sentences are padded to a multiple of this, so that many have the same width and form one block.
WIDTH_MULTIPLE = 4
# Sums over fewer positions are rounded differently, so that other sentences would change a translation's log P.
LEAST_WIDTH = 16


class Request(NamedTuple):
    """A line to translate, with what its translation must have.

    Attributes:
        prefix: how the translation must begin, as raw text.
        constraints: phrases that must occur in the translation, as raw text. Several phrases in place of one are
            alternatives, one of which must occur.
        others: the JSON object of the line, whose fields are copied to the output; empty for text.
        place: what messages call the line; by default `line` and its number.
    """

    source: str
    prefix: str = ""
    constraints: tuple[str | Sequence[str], ...] = ()
    others: Mapping[str, Any] = {}
    place: str = ""

    @property
    def alternatives(self) -> list[Sequence[str]]:
        """The phrases of each constraint."""
        return [[phrases] if isinstance(phrases, str) else phrases for phrases in self.constraints]


@dataclass(frozen=True)
class EncodedRequest:
    """A request as ids.

    Attributes:
        number: the number of the line, counted over all inputs from 1.
        place: what messages call the line.
        text: the raw line.
        parts: ids of the source, without EOS. A long line has several parts. A blank line has none, or an empty one if
            it has a prefix or constraints.
        required: what the translation must have, as ids.
        given: prefix and constraints as the user wrote them. The translation gets this spelling instead of that of the
            decoded pieces.
    """

    number: int
    place: str
    text: str
    parts: tuple[np.ndarray, ...]
    required: Required
    given: Given

    @property
    def width(self) -> int:
        """Positions of the widest part in a padded batch; 0 without parts."""
        return max(map(padded_width, self.parts), default=0)


def padded_width(ids: np.ndarray) -> int:
    """Returns the positions of a sentence with these ids and EOS in a padded batch."""
    return max(LEAST_WIDTH, math.ceil((len(ids) + 1) / WIDTH_MULTIPLE) * WIDTH_MULTIPLE)


def is_in_parts(codec: TextCodec, text: str, longest: int) -> bool:
    """Returns whether a line has more than `longest` pieces."""
    return len(codec.encode_source([text])[0]) > longest


def with_terms(codec: TextCodec, request: Request, glossary: Glossary | None, longest: int) -> Request:
    """Returns the request with a constraint for each term of the glossary that its source has.

    A line that is translated in parts, because it has more than `longest` pieces, gets none.
    """
    if glossary is None:
        return request
    _, text = codec.config.split_tags(request.source)
    found = glossary.found_in(text, spaces=codec.source_has_spaces)
    if found and is_in_parts(codec, request.source, longest):
        advice = "; raise --max-source-length" if request.place else ""  # a server has no such flag
        console.warn(f"the glossary is not used for {request.place or 'a line'}, which is too long{advice}")
        return request
    return request._replace(constraints=(*request.constraints, *found))


def encode(
    codec: TextCodec, requests: Sequence[Request], first_number: int, search: SearchConfig
) -> list[EncodedRequest]:
    """Returns the requests as ids."""
    sources = codec.encode_source([request.source for request in requests])
    required = _required(codec, requests)
    encoded = []
    for number, (request, ids, (needed, given)) in enumerate(
        zip(requests, sources, required, strict=True), start=first_number
    ):
        parts = _parts(np.array(ids, dtype=np.int64), codec.tags_before(ids), search.max_source_length, needed)
        place = request.place or f"line {number}"
        line = EncodedRequest(number, place, request.source, parts, needed, given)
        _check(line, search)
        encoded.append(line)
    return encoded


def _required(codec: TextCodec, requests: Sequence[Request]) -> list[tuple[Required, Given]]:
    """Returns prefixes and constraints as ids and as text. They are tokenised and segmented like other target text."""
    in_capitals = [codec.config.lowers(request.source) for request in requests]
    if not any(request.prefix or request.constraints for request in requests):
        return [(Required(), Given(in_capitals=lowered)) for lowered in in_capitals]
    texts = [
        codec.config.cased_for(request.source, text)
        for request in requests
        for text in (request.prefix, *chain.from_iterable(request.alternatives))
    ]
    encoded = iter(codec.encode_target(texts))
    required = []
    for request, lowered in zip(requests, in_capitals, strict=True):
        shown = partial(codec.target_phrase, in_capitals=lowered)
        prefix = tuple(next(encoded))
        sets = [_possible([(text, tuple(next(encoded))) for text in one]) for one in request.alternatives]
        phrases = [tuple(filter(None, (shown(*phrase) for phrase in one))) for one in sets]
        given = Given(shown(request.prefix, prefix), tuple(filter(None, phrases)), lowered)
        constraints = [tuple(ids for _, ids in one) for one in sets]
        required.append((Required(prefix, tuple(filter(None, constraints))), given))
    return required


def _possible(phrases: Sequence[tuple[str, Phrase]]) -> list[tuple[str, Phrase]]:
    """Returns the alternatives, with their ids, that are not blank and that the model can write, if there are any."""
    visible = [(text, ids) for text, ids in phrases if ids]
    return [(text, ids) for text, ids in visible if UNK not in ids] or visible


def _parts(ids: np.ndarray, tags: int, longest: int, required: Required) -> tuple[np.ndarray, ...]:
    """Cuts a line's ids into as few even parts as possible, none longer than `longest`.

    The first `tags` ids are tags, which each part gets. A blank line has no parts, unless its translation must have
    something.
    """
    if len(ids) == tags:
        return (ids,) if required != Required() else ()
    parts = np.array_split(ids[tags:], math.ceil((len(ids) - tags) / max(1, longest - tags)))
    return tuple(np.concatenate((ids[:tags], part)) for part in parts)


def _check(line: EncodedRequest, search: SearchConfig) -> None:
    """Warns of unknown characters in prefix and constraints, and of a line that is translated in parts.

    Raises:
        NmtError: the prefix is too long, or a line in parts has a prefix or constraints.
    """
    constraints = line.required.constraints  # if one alternative has unknown characters, all have
    for what, ids in [("its prefix", line.required.prefix), *(("a constraint", ids) for ids, *_ in constraints)]:
        if UNK in ids:
            console.warn(f"{line.place}: {what} has a character that the model does not know, and cannot be kept")
    pieces = sum(map(len, line.parts))
    limit = pieces + search.max_length_offset
    if len(line.required.prefix) > limit:
        raise NmtError(
            f"{line.place}: its prefix has {len(line.required.prefix):,} pieces, but --max-length-offset "
            f"{search.max_length_offset} allows {limit:,}; shorten it or raise --max-length-offset"
        )
    if len(line.parts) > 1:
        found = f"{line.place} has {pieces:,} pieces, more than --max-source-length {search.max_source_length}"
        if line.required != Required():
            raise NmtError(
                f"{found}, and a line with a prefix or constraints cannot be translated in parts; raise "
                f"--max-source-length"
            )
        console.warn(f"{found}; it is translated in {len(line.parts)} parts")


def batches(lines: Sequence[EncodedRequest], batch_tokens: int) -> Iterator[list[int]]:
    """Yields the indices of lines that are translated together. A line in parts has a batch of its own."""
    whole = [i for i, line in enumerate(lines) if len(line.parts) <= 1]
    yield from ([i] for i, line in enumerate(lines) if len(line.parts) > 1)
    for batch in longest_first([lines[i].width for i in whole], batch_tokens):
        yield [whole[j] for j in batch]


def longest_first(tokens: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yields batches as indices of items, longest item first, so that it shows at once whether memory is enough."""
    indices = iter(sorted(range(len(tokens)), key=lambda i: -tokens[i]))
    for first in indices:
        yield [first, *islice(indices, max(1, batch_tokens // max(tokens[first], 1)) - 1)]


@dataclass(frozen=True)
class Hypothesis:
    """A translation.

    If a line was translated in parts, texts, pieces and their log P are joined, and scores are summed.

    Attributes:
        text: raw text.
        score: log P over the length penalty.
        pieces: the target pieces.
        log_probs: natural log P of each piece, and at the end that of EOS; each part ends in EOS. Empty if they were
            not asked for.
        unmet: whether a constraint is missing.
        alignment: between words of the raw line and of `text`; None if they were not asked for.
    """

    text: str
    score: float
    pieces: list[str]
    log_probs: list[float]
    unmet: bool = False
    alignment: tuple[AlignedWords, ...] | None = None

    @property
    def log_prob(self) -> float:
        """Natural log P of the whole translation."""
        return sum(self.log_probs)


def joined(codec: TextCodec, parts: Sequence[Sequence[Hypothesis]], *, aligned: bool) -> list[Hypothesis]:
    """Returns the translations of a line; the n-th joins the n-th translation of every part."""
    if len(parts) == 1:
        return list(parts[0])
    if not parts:
        return [Hypothesis("", 0.0, [], [], alignment=() if aligned else None)]
    return [
        Hypothesis(
            codec.join_target(h.text for h in ranked),
            sum(h.score for h in ranked),
            [piece for h in ranked for piece in h.pieces],
            [log_prob for h in ranked for log_prob in h.log_probs],
            alignment=_joined_alignment(codec, ranked) if aligned else None,
        )
        for ranked in zip(*parts, strict=False)
    ]


def _joined_alignment(codec: TextCodec, parts: Sequence[Hypothesis]) -> tuple[AlignedWords, ...]:
    """Returns the alignment of parts whose texts are joined."""
    alignment: list[AlignedWords] = []
    first = 0  # the number of the part's first word in the joined text
    for part in parts:
        alignment += [(source, first + target) for source, target in part.alignment or ()]
        first += codec.words_before(part.text)
    return tuple(sorted(alignment))


def parts_and_words(codec: TextCodec, line: EncodedRequest) -> Iterator[tuple[np.ndarray, list[int]]]:
    """Yields the ids of each part of a line, and the number of the word of each id."""
    words = iter(codec.source_words(line.text, [i for part in line.parts for i in part]))
    for part in line.parts:
        yield part, list(islice(words, len(part)))
