"""The options of search and of metrics."""

from dataclasses import dataclass

from nmt.errors import NmtError
from nmt.options import Config, option


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Config):
    """The options of beam search (paper §6.1)."""

    beam: int = option(
        4, help="Hypotheses kept at every step; 1 is greedy search.", panel="Search", at_least=1, at_most=10_000
    )
    alpha: float = option(
        0.6, help="GNMT length penalty: score = log P / ((5 + length) / 6)^α.", panel="Search", at_least=0, at_most=10
    )
    max_length_offset: int = option(
        50,
        help="A translation may have this many pieces more than its source.",
        panel="Search",
        at_least=0,
        at_most=100_000,
    )
    n_best: int = option(
        1, help="Translations for each input line. Text output has one line for each.", panel="Search", at_least=1
    )
    max_source_length: int = option(
        512, help="Translate lines with more pieces in parts of at most this many.", panel="Search", at_least=1
    )
    batch_tokens: int | None = option(
        None,
        help="Source tokens to translate at once, padding included. Lower it if memory runs out. By default, 4096 on a "
        "CPU and 16384 on a GPU.",
        panel="Search",
        at_least=1,
    )

    def tokens_at_once(self, device: str) -> int:
        """Returns --batch-tokens, or the default for `device`, which is cuda or cpu.

        A GPU needs larger batches, because launching the kernels of a step takes the same time for any number of rows.
        """
        return self.batch_tokens or (16_384 if device == "cuda" else 4096)

    @property
    def longest(self) -> int:
        """The largest number of tokens, EOS included, that a translation may have."""
        return self.max_source_length + 1 + self.max_length_offset

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_best > self.beam:
            raise NmtError(f"--n-best must be at most --beam ({self.beam}), but is {self.n_best}")


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(Config):
    """The options of the metrics."""

    lowercase: bool = option(
        False, help="Lowercase both sides for BLEU and chrF. TER always lowercases them.", panel="Metrics"
    )
    tokenize: str = option(
        "13a",
        help="Tokeniser of BLEU: 13a, none (for tokenised text), intl, char, zh, ja-mecab or another one of sacrebleu.",
        panel="Metrics",
    )
    target_lang: str | None = option(
        None,
        help="Language of the translations, which the tokeniser of paper-bleu needs. For de, paper-bleu also splits "
        "compounds at hyphens.",
        panel="Metrics",
    )
    bootstrap: int | None = option(
        None,
        help="Also report the mean and 95% confidence interval over this many bootstrap resamples (usually 1000).",
        panel="Metrics",
        at_least=2,
        at_most=100_000,
    )
