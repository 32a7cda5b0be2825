"""Moses punctuation normalisation, tokenisation and detokenisation, as ported by sacremoses."""

import re

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer


class Moses:
    """The Moses scripts for one language. Languages without rules of their own use the English ones."""

    def __init__(self, lang: str) -> None:
        self.lang = lang
        self._tokenizer = MosesTokenizer(lang)
        self._detokenizer = MosesDetokenizer(lang)
        # Compiled here, because MosesPunctNormalizer looks up every pattern for every line, at half the speed.
        rules = MosesPunctNormalizer(lang).substitutions
        self._normalisation = [(re.compile(pattern), replacement) for pattern, replacement in rules]

    def normalize(self, line: str) -> str:
        """Replaces typographic quotes, dashes and spaces by ASCII, like normalize-punctuation.perl."""
        for pattern, replacement in self._normalisation:
            line = pattern.sub(replacement, line)
        return line.strip()

    def tokenize(self, line: str) -> str:
        """Returns normalised tokens, joined by one space. Nothing is escaped: `&` stays `&`."""
        return " ".join(self._tokenizer.tokenize(self.normalize(line), escape=False))

    def detokenize(self, line: str) -> str:
        """Undoes `tokenize`, except for normalised punctuation and a few ambiguous quotes."""
        return str(self._detokenizer.detokenize(line.split(), unescape=False))
