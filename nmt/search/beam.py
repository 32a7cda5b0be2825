"""Beam search (paper §6.1) over a step function, with diverse groups (Vijayakumar et al. 2016), for any model.

Shapes: see docs/architecture.md; B sentences or groups still being searched, W hypotheses of each, R = B·W rows,
T tokens so far, V vocabulary, C candidates, E ended hypotheses, X sentences, of which one group is handled.
"""

import math
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.search.api import DONE_SHARE, BySentence, Caches, Required, SearchBatch, Step, TokenHypothesis, meets
from nmt.search.constraints import Constraints, attainable
from nmt.search.rules import Rules

# `largest` cuts the vocabulary into slices of this many tokens, and looks into few of them.
_BLOCK = 64


def length_penalty(length: Any, alpha: float) -> Any:
    """Returns the length penalty of GNMT (Wu et al. 2016), ((5 + |Y|) / 6)^α, of a length or a tensor of lengths.

    |Y| counts EOS, whose probability is part of P(Y|X).
    """
    return ((5 + length) / 6) ** alpha


def scored(tokens: list[int], log_probs: list[float], alpha: float, unmet: bool = False) -> TokenHypothesis:
    """Returns a finished hypothesis with its score: log P over the length penalty."""
    return TokenHypothesis(tokens, log_probs, sum(log_probs) / length_penalty(float(len(log_probs)), alpha), unmet)


class Candidates(NamedTuple):
    """Continuations of each sentence's hypotheses, in the order in which search prefers them.

    Attributes:
        log_probs_BC: log P of the hypothesis with its new token; -inf where there is no such candidate.
        parents_BC: which hypothesis is continued.
        tokens_BC: the new token.
        token_log_probs_BC: log P of the new token alone.
        ended_BC: whether the token is EOS.
    """

    log_probs_BC: Tensor
    parents_BC: Tensor
    tokens_BC: Tensor
    token_log_probs_BC: Tensor
    ended_BC: Tensor

    @classmethod
    def at(cls, index_BC: Tensor, log_probs_BC: Tensor, x_BWV: Tensor, eos: int) -> Self:
        """Returns the candidates at these indices of the W·V numbers `x_BWV`, the tokens' log P."""
        parents_BC, tokens_BC = index_BC // x_BWV.shape[2], index_BC % x_BWV.shape[2]
        return cls(log_probs_BC, parents_BC, tokens_BC, x_BWV.flatten(1).gather(1, index_BC), tokens_BC == eos)

    def live(self, beam: int) -> Tensor:
        """Returns the indices on axis C of the first `beam` candidates that do not end, BW."""
        # A stable sort by "has ended" keeps the order of the rest.
        return self.ended_BC.to(torch.uint8).argsort(dim=1, stable=True)[:, :beam]


def largest(x_BWV: Tensor, offsets_BW: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the `k` largest numbers x + offset of each sentence, BC, and their indices among its W·V numbers.

    Returns all of them if there are fewer than `k`. Rows are cut into blocks: the k largest numbers lie within the
    k blocks with the largest maxima, or after the last whole block, and finding maxima is much faster than `topk`.
    """
    sentences, beam, vocabulary = x_BWV.shape
    blocks = vocabulary // _BLOCK
    whole = blocks * _BLOCK
    x_BWIJ = x_BWV[:, :, :whole].unflatten(2, (blocks, _BLOCK))
    chosen_BC = (x_BWIJ.amax(3) + offsets_BW[:, :, None]).flatten(1).topk(min(k, beam * blocks)).indices
    b_B1 = torch.arange(sentences, device=x_BWV.device)[:, None]
    w_BC, i_BC = chosen_BC // max(blocks, 1), chosen_BC % max(blocks, 1)
    inside_BCJ = x_BWIJ[b_B1, w_BC, i_BC] + offsets_BW.gather(1, w_BC)[:, :, None]
    behind_BWX = x_BWV[:, :, whole:] + offsets_BW[:, :, None]
    best_BC, index_BC = torch.cat((inside_BCJ.flatten(1), behind_BWX.flatten(1)), 1).topk(min(k, beam * vocabulary))
    index_WV = torch.arange(beam * vocabulary, device=x_BWV.device).view(beam, vocabulary)
    inside_BCJ = (w_BC * vocabulary + i_BC * _BLOCK)[:, :, None] + index_WV[0, :_BLOCK]
    behind_BX = index_WV[:, whole:].flatten().expand(sentences, -1)
    return best_BC, torch.cat((inside_BCJ.flatten(1), behind_BX), 1).gather(1, index_BC)


def _diverse(log_probs_BWV: Tensor, offsets_BW: Tensor, k: int, rules: Rules) -> Candidates:
    """Returns the `k` best candidates of each group, ranked with Hamming diversity. Their log P excludes the penalty.

    A token costs `diversity` for each hypothesis of an earlier group of the sentence that has just chosen it. EOS
    costs nothing, so that all groups can end at the length that suits them.
    """
    _, beam, vocabulary = log_probs_BWV.shape
    groups, diversity = rules.batch.config.beam_groups, rules.batch.config.diversity
    counts_XV = log_probs_BWV.new_zeros(len(log_probs_BWV) // groups, vocabulary)
    group_candidates = []
    for group in range(groups):
        x_XWV, offsets_XW = log_probs_BWV[group::groups], offsets_BW[group::groups]
        ranks_XC, index_XC = largest(x_XWV - diversity * counts_XV[:, None], offsets_XW, k)
        log_probs_XC = offsets_XW.gather(1, index_XC // vocabulary) + x_XWV.flatten(1).gather(1, index_XC)
        candidates = Candidates.at(index_XC, log_probs_XC, x_XWV, rules.batch.eos)
        group_candidates.append(candidates)
        live_XW = candidates.live(beam)
        counted_XW = ranks_XC.isfinite().gather(1, live_XW)
        counts_XV.scatter_add_(1, candidates.tokens_BC.gather(1, live_XW), counted_XW.to(counts_XV.dtype))
    return Candidates(*(torch.stack(tensors, 1).flatten(0, 1) for tensors in zip(*group_candidates, strict=True)))


@dataclass
class _Finished:
    """The best finished hypotheses of a sentence, best first, and at most as many as the beam has hypotheses.

    With --beam-groups, each group of a sentence counts as a sentence, here and in `_Beams`.

    Attributes:
        is_constrained: whether the sentence has constraints that fit into the maximum length together.
    """

    config: SearchConfig
    required: Required
    is_constrained: bool
    hypotheses: list[TokenHypothesis] = field(default_factory=list)

    def add(self, tokens: list[int], log_probs: list[float]) -> None:
        """Adds a hypothesis: its tokens without EOS, and the log P of the tokens and of EOS."""
        unmet = not all(meets(tokens, constraint) for constraint in self.required.constraints)
        hypothesis = scored(tokens, log_probs, self.config.alpha, unmet)
        insort(self.hypotheses, hypothesis, key=lambda hypothesis: -hypothesis.score)
        del self.hypotheses[self.config.group_beam :]

    def to_beat(self) -> float:
        """Returns the score that another hypothesis must exceed; inf if no other one is wanted.

        No other one is wanted after the first EOS of greedy search or, with constraints, after W hypotheses: live
        ones that still lack a phrase keep a high log P for many steps, so search would hardly end.
        """
        beam = self.config.group_beam
        wanted = min(self.config.n_best, beam)
        if len(self.hypotheses) < wanted:
            return -math.inf
        is_last = beam == 1 or (self.is_constrained and len(self.hypotheses) == beam)
        return math.inf if is_last else self.hypotheses[wanted - 1].score


@dataclass
class _Beams(BySentence):
    """The live hypotheses of the sentences still being searched; hypothesis w of sentence b is row b·W + w.

    Attributes:
        sentences_B: the numbers of the sentences.
        tokens_BWT: BOS and the tokens so far.
        history_BWT: the log P of each token; that of BOS is never read.
        log_probs_BW: the log P of each hypothesis.
    """

    rules: Rules
    constraints: Constraints | None
    sentences_B: Tensor
    tokens_BWT: Tensor
    history_BWT: Tensor
    log_probs_BW: Tensor

    def candidates(self, scores_RV: Tensor) -> Candidates:
        """Returns the best 2W continuations, so that W live ones remain even if W of them end."""
        _, beam, length = self.tokens_BWT.shape
        log_probs_BWV = torch.log_softmax(scores_RV, 1, out=scores_RV).unflatten(0, (-1, beam))
        self.rules.apply(log_probs_BWV, self.tokens_BWT, self.constraints.needed() if self.constraints else None)
        k, offsets_BW = 2 * beam, self.log_probs_BW
        if self.rules.batch.config.beam_groups > 1:
            return _diverse(log_probs_BWV, offsets_BW, k, self.rules)
        if self.constraints:
            self.constraints.block(log_probs_BWV)
        best_BC, index_BC = largest(log_probs_BWV, offsets_BW, k)
        if self.constraints:
            best_BC, index_BC = self.constraints.deal(log_probs_BWV, offsets_BW, best_BC, index_BC, length)
        return Candidates.at(index_BC, best_BC, log_probs_BWV, self.rules.batch.eos)

    def ended(self, candidates: Candidates) -> Iterator[tuple[int, list[int], list[float]]]:
        """Yields those of the best W candidates that end: sentence, tokens without EOS, log P of tokens and EOS."""
        beam = self.tokens_BWT.shape[1]
        best_BW = candidates.log_probs_BC[:, :beam]
        b_E, w_E = (candidates.ended_BC[:, :beam] & best_BW.isfinite()).nonzero(as_tuple=True)
        if not len(b_E):  # spares reading four tensors from the device
            return
        parents_E, last_E = candidates.parents_BC[b_E, w_E], candidates.token_log_probs_BC[b_E, w_E]
        tokens_ET = self.tokens_BWT[b_E, parents_E]
        log_probs_ET = torch.cat((self.history_BWT[b_E, parents_E], last_E[:, None]), 1)
        columns = self.sentences_B[b_E], self.rules.starts_B[b_E], tokens_ET, log_probs_ET
        for sentence, start, tokens, log_probs in zip(*(x.tolist() for x in columns), strict=True):
            yield sentence, tokens[start + 1 :], log_probs[start + 1 :]

    def advance(self, candidates: Candidates) -> Tensor:
        """Continues with the first W of the candidates that do not end; returns what they continue, BW."""
        log_probs_BC, parents_BC, tokens_BC, token_log_probs_BC, ended_BC = candidates
        _, beam, length = self.tokens_BWT.shape
        live_BW = candidates.live(beam)
        parents_BW, tokens_BW = parents_BC.gather(1, live_BW), tokens_BC.gather(1, live_BW)
        chosen_BWT = parents_BW[:, :, None].expand(-1, -1, length)
        newest_BW1 = token_log_probs_BC.gather(1, live_BW)[:, :, None]
        self.tokens_BWT = torch.cat((self.tokens_BWT.gather(1, chosen_BWT), tokens_BW[:, :, None]), dim=2)
        self.history_BWT = torch.cat((self.history_BWT.gather(1, chosen_BWT), newest_BW1), dim=2)
        self.log_probs_BW = log_probs_BC.masked_fill(ended_BC, -torch.inf).gather(1, live_BW)
        if self.constraints:
            self.constraints.advance(parents_BW, tokens_BW)
        return parents_BW

    def bounds(self) -> dict[int, float]:
        """Returns, for each sentence, a bound on the score of what its live hypotheses can become.

        As a hypothesis grows, log P, which is negative, only falls. A larger penalty divides it and so raises the
        score. So no score exceeds log P now over the penalty at the maximum length.
        """
        longest_B = self.rules.ends_B - self.rules.starts_B
        bounds_B = self.log_probs_BW.amax(1) / length_penalty(longest_B, self.rules.batch.config.alpha)
        return dict(zip(self.sentences_B.tolist(), bounds_B.tolist(), strict=True))

    def later(self, steps: int) -> Self:
        """Returns the beams of sentences that begin so many steps later, or earlier for a negative number."""
        return replace(
            self,
            rules=self.rules.later(steps),
            tokens_BWT=F.pad(self.tokens_BWT, (steps, 0), value=self.rules.batch.bos),
            history_BWT=F.pad(self.history_BWT, (steps, 0)),
        )

    def joined(self, others: Self, indices_X: Tensor) -> Self:
        """Returns the beams with other sentences, which begin now, at these indices: free ones, or behind the last."""
        count = len(self.sentences_B)
        order_B = torch.arange(max(count, int(indices_X.max()) + 1), device=indices_X.device)
        order_B[indices_X] = count + torch.arange(len(indices_X), device=indices_X.device)
        beams = self.at(order_B, others.later(self.tokens_BWT.shape[2] - 1))
        return beams.later(-int(beams.rules.starts_B.min()))


class BeamSearch:
    """Beam search step by step. Other sentences can join between two steps.

    Each step ranks 2W continuations of the W live hypotheses. Of the best W, those that end in EOS are finished.
    The best W that do not end are the next live hypotheses. A sentence is done when no live hypothesis can still
    beat its n-th best finished one. A beam of one is greedy search, which ends with the first EOS. In diverse beam
    search, the groups of a sentence are searched side by side like sentences.

    Args:
        done_share: sentences that are done leave when they are this share of all.

    Attributes:
        live: the numbers of the sentences still being searched; with --beam-groups, of their groups.
        count: how many numbers were given.
    """

    def __init__(self, step: Step, caches: Caches, batch: SearchBatch, done_share: float = DONE_SHARE) -> None:
        self.config, self.live, self._done_share = batch.config, set[int](), done_share
        self._step, self._caches = step, caches
        self._finished, self.count = dict[int, _Finished](), 0
        self._beams = self._begun(batch)

    def _begun(self, batch: SearchBatch) -> _Beams:
        """Returns the beams of sentences that are to be searched. They get the next numbers."""
        groups, beam = self.config.beam_groups, self.config.group_beam
        first, device = self.count, batch.max_lengths_B.device
        required = [wanted for wanted in batch.required for _ in range(groups)]
        max_lengths_B = batch.max_lengths_B.repeat_interleave(groups)
        rules = Rules.of(replace(batch, required=required, max_lengths_B=max_lengths_B))
        constraints, is_constrained = None, [False] * len(required)
        if any(wanted.constraints for wanted in required):
            if groups > 1:
                raise NmtError(
                    f"constraints work with a single group of hypotheses, but --beam-groups is {groups}; set it to 1 "
                    f"or leave them out"
                )
            possible = [attainable(*pair) for pair in zip(required, rules.ends_B.tolist(), strict=True)]
            is_constrained = [bool(wanted.constraints) for wanted in possible]
            constraints = Constraints.of(possible, batch, rules.ends_B - 1, beam) if any(is_constrained) else None
        self.count += len(required)
        self.live.update(range(first, self.count))
        self._finished |= {
            sentence: _Finished(self.config, *wanted)
            for sentence, wanted in enumerate(zip(required, is_constrained, strict=True), first)
        }
        size = len(required), beam
        beams = _Beams(
            rules,
            constraints,
            sentences_B=torch.arange(first, self.count, device=device),
            tokens_BWT=batch.first_B.repeat_interleave(groups)[:, None, None].repeat(1, beam, 1),
            history_BWT=torch.zeros(*size, 1, device=device),
            log_probs_BW=torch.full(size, -torch.inf, device=device),
        )
        beams.log_probs_BW[:, 0] = 0  # all hypotheses of a sentence start alike, so only the first counts
        return beams

    def join(self, caches: Caches, batch: SearchBatch) -> None:
        """Adds sentences, which get the next numbers. Neither they nor others may have required tokens or groups.

        No output may have BOS, which stands for the steps before a sentence begins.

        Args:
            caches: their state before the first token.
        """
        searched, count = self._beams.sentences_B.tolist(), len(batch.required)
        free = [b for b, sentence in enumerate(searched) if sentence not in self.live]
        indices = [*free, *range(len(searched), len(searched) + count)][:count]
        indices_X = torch.tensor(indices, dtype=torch.long, device=batch.max_lengths_B.device)
        self._beams = self._beams.joined(self._begun(batch), indices_X)
        pairs = zip(self._caches, caches, strict=True)
        self._caches = [cache.join(others, indices_X) for cache, others in pairs]

    def advance(self) -> dict[int, list[TokenHypothesis]]:
        """Makes a step. Returns the hypotheses of each sentence that is done now, by its number."""
        beams, groups = self._beams, self.config.beam_groups
        scores_RV, caches = self._step(beams.tokens_BWT[:, :, -1].flatten(), self._caches)
        candidates = beams.candidates(scores_RV)
        for sentence, tokens, log_probs in beams.ended(candidates):
            self._finished[sentence].add(tokens, log_probs)
        # Which hypotheses are continued, numbered within the sentence instead of within the group.
        first_X1 = torch.arange(0, self.config.beam, self.config.group_beam, device=scores_RV.device)[:, None]
        parents_BW = (beams.advance(candidates).unflatten(0, (-1, groups)) + first_X1).flatten(1)
        bounds = beams.bounds()
        done = {group for group in self.live if not bounds[group] > self._finished[group].to_beat()}
        self.live -= done
        if done:
            ended = [b for b, group in enumerate(bounds) if group not in self.live]
            beams.log_probs_BW[torch.tensor(ended, device=beams.log_probs_BW.device)] = -torch.inf
        live_sentences = {group // groups for group in self.live}
        chosen, chosen_B = [b for b, group in enumerate(bounds) if group // groups in live_sentences], None
        if len(chosen) <= (1 - self._done_share) * len(bounds):
            chosen_B = torch.tensor(chosen, dtype=torch.long, device=scores_RV.device)
            self._beams = beams.at(chosen_B)
            chosen_B = chosen_B[::groups] // groups
            parents_BW = parents_BW[chosen_B]
        self._caches = [cache.select(parents_BW, chosen_B) for cache in caches]
        done_sentences = dict.fromkeys(group // groups for group in done if group // groups not in live_sentences)
        return {sentence: self._take(sentence) for sentence in done_sentences}

    def _take(self, sentence: int) -> list[TokenHypothesis]:
        """Removes the groups of a sentence; returns their best hypotheses without duplicates."""
        groups = range(sentence * self.config.beam_groups, (sentence + 1) * self.config.beam_groups)
        hypotheses = chain.from_iterable(self._finished.pop(group).hypotheses for group in groups)
        distinct = {tuple(hypothesis.tokens): hypothesis for hypothesis in hypotheses}
        return sorted(distinct.values(), key=lambda hypothesis: -hypothesis.score)[: self.config.n_best]


def beam_search(step: Step, caches: Caches, batch: SearchBatch) -> list[list[TokenHypothesis]]:
    """Returns the `n_best` finished hypotheses of each sentence with the best scores, best first; see `BeamSearch`.

    A sentence has no hypotheses if the model gives NaN.

    Args:
        caches: the state before the first token, for `batch.config.hypotheses` hypotheses of each sentence.
    """
    search, hypotheses = BeamSearch(step, caches, batch), dict[int, list[TokenHypothesis]]()
    while search.live:
        hypotheses |= search.advance()
    return [hypotheses[sentence] for sentence in range(len(batch.required))]
