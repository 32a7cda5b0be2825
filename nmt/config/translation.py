"""The options of search, of engines and of metrics."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from nmt.config.options import Config, Count, Natural, Positive, Probability, option
from nmt.errors import NmtError

# The largest number of source or target pieces that a model for CTranslate2 accepts, unless it has learned positions.
LONGEST_EXPORTED = 2048
search_option = partial(option, panel="Search")
metric_option = partial(option, excludes="metric=evalb")
sampling_option = partial(option, panel="Sampling", needs="sample")


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Config, panel="Search"):
    """The options of beam search (paper §6.1) and of sampling.

    The fields are the options of `nmt generate --help` under Search and Sampling.
    """

    beam: Count = option(4, "Hypotheses kept at every step; 1 is greedy search.", at_most=10_000)
    alpha: float = option(0.6, "GNMT length penalty: score = log P / ((5 + length) / 6)^α.", at_least=0, at_most=10)
    max_length_offset: Natural = option(
        50, "A translation may have this many pieces more than its source.", at_most=100_000
    )
    n_best: Count = option(1, "Translations for each input line. Text output has one line for each.")
    max_source_length: Count = option(512, "Translate longer lines in parts of at most this many pieces.")
    batch_tokens: Count | None = option(
        None,
        "Source tokens to translate at once, padding included. Lower it if memory runs out. By default, 4096 "
        "on a CPU and 16384 on a GPU.",
    )
    beam_groups: Count = option(
        1,
        "Diverse beam search: divide the beam into this many groups, of which each avoids the pieces of the groups "
        "before it. --diversity says how strongly.",
        excludes="sample",
    )
    diversity: float = option(
        0.5,
        "With --beam-groups: subtracted from a piece's log P for each hypothesis of an earlier group that has this "
        "piece at the same position.",
        needs="beam_groups",
        at_least=0,
        at_most=1000,
    )
    min_length: Natural = option(0, "Fewest pieces of an output.", at_most=100_000)
    no_repeat_ngram: Count | None = option(
        None, "No sequence of this many pieces occurs twice in an output, except in given prefixes and constraints."
    )
    scorer: str | None = option(None, "Name of a scorer in --user-module, which changes the log P of each next piece.")
    alignments: bool = option(False, "Also align the source words with the words of each translation: 0-0 1-2 …")
    glossary_mode: Literal["auto", "learnt", "strict", "both"] = option(
        "auto",
        "How terms of a glossary are translated. learnt: the model reads their translations in the source, and can "
        "inflect them. strict: terms that a translation lacks take the place of the words that depend on their "
        "sources, as they stand in the glossary. both: learnt, and then strict for terms that are still missing. auto: "
        "learnt for models that were trained with preprocess --terms, and strict for others.",
        needs="glossary",
    )
    glossary_fallback: bool = option(
        False, "Translate a sentence without the glossary if its terms make it doubtful.", needs="glossary"
    )
    mbr: Literal["none", "chrf"] = option(
        "none",
        "Minimum Bayes risk: of the translations by --samples or --n-best, give the one that is most like all of them. "
        "Several checkpoints translate each on its own instead of as an ensemble, and all translations are compared.",
        needs="samples n_best",
    )
    sample: bool = option(False, "Draw translations at random instead of beam search.", panel="Sampling")
    samples: Count = sampling_option(
        1, "Translations to draw for each line. Text output has one line for each.", at_most=10_000
    )
    temperature: Positive = sampling_option(1.0, "Divides log P; below 1, likely pieces become likelier.", at_most=1000)
    top_k: Count | None = sampling_option(None, "Draw each piece from this many of the most probable ones.")
    top_p: Positive = sampling_option(
        1.0, "Draw each piece from the most probable ones whose probabilities add up to this.", at_most=1
    )
    epsilon: Probability = sampling_option(
        0.0, "Draw no piece that the model gives a lower probability than this, except for the most probable one."
    )
    seed: Natural = option(1, "Seed of the samples; they do not depend on batches or workers.", panel="Sampling")

    def tokens_at_once(self, device: str) -> int:
        """Returns --batch-tokens, or the default for `device`, which is cuda or cpu.

        A GPU needs larger batches, because launching the kernels of a step takes the same time for any number of rows.
        """
        return self.batch_tokens or (16_384 if device == "cuda" else 4096)

    @property
    def hypotheses(self) -> int:
        """Hypotheses of a sentence that are computed at once."""
        return self.samples if self.sample else self.beam

    @property
    def least_pieces(self) -> int:
        """Fewest pieces of an output: a sentence's only translation is never empty. Lists and samples show all."""
        shows_all = self.mbr == "none" and (self.sample or self.n_best > 1)
        return self.min_length if shows_all else max(1, self.min_length)

    @property
    def outputs(self) -> int:
        """Most translations that a line gets."""
        return 1 if self.mbr == "chrf" else self.samples if self.sample else self.n_best

    @property
    def longest(self) -> int:
        """The largest number of tokens, EOS included, that a translation may have."""
        return self.max_source_length + 1 + self.max_length_offset

    @property
    def group_beam(self) -> int:
        """The number of hypotheses in each of the --beam-groups."""
        return self.beam // self.beam_groups

    def _check(self) -> None:
        for flag, value, default in (("--n-best", self.n_best, 1), ("--beam", self.beam, type(self).beam)):
            if self.sample and value > default:
                raise NmtError(f"{flag} is {value}, but --sample was given; use --samples {value} instead")
        if self.n_best > self.beam:
            raise NmtError(f"--n-best must be at most --beam ({self.beam}), but is {self.n_best}")
        if self.beam % self.beam_groups:
            given = f"--beam ({self.beam}), but is {self.beam_groups}"
            raise NmtError(f"--beam-groups must divide {given}; change one of the two")


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
        "auto", "Data type in which ctranslate2 computes; auto is float32.", needs="engine=ctranslate2"
    )
    vocabulary_map: str | None = search_option(
        None,
        "File of nmt vocabulary-map, for speed. A sentence is translated only with the target pieces that the file "
        "lists for its source pieces. The softmax is over these alone, so log P differs from that without a map.",
        excludes="cluster",
    )
    keep: tuple[str, ...] = search_option(
        (), "Regular expression of words that stay as they are, besides those of --protect. May be given several times."
    )
    protect: bool = search_option(
        True, "Copy addresses, placeholders, tags and emoji from the source. --no-protect leaves them to the model."
    )


@dataclass(frozen=True, kw_only=True)
class VocabularyMapConfig(Config, panel="Candidates"):
    """How many candidates a vocabulary map gives a sentence."""

    per_piece: Count = option(
        20, "Largest number of target pieces for each source piece, besides those of --always.", at_most=100_000
    )
    always: Natural = option(
        1000,
        "Number of the most frequent target pieces that are always candidates, besides special pieces, characters and "
        "bytes.",
        at_most=1_000_000,
    )


@dataclass(frozen=True, kw_only=True)
class MetricConfig(Config, panel="Metrics"):
    """The options of the metrics."""

    metric: tuple[Literal["bleu", "chrf", "chrf++", "ter", "paper-bleu", "exact", "wer", "cer", "evalb"], ...] = option(
        ("bleu",),
        "Metric. paper-bleu is BLEU as in the paper's Table 2: punctuation becomes ASCII on both sides, Moses "
        "tokenises, and German compounds are split at hyphens. exact is the percentage of lines that are equal to a "
        "reference; wer and cer are the edit distances over words and characters, in percent of the reference's "
        "length. evalb scores trees. May be given several times.",
    )
    lowercase: bool = metric_option(False, "Lowercase both sides. TER always does. Trees stay as they are.")
    tokenize: str | None = metric_option(
        None,
        "Tokeniser of BLEU in sacreBLEU, such as 13a, intl, char, or none for tokenised text. By default, the "
        "one for --target-lang.",
        needs="metric=bleu metric=paper-bleu",
    )
    target_lang: str | None = metric_option(
        None,
        "Language of the translations, such as ja. BLEU then uses the tokeniser for it, and TER counts characters of "
        "Chinese and Japanese. paper-bleu needs it.",
    )
    bootstrap: int | None = metric_option(
        None,
        "Resamples for 95 % confidence intervals. By default 1000 for up to 5,000 lines, and no intervals for more "
        "lines or with --json, unless --paired is given.",
        at_least=2,
        at_most=100_000,
    )


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(MetricConfig, panel="Metrics"):
    """What `nmt score` computes."""

    sentence_level: bool = option(
        False,
        "Print the scores of each sentence instead: one line for each, and one column for each --metric.",
        excludes="metric=evalb metric=paper-bleu bootstrap paired",
    )
    paired: Literal["none", "bootstrap", "ar"] = metric_option(
        "none",
        "Test whether each further --hypothesis differs from the first by more than chance, by paired "
        "bootstrap resampling or by approximate randomisation (ar).",
    )
