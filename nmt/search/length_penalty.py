"""The length penalty of GNMT (Wu et al. 2016), and the scores that it gives hypotheses."""

from typing import TypeVar

from torch import Tensor

from nmt.search.api import TokenHypothesis

_Number = TypeVar("_Number", float, Tensor)


def length_penalty(length: _Number, alpha: float) -> _Number:
    """Returns ((5 + |Y|) / 6)^α. |Y| counts EOS, whose probability is part of P(Y|X)."""
    return ((5 + length) / 6) ** alpha


def scored(tokens: list[int], log_probs: list[float], alpha: float, unmet: bool = False) -> TokenHypothesis:
    """Returns a finished hypothesis with its score: log P over the length penalty."""
    return TokenHypothesis(tokens, log_probs, sum(log_probs) / length_penalty(float(len(log_probs)), alpha), unmet)
