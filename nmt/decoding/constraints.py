"""Beam search with phrases that the output must contain (Post & Vilar 2018, Hu et al. 2019).

Every hypothesis carries a state for each phrase (`phrases.py`). Its bank is the number of tokens that it matches: those
of its met phrases and the longest match of an unmet one. The slots of the beam are dealt over the banks, so that
hypotheses that match little and hypotheses that match much all stay in the beam.

The highest bank always has a slot, and one of its continuations is in a higher bank. So all phrases are met as soon as
the highest bank can meet them one after the other. Where they fit only if they overlap, a table says which hypotheses
can still meet them.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, A phrases of a sentence, O states of a phrase,
C candidates, V vocabulary, X sets of phrases or more candidates.
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from nmt.decoding.outputs import Required
from nmt.decoding.phrases import failures, following
from nmt.decoding.rules import Rules

_FAR = 2**31


class Constraints:
    """The phrases of the sentences being searched, and the states of their hypotheses.

    Attributes:
        phrases_BAO: the token that each state needs next; -1 for a met phrase.
        failures_BAO: for each state, the longest shorter match at the end of the same tokens.
        lengths_BA: tokens of the phrases; 0 for padding, which counts as met.
        following_BAX: the fewest tokens that complete a set of phrases right behind a phrase; 0 for too many phrases.
        constrained_B: whether the sentence has phrases.
        room_B: most tokens without EOS.
        states_BWA: the state of each phrase.
    """

    def __init__(self, required: Sequence[Required], rules: Rules, width: int) -> None:
        self.eos, self.device = rules.eos, rules.max_lengths_B.device
        phrases = [wanted.phrases for wanted in required]
        tables = [following(several) for several in phrases]
        self.phrases_BAO = self._padded([[(*phrase, -1) for phrase in several] for several in phrases], -1)
        self.failures_BAO = self._padded([[failures(phrase) for phrase in several] for several in phrases], 0)
        self.lengths_BA = self._padded([[[len(phrase) for phrase in several]] for several in phrases], 0)[:, 0]
        self.following_BAX = self._padded(tables, 0, self.lengths_BA.shape[1])
        self.constrained_B = torch.tensor([bool(several) for several in phrases], device=self.device)
        self.room_B = rules.max_lengths_B - 1
        self.states_BWA = self.lengths_BA[:, None].expand(-1, width, -1) * 0

    def _padded(self, rows: Sequence[Sequence[Sequence[int]]], filling: int, least: int = 0) -> Tensor:
        """Returns lists of lists of integers as one tensor of three axes; the second has a size of at least `least`."""
        seconds, thirds = [len(row) for row in rows], [len(items) for row in rows for items in row]
        x_BXO = torch.full((len(rows), max([least, *seconds]), max([1, *thirds])), filling)
        for b, row in enumerate(rows):
            for x, items in enumerate(row):
                x_BXO[b, x, : len(items)] = torch.tensor(items)
        return x_BXO.to(self.device)

    @classmethod
    def start(cls, required: Sequence[Required], rules: Rules, width: int) -> Self | None:
        """Returns the constraints of hypotheses without tokens; None if no sentence has phrases.

        The phrases of a sentence are independent and fit into its maximum length, as `within` returns them.
        """
        return cls(required, rules, width) if any(wanted.phrases for wanted in required) else None

    def needed(self) -> Tensor:
        """Returns the tokens that continue the phrases, BWA; EOS for a met phrase."""
        tokens_BWA = _at(self.phrases_BAO, self.states_BWA)
        return tokens_BWA.masked_fill(tokens_BWA < 0, self.eos)

    def block_end(self, log_probs_BWV: Tensor) -> None:
        """Forbids EOS where a phrase is unmet."""
        unmet_BW = (self.states_BWA < self.lengths_BA[:, None]).any(2)
        log_probs_BWV[:, :, self.eos].masked_fill_(unmet_BW, -torch.inf)

    def deal(
        self, x_BWV: Tensor, offsets_BW: Tensor, best_BC: Tensor, places_BC: Tensor, length: int
    ) -> tuple[Tensor, Tensor]:
        """Returns the candidates that search keeps, with log P and place, in the order of preference, BC.

        To the best of all candidates come each hypothesis's best token and the tokens that continue its phrases.
        Those from which the phrases cannot be completed in time are left out. Sentences without phrases keep
        `best_BC` and `places_BC`.

        Args:
            x_BWV: log P of the next tokens.
            offsets_BW: log P of the hypotheses.
            length: tokens of a hypothesis with its next one.
        """
        values_BX, places_BX = _extended(x_BWV, offsets_BW, places_BC, self.needed())
        tokens_BX, parents_BX = places_BX % x_BWV.shape[2], places_BX // x_BWV.shape[2]
        states_BXA = self._moved(_rows(self.states_BWA, parents_BX), tokens_BX)
        late_BX = self._tokens_needed(states_BXA) > (self.room_B - length)[:, None]
        values_BX = values_BX.masked_fill(late_BX & (tokens_BX != self.eos), -torch.inf)
        order_BX = _dealt(values_BX, self._banks(states_BXA), self.lengths_BA.sum(1), offsets_BW.shape[1])
        order_BC = order_BX[:, : best_BC.shape[1]]
        constrained_B1 = self.constrained_B[:, None]
        return (
            torch.where(constrained_B1, values_BX.gather(1, order_BC), best_BC),
            torch.where(constrained_B1, places_BX.gather(1, order_BC), places_BC),
        )

    def _moved(self, states_BCA: Tensor, tokens_BC: Tensor) -> Tensor:
        """Returns the states after another token."""
        unmet_BCA = states_BCA < self.lengths_BA[:, None]
        while True:
            expected_BCA = _at(self.phrases_BAO, states_BCA)
            fails_BCA = unmet_BCA & (states_BCA > 0) & (expected_BCA != tokens_BC[:, :, None])
            if not fails_BCA.any():
                return states_BCA + (expected_BCA == tokens_BC[:, :, None]).long()
            states_BCA = torch.where(fails_BCA, _at(self.failures_BAO, states_BCA), states_BCA)

    def _tokens_needed(self, states_BCA: Tensor) -> Tensor:
        """Returns the fewest tokens that complete all phrases, BC: those of the best phrase to complete first."""
        unmet_BCA = states_BCA < self.lengths_BA[:, None]
        bits_A = 2 ** torch.arange(states_BCA.shape[2], device=self.device)
        others_BCA = (unmet_BCA * bits_A).sum(2, keepdim=True) - bits_A
        rest_BCA = _at(self.following_BAX, others_BCA.clamp(0, self.following_BAX.shape[2] - 1))
        total_BCA = (self.lengths_BA[:, None] - states_BCA + rest_BCA).masked_fill(~unmet_BCA, _FAR)
        return total_BCA.amin(2).masked_fill(~unmet_BCA.any(2), 0)

    def _banks(self, states_BCA: Tensor) -> Tensor:
        """Returns how many tokens of phrases hypotheses match, BC."""
        met_BCA = states_BCA == self.lengths_BA[:, None]
        return (states_BCA * met_BCA).sum(2) + (states_BCA * ~met_BCA).amax(2)

    def advance(self, parents_BW: Tensor, tokens_BW: Tensor) -> None:
        """Continues hypotheses `parents_BW` with these tokens."""
        self.states_BWA = self._moved(_rows(self.states_BWA, parents_BW), tokens_BW)

    def keep(self, chosen_B: Tensor) -> None:
        """Drops all sentences except `chosen_B`."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[chosen_B])


def _at(table_BAO: Tensor, states_BCA: Tensor) -> Tensor:
    """Returns the entry of each state in its phrase's row, BCA."""
    return table_BAO.gather(2, states_BCA.transpose(1, 2)).transpose(1, 2)


def _rows(states_BWA: Tensor, parents_BC: Tensor) -> Tensor:
    """Returns the states of hypotheses `parents_BC`, BCA."""
    return states_BWA.gather(1, parents_BC[:, :, None].expand(-1, -1, states_BWA.shape[2]))


def _extended(x_BWV: Tensor, offsets_BW: Tensor, places_BC: Tensor, needed_BWA: Tensor) -> tuple[Tensor, Tensor]:
    """Returns log P and places of more candidates, BX; log P is -inf for one that occurs twice."""
    _, width, vocabulary = x_BWV.shape
    tokens_BWX = torch.cat((needed_BWA, x_BWV.argmax(2, keepdim=True)), 2)
    first_W1 = torch.arange(width, device=x_BWV.device)[:, None] * vocabulary
    places_BX = torch.cat((places_BC, (tokens_BWX + first_W1).flatten(1)), 1).sort(1).values
    values_BX = x_BWV.flatten(1).gather(1, places_BX) + offsets_BW.gather(1, places_BX // vocabulary)
    values_BX[:, 1:].masked_fill_(places_BX[:, 1:] == places_BX[:, :-1], -torch.inf)
    return values_BX, places_BX


def _dealt(values_BC: Tensor, banks_BC: Tensor, most_B: Tensor, width: int) -> Tensor:
    """Returns the order in which candidates get slots: the best of each bank, then the second of each, and so on.

    A round takes the candidates in the order of their values, but the best of the highest bank comes first of all, so
    that search makes progress. Neighbouring banks share slots if there are more banks, `most_B` + 1, than slots.
    """
    by_value_BC = values_BC.argsort(dim=1, descending=True, stable=True)
    values_BC, banks_BC = values_BC.gather(1, by_value_BC), banks_BC.gather(1, by_value_BC)
    banks_B1 = most_B[:, None] + 1
    shares_BC = banks_BC * banks_B1.clamp(max=width) // banks_B1
    same_BCW = shares_BC[:, :, None] == torch.arange(width, device=shares_BC.device)
    rounds_BC = same_BCW.cumsum(1).gather(2, shares_BC[:, :, None])[:, :, 0]
    impossible_BC = values_BC == -torch.inf
    highest_B1 = banks_BC.masked_fill(impossible_BC, -1).argmax(1, keepdim=True)
    rounds_BC = rounds_BC.scatter(1, highest_B1, 0).masked_fill(impossible_BC, _FAR)
    return by_value_BC.gather(1, rounds_BC.argsort(dim=1, stable=True))
