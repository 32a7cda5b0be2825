"""Beam search (paper §6.1) over a step function. It knows no model.

Shapes: B sentences still being searched, W beam width, R = B·W rows, V vocabulary, C candidates, E ended hypotheses.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from nmt.config import SearchConfig

# Sentences that are done leave the batch, which copies what the model keeps of the others, when so many of them are.
_DONE_SHARE = 0.25
# Numbers in a block; the largest are looked for in few of them.
_BLOCK = 64


class Cache(Protocol):
    """What `step` keeps from one call to the next."""

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> Self:
        """The state of the hypotheses that go on from these, by their number within the sentence.

        Only of the sentences numbered in `sentences_B`, unless None; B of `parents_BW` counts those.
        """


# last tokens R, cache -> scores RV of the next token, cache. A row's scores are its log-probabilities plus a constant.
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


def largest(x_BWV: Tensor, offsets_BW: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The `k` largest of each sentence's x + offset, or all if there are fewer, and their places in its W·V numbers.

    Cuts rows into blocks, because the k largest lie within the k blocks with the largest maxima (or behind the last
    block), and maxima are found much faster than `topk` finds anything.
    """
    sentences, width, vocabulary = x_BWV.shape
    blocks = vocabulary // _BLOCK
    whole = blocks * _BLOCK
    x_BWNL = x_BWV[:, :, :whole].unflatten(2, (blocks, _BLOCK))
    chosen_BK = (x_BWNL.amax(3) + offsets_BW[:, :, None]).flatten(1).topk(min(k, width * blocks)).indices
    b_B1 = torch.arange(sentences, device=x_BWV.device)[:, None]
    w_BK, n_BK = chosen_BK // max(blocks, 1), chosen_BK % max(blocks, 1)
    inside_BKL = x_BWNL[b_B1, w_BK, n_BK] + offsets_BW.gather(1, w_BK)[:, :, None]
    behind_BWL = x_BWV[:, :, whole:] + offsets_BW[:, :, None]
    best_BK, index_BK = torch.cat((inside_BKL.flatten(1), behind_BWL.flatten(1)), 1).topk(min(k, width * vocabulary))
    places_WV = torch.arange(width * vocabulary, device=x_BWV.device).view(width, vocabulary)
    inside_BKL = (w_BK * vocabulary + n_BK * _BLOCK)[:, :, None] + places_WV[0, :_BLOCK]
    behind_BX = places_WV[:, whole:].flatten().expand(sentences, -1)
    return best_BK, torch.cat((inside_BKL.flatten(1), behind_BX), 1).gather(1, index_BK)


class _Finished:
    """The best finished hypotheses of every sentence, best first, never more than asked for."""

    def __init__(self, sentences: int, config: SearchConfig) -> None:
        self.config = config
        self.found: list[list[Found]] = [[] for _ in range(sentences)]

    def add(self, sentence: int, tokens: list[int], log_prob: float) -> None:
        score = log_prob / float(length_penalty(len(tokens) + 1, self.config.alpha))
        ranked = sorted([*self.found[sentence], Found(tokens, log_prob, score)], key=lambda f: -f.score)
        self.found[sentence] = ranked[: self.config.n_best]

    def to_beat(self, sentence: int) -> float:
        """The score that a further hypothesis must exceed. A beam of one is greedy search: its first EOS is the end."""
        found = self.found[sentence]
        if len(found) < self.config.n_best:
            return -math.inf
        return math.inf if self.config.beam == 1 else found[-1].score


class _Candidates(NamedTuple):
    """Continuations of each sentence's hypotheses, best first: log P, which is continued, the token, is it EOS."""

    log_probs_BC: Tensor
    parents_BC: Tensor
    tokens_BC: Tensor
    ended_BC: Tensor


class _Beams:
    """The hypotheses of the sentences still searched, as tensors; hypothesis w of sentence b is row b·W + w."""

    def __init__(self, max_lengths_B: Tensor, width: int, bos: int) -> None:
        device = max_lengths_B.device
        self.width = width
        self.sentences_B = torch.arange(len(max_lengths_B), device=device)
        self.max_lengths_B = max_lengths_B
        # The first length at which one must end. On the host, which would otherwise wait for the device at every step.
        self.first_end = int(max_lengths_B.min())
        self.tokens_BWT = torch.full((len(max_lengths_B), width, 1), bos, dtype=torch.long, device=device)
        # All beams start alike, so only the first may count.
        self.log_probs_BW = torch.full((len(max_lengths_B), width), -torch.inf, device=device)
        self.log_probs_BW[:, 0] = 0

    @property
    def length(self) -> int:
        """Tokens of every hypothesis once it gets the next."""
        return self.tokens_BWT.shape[2]

    def candidates(self, scores_RV: Tensor, eos: int) -> _Candidates:
        """The best 2W, so that W remain even if all beams' EOS are among them. At its maximum length all must end."""
        # On a CPU log_softmax is twice as fast as logsumexp.
        log_probs_BWV = scores_RV.log_softmax(1).unflatten(0, (-1, self.width))
        if self.length >= self.first_end:
            must_end_B = self.max_lengths_B <= self.length
            ending_BW = log_probs_BWV[must_end_B, :, eos]
            log_probs_BWV[must_end_B] = -torch.inf
            log_probs_BWV[must_end_B, :, eos] = ending_BW
        log_probs_BC, places_BC = largest(log_probs_BWV, self.log_probs_BW, 2 * self.width)
        parents_BC, tokens_BC = places_BC // scores_RV.shape[1], places_BC % scores_RV.shape[1]
        return _Candidates(log_probs_BC, parents_BC, tokens_BC, tokens_BC == eos)

    def ended(self, candidates: _Candidates) -> list[tuple[int, list[int], float]]:
        """Those of the best W that end here: sentence, tokens without EOS, log P."""
        best_BW = candidates.log_probs_BC[:, : self.width]
        b_E, w_E = (candidates.ended_BC[:, : self.width] & best_BW.isfinite()).nonzero(as_tuple=True)
        tokens_ET = self.tokens_BWT[b_E, candidates.parents_BC[b_E, w_E], 1:]
        return list(zip(self.sentences_B[b_E].tolist(), tokens_ET.tolist(), best_BW[b_E, w_E].tolist(), strict=True))

    def advance(self, candidates: _Candidates) -> Tensor:
        """Goes on with the best W that do not end; returns which hypotheses they continue, BW."""
        log_probs_BC, parents_BC, tokens_BC, ended_BC = candidates
        # A stable sort by "has ended" keeps the others' order.
        going_BW = ended_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, : self.width]
        parents_BW = parents_BC.gather(1, going_BW)
        chosen_BWT = self.tokens_BWT.gather(1, parents_BW[:, :, None].expand(-1, -1, self.length))
        self.tokens_BWT = torch.cat((chosen_BWT, tokens_BC.gather(1, going_BW)[:, :, None]), dim=2)
        self.log_probs_BW = log_probs_BC.masked_fill(ended_BC, -torch.inf).gather(1, going_BW)
        return parents_BW

    def bounds(self, alpha: float) -> dict[int, float]:
        """For each sentence, what no score of its unfinished hypotheses can exceed.

        log P only falls as a hypothesis grows and the penalty only rises, so that is log P now over the penalty at the
        maximum length.
        """
        bounds_B = self.log_probs_BW.amax(1) / length_penalty(self.max_lengths_B, alpha)
        return dict(zip(self.sentences_B.tolist(), bounds_B.tolist(), strict=True))

    def keep(self, chosen_B: Tensor) -> None:
        """Drops all sentences but these."""
        for name in ("sentences_B", "max_lengths_B", "tokens_BWT", "log_probs_BW"):
            setattr(self, name, getattr(self, name)[chosen_B])


@torch.no_grad()
def beam_search(
    step: Step, cache: Cache, max_lengths_B: Tensor, *, bos: int, eos: int, config: SearchConfig
) -> list[list[Found]]:
    """The `n_best` best-scored finished hypotheses of each sentence, best first.

    Each step keeps the `beam` best continuations of the live hypotheses, and sets aside those among them that end in
    EOS. A sentence is done when no live hypothesis can reach its n-th best any more. A beam of one is greedy search: it
    is done with the first EOS.

    Args:
        cache: state with `beam` hypotheses a sentence, before any token.
        max_lengths_B: most tokens of each sentence's output, EOS included, at least 1.
    """
    beams = _Beams(max_lengths_B, config.beam, bos)
    finished = _Finished(len(max_lengths_B), config)
    live = set(range(len(max_lengths_B)))
    while live:
        scores_RV, cache = step(beams.tokens_BWT[:, :, -1].flatten(), cache)
        candidates = beams.candidates(scores_RV, eos)
        for sentence, tokens, log_prob in beams.ended(candidates):
            if sentence in live:
                finished.add(sentence, tokens, log_prob)
        parents_BW = beams.advance(candidates)
        bounds = beams.bounds(config.alpha)
        live &= {sentence for sentence, bound in bounds.items() if bound > finished.to_beat(sentence)}
        chosen_B = None
        if len(live) <= (1 - _DONE_SHARE) * len(bounds):
            chosen = [b for b, sentence in enumerate(bounds) if sentence in live]
            chosen_B = torch.tensor(chosen, dtype=torch.long, device=parents_BW.device)
            parents_BW = parents_BW[chosen_B]
            beams.keep(chosen_B)
        cache = cache.select(parents_BW, chosen_B)
    return finished.found
