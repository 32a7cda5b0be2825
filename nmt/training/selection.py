"""Which validations are the best, and for how many validations nothing has improved.

All functions depend on the list of validations alone, so that they give the same on all ranks and after resuming.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.console import counted


@dataclass(frozen=True)
class Scores:
    """The scores of a validation.

    Attributes:
        update: the update after which it was done.
        nll: the mean negative log-likelihood of a target piece, in nats.
        bleu, chrf: scores of the translations; None if they were not computed.
    """

    update: int
    nll: float
    bleu: float | None = None
    chrf: float | None = None

    def quality(self, metric: str) -> tuple[float, float]:
        """Returns what is larger for a better validation: the score, and for equal scores the negative loss.

        A score that is no number, or that was not computed, is worse than all others.
        """
        score = {"nll": -self.nll, "bleu": self.bleu, "chrf": self.chrf}[metric]
        if score is None or math.isnan(score):
            return -math.inf, -math.inf
        return score, -math.inf if math.isnan(self.nll) else -self.nll


def is_best(validations: Sequence[Scores], metric: str) -> bool:
    """Returns whether the last validation is better than all others. The first one always is."""
    *earlier, last = (scores.quality(metric) for scores in validations)
    return all(last > other for other in earlier)


def best_updates(validations: Sequence[Scores], metric: str, count: int) -> list[int]:
    """Returns the updates of the best validations, best first; of equal ones, the earlier is better."""
    ranked = sorted(validations, key=lambda scores: scores.quality(metric), reverse=True)
    return [scores.update for scores in ranked[:count]]


def without_improvement(validations: Sequence[Scores], metrics: Sequence[str], min_delta: float) -> int:
    """Returns the number of validations since any of the metrics has improved.

    A metric has improved if its score is more than `min_delta` better than at its last improvement, or if the score is
    equal and the loss is better. BLEU, for example, is 0 in the first validations.
    """
    references: dict[str, tuple[float, float]] = {}
    count = 0
    for scores in validations:
        improved = [m for m in metrics if _improves(scores.quality(m), references.get(m), min_delta)]
        references |= {m: scores.quality(m) for m in improved}
        count = 0 if improved else count + 1
    return count


def stalled_in_words(metrics: Sequence[str], patience: int) -> str:
    """Returns why --patience ends a training, such as `bleu and nll did not improve in 3 validations`."""
    return f"{' and '.join(metrics)} did not improve in {counted(patience, 'validation')}"


def _improves(quality: tuple[float, float], reference: tuple[float, float] | None, min_delta: float) -> bool:
    if reference is None or quality[0] > reference[0] + min_delta:
        return True
    return quality[0] == reference[0] and quality[1] > reference[1]
