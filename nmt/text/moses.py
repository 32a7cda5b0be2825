"""The tokeniser of Moses, so that the detokeniser restores every line."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

# What the normalisation of punctuation names, and no more: typographic quotes, apostrophes, dashes, dots and
# spaces become ASCII, as with normalize-punctuation.perl, whose other rules change ASCII text and numbers.
_TO_ASCII = [
    (re.compile(pattern), ascii_text)
    for pattern, ascii_text in (
        (r"(?<!\S)«\s([^«»]*)\s»(?!\w)", r'"\1"'),  # the spaces of « French » quotes belong to the quotes
        (r"«[^\S ]|[^\S ]»|[«»„“”]|[‘’‚´]{2}", '"'),
        ("[‘’‚´]", "'"),
        ("–", "-"),
        ("—", " - "),
        ("…", "..."),
    )
]


def with_ascii_punctuation(line: str) -> str:
    """Returns the line with ASCII punctuation in place of typographic quotes, apostrophes, dashes and dots."""
    if line.isascii():
        return line
    for pattern, ascii_text in _TO_ASCII:
        line = pattern.sub(ascii_text, line)
    return line


# Typographic quotation marks, apostrophes, dashes and dots. The detokeniser has no rules for most of them.
_TYPOGRAPHIC = re.compile("[‘’‚‛“”„‟‹›«»´–—…]")
# Punctuation around a word.
_OPENING, _CLOSING = "\"'([{", "\"'.,;:!?%]})"
# A letter that stands for what the scripts must not change. No text that a model is for has it.
_KEPT = "ꙮ"
# Ends a token that is a whole word of the text, whatever the rules say: the invisible word joiner.
WHOLE = "\u2060"
# What the detokeniser's rules do not see: whole words, words with other spaces inside, and a currency symbol
# behind its number, which the rules would join to the next word.
_UNRULED = re.compile(rf"[$€£¥](?<=\d .)(?= \D)|(?<![^ ])[^\s{WHOLE}{_KEPT}]*(?:[^\S ]|[{WHOLE}{_KEPT}])[^ ]*")
# A line of such words needs no check: it has no quotes and no space before punctuation, nor a script whose words
# the detokeniser joins.
_CERTAIN = r"(?:\(?(?:[^\W{}_\u1100-\U0010ffff]|-|(?<=\w)'(?=\w))+\)?[.,{}]?(?: |$))*"
_LONG_WORD = 64


class Moses:
    """The Moses scripts for one language. If the scripts have no rules for a language, they use the English ones.

    Words that the detokeniser could not put together again, such as AT&T or km/h, are not split.

    Args:
        normalize: whether `tokenize` normalises punctuation. Otherwise, words that touch typographic punctuation
            are not split either.
        escapes: whether `tokenize` writes `&` as `&amp;` and the like, and splits at hyphens, as for fairseq's
            models. Then it splits all words, as for those models.
    """

    def __init__(self, lang: str, normalize: bool = True, *, escapes: bool = False) -> None:
        # Imported here, because its tables take 0.2 s to load, and many models need none.
        from sacremoses import MosesDetokenizer, MosesTokenizer

        self._escapes = escapes
        self._normalize = normalize
        self._tokenizer = MosesTokenizer(lang)
        self._detokenizer = MosesDetokenizer(lang)
        # The detokeniser puts a space before these marks, and joins numbers.
        spaced, joined = ";:?!%" if lang == "fr" else "", r"\d" if lang == "cs" else ""
        self._closing = _CLOSING.translate(dict.fromkeys(map(ord, spaced)))
        self._certain = re.compile(_CERTAIN.format(joined, "" if spaced else ";:?!"))
        self._cached_whole_part = lru_cache(maxsize=1 << 16)(self._whole_part)

    def tokenize(self, line: str) -> str:
        """Returns the tokens of the line, separated by one space."""
        if self._normalize:
            line = with_ascii_punctuation(line)
        if self._escapes:
            return self._tokens(line)
        words = line.split() if self._normalize else [word for word in line.split(" ") if word]
        # The cache would hold long words, such as lines without spaces, for as long as the process lives.
        wholes = [self._cached_whole_part(word) if len(word) < _LONG_WORD else self._whole_part(word) for word in words]
        tokens = self._tokens_around(words, wholes)
        if self._certain.fullmatch(" ".join(words)):
            return tokens
        # A word may be restored alone, but not in this line. It stays whole, and if that does not help, WHOLE marks it.
        while changed := self._changed_words(words, tokens):
            marked = {i for i, whole in enumerate(wholes) if whole == words[i] + WHOLE}
            for i in range(len(words)) if changed <= marked else changed:
                wholes[i] = words[i] + WHOLE * wholes[i].startswith(words[i])
            tokens = self._tokens_around(words, wholes)
        return tokens

    def _tokens_around(self, words: Sequence[str], wholes: Sequence[str]) -> str:
        """Returns the tokens of words. `wholes` has the part of each word that is not split, or ""."""
        if not any(wholes):
            return self._tokens(" ".join(words))
        text = " ".join(
            word.replace(whole.removesuffix(WHOLE), _KEPT) if whole else word
            for word, whole in zip(words, wholes, strict=True)
        )
        kept = filter(None, wholes)
        return re.sub(_KEPT, lambda _: next(kept), self._tokens(text))

    def _changed_words(self, words: Sequence[str], tokens: str) -> set[int]:
        """Returns the numbers of the words that the detokeniser would cut or join."""
        restored = self.detokenize(tokens)
        if restored == " ".join(words):
            return set()
        ends = [0, *accumulate(map(len, words))]  # without spaces, both texts are the same
        wrong = sorted({*ends} ^ {0, *accumulate(map(len, restored.split(" ")))})
        changed = {
            i
            for i, (start, end) in enumerate(pairwise(ends))
            if bisect_left(wrong, start) < bisect_right(wrong, end) and not words[i].isalnum()
        }
        return changed or set(range(len(words)))

    def _whole_part(self, word: str) -> str:
        """Returns the word, or the part inside the punctuation around it, if it must not be split; otherwise ""."""
        if WHOLE in word:
            return word + WHOLE
        if _KEPT in word or (not self._normalize and _TYPOGRAPHIC.search(word)):
            return word
        part = word.lstrip(_OPENING)
        part = part.rstrip(self._closing.replace(")", "") if "(" in part else self._closing)  # person(s)
        if part.replace("-", "").isalpha():  # saves time: most words are so
            return ""
        line = f"0 {part}"  # because a number before $US makes a difference
        return part if line != self.detokenize(self._tokens(line)) else ""

    def _tokens(self, text: str) -> str:
        return " ".join(self._tokenizer.tokenize(text, aggressive_dash_splits=self._escapes, escape=self._escapes))

    def detokenize(self, line: str) -> str:
        """Returns the line before `tokenize`, except for normalised punctuation and repeated spaces."""
        if self._escapes:
            return str(self._detokenizer.detokenize(line.split()))
        line = " ".join(line.split()) if self._normalize else line  # a piece may spell another space
        kept = _UNRULED.findall(line)
        tokens = (_UNRULED.sub(_KEPT, line) if kept else line).split()
        restored = str(self._detokenizer.detokenize(tokens, unescape=False))
        unmarked = (token.removesuffix(WHOLE) for token in kept)
        return re.sub(_KEPT, lambda _: next(unmarked), restored) if kept else restored
