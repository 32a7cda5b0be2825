"""Finished hypotheses and their scores, with the length penalty of Wu et al. 2016."""

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

_Number = TypeVar("_Number", float, Tensor)


@dataclass(frozen=True)
class TokenHypothesis:
    """A finished hypothesis in tokens.

    Attributes:
        tokens: its ids without EOS.
        log_probs: natural log P of each token, from the user's scorer if there is one; that of EOS is last.
        score: log P of the hypothesis over the length penalty.
        unmet: whether a required phrase is missing, because the longest output cannot hold all of them.
    """

    tokens: list[int]
    log_probs: list[float]
    score: float
    unmet: bool = False

    @property
    def log_prob(self) -> float:
        """The log P of the hypothesis, EOS included."""
        return sum(self.log_probs)

    @classmethod
    def scored(cls, tokens: list[int], log_probs: list[float], alpha: float, unmet: bool = False) -> "TokenHypothesis":
        """Returns the hypothesis with its score."""
        return cls(tokens, log_probs, sum(log_probs) / length_penalty(float(len(log_probs)), alpha), unmet)


def length_penalty(length: _Number, alpha: float) -> _Number:
    """Returns ((5 + |Y|) / 6)^α (Wu et al. 2016). |Y| counts EOS, whose probability is part of P(Y|X)."""
    return ((5 + length) / 6) ** alpha
