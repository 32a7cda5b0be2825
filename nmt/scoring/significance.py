"""Tests whether translation systems differ from a first one by more than chance, with sacreBLEU's paired tests."""

from collections.abc import Sequence
from typing import Any

from nmt.config import ScoreConfig
from nmt.scoring.metrics import Confidence, MetricScore, SacreScorer, check_text, sacre_scorers

# sacreBLEU's names of the choices of `--paired`.
_TESTS = {"bootstrap": "bs", "ar": "ar"}


def compared_scores(
    systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], metrics: Sequence[str], config: ScoreConfig
) -> list[list[MetricScore]]:
    """Returns the scores of each system under each metric, with p-values and confidence intervals.

    The p-values belong to differences from the first system, which has none. `config.paired` chooses the test: paired
    bootstrap resampling (Koehn 2004) or paired approximate randomisation (Riezler and Maxwell 2005). sacreBLEU draws
    1,000 resamples and 10,000 randomisations; `config.bootstrap` changes the former, which the intervals of both tests
    come from.
    """
    for system in systems:
        check_text(system, references)
    by_metric = [_compared(scorer, systems, references, config) for scorer in sacre_scorers(metrics, config)]
    return [list(scores) for scores in zip(*by_metric, strict=True)]


def _compared(
    scorer: SacreScorer, systems: Sequence[Sequence[str]], references: Sequence[Sequence[str]], config: ScoreConfig
) -> list[MetricScore]:
    from sacrebleu.significance import PairedTest

    resamples = config.bootstrap or 0  # 0 is sacreBLEU's default
    test = PairedTest(
        [(str(number), scorer.prepared(system)) for number, system in enumerate(systems)],
        {"metric": scorer.metric},
        [scorer.prepared(reference) for reference in references],
        test_type=_TESTS[config.paired],
        n_samples=resamples if config.paired == "bootstrap" else 0,
        n_ar_confidence=resamples if config.paired == "ar" else -1,
    )
    signatures, results = test()
    ((key, found),) = signatures.items()
    name, signature = scorer.rename(key, str(found))
    return [_metric_score(name, signature, result) for result in results[key]]


def _metric_score(name: str, signature: str, result: Any) -> MetricScore:
    p_value = None if result.p_value is None else float(result.p_value)
    return MetricScore(name, float(result.score), signature, {}, Confidence.around(result.mean, result.ci), p_value)
