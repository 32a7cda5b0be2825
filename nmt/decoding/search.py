"""Beam search (paper §6.1) over a step function. It knows no model.

Shapes: see docs/architecture.md; B sentences still being searched, W hypotheses a sentence, R = B·W rows, T tokens so
far, V vocabulary, C candidates, E ended hypotheses; in `largest`, rows are cut into I blocks of J numbers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from nmt.config import SearchConfig

# Finished sentences leave the batch when they are this share of it, because leaving copies the cache of the others.
_DONE_SHARE = 0.25
# Numbers in a block; `largest` looks at the contents of few blocks only.
_BLOCK = 64


class Cache(Protocol):
    """What `step` keeps from one call to the next."""

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> Self:
        """Reorders the cache: new hypothesis w continues old hypothesis `parents_BW[b, w]`.

        Keeps only `sentences_B`, if given; B of `parents_BW` counts those.
        """


# (newest ids R, cache) -> (logits RV of the next token, cache).
Step = Callable[[Tensor, Cache], tuple[Tensor, Cache]]


@dataclass(frozen=True)
class Found:
    """A finished hypothesis: its tokens without EOS, log P, and log P over the length penalty."""

    tokens: list[int]
    log_prob: float
    score: float


def length_penalty(length: Tensor | float, alpha: float) -> Tensor | float:
    """Returns ((5 + |Y|) / 6)^α (Wu et al. 2016). |Y| counts EOS, whose probability is part of P(Y|X)."""
    return ((5 + length) / 6) ** alpha


def largest(x_BWV: Tensor, offsets_BW: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the `k` largest numbers x + offset of each sentence, BC, and their places among its W·V numbers.

    Returns all of them if there are fewer than `k`. Rows are cut into blocks: the k largest numbers lie within the k
    blocks with the largest maxima, or behind the last whole block, and finding maxima is much faster than `topk`.
    """
    sentences, width, vocabulary = x_BWV.shape
    blocks = vocabulary // _BLOCK
    whole = blocks * _BLOCK
    x_BWIJ = x_BWV[:, :, :whole].unflatten(2, (blocks, _BLOCK))
    chosen_BC = (x_BWIJ.amax(3) + offsets_BW[:, :, None]).flatten(1).topk(min(k, width * blocks)).indices
    b_B1 = torch.arange(sentences, device=x_BWV.device)[:, None]
    w_BC, i_BC = chosen_BC // max(blocks, 1), chosen_BC % max(blocks, 1)
    inside_BCJ = x_BWIJ[b_B1, w_BC, i_BC] + offsets_BW.gather(1, w_BC)[:, :, None]
    behind_BWX = x_BWV[:, :, whole:] + offsets_BW[:, :, None]
    best_BC, index_BC = torch.cat((inside_BCJ.flatten(1), behind_BWX.flatten(1)), 1).topk(min(k, width * vocabulary))
    places_WV = torch.arange(width * vocabulary, device=x_BWV.device).view(width, vocabulary)
    inside_BCJ = (w_BC * vocabulary + i_BC * _BLOCK)[:, :, None] + places_WV[0, :_BLOCK]
    behind_BX = places_WV[:, whole:].flatten().expand(sentences, -1)
    return best_BC, torch.cat((inside_BCJ.flatten(1), behind_BX), 1).gather(1, index_BC)


class _Finished:
    """The n best finished hypotheses of every sentence, best first."""

    def __init__(self, sentences: int, config: SearchConfig) -> None:
        self.config = config
        self.found: list[list[Found]] = [[] for _ in range(sentences)]

    def add(self, sentence: int, tokens: list[int], log_prob: float) -> None:
        score = log_prob / float(length_penalty(len(tokens) + 1, self.config.alpha))
        ranked = sorted([*self.found[sentence], Found(tokens, log_prob, score)], key=lambda f: -f.score)
        self.found[sentence] = ranked[: self.config.n_best]

    def to_beat(self, sentence: int) -> float:
        """Returns the score that another hypothesis must exceed. In greedy search, none can follow the first EOS."""
        found = self.found[sentence]
        if len(found) < self.config.n_best:
            return -math.inf
        return math.inf if self.config.beam == 1 else found[-1].score


class _Candidates(NamedTuple):
    """The best continuations of each sentence's hypotheses, best first.

    Attributes:
        log_probs_BC: log P of the hypothesis with its new token.
        parents_BC: which hypothesis is continued.
        tokens_BC: the new token.
        ended_BC: whether it is EOS.
    """

    log_probs_BC: Tensor
    parents_BC: Tensor
    tokens_BC: Tensor
    ended_BC: Tensor


class _Beams:
    """The live hypotheses of the sentences still being searched; hypothesis w of sentence b is row b·W + w."""

    def __init__(self, max_lengths_B: Tensor, width: int, bos: int) -> None:
        device = max_lengths_B.device
        self.width = width
        self.sentences_B = torch.arange(len(max_lengths_B), device=device)
        self.max_lengths_B = max_lengths_B
        # The first length at which a hypothesis must end. A number on the host spares waiting for the device.
        self.first_end = int(max_lengths_B.min())
        self.tokens_BWT = torch.full((len(max_lengths_B), width, 1), bos, dtype=torch.long, device=device)
        # All hypotheses of a sentence start alike, so only the first counts.
        self.log_probs_BW = torch.full((len(max_lengths_B), width), -torch.inf, device=device)
        self.log_probs_BW[:, 0] = 0

    @property
    def length(self) -> int:
        """Tokens of every hypothesis after the step that is under way."""
        return self.tokens_BWT.shape[2]

    def candidates(self, scores_RV: Tensor, eos: int) -> _Candidates:
        """Returns the best 2W continuations, so that W live ones remain even if W of them end.

        A hypothesis of its sentence's maximum length can only end.
        """
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
        """Returns the best W candidates that end here: sentence, tokens without EOS, log P."""
        best_BW = candidates.log_probs_BC[:, : self.width]
        b_E, w_E = (candidates.ended_BC[:, : self.width] & best_BW.isfinite()).nonzero(as_tuple=True)
        tokens_ET = self.tokens_BWT[b_E, candidates.parents_BC[b_E, w_E], 1:]
        return list(zip(self.sentences_B[b_E].tolist(), tokens_ET.tolist(), best_BW[b_E, w_E].tolist(), strict=True))

    def advance(self, candidates: _Candidates) -> Tensor:
        """Continues with the best W candidates that do not end; returns the hypotheses that they continue, BW."""
        log_probs_BC, parents_BC, tokens_BC, ended_BC = candidates
        # A stable sort by "has ended" keeps the order of the rest.
        live_BW = ended_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, : self.width]
        parents_BW = parents_BC.gather(1, live_BW)
        chosen_BWT = self.tokens_BWT.gather(1, parents_BW[:, :, None].expand(-1, -1, self.length))
        self.tokens_BWT = torch.cat((chosen_BWT, tokens_BC.gather(1, live_BW)[:, :, None]), dim=2)
        self.log_probs_BW = log_probs_BC.masked_fill(ended_BC, -torch.inf).gather(1, live_BW)
        return parents_BW

    def bounds(self, alpha: float) -> dict[int, float]:
        """Returns, for each sentence, a bound on the score of what its live hypotheses can become.

        As a hypothesis grows, log P only falls and the penalty only rises. So the bound is log P now over the penalty
        at the maximum length.
        """
        bounds_B = self.log_probs_BW.amax(1) / length_penalty(self.max_lengths_B, alpha)
        return dict(zip(self.sentences_B.tolist(), bounds_B.tolist(), strict=True))

    def keep(self, chosen_B: Tensor) -> None:
        """Drops all sentences except `chosen_B`."""
        for name in ("sentences_B", "max_lengths_B", "tokens_BWT", "log_probs_BW"):
            setattr(self, name, getattr(self, name)[chosen_B])


@torch.no_grad()
def beam_search(
    step: Step, cache: Cache, max_lengths_B: Tensor, *, bos: int, eos: int, config: SearchConfig
) -> list[list[Found]]:
    """Returns the `n_best` finished hypotheses of each sentence with the best scores, best first.

    Each step keeps the `beam` best continuations of the live hypotheses. Those that end in EOS are finished. A sentence
    is done when no live hypothesis can still beat its n-th best finished one. A beam of one is greedy search, which
    ends with the first EOS.

    Args:
        cache: the state of `beam` hypotheses a sentence before any token.
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
