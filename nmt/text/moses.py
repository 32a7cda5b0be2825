"""Moses punctuation normalisation, tokenisation and detokenisation, as ported by sacremoses."""

import re
from itertools import groupby

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

# Typographic quotation marks, apostrophes, dashes and dots. The detokeniser has no rules for most of them, because
# normalisation replaces them.
_TYPOGRAPHIC = re.compile("[‘’‚‛“”„‟‹›«»´–—…]")


class Moses:
    """The Moses scripts for one language. If the scripts have no rules for a language, they use the English ones.

    Args:
        normalize: whether `tokenize` normalises punctuation. Otherwise, words that touch typographic punctuation are
            not split, because the detokeniser could not put them together again.
        escapes: whether `tokenize` writes `&` as `&amp;` and the like, and splits at hyphens, as for fairseq's models.
    """

    def __init__(self, lang: str, normalize: bool = True, *, escapes: bool = False) -> None:
        self.lang = lang
        self._escapes = escapes
        self._normalize = normalize
        self._tokenizer = MosesTokenizer(lang)
        self._detokenizer = MosesDetokenizer(lang)
        # MosesPunctNormalizer looks up every pattern again for every line, and is half as fast as compiled patterns.
        rules = MosesPunctNormalizer(lang).substitutions
        self._normalisation = [(re.compile(pattern), replacement) for pattern, replacement in rules]

    def normalize(self, line: str) -> str:
        """Returns the line with quotes, dashes and spaces replaced by ASCII, like normalize-punctuation.perl."""
        for pattern, replacement in self._normalisation:
            line = pattern.sub(replacement, line)
        return line.strip()

    def tokenize(self, line: str) -> str:
        """Returns the tokens of the line, separated by one space."""
        if self._normalize:
            return self._tokens(self.normalize(line))
        groups = groupby(line.split(), key=lambda word: bool(_TYPOGRAPHIC.search(word)))
        texts = [(typographic, " ".join(words)) for typographic, words in groups]
        return " ".join(filter(None, (text if typographic else self._tokens(text) for typographic, text in texts)))

    def _tokens(self, text: str) -> str:
        return " ".join(self._tokenizer.tokenize(text, aggressive_dash_splits=self._escapes, escape=self._escapes))

    def detokenize(self, line: str) -> str:
        """Returns the line before `tokenize`, except for normalised punctuation and a few ambiguous quotes."""
        return str(self._detokenizer.detokenize(line.split(), unescape=self._escapes))
