"""Cuts lines into sentences, and puts the translations of sentences together with the spaces of the source."""

import re
from collections.abc import Sequence
from itertools import pairwise

from nmt.text.languages import WITHOUT_SPACES, base_language
from nmt.text.protected import ProtectedSpan, Span
from nmt.text.words import is_blank


def sentence_spans(line: str, lang: str, protected: Sequence[ProtectedSpan]) -> list[Span]:
    """Returns where the sentences of a line begin and end, without the spaces around them. A blank line has none.

    In a language with spaces, a sentence ends at a space only. In others, it may also end behind a character that is
    not ASCII, such as `。`. No sentence ends inside a protected word.
    """
    import sentencex  # takes 10 ms, and many commands need no sentences

    language = base_language(lang)
    has_spaces = language not in WITHOUT_SPACES
    spans, start, position = list[Span](), 0, 0
    # sentencex fails where a no-break space stands between a capital and a full stop.
    for segment in sentencex.segment(language, re.sub(r"[^\S ](?=\.)", " ", line)):
        position += len(segment)
        last = line[position - 1 : position]
        is_edge = last.isspace() or not (has_spaces or last.isascii())
        if position == len(line) or (is_edge and not any(span.start < position < span.stop for span in protected)):
            text = line[start:position]
            if not is_blank(text):
                spans.append((start + len(text) - len(text.lstrip()), start + len(text.rstrip())))
            start = position
    return spans


def gaps_between(line: str, spans: Sequence[Span], *, spaces: bool) -> list[str]:
    """Returns what stands between the translations of sentences: the spaces of the line, or a space where it has none.

    Args:
        spaces: whether spaces separate the words of the target language.
    """
    return [(line[stop:start] or " ") if spaces else "" for (_, stop), (start, _) in pairwise(spans)]
