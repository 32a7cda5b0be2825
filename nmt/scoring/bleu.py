"""Computes corpus-level scores of translations: BLEU, chrF and TER with sacreBLEU, and the paper's BLEU."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nmt.config import ScoreConfig
from nmt.errors import NmtError
from nmt.scoring.tokenizers import bleu_tokenizer

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU


@dataclass(frozen=True)
class Confidence:
    """The mean of the bootstrap scores, and the interval that holds 95% of them."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class MetricScore:
    """A score and the signature of its settings, without which it cannot be compared."""

    name: str
    score: float
    signature: str
    details: dict[str, Any] = field(default_factory=dict)
    confidence: Confidence | None = None


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = ("bleu",),
    config: ScoreConfig | None = None,
) -> list[MetricScore]:
    """Returns the score of `hypotheses` under each of `metrics` (names in METRICS), in that order.

    Args:
        hypotheses: detokenised translations, one per segment.
        references: lists of reference translations; each list is as long as `hypotheses`.

    Raises:
        NmtError: an unknown metric or tokeniser, no segments, or lists of different lengths.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown:
        raise NmtError(f"--metric {unknown[0]} is unknown; it must be one of {', '.join(METRICS)}, or evalb alone")
    if not hypotheses or not references:
        raise NmtError("there is nothing to score: give at least one translation and its reference")
    for reference in references:
        if len(reference) != len(hypotheses):
            raise NmtError(f"{len(hypotheses)} translations cannot be scored against {len(reference)} references")
    return [METRICS[name](hypotheses, references, config or ScoreConfig()) for name in metrics]


def _bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], config: ScoreConfig) -> MetricScore:
    def details(score: Any) -> dict[str, Any]:
        return {
            "precisions": list(score.precisions),
            "brevity_penalty": score.bp,
            "length_ratio": float(score.ratio),
            "hypothesis_length": score.sys_len,
            "reference_length": score.ref_len,
        }

    return _sacrebleu_score(_bleu_metric(config), hypotheses, references, config, details)


def _bleu_metric(config: ScoreConfig) -> "BLEU":
    from sacrebleu.metrics.bleu import BLEU

    tokenize = config.tokenize or bleu_tokenizer(config.target_lang)
    if tokenize not in BLEU.TOKENIZERS:
        raise NmtError(f"--tokenize {tokenize} is unknown; it must be one of {', '.join(BLEU.TOKENIZERS)}")
    try:
        # `force` only suppresses sacreBLEU's warning about text that looks tokenised.
        return BLEU(lowercase=config.lowercase, tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:  # a missing package, or a model it could not download
        reason = " ".join(str(error).split())
        raise NmtError(f"--tokenize {tokenize} cannot be set up here: {reason}") from error


def _paper_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], config: ScoreConfig) -> MetricScore:
    """Computes BLEU in the same way as the paper's Table 2 and the papers that it compares with.

    The text is tokenised with Moses. The formula of multi-bleu.perl is sacreBLEU's formula without smoothing.
    """
    from sacrebleu.metrics.bleu import BLEU

    if config.target_lang is None or not re.fullmatch("[a-z]{2}", config.target_lang):
        state = f"is {config.target_lang!r}" if config.target_lang else "is missing"
        raise NmtError(f"--target-lang must be the two letters of a language for paper-bleu, such as de, but {state}")
    prepare = _paper_text(config.target_lang)
    prepared, *others = ([prepare(line) for line in lines] for lines in (hypotheses, *references))
    metric = BLEU(lowercase=config.lowercase, tokenize="none", smooth_method="none", force=True)
    found = _sacrebleu_score(metric, prepared, others, config)
    compounds = "split" if config.target_lang == "de" else "whole"
    signature = f"nrefs:{len(references)}|case:{'lc' if config.lowercase else 'mixed'}|tok:moses-{config.target_lang}"
    return replace(found, name="paper-BLEU", signature=f"{signature}|compounds:{compounds}|smooth:none")


def _paper_text(lang: str) -> Callable[[str], str]:
    """Returns a function that replaces Unicode punctuation by ASCII and tokenises with Moses.

    It also splits German compounds at hyphens: `rich-text` becomes `rich ##AT##-##AT## text`.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer, tokenizer = MosesPunctNormalizer(lang), MosesTokenizer(lang)

    def prepare(line: str) -> str:
        tokens: str = tokenizer.tokenize(normalizer.replace_unicode_punct(line), return_str=True)
        return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokens) if lang == "de" else tokens

    return prepare


def _chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]], config: ScoreConfig) -> MetricScore:
    from sacrebleu.metrics.chrf import CHRF

    return _sacrebleu_score(CHRF(lowercase=config.lowercase), hypotheses, references, config)


def _ter(hypotheses: Sequence[str], references: Sequence[Sequence[str]], config: ScoreConfig) -> MetricScore:
    from sacrebleu.metrics.ter import TER

    def details(score: Any) -> dict[str, Any]:
        return {"edits": score.num_edits, "reference_length": score.ref_length}

    return _sacrebleu_score(TER(), hypotheses, references, config, details)


def _sacrebleu_score(
    metric: "Metric",
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    config: ScoreConfig,
    details: Callable[[Any], dict[str, Any]] = lambda _: {},
) -> MetricScore:
    score = metric.corpus_score(hypotheses, references, n_bootstrap=config.bootstrap or 1)
    confidence = None
    if config.bootstrap:
        mean, half_width = float(score._mean), float(score._ci)
        confidence = Confidence(mean=mean, low=mean - half_width, high=mean + half_width)
    return MetricScore(
        name=score.name,
        score=score.score,
        signature=str(metric.get_signature()),
        details=details(score),
        confidence=confidence,
    )


# The choices of `--metric`. A new metric is one function and one entry here.
METRICS: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]], ScoreConfig], MetricScore]] = {
    "bleu": _bleu,
    "chrf": _chrf,
    "ter": _ter,
    "paper-bleu": _paper_bleu,
}
