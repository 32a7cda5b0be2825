"""Cuts lines into sentences and long sentences into parts, and puts translations together with spaces between them."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.languages import base_language, has_spaces
from nmt.text.protected import ProtectedSpan, Span, is_inside
from nmt.text.words import BYTE_PIECE, is_blank


def sentence_spans(line: str, lang: str, protected: Sequence[ProtectedSpan]) -> list[Span]:
    """Returns where the sentences of a line begin and end, without the spaces around them. A blank line has none.

    In a language with spaces, a sentence ends at a space only. In others, it may also end behind a character that
    is not ASCII, such as `。`. No sentence ends inside a protected word; these are given in order.
    """
    import sentencex  # takes 10 ms, and many commands need no sentences

    language, spaces = base_language(lang), has_spaces(lang)
    spans, start, position = list[Span](), 0, 0
    # sentencex fails where a no-break space stands between a capital and a full stop.
    for segment in sentencex.segment(language, re.sub(r"[^\S ](?=\.)", " ", line)):
        position += len(segment)
        last = line[position - 1 : position]
        is_edge = last.isspace() or not (spaces or last.isascii())
        if position == len(line) or (is_edge and not is_inside(protected, position)):
            text = line[start:position]
            if not is_blank(text):
                spans.append((start + len(text) - len(text.lstrip()), start + len(text.rstrip())))
            start = position
    return spans


def gaps_between(line: str, spans: Sequence[Span], *, spaces: bool) -> list[str]:
    """Returns what stands between the translations of sentences: the spaces of the line, or a space where it has none.

    Args:
        spaces: whether spaces separate the words of the target language. If not, only line breaks stay.
    """
    gaps = (line[stop:start] for (_, stop), (start, _) in pairwise(spans))
    return [(gap or " ") if spaces else "\n" * gap.count("\n") for gap in gaps]


# Punctuation at the end of a text, and a full stop there that is not that of an ellipsis or an ordinal number
_FULL_STOPS = ".。｡．।॥۔։።။\u17d4།"
SENTENCE_ENDS = f"{_FULL_STOPS}!?…！？؟፧"
_END = re.compile(rf"[{_FULL_STOPS},;:!?…，；：！？،؛؟፣፧፨၊៕]\W*$")
_STOP = re.compile(rf"(?<=[^\s.\d])[{_FULL_STOPS}](?=[\"'“”‘’«»)\]]*$)")


def without_added_stop(source: str, translation: str, target_lang: str) -> str:
    """Returns a translation without its full stop, unless it abbreviates or the source has punctuation at its end."""
    is_kept = _END.search(source) or len(sentence_spans(f"{translation} A", target_lang, ())) == 1
    return translation if is_kept else _STOP.sub("", translation)


# How a part of a long sentence ends, if possible.
_SENTENCE_END = re.compile(rf"[{SENTENCE_ENDS}][\"'”’»)\]]*$")


def parts_of_long(codec: TextCodec, ids: Sequence[int], direction: Direction, longest: int) -> list[np.ndarray]:
    """Cuts the ids of a sentence into as few parts as possible, none longer than `longest`.

    A part ends with a sentence if there is one in its second half, or with a word, so that the parts are about
    even. In languages without spaces, words end between any characters. A single word that is longer is cut anywhere.
    Each part gets the tags and the tokens of languages.
    """
    spaces = has_spaces(direction.source)
    tags = codec.tags_before(ids)
    room = max(1, longest - tags)
    pieces = codec.source.pieces(ids) if len(ids) > longest else []
    cuts = [tags]
    while len(ids) - cuts[-1] > room:
        start, left = cuts[-1], len(ids) - cuts[-1]
        ends = [
            i
            for i in range(start + 1, start + room + 1)
            if codec.begins_word(pieces, i) or not (spaces or BYTE_PIECE.fullmatch(pieces[i]))
        ]
        sentence_ends = [
            i
            for i in ends
            if i > start + room // 2
            and _SENTENCE_END.search(pieces[i - 1])
            and (codec.begins_word(pieces, i) or not pieces[i - 1][-1].isascii())
        ]
        goal = start + math.ceil(left / math.ceil(left / room))
        cuts.append(max(sentence_ends, default=0) or min(ends, key=lambda i: abs(i - goal), default=goal))
    before, behind = codec.language_tokens(direction)
    return [np.array([*before, *ids[:tags], *ids[a:b], *behind], np.int64) for a, b in pairwise([*cuts, len(ids)])]
