"""Moses punctuation normalisation, tokenisation and detokenisation, as ported by sacremoses."""

import re

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer


class Moses:
    """The Moses scripts for one language. If the scripts have no rules for a language, they use the English ones."""

    def __init__(self, lang: str) -> None:
        self.lang = lang
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
        """Returns the tokens of the normalised line, separated by one space. Nothing is escaped: `&` stays `&`."""
        return " ".join(self._tokenizer.tokenize(self.normalize(line), escape=False))

    def detokenize(self, line: str) -> str:
        """Returns the line before `tokenize`, except for normalised punctuation and a few ambiguous quotes."""
        return str(self._detokenizer.detokenize(line.split(), unescape=False))
