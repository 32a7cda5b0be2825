"""The options of search, of engines and of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from nmt.config.options import Config, flag_name, option
from nmt.errors import NmtError

# The largest number of source or target pieces that a model for CTranslate2 accepts, unless it has learned positions.
LONGEST_EXPORTED = 2048
search_option = partial(option, panel="Search")
sampling_option = partial(option, panel="Sampling")


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Config, panel="Search"):
    """The options of beam search (paper §6.1) and of sampling.

    The fields are the options of `nmt generate --help` under Search and Sampling.
    """

    beam: int = option(4, "Hypotheses kept at every step; 1 is greedy search.", at_least=1, at_most=10_000)
    alpha: float = option(0.6, "GNMT length penalty: score = log P / ((5 + length) / 6)^α.", at_least=0, at_most=10)
    max_length_offset: int = option(
        50, "A translation may have this many pieces more than its source.", at_least=0, at_most=100_000
    )
    n_best: int = option(1, "Translations for each input line. Text output has one line for each.", at_least=1)
    max_source_length: int = option(512, "Translate longer lines in parts of at most this many pieces.", at_least=1)
    batch_tokens: int | None = option(
        None,
        "Source tokens to translate at once, padding included. Lower it if memory runs out. By default, 4096 "
        "on a CPU and 16384 on a GPU.",
        at_least=1,
    )
    beam_groups: int = option(
        1,
        "Diverse beam search: divide the beam into this many groups, of which each avoids the pieces of the groups "
        "before it. --diversity says how strongly.",
        at_least=1,
    )
    diversity: float = option(
        0.5,
        "With --beam-groups: subtracted from a piece's log P for each hypothesis of an earlier group that has this "
        "piece at the same position.",
        at_least=0,
        at_most=1000,
    )
    min_length: int = option(0, "Fewest pieces of an output.", at_least=0, at_most=100_000)
    no_repeat_ngram: int | None = option(
        None,
        "No sequence of this many pieces occurs twice in an output, except in given prefixes and constraints.",
        at_least=1,
    )
    scorer: str | None = option(None, "Name of a scorer in --user-module, which changes the log P of each next piece.")
    alignments: bool = option(False, "Also link the source words to the words of each translation: 0-0 1-2 …")
    sample: bool = sampling_option(False, "Draw translations at random instead of beam search.")
    samples: int = sampling_option(
        1, "Translations to draw for each line. Text output has one line for each.", at_least=1, at_most=10_000
    )
    temperature: float = sampling_option(
        1.0, "Divides log P; below 1, likely pieces become likelier.", above=0, at_most=1000
    )
    top_k: int | None = sampling_option(None, "Draw each piece from this many of the most probable ones.", at_least=1)
    top_p: float = sampling_option(
        1.0, "Draw each piece from the most probable ones whose probabilities add up to this.", above=0, at_most=1
    )
    seed: int = sampling_option(1, "Seed of the samples; they do not depend on batches or workers.", at_least=0)

    def tokens_at_once(self, device: str) -> int:
        """Returns --batch-tokens, or the default for `device`, which is cuda or cpu.

        A GPU needs larger batches, because launching the kernels of a step takes the same time for any number of rows.
        """
        return self.batch_tokens or (16_384 if device == "cuda" else 4096)

    def length_penalty(self, length: Any) -> Any:
        """Returns the length penalty of GNMT (Wu et al. 2016), ((5 + |Y|) / 6)^α, of a length or a tensor of lengths.

        |Y| counts EOS, whose probability is part of P(Y|X).
        """
        return ((5 + length) / 6) ** self.alpha

    @property
    def hypotheses(self) -> int:
        """Hypotheses of a sentence that are computed at once."""
        return self.samples if self.sample else self.beam

    @property
    def least_pieces(self) -> int:
        """Fewest pieces of an output: a sentence's only translation is never empty. Lists and samples show all."""
        return self.min_length if self.sample or self.n_best > 1 else max(1, self.min_length)

    @property
    def outputs(self) -> int:
        """Most translations that a line gets."""
        return self.samples if self.sample else self.n_best

    @property
    def longest(self) -> int:
        """The largest number of tokens, EOS included, that a translation may have."""
        return self.max_source_length + 1 + self.max_length_offset

    def _check(self) -> None:
        for name, value in self.variants().items():
            if not self.sample and name in ("samples", "temperature", "top_k", "top_p"):
                raise NmtError(f"{flag_name(name)} is {value}, but needs --sample; add it")
        if self.sample and self.n_best > 1:
            raise NmtError(f"--n-best is {self.n_best}, but --sample was given; use --samples {self.n_best} instead")
        if self.sample and self.beam > type(self).beam:
            raise NmtError(
                f"--beam is {self.beam}, but --sample has no beam; use --samples {self.beam}, or leave it out"
            )
        if self.sample and self.beam_groups > 1:
            raise NmtError(f"--beam-groups is {self.beam_groups}, but --sample was given; leave out one of the two")
        if self.n_best > self.beam:
            raise NmtError(f"--n-best must be at most --beam ({self.beam}), but is {self.n_best}")
        if self.beam % self.beam_groups:
            given = f"--beam ({self.beam}), but is {self.beam_groups}"
            raise NmtError(f"--beam-groups must divide {given}; change one of the two")
        if self.beam_groups == 1 and "diversity" in self.variants():
            raise NmtError(f"--diversity is {self.diversity}, but there is one group; also give --beam-groups")


@dataclass(frozen=True, kw_only=True)
class DirectionConfig(Config, panel="Input and output"):
    """From which language into which a model of several translates."""

    source_lang: str | None = option(None, "Language of the text, such as de, for a model of several languages.")
    target_lang: str | None = option(None, "Language of the translation, for a model of several languages.")


@dataclass(frozen=True, kw_only=True)
class EngineConfig(Config, panel="Hardware"):
    """Which engine computes translations."""

    engine: Literal["pytorch", "ctranslate2"] = option(
        "pytorch", "Engine that computes. ctranslate2 needs its package, and answers single sentences sooner on CPUs."
    )
    compute_type: Literal["auto", "float32", "float16", "bfloat16", "int16", "int8"] = option(
        "auto", "Data type in which ctranslate2 computes; auto is float32."
    )
    vocabulary_map: str | None = search_option(
        None,
        "File of nmt vocabulary-map, for speed. A sentence is translated only with the target pieces that the file "
        "lists for its source pieces. The softmax is over these alone, so log P differs from that without a map.",
    )
    keep: tuple[str, ...] = search_option(
        (), "Regular expression of words that stay as they are, besides those of --protect. May be given several times."
    )
    protect: bool = search_option(
        True, "Copy addresses, placeholders, tags and emoji from the source. --no-protect leaves them to the model."
    )

    def check_phrases(self, search: SearchConfig, files: Mapping[str, str | None]) -> None:
        """Raises NmtError if files of phrases, by flag, were given for a search that cannot require phrases."""
        given = {
            "--engine ctranslate2": self.engine == "ctranslate2",
            "--sample": search.sample,
            "--beam-groups": search.beam_groups > 1,
        }
        obstacle = next((flag for flag, is_given in given.items() if is_given), None)
        for flag, path in files.items():
            if obstacle and path is not None:
                raise NmtError(f"{flag} does not work with {obstacle}; leave out one of the two")

    def _check(self) -> None:
        if self.compute_type != "auto" and self.engine == "pytorch":
            given = f"--compute-type is {self.compute_type}"
            raise NmtError(f"{given}, but needs --engine ctranslate2; add it or use --precision")


@dataclass(frozen=True, kw_only=True)
class VocabularyMapConfig(Config, panel="Candidates"):
    """How many candidates a vocabulary map gives a sentence."""

    per_piece: int = option(
        20,
        "Largest number of target pieces for each source piece, besides those of --always.",
        at_least=1,
        at_most=100_000,
    )
    always: int = option(
        1000,
        "Number of the most frequent target pieces that are always candidates, besides special pieces, characters and "
        "bytes.",
        at_least=0,
        at_most=1_000_000,
    )


@dataclass(frozen=True, kw_only=True)
class MetricConfig(Config, panel="Metrics"):
    """The options of the metrics."""

    metric: tuple[Literal["bleu", "chrf", "chrf++", "ter", "paper-bleu", "evalb"], ...] = option(
        ("bleu",),
        "Metric. paper-bleu is BLEU as in the paper's Table 2: punctuation becomes ASCII on both sides, Moses "
        "tokenises, and German compounds are split at hyphens. evalb scores trees. May be given several times.",
    )
    lowercase: bool = option(False, "Lowercase both sides for BLEU and chrF. TER always lowercases them.")
    tokenize: str | None = option(
        None,
        "Tokeniser of BLEU in sacreBLEU, such as 13a, intl, char, or none for tokenised text. By default, the "
        "one for --target-lang.",
    )
    target_lang: str | None = option(
        None,
        "Language of the translations, such as ja. BLEU then uses the tokeniser for it, and TER counts characters of "
        "Chinese and Japanese. paper-bleu needs it.",
    )
    bootstrap: int | None = option(
        None, "Report 95% confidence intervals over this many resamples (usually 1000).", at_least=2, at_most=100_000
    )


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(MetricConfig, panel="Metrics"):
    """What `nmt score` computes."""

    sentence_level: bool = option(
        False, "Print the scores of each sentence instead: one line for each, and one column for each --metric."
    )
    paired: Literal["none", "bootstrap", "ar"] = option(
        "none",
        "Test whether each further --hypothesis differs from the first by more than chance, by paired "
        "bootstrap resampling or by approximate randomisation (ar).",
    )
