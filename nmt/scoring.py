"""Scores of translations: sacreBLEU's metrics, the paper's BLEU, error rates and exact matches."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from nmt.config import ScoreConfig
from nmt.errors import NmtError, OptionError, importing
from nmt.resources import available_bytes
from nmt.text.languages import CHINESE, WITHOUT_SPACES, base_language
from nmt.text.moses import with_ascii_punctuation
from nmt.text.words import is_blank

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

# Tokenisers that need a morphological analyser, which sacreBLEU installs on request only.
_ANALYSERS = {"ja": "ja-mecab", "ko": "ko-mecab"}
# The languages whose characters TER counts.
TER_SPLITS = CHINESE | {"ja"}
# Bytes that sacreBLEU needs for each line of a resample by metric, and of one of its 10,000 randomisations.
_RESAMPLE_BYTES, _RANDOMISATION_BYTES = {"bleu": 48, "paper-bleu": 48, "chrf": 80, "chrf++": 104}, 10
_OTHER_RESAMPLE_BYTES = 16


def bleu_tokenizer(lang: str | None) -> str:
    """Returns the name of the tokeniser that BLEU uses for translations into `lang`, or `13a` without a language.

    The choice is sacreBLEU's own, except that `char` stands in for an analyser that is not installed, and is used
    for languages that are written without spaces and have no tokeniser.
    """
    language = base_language(lang or "")
    if language in CHINESE:
        return "zh"
    if language not in _ANALYSERS:
        return "char" if language in WITHOUT_SPACES else "13a"
    from sacrebleu.metrics.bleu import BLEU

    try:
        BLEU(tokenize=_ANALYSERS[language])
    except (ImportError, RuntimeError, OSError, AssertionError):  # AssertionError: another dictionary
        return "char"
    return _ANALYSERS[language]


def tokenizer_warning(lang: str | None) -> str | None:
    """Returns a warning if the analyser that `bleu_tokenizer` would choose is not installed, and None otherwise."""
    language = base_language(lang or "")
    if language not in _ANALYSERS or bleu_tokenizer(lang) == _ANALYSERS[language]:
        return None
    return (
        f"BLEU is computed over characters (tok:char), because sacreBLEU's tokeniser for {lang} is not installed; "
        f"install it with pip install 'sacrebleu[{language}]' for scores that can be compared with published ones"
    )


@dataclass(frozen=True)
class Confidence:
    """The mean of the bootstrap scores, and the interval from `low` to `high` that holds 95% of them."""

    mean: float
    low: float
    high: float

    @classmethod
    def around(cls, mean: float, half_width: float) -> Self:
        """Returns the interval that reaches `half_width` to both sides of the mean."""
        return cls(float(mean), float(mean - half_width), float(mean + half_width))


@dataclass(frozen=True)
class MetricScore:
    """A score and the signature of its settings, without which it cannot be compared.

    `str()` gives the score, perhaps with its interval, the details and the signature on a line each.

    Attributes:
        name: the name of the metric, such as BLEU.
        score: the score, from 0 to 100; TER, WER and CER, which count errors, may be larger.
        signature: sacreBLEU's signature of the settings.
        details: further figures, such as BLEU's precisions and brevity_penalty.
        confidence: the mean and the 95 % confidence interval; None without `bootstrap`.
        p_value: how likely so large a difference from the first system is by chance; None without a paired test.
    """

    name: str
    score: float
    signature: str
    details: dict[str, Any] = field(default_factory=dict)
    confidence: Confidence | None = None
    p_value: float | None = None

    def __str__(self) -> str:
        line = f"{self.name} {self.score:.2f}"
        if c := self.confidence:
            line += f", with 95 % confidence between {c.low:.2f} and {c.high:.2f}"
        details = []
        for name, value in self.details.items():
            written = "/".join(f"{v:.1f}" for v in value) if isinstance(value, list) else value
            details.append(f"{name.replace('_', ' ')} {f'{value:.3f}' if isinstance(value, float) else written}")
        return "\n".join([line, *([", ".join(details)] if details else []), f"signature {self.signature}"])


@dataclass(frozen=True)
class SacreScorer:
    """A metric of sacreBLEU, with the preparation of its text and the details of its scores.

    Attributes:
        details: returns further figures to report with a score.
        prepare: changes each line before the metric reads it.
        name: the name to report; None for sacreBLEU's name.
    """

    metric: "Metric"
    details: Callable[[Any], dict[str, Any]] = lambda _: {}
    prepare: Callable[[str], str] = str
    name: str | None = None

    def prepared_references(self, references: Sequence[Sequence[str]]) -> list[list[str | None]]:
        """Returns the references that the metric sees.

        A blank reference of a sentence that has another one is None: sacreBLEU then counts fewer references for it.
        """
        prepared = []
        for lines in zip(*references, strict=True):
            has_text = not all(map(is_blank, lines))
            prepared.append([None if has_text and is_blank(line) else self.prepare(line) for line in lines])
        return list(map(list, zip(*prepared, strict=True)))


def corpus_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], metrics: Sequence[str], config: ScoreConfig
) -> list[MetricScore]:
    """Returns the score of `hypotheses` under each of `metrics` (names in METRICS), in that order."""
    scorers = _scorers([hypotheses], references, metrics, config)
    _check_memory(len(hypotheses), metrics, config)
    return [
        _score(scorer, list(map(scorer.prepare, hypotheses)), scorer.prepared_references(references), config.bootstrap)
        for scorer in scorers
    ]


def sentence_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], metric: str, config: ScoreConfig
) -> list[MetricScore]:
    """Returns the score of each of `hypotheses` under a metric, a name in METRICS.

    BLEU of a sentence leaves out the orders of n-grams that the sentence is too short for, as sacreBLEU recommends.
    """
    (scorer,) = _scorers([hypotheses], references, [metric], replace(config, sentence_level=True))
    sacre: Any = scorer.metric
    counts = sacre._extract_corpus_statistics(
        list(map(scorer.prepare, hypotheses)), scorer.prepared_references(references)
    )
    scores = [sacre._aggregate_and_compute([sentence]) for sentence in counts]
    signature = str(sacre.get_signature())
    return [MetricScore(score.name, score.score, signature, scorer.details(score)) for score in scores]


def _scorers(
    systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], metrics: Sequence[str], config: ScoreConfig
) -> list[SacreScorer]:
    """Returns the scorer of each metric, after a check of the text of each system."""
    for lines in (*systems, *references):
        for index, line in enumerate(lines):
            if not isinstance(line, str):
                raise TypeError(f"line {index + 1} to score is {line!r:.40}, but must be a string; give text for it")
    for hypotheses in systems:
        if not hypotheses or not references:
            raise NmtError("there is nothing to score: give at least one translation and its reference")
        for reference in references:
            if len(reference) != len(hypotheses):
                sizes = f"{len(hypotheses):,} and {len(reference):,}"
                raise NmtError(f"translations and references must be equally many, but are {sizes}; give both in full")
    if "evalb" in metrics:
        raise OptionError("--metric evalb scores trees, which only the command nmt score reads; leave it out")
    return [METRICS[name](config) for name in metrics]


def _check_memory(lines: int, metrics: Sequence[str], config: ScoreConfig) -> None:
    """Raises OptionError if the samples of a test, which sacreBLEU draws all at once, would not fit into memory."""
    resamples = config.bootstrap or (1000 if config.paired == "bootstrap" else 0)
    resample_bytes = max(_RESAMPLE_BYTES.get(metric, _OTHER_RESAMPLE_BYTES) for metric in metrics) * resamples
    randomisation_bytes = _RANDOMISATION_BYTES * 10_000 if config.paired == "ar" else 0
    if (needed := (resample_bytes + randomisation_bytes) * lines) > (available := available_bytes()):
        option = "--bootstrap" if resample_bytes > randomisation_bytes else "--paired ar"
        fewer = (
            "fewer lines, or fewer resamples by --bootstrap" if resample_bytes else "fewer lines, or --paired bootstrap"
        )
        raise OptionError(
            f"{option} needs about {needed / 2**30:,.1f} GiB of memory for {lines:,} lines, but only "
            f"{available / 2**30:,.1f} GiB are free; give {fewer}"
        )


def _score(
    scorer: SacreScorer, prepared: Sequence[str], references: Sequence[Sequence[str | None]], bootstrap: int | None
) -> MetricScore:
    """Returns the score of prepared text."""
    score = scorer.metric.corpus_score(prepared, references, n_bootstrap=bootstrap or 1)  # type: ignore[arg-type]
    confidence = Confidence.around(score._mean, score._ci) if bootstrap else None
    signature = str(scorer.metric.get_signature())
    return MetricScore(scorer.name or score.name, score.score, signature, scorer.details(score), confidence)


def compared_scores(
    systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], metrics: Sequence[str], config: ScoreConfig
) -> list[list[MetricScore]]:
    """Returns the scores of each system under each metric, with p-values and confidence intervals.

    The p-values belong to differences from the first system, which has none. `config.paired` chooses the test:
    paired bootstrap resampling (Koehn 2004) or paired approximate randomisation (Riezler and Maxwell 2005).
    sacreBLEU draws 1,000 resamples and 10,000 randomisations; `config.bootstrap` changes the former, which the
    intervals of both tests come from.
    """
    from sacrebleu.significance import PairedTest

    by_bootstrap = config.paired == "bootstrap"
    resamples = config.bootstrap or 0  # 0 is sacreBLEU's default
    by_system: list[list[MetricScore]] = [[] for _ in systems]
    scorers = _scorers(systems, references, metrics, config)
    _check_memory(len(systems[0]), metrics, config)
    for scorer in scorers:
        prepared = [list(map(scorer.prepare, system)) for system in systems]
        others = scorer.prepared_references(references)
        test = PairedTest(
            [(str(i), system) for i, system in enumerate(prepared)],
            {"metric": scorer.metric},
            others,  # type: ignore[arg-type]
            test_type="bs" if by_bootstrap else "ar",
            n_samples=resamples if by_bootstrap else 0,
            n_ar_confidence=-1 if by_bootstrap else resamples,
        )
        signatures, results = test()
        ((name, signature),) = signatures.items()
        outcomes: list[Any] = results[name]
        for scores, system, result in zip(by_system, prepared, outcomes, strict=True):
            score = _score(scorer, system, others, None)
            confidence = Confidence.around(result.mean, result.ci)
            # sacreBLEU counts only larger differences, but by chance, any difference is at least as large as none.
            p_value = None if result.p_value is None else float(result.p_value)
            p_value = 1.0 if p_value is not None and score.score == by_system[0][-1].score else p_value
            scores.append(replace(score, signature=str(signature), confidence=confidence, p_value=p_value))
    return by_system


def _with_float_scores(metric: Any) -> Any:
    """Returns a metric whose scores are floats. sacreBLEU mixes in numpy.float32 and cannot average a mixture."""

    class FloatScores(metric):
        def _compute_score_from_stats(self, stats: Sequence[float]) -> Any:
            score = super()._compute_score_from_stats(stats)
            score.score = float(score.score)
            return score

    return FloatScores


def _bleu(config: ScoreConfig) -> SacreScorer:
    from sacrebleu.metrics.bleu import BLEU

    tokenize = config.tokenize or bleu_tokenizer(config.target_lang)
    if tokenize not in BLEU.TOKENIZERS:
        raise NmtError(f"--tokenize {tokenize} is unknown; it must be one of {', '.join(BLEU.TOKENIZERS)}")
    try:
        # `force` only suppresses sacreBLEU's warning about text that looks tokenised.
        metric = BLEU(lowercase=config.lowercase, tokenize=tokenize, force=True, effective_order=config.sentence_level)
    except (ImportError, RuntimeError, OSError) as error:  # a missing package, or a model it could not download
        reason = " ".join(str(error).split())
        raise NmtError(f"--tokenize {tokenize} cannot be set up here: {reason}") from error
    return SacreScorer(
        metric,
        details=lambda score: {
            "precisions": list(score.precisions),
            "brevity_penalty": score.bp,
            "length_ratio": float(score.ratio),
            "hypothesis_length": score.sys_len,
            "reference_length": score.ref_len,
        },
    )


def _paper_bleu(config: ScoreConfig) -> SacreScorer:
    """Computes BLEU in the same way as the paper's Table 2 and the papers that it compares with.

    Typographic and full-width punctuation becomes ASCII, the text is tokenised with Moses, and German compounds are
    split at hyphens: `rich-text` becomes `rich ##AT##-##AT## text`. The formula of multi-bleu.perl is sacreBLEU's
    without smoothing.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    lang = config.target_lang
    if lang is None or not re.fullmatch("[a-z]{2}", lang):
        state = f", but is {lang!r}" if lang else "; add it, such as --target-lang de"
        raise NmtError(f"paper-bleu needs --target-lang with the two letters of the language{state}")
    metric = BLEU(lowercase=config.lowercase, tokenize="none", smooth_method="none", force=True)
    compounds = "split" if lang == "de" else "whole"
    metric.tokenizer_signature = f"moses-{lang}|punct:ascii-quotes-dashes-dots-wide|compounds:{compounds}"
    normalizer, tokenizer = MosesPunctNormalizer(lang), MosesTokenizer(lang)

    def prepare(line: str) -> str:
        tokens: str = tokenizer.tokenize(
            normalizer.replace_unicode_punct(with_ascii_punctuation(line)), return_str=True
        )
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens) if lang == "de" else tokens

    return SacreScorer(metric, prepare=prepare, name="paper-BLEU")


def _chrf(config: ScoreConfig, word_order: int = 0) -> SacreScorer:
    from sacrebleu.metrics.chrf import CHRF

    return SacreScorer(_with_float_scores(CHRF)(lowercase=config.lowercase, word_order=word_order))


def _ter(config: ScoreConfig) -> SacreScorer:
    """Computes TER over words, and over characters of Chinese and Japanese, which have no spaces between words."""
    from sacrebleu.metrics.ter import TER

    def details(score: Any) -> dict[str, Any]:
        length = float(score.ref_length)  # the mean over several references need not be whole
        return {"edits": score.num_edits, "reference_length": int(length) if length.is_integer() else length}

    is_asian = base_language(config.target_lang or "") in TER_SPLITS
    return SacreScorer(_with_float_scores(TER)(normalized=is_asian, asian_support=is_asian), details)


def _error_rate(config: ScoreConfig, name: str, units: Callable[[str], Sequence[str]]) -> SacreScorer:
    """Computes edits (Levenshtein 1966) per 100 units of the references, which are words or characters."""
    with importing("rapidfuzz", f"--metric {name.lower()}", extra="memory"):
        from rapidfuzz.distance import Levenshtein

    def errors(line: str, reference: str) -> tuple[float, float]:
        return Levenshtein.distance(units(line), units(reference)), len(units(reference))

    return _share(config, name, errors, min)


def _exact(config: ScoreConfig) -> SacreScorer:
    """Computes the percentage of lines that are equal to a reference, apart from the number of spaces."""
    return _share(config, "exact", lambda line, reference: (line == reference, 1), max)


def _share(
    config: ScoreConfig,
    name: str,
    counts: Callable[[str, str], tuple[float, float]],
    best: Callable[..., tuple[float, float]],
) -> SacreScorer:
    """Returns a metric: 100 times the sum of a count over the sum of another one, over all lines.

    Args:
        counts: returns both counts for a line and a reference.
        best: chooses the counts of the best reference.
    """
    from sacrebleu.metrics.base import Metric, Score, Signature

    class ShareSignature(Signature):
        def __init__(self, args: dict[str, Any]) -> None:
            super().__init__(args)
            self._abbr["case"] = "c"
            self.info["case"] = "lc" if config.lowercase else "mixed"

    class Share(Metric):
        _SIGNATURE_TYPE = ShareSignature

        def _preprocess_segment(self, sent: str) -> str:
            line = " ".join(sent.split())
            return line.lower() if config.lowercase else line

        def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
            return {"references": refs}

        def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
            pairs = (counts(hypothesis, reference) for reference in ref_kwargs["references"])
            return list(best(pairs, key=lambda pair: pair[0] / max(pair[1], 1)))

        def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
            return Score(name, 100 * float(stats[0]) / max(float(stats[1]), 1))

        def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> Score:
            return self._compute_score_from_stats(list(map(sum, zip(*stats, strict=True))))

    return SacreScorer(Share())


# The choices of `--metric`. A new metric is one function and one entry here.
METRICS: dict[str, Callable[[ScoreConfig], SacreScorer]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "chrf++": partial(_chrf, word_order=2),
    "ter": _ter,
    "paper-bleu": _paper_bleu,
    "exact": _exact,
    "wer": partial(_error_rate, name="WER", units=str.split),
    "cer": partial(_error_rate, name="CER", units=str),
}
