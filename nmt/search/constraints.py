"""Phrases that must occur in an output (Post & Vilar 2018, Hu et al. 2019).

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, V vocabulary, A phrases, O tokens of a phrase.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Self

import torch
from torch import Tensor

from nmt.search.api import BySentence, Constraint, Phrase, Required, SearchBatch, contains, meets

# If `tokens_needed_after` would take more steps, search does not use overlaps to fit phrases into the maximum length.
_MOST_STEPS = 5000


def attainable(required: Required, max_length: int) -> Required:
    """Returns `required` without the constraints that others imply, or without constraints if they are too long."""
    distinct = sorted(set(map(_shortest, required.constraints)) - {((),)})
    implied = {c for c in distinct for other in distinct if other != c and all(meets(phrase, c) for phrase in other)}
    constraints = tuple(constraint for constraint in distinct if constraint not in implied)
    fits = len(required.prefix) + _tokens_needed(required.prefix, constraints) < max_length
    return Required(required.prefix, constraints if fits else ())


def _shortest(constraint: Constraint) -> Constraint:
    """Returns the phrases that contain no other phrase of the constraint, the shortest first."""
    needed = {phrase for phrase in constraint if not any(p != phrase and contains(phrase, p) for p in constraint)}
    return tuple(sorted(needed, key=lambda phrase: (len(phrase), phrase)))


def _state(tokens: Sequence[int], phrase: Phrase) -> int:
    """Returns how many tokens of the phrase the end of `tokens` matches; all of them if `tokens` contain it."""
    if contains(tokens, phrase):
        return len(phrase)
    return next(n for n in range(len(phrase) - 1, -1, -1) if tuple(tokens[len(tokens) - n :]) == phrase[:n])


def _tokens_needed(tokens: Sequence[int], constraints: Sequence[Constraint]) -> int:
    """Returns the fewest tokens that meet the constraints behind `tokens`."""
    unmet = [k for k, constraint in enumerate(constraints) if not meets(tokens, constraint)]
    unmet_set, table = sum(2**k for k in unmet), tokens_needed_after(constraints)
    left = {phrase: len(phrase) - _state(tokens, phrase) for k in unmet for phrase in constraints[k]}
    if table:
        return min((left[phrase] + table[phrase][unmet_set] for phrase in left), default=0)
    longer = [left[phrase] - len(constraints[k][0]) for k in unmet for phrase in constraints[k]]  # than the shortest
    return sum(len(constraints[k][0]) for k in unmet) + min(longer, default=0)


def tokens_needed_after(constraints: Sequence[Constraint]) -> dict[Phrase, list[int]]:
    """Returns `table[phrase][unmet]`: the fewest tokens that meet a set of constraints directly after a phrase.

    Phrases may overlap, and a phrase may meet several constraints. Bit k of a set's number stands for constraint
    k. The table is empty if it would take more than `_MOST_STEPS`.
    """
    phrases = sorted(set(chain.from_iterable(constraints)))
    if len(phrases) ** 2 * 2 ** len(constraints) > _MOST_STEPS:
        return {}
    met = {phrase: sum(2**k for k, c in enumerate(constraints) if meets(phrase, c)) for phrase in phrases}
    added = {(last, phrase): len(phrase) - _state(last, phrase) for last in phrases for phrase in phrases}
    table = {phrase: [0] * 2 ** len(constraints) for phrase in phrases}
    for unmet in range(1, 2 ** len(constraints)):
        for last, row in table.items():
            rest = unmet & ~met[last]
            useful = [phrase for phrase in phrases if rest & met[phrase]]
            row[unmet] = min((added[last, phrase] + table[phrase][rest & ~met[phrase]] for phrase in useful), default=0)
    return table


def failures(phrase: Phrase) -> list[int]:
    """Returns the failure function of Knuth, Morris & Pratt (1977).

    State n means that the last n tokens are the first n of the phrase. If the next token does not fit, search
    falls back to the longest shorter match at the end of the same tokens, which is `failures(phrase)[n]`.
    """
    ends = [[k for k in range(n) if phrase[n - k : n] == phrase[:k]] for n in range(1, len(phrase) + 1)]
    return [0, *(matches[-1] for matches in ends)]


_FAR = 2**31


@dataclass
class Constraints(BySentence):
    """The constraints of the sentences being searched, and the states of their hypotheses.

    Axis A has the phrases of all constraints, the shortest phrase of each constraint first.

    Attributes:
        batch: EOS, and what may follow a phrase, which are the same for all sentences.
        phrases_BAO: the token that each state needs next; -1 for a phrase that has occurred.
        failures_BAO: the failure function of each phrase.
        lengths_BA: tokens of the phrases; 0 for padding, which counts as having occurred.
        least_BA: tokens of the shortest phrase of each constraint; 0 for its other phrases.
        same_BAX: 1 where two phrases are alternatives of the same constraint, or the same phrase.
        following_BAX: the table of `tokens_needed_after`; 0 if there is none.
        room_B: most tokens without EOS.
        states_BWA: the state of each phrase.
        ended_BW: whether a phrase has just ended.
    """

    batch: SearchBatch
    phrases_BAO: Tensor
    failures_BAO: Tensor
    same_BAX: Tensor
    following_BAX: Tensor
    room_B: Tensor
    states_BWA: Tensor
    ended_BW: Tensor

    def __post_init__(self) -> None:
        self.lengths_BA = (self.phrases_BAO >= 0).sum(2)
        self.least_BA = self.lengths_BA * (self.same_BAX.cumsum(2).diagonal(dim1=1, dim2=2) == 1)

    @classmethod
    def of(cls, required: Sequence[Required], batch: SearchBatch, room_B: Tensor, beam: int) -> Self:
        """Returns the constraints before the first token."""
        by_sentence, device = [wanted.constraints for wanted in required], room_B.device
        phrases_B = [list(chain.from_iterable(constraints)) for constraints in by_sentence]
        owners_B = [[k for k, constraint in enumerate(constraints) for _ in constraint] for constraints in by_sentence]
        same = [[[owner == other for other in owners] for owner in owners] for owners in owners_B]
        tables = zip(map(tokens_needed_after, by_sentence), phrases_B, strict=True)
        rows = [[table[phrase] for phrase in phrases if table] for table, phrases in tables]
        phrases_BAO = _padded([[(*phrase, -1) for phrase in phrases] for phrases in phrases_B], -1, device)
        failures_BAO = _padded([[failures(phrase) for phrase in phrases] for phrases in phrases_B], 0, device)
        size = phrases_BAO.shape[1]
        same_BAX, following_BAX = _padded(same, 0, device, size), _padded(rows, 0, device, size)
        states_BWA = torch.zeros(len(required), beam, size, dtype=torch.long, device=device)
        ended_BW = torch.zeros(len(required), beam, dtype=torch.bool, device=device)
        return cls(batch, phrases_BAO, failures_BAO, same_BAX, following_BAX, room_B, states_BWA, ended_BW)

    def needed(self) -> Tensor:
        """Returns the tokens that continue the phrases, BWA; EOS for a phrase of a met constraint."""
        return _gathered(self.phrases_BAO, self.states_BWA).masked_fill(~self._open(self.states_BWA), self.batch.eos)

    def block(self, log_probs_BWV: Tensor) -> None:
        """Forbids what may not follow a phrase that has just ended, and EOS where a constraint is unmet."""
        if self.batch.borders_V is not None and self.ended_BW.any():
            begun_XA = (self.states_BWA > 0)[self.ended_BW]
            needed_XA = self.needed()[self.ended_BW].masked_fill(~begun_XA, self.batch.eos)
            log_probs_XV = log_probs_BWV[self.ended_BW]
            bordered_XV = log_probs_XV.masked_fill(~self.batch.borders_V, -torch.inf)
            log_probs_BWV[self.ended_BW] = bordered_XV.scatter(1, needed_XA, log_probs_XV.gather(1, needed_XA))
        log_probs_BWV[:, :, self.batch.eos].masked_fill_(self._open(self.states_BWA).any(2), -torch.inf)

    def deal(
        self, x_BWV: Tensor, offsets_BW: Tensor, best_BC: Tensor, index_BC: Tensor, length: int
    ) -> tuple[Tensor, Tensor]:
        """Returns the candidates that search keeps, with log P and index, in the order of preference, BC.

        Each hypothesis's best token and the tokens that continue its phrases are added to the best candidates of
        all, `best_BC`. Candidates from which the constraints cannot be met in time are left out. Sentences without
        constraints keep `best_BC` and `index_BC`.
        """
        beam, vocabulary = x_BWV.shape[1:]
        tokens_BWX = torch.cat((self.needed(), x_BWV.argmax(2, keepdim=True)), 2)
        first_W1 = torch.arange(beam, device=x_BWV.device)[:, None] * vocabulary
        index_BX = torch.cat((index_BC, (tokens_BWX + first_W1).flatten(1)), 1).sort(1).values
        parents_BX, tokens_BX = index_BX // vocabulary, index_BX % vocabulary
        values_BX = x_BWV.flatten(1).gather(1, index_BX) + offsets_BW.gather(1, parents_BX)
        values_BX[:, 1:].masked_fill_(index_BX[:, 1:] == index_BX[:, :-1], -torch.inf)  # twice the same
        states_BXA = self._moved(_rows(self.states_BWA, parents_BX), tokens_BX)
        late_BX = self._tokens_needed(states_BXA) > (self.room_B - length)[:, None]
        values_BX = values_BX.masked_fill(late_BX & (tokens_BX != self.batch.eos), -torch.inf)
        order_BC = _dealt(values_BX, self._banks(states_BXA), self.least_BA.sum(1), beam)[:, : best_BC.shape[1]]
        constrained_B1 = self.lengths_BA.any(1, keepdim=True)
        return (
            torch.where(constrained_B1, values_BX.gather(1, order_BC), best_BC),
            torch.where(constrained_B1, index_BX.gather(1, order_BC), index_BC),
        )

    def _moved(self, states_BCA: Tensor, tokens_BC: Tensor) -> Tensor:
        """Returns the states after another token."""
        unmet_BCA = states_BCA < self.lengths_BA[:, None]
        while True:
            expected_BCA = _gathered(self.phrases_BAO, states_BCA)
            fails_BCA = unmet_BCA & (states_BCA > 0) & (expected_BCA != tokens_BC[:, :, None])
            if not fails_BCA.any():
                return states_BCA + (expected_BCA == tokens_BC[:, :, None]).long()
            states_BCA = torch.where(fails_BCA, _gathered(self.failures_BAO, states_BCA), states_BCA)

    def _open(self, states_BCA: Tensor) -> Tensor:
        """Returns whether the constraint of each phrase is unmet, BCA."""
        unmet_BCA = states_BCA < self.lengths_BA[:, None]
        return unmet_BCA & ((~unmet_BCA).float() @ self.same_BAX.float() == 0)

    def _tokens_needed(self, states_BCA: Tensor) -> Tensor:
        """Returns the fewest tokens that meet all constraints, BC: the minimum over which phrase comes first."""
        open_BCA = self._open(states_BCA)
        bits_BA = (self.least_BA > 0) * 2 ** ((self.least_BA > 0).cumsum(1) - 1)
        sets_BC1 = (open_BCA * bits_BA[:, None]).sum(2, keepdim=True).clamp(0, self.following_BAX.shape[2] - 1)
        rest_BCA = _gathered(self.following_BAX, sets_BC1.expand_as(states_BCA))
        total_BCA = (self.lengths_BA[:, None] - states_BCA + rest_BCA).masked_fill(~open_BCA, _FAR)
        return total_BCA.amin(2).masked_fill(~open_BCA.any(2), 0)

    def _banks(self, states_BCA: Tensor) -> Tensor:
        """Returns the number of each candidate's bank: how many tokens fewer than at the start meet all constraints.

        A met constraint counts with the length of its shortest phrase. Of the unmet ones, only the furthest
        advanced counts, with the tokens it needs fewer than at the start. Overlaps between phrases are ignored.
        """
        met_BCA = ~self._open(states_BCA)
        shortest_BA = (self.same_BAX * self.least_BA[:, None]).sum(2)
        matched_BCA = states_BCA - (self.lengths_BA - shortest_BA)[:, None]
        return (met_BCA * self.least_BA[:, None]).sum(2) + matched_BCA.masked_fill(met_BCA, 0).amax(2)

    def advance(self, parents_BW: Tensor, tokens_BW: Tensor) -> None:
        """Continues hypotheses `parents_BW` with these tokens."""
        old_BWA = _rows(self.states_BWA, parents_BW)
        self.states_BWA = self._moved(old_BWA, tokens_BW)
        self.ended_BW = ((old_BWA < self.lengths_BA[:, None]) & (self.states_BWA == self.lengths_BA[:, None])).any(2)


def _padded(rows: Sequence[Sequence[Sequence[int]]], filling: int, device: torch.device, least: int = 0) -> Tensor:
    """Returns lists of lists of integers as one tensor of three axes; the second has a size of at least `least`."""
    seconds, thirds = [len(row) for row in rows], [len(items) for row in rows for items in row]
    x_BXO = torch.full((len(rows), max([least, *seconds]), max([1, *thirds])), filling)
    for b, row in enumerate(rows):
        for x, items in enumerate(row):
            x_BXO[b, x, : len(items)] = torch.tensor(items)
    return x_BXO.to(device)


def _gathered(table_BAO: Tensor, states_BCA: Tensor) -> Tensor:
    """Returns the entry of each state in its phrase's row, BCA."""
    return table_BAO.gather(2, states_BCA.transpose(1, 2)).transpose(1, 2)


def _rows(states_BWA: Tensor, parents_BC: Tensor) -> Tensor:
    """Returns the states of hypotheses `parents_BC`, BCA."""
    return states_BWA.gather(1, parents_BC[:, :, None].expand(-1, -1, states_BWA.shape[2]))


def _dealt(values_BC: Tensor, banks_BC: Tensor, most_B: Tensor, beam: int) -> Tensor:
    """Returns the order in which candidates get slots: the best of each bank, then the second of each, and so on.

    A round takes the candidates in the order of their values, but the best of the highest bank comes first of all, so
    that search makes progress. Neighbouring banks share slots if there are more banks, `most_B` + 1, than slots.
    """
    by_value_BC = values_BC.argsort(dim=1, descending=True, stable=True)
    values_BC, banks_BC = values_BC.gather(1, by_value_BC), banks_BC.gather(1, by_value_BC)
    banks_B1 = most_B[:, None] + 1
    shares_BC = banks_BC * banks_B1.clamp(max=beam) // banks_B1
    same_BCW = shares_BC[:, :, None] == torch.arange(beam, device=shares_BC.device)
    rounds_BC = same_BCW.cumsum(1).gather(2, shares_BC[:, :, None])[:, :, 0]
    impossible_BC = values_BC == -torch.inf
    highest_B1 = banks_BC.masked_fill(impossible_BC, -1).argmax(1, keepdim=True)
    rounds_BC = rounds_BC.scatter(1, highest_B1, 0).masked_fill(impossible_BC, _FAR)
    return by_value_BC.gather(1, rounds_BC.argsort(dim=1, stable=True))
