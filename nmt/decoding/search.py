"""Beam search (paper §6.1) over a step function. It knows no model.

Shapes: B sentences still being searched, W beam width, R = B·W rows, V vocabulary, C candidates.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from nmt.config import SearchConfig


class Cache(Protocol):
    """What `step` keeps from one call to the next."""

    def select(self, rows_R: Tensor, sentences_B: Tensor | None) -> Self:
        """The state of these rows, in this order; and of these sentences only, unless None."""


# last tokens R, cache -> log-probabilities RV of the next token, cache
Step = Callable[[Tensor, Cache], tuple[Tensor, Cache]]


@dataclass(frozen=True)
class Found:
    """A finished hypothesis: its tokens without EOS, log P, and log P over the length penalty."""

    tokens: list[int]
    log_prob: float
    score: float


def length_penalty(length: Tensor | float, alpha: float) -> Tensor | float:
    """((5 + |Y|) / 6)^α of Wu et al. 2016; |Y| counts EOS, whose probability is part of P(Y|X)."""
    return ((5 + length) / 6) ** alpha


class _Beams:
    """The live hypotheses of the sentences still searched, as tensors; hypothesis w of sentence b is row b·W + w."""

    def __init__(self, max_lengths_B: Tensor, width: int, bos: int) -> None:
        device = max_lengths_B.device
        self.width = width
        self.sentences_B = torch.arange(len(max_lengths_B), device=device)
        self.max_lengths_B = max_lengths_B
        self.tokens_BWT = torch.full((len(max_lengths_B), width, 1), bos, dtype=torch.long, device=device)
        # All beams start alike, so only the first may count.
        self.log_probs_BW = torch.full((len(max_lengths_B), width), -torch.inf, device=device)
        self.log_probs_BW[:, 0] = 0

    def candidates(self, log_probs_RV: Tensor, eos: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best 2W continuations of each sentence: their log P, the beam they continue and the token, each BC.

        With 2W, W remain even if all beams' EOS are among them. At its maximum length a hypothesis can only end.
        """
        length = self.tokens_BWT.shape[2]
        log_probs_BWV = log_probs_RV.unflatten(0, (-1, self.width))
        must_end_B = self.max_lengths_B <= length
        if bool(must_end_B.any()):
            ending_BW = log_probs_BWV[must_end_B, :, eos]
            log_probs_BWV = log_probs_BWV.clone()
            log_probs_BWV[must_end_B] = -torch.inf
            log_probs_BWV[must_end_B, :, eos] = ending_BW
        total_BX = (log_probs_BWV + self.log_probs_BW[:, :, None]).flatten(1)
        best_BC, index_BC = total_BX.topk(min(2 * self.width, total_BX.shape[1]))
        vocabulary = log_probs_RV.shape[1]
        return best_BC, index_BC // vocabulary, index_BC % vocabulary

    def advance(self, log_probs_BW: Tensor, beams_BW: Tensor, tokens_BW: Tensor) -> None:
        chosen_BWT = self.tokens_BWT.gather(1, beams_BW[:, :, None].expand(-1, -1, self.tokens_BWT.shape[2]))
        self.tokens_BWT = torch.cat((chosen_BWT, tokens_BW[:, :, None]), dim=2)
        self.log_probs_BW = log_probs_BW

    def keep(self, live_B: Tensor) -> None:
        """Drops the sentences that are not live."""
        for name in ("sentences_B", "max_lengths_B", "tokens_BWT", "log_probs_BW"):
            setattr(self, name, getattr(self, name)[live_B])


@torch.no_grad()
def beam_search(
    step: Step, cache: Cache, max_lengths_B: Tensor, *, bos: int, eos: int, config: SearchConfig
) -> list[list[Found]]:
    """The `n_best` best-scored finished hypotheses of each sentence, best first.

    Each step keeps the `beam` best continuations of the live hypotheses, and sets aside those among them that end in
    EOS. A sentence is done when no live hypothesis can reach its n-th best any more. A beam of one is greedy search: it
    is done with the first EOS.

    Args:
        cache: state with one row a sentence, before any token.
        max_lengths_B: most tokens of each sentence's output, EOS included, at least 1.
    """
    width = config.beam
    beams = _Beams(max_lengths_B, width, bos)
    finished: list[list[Found]] = [[] for _ in range(len(max_lengths_B))]
    rows_R = beams.sentences_B.repeat_interleave(width)
    cache = cache.select(rows_R, None)
    while len(beams.sentences_B):
        log_probs_RV, cache = step(beams.tokens_BWT[:, :, -1].flatten(), cache)
        log_probs_BC, beams_BC, tokens_BC = beams.candidates(log_probs_RV, eos)
        ended_BC = tokens_BC == eos
        _collect(finished, beams, log_probs_BC, beams_BC, ended_BC, config)
        # A stable sort by "has ended" keeps the live candidates' order: the first W go on.
        going_BW = ended_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, :width]
        going_on_BW = log_probs_BC.masked_fill(ended_BC, -torch.inf).gather(1, going_BW)
        from_BW = beams_BC.gather(1, going_BW)
        beams.advance(going_on_BW, from_BW, tokens_BC.gather(1, going_BW))
        live_B = _live(finished, beams, config)
        rows_BW = from_BW + torch.arange(len(from_BW), device=from_BW.device)[:, None] * width
        if bool(live_B.all()):
            cache = cache.select(rows_BW.flatten(), None)
        else:
            beams.keep(live_B)
            cache = cache.select(rows_BW[live_B].flatten(), live_B.nonzero()[:, 0])
    return [sorted(found, key=lambda f: -f.score)[: config.n_best] for found in finished]


def _collect(
    finished: list[list[Found]],
    beams: _Beams,
    log_probs_BC: Tensor,
    beams_BC: Tensor,
    ended_BC: Tensor,
    config: SearchConfig,
) -> None:
    """Sets aside the hypotheses among each sentence's W best candidates that have just ended."""
    ended_BW = ended_BC[:, : beams.width] & log_probs_BC[:, : beams.width].isfinite()
    penalty = length_penalty(beams.tokens_BWT.shape[2], config.alpha)
    for b, w in ended_BW.nonzero().tolist():
        log_prob = float(log_probs_BC[b, w])
        tokens = beams.tokens_BWT[b, int(beams_BC[b, w]), 1:].tolist()
        finished[int(beams.sentences_B[b])].append(Found(tokens, log_prob, log_prob / float(penalty)))


def _live(finished: list[list[Found]], beams: _Beams, config: SearchConfig) -> Tensor:
    """Which sentences, B, are not done.

    log P only falls as a hypothesis grows and the penalty only rises, so log P now over the penalty at the maximum
    length bounds any score a live hypothesis can still get.
    """
    best_live_B = beams.log_probs_BW.max(dim=1).values
    bound_B = best_live_B / length_penalty(beams.max_lengths_B, config.alpha)
    live = []
    for sentence, bound in zip(beams.sentences_B.tolist(), bound_B.tolist(), strict=True):
        scores = sorted((f.score for f in finished[sentence]), reverse=True)
        beaten = len(scores) >= config.n_best and (config.beam == 1 or bound <= scores[config.n_best - 1])
        live.append(bound > -torch.inf and not beaten)
    return torch.tensor(live, dtype=torch.bool, device=best_live_B.device)
