"""Constraints on outputs: rules for the next token, and phrases that must occur (Post & Vilar 2018, Hu et al. 2019).

A rule sets the log P of the tokens that it forbids to -inf, and leaves that of the other tokens as the model gives it.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, T tokens so far, V vocabulary.
"""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from nmt.search.api import Constraint, Phrase, Required, SearchBatch, contains, meets


class Rules:
    """The rules for the outputs of a batch, which are applied in this order after the user's own scorer.

    A token that one rule forbids stays forbidden. Prefix and phrases may repeat n-grams, and an output may be too short
    if every other token would repeat one.

    1. Tokens in `never` do not occur.
    2. No n-gram of pieces occurs twice.
    3. An output has a minimum length.
    4. An output of its maximum length ends.
    5. An output begins with its prefix.
    """

    def __init__(self, batch: SearchBatch) -> None:
        self.config, self.eos, self.never, self.scorer = batch.config, batch.eos, batch.never, batch.scorer
        device = batch.max_lengths_B.device
        lengths = [len(wanted.prefix) for wanted in batch.required]
        longest = max(lengths)
        self.prefix_lengths_B = torch.tensor(lengths, device=device)
        padded = [[*wanted.prefix, *[batch.eos] * (longest - len(wanted.prefix))] for wanted in batch.required]
        self.prefixes_BT = torch.tensor(padded, dtype=torch.long, device=device).view(len(padded), longest)
        self.starts_B = torch.zeros_like(self.prefix_lengths_B)
        # A prefix is never cut, so an output may have as many tokens as the prefix and EOS.
        self.ends_B = torch.maximum(batch.max_lengths_B, self.prefix_lengths_B + 1)
        self._count()

    def _count(self) -> None:
        # Numbers on the host spare waiting for the device.
        self.first_end = min(self.ends_B.tolist(), default=0)
        self.last_start = max(self.starts_B.tolist(), default=0)

    def change(self, order_B: Tensor, others: "Rules | None" = None, step: int = 0) -> None:
        """Keeps some sentences, in a new order.

        Args:
            order_B: their places on the present axis B. Places behind it are those of `others`.
            others: sentences without prefixes that begin at `step`, while those here have no prefixes either.
        """
        for name in ("prefix_lengths_B", "prefixes_BT", "starts_B", "ends_B"):
            value = getattr(self, name)
            if others is not None:
                later = step if name in ("starts_B", "ends_B") else 0
                value = torch.cat((value, getattr(others, name) + later))
            setattr(self, name, value[order_B])
        self._count()

    def forget(self, steps: int) -> None:
        """Counts lengths from a later step on, before which no sentence begins."""
        self.starts_B, self.ends_B = self.starts_B - steps, self.ends_B - steps
        self._count()

    def apply(self, log_probs_BWV: Tensor, tokens_BWT: Tensor, needed_BWX: Tensor | None = None) -> None:
        """Changes the log P of the next token in place.

        Args:
            tokens_BWT: BOS and the tokens so far; in front of them, BOS for each step before a sentence begins.
            needed_BWX: tokens that continue a required phrase, which may repeat an n-gram.
        """
        length = tokens_BWT.shape[2]  # of the output with the next token, because BOS does not count
        if self.scorer:
            log_probs_BWV.copy_(self.scorer(tokens_BWT, log_probs_BWV))
        for token in self.never:
            log_probs_BWV[:, :, token] = -torch.inf
        if self.config.no_repeat_ngram:
            pieces_BWT, exempt_BWX = tokens_BWT[:, :, 1:], self._exempt(tokens_BWT, needed_BWX)
            _block_repeats(log_probs_BWV, pieces_BWT, self.config.no_repeat_ngram, exempt_BWX)
        if length <= self.last_start + self.config.min_length:
            is_short_B = length - self.starts_B <= self.config.min_length
            self._block_end(log_probs_BWV, is_short_B & (self.ends_B > length))
        if length >= self.first_end:
            _force(log_probs_BWV, self.ends_B <= length, torch.full_like(self.ends_B, self.eos))
        if length <= self.prefixes_BT.shape[1]:
            _force(log_probs_BWV, self.prefix_lengths_B >= length, self.prefixes_BT[:, length - 1])

    def _exempt(self, tokens_BWT: Tensor, needed_BWX: Tensor | None) -> Tensor | None:
        """Returns the tokens that may repeat an n-gram: those of the prefix and of phrases; None if there are none."""
        length = tokens_BWT.shape[2]
        if length > self.prefixes_BT.shape[1]:
            return needed_BWX
        prefix_BW1 = self.prefixes_BT[:, length - 1, None, None].expand(-1, tokens_BWT.shape[1], 1)
        return prefix_BW1 if needed_BWX is None else torch.cat((prefix_BW1, needed_BWX), 2)

    def _block_end(self, log_probs_BWV: Tensor, chosen_B: Tensor) -> None:
        """Forbids EOS in the chosen sentences, except where all other tokens would repeat an n-gram."""
        end_BW = log_probs_BWV[:, :, self.eos].clone()
        blocked_BW = chosen_B[:, None].expand_as(end_BW)
        log_probs_BWV[:, :, self.eos] = end_BW.masked_fill(blocked_BW, -torch.inf)
        if self.config.no_repeat_ngram:
            stuck_BW = log_probs_BWV.amax(2) == -torch.inf
            log_probs_BWV[:, :, self.eos] = end_BW.masked_fill(blocked_BW & ~stuck_BW, -torch.inf)


def _block_repeats(log_probs_BWV: Tensor, pieces_BWT: Tensor, n: int, exempt_BWX: Tensor | None) -> None:
    """Forbids tokens that would complete an n-gram for the second time, unless they are exempt."""
    if pieces_BWT.shape[2] < n:
        return
    exempt_log_probs_BWX = None if exempt_BWX is None else log_probs_BWV.gather(2, exempt_BWX)
    grams_BWTX = pieces_BWT.unfold(2, n, 1)
    newest_BW1X = pieces_BWT[:, :, None, pieces_BWT.shape[2] - n + 1 :]
    same_BWT = (grams_BWTX[..., :-1] == newest_BW1X).all(3)
    # Adding -inf for a repeated token and 0 for others spares a loop over hypotheses.
    addends_BWT = torch.zeros_like(same_BWT, dtype=log_probs_BWV.dtype).masked_fill(same_BWT, -torch.inf)
    log_probs_BWV.scatter_add_(2, grams_BWTX[..., -1], addends_BWT)
    if exempt_BWX is not None and exempt_log_probs_BWX is not None:
        log_probs_BWV.scatter_(2, exempt_BWX, exempt_log_probs_BWX)


def _force(log_probs_BWV: Tensor, chosen_B: Tensor, tokens_B: Tensor) -> None:
    """Forbids all tokens except `tokens_B` in the chosen sentences."""
    b_X = chosen_B.nonzero()[:, 0]
    kept_XW = log_probs_BWV[b_X, :, tokens_B[b_X]]
    log_probs_BWV[b_X] = -torch.inf
    log_probs_BWV[b_X, :, tokens_B[b_X]] = kept_XW


# If `following` would take more steps, search does not use overlaps to fit phrases into the maximum length.
_MOST_STEPS = 5000


def within(required: Required, max_length: int) -> Required:
    """Returns `required` without the constraints that others imply, or without constraints if they are too long."""
    if not required.constraints:
        return required
    constraints = _independent(required.constraints)
    fits = len(required.prefix) + _tokens_needed(required.prefix, constraints) < max_length
    return Required(required.prefix, constraints if fits else ())


def _independent(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Returns the constraints that no other one implies. An output that meets these meets all."""
    distinct = sorted(set(map(_shortest, constraints)) - {((),)})
    implied = {c for c in distinct for other in distinct if other != c and all(meets(phrase, c) for phrase in other)}
    return tuple(constraint for constraint in distinct if constraint not in implied)


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
    unmet_set, table = sum(2**k for k in unmet), following(constraints)
    left = {phrase: len(phrase) - _state(tokens, phrase) for k in unmet for phrase in constraints[k]}
    if table:
        return min((left[phrase] + table[phrase][unmet_set] for phrase in left), default=0)
    longer = [left[phrase] - len(constraints[k][0]) for k in unmet for phrase in constraints[k]]  # than the shortest
    return sum(len(constraints[k][0]) for k in unmet) + min(longer, default=0)


def following(constraints: Sequence[Constraint]) -> dict[Phrase, list[int]]:
    """Returns `table[phrase][unmet]`: the fewest tokens that meet a set of constraints directly after a phrase.

    Phrases may overlap, and a phrase may meet several constraints. Bit k of a set's number stands for constraint k. The
    table is empty if it would take more than `_MOST_STEPS`.
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

    State n means that the last n tokens are the first n of the phrase. If the next token does not fit, search falls
    back to the longest shorter match at the end of the same tokens, which is `failures(phrase)[n]`.
    """
    found = [0, 0]
    for n, token in enumerate(phrase[1:], 1):
        state = found[n]
        while state and phrase[state] != token:
            state = found[state]
        found.append(state + (phrase[state] == token))
    return found


_FAR = 2**31


class Constraints:
    """The constraints of the sentences being searched, and the states of their hypotheses.

    Axis A has the phrases of all constraints, the shortest phrase of each constraint first.

    Attributes:
        phrases_BAO: the token that each state needs next; -1 for a phrase that has occurred.
        failures_BAO: the failure function of each phrase.
        lengths_BA: tokens of the phrases; 0 for padding, which counts as having occurred.
        least_BA: tokens of the shortest phrase of each constraint; 0 for its other phrases.
        same_BAX: 1 where two phrases are alternatives of the same constraint, or the same phrase.
        following_BAX: the table of `following`; 0 if there is none.
        constrained_B: whether the sentence has constraints.
        room_B: most tokens without EOS.
        states_BWA: the state of each phrase.
    """

    def __init__(self, required: Sequence[Required], rules: Rules, beam: int) -> None:
        self.eos, self.device = rules.eos, rules.ends_B.device
        constraints = [wanted.constraints for wanted in required]
        phrases = [list(chain.from_iterable(several)) for several in constraints]
        owners = [[k for k, alternatives in enumerate(several) for _ in alternatives] for several in constraints]
        tables = [following(several) for several in constraints]
        self.phrases_BAO = self._padded([[(*phrase, -1) for phrase in several] for several in phrases], -1)
        self.failures_BAO = self._padded([[failures(phrase) for phrase in several] for several in phrases], 0)
        self.lengths_BA = (self.phrases_BAO >= 0).sum(2)
        size = self.lengths_BA.shape[1]
        self.same_BAX = self._padded([[[k == own for k in of_one] for own in of_one] for of_one in owners], 0, size)
        self.least_BA = self.lengths_BA * (self.same_BAX.cumsum(2).diagonal(dim1=1, dim2=2) == 1)
        rows = [[table[phrase] for phrase in several if table] for table, several in zip(tables, phrases, strict=True)]
        self.following_BAX = self._padded(rows, 0, size)
        self.constrained_B = torch.tensor([bool(several) for several in phrases], device=self.device)
        self.room_B = rules.ends_B - 1
        self.states_BWA = self.lengths_BA[:, None].expand(-1, beam, -1) * 0

    def _padded(self, rows: Sequence[Sequence[Sequence[int]]], filling: int, least: int = 0) -> Tensor:
        """Returns lists of lists of integers as one tensor of three axes; the second has a size of at least `least`."""
        seconds, thirds = [len(row) for row in rows], [len(items) for row in rows for items in row]
        x_BXO = torch.full((len(rows), max([least, *seconds]), max([1, *thirds])), filling)
        for b, row in enumerate(rows):
            for x, items in enumerate(row):
                x_BXO[b, x, : len(items)] = torch.tensor(items)
        return x_BXO.to(self.device)

    def needed(self) -> Tensor:
        """Returns the tokens that continue the phrases, BWA; EOS for a phrase of a met constraint."""
        return _at(self.phrases_BAO, self.states_BWA).masked_fill(~self._open(self.states_BWA), self.eos)

    def block_end(self, log_probs_BWV: Tensor) -> None:
        """Forbids EOS where a constraint is unmet."""
        unmet_BW = self._open(self.states_BWA).any(2)
        log_probs_BWV[:, :, self.eos].masked_fill_(unmet_BW, -torch.inf)

    def deal(
        self, x_BWV: Tensor, offsets_BW: Tensor, best_BC: Tensor, places_BC: Tensor, length: int
    ) -> tuple[Tensor, Tensor]:
        """Returns the candidates that search keeps, with log P and place, in the order of preference, BC.

        Each hypothesis's best token and the tokens that continue its phrases are added to the best candidates of all,
        `best_BC`. Candidates from which the constraints cannot be met in time are left out. Sentences without
        constraints keep `best_BC` and `places_BC`.
        """
        values_BX, places_BX = _extended(x_BWV, offsets_BW, places_BC, self.needed())
        tokens_BX, parents_BX = places_BX % x_BWV.shape[2], places_BX // x_BWV.shape[2]
        states_BXA = self._moved(_rows(self.states_BWA, parents_BX), tokens_BX)
        late_BX = self._tokens_needed(states_BXA) > (self.room_B - length)[:, None]
        values_BX = values_BX.masked_fill(late_BX & (tokens_BX != self.eos), -torch.inf)
        order_BX = _dealt(values_BX, self._banks(states_BXA), self.least_BA.sum(1), offsets_BW.shape[1])
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

    def _open(self, states_BCA: Tensor) -> Tensor:
        """Returns whether the constraint of each phrase is unmet, BCA."""
        unmet_BCA = states_BCA < self.lengths_BA[:, None]
        return unmet_BCA & ((~unmet_BCA).float() @ self.same_BAX.float() == 0)

    def _tokens_needed(self, states_BCA: Tensor) -> Tensor:
        """Returns the fewest tokens that meet all constraints, BC: the minimum over which phrase comes first."""
        open_BCA = self._open(states_BCA)
        bits_BA = (self.least_BA > 0) * 2 ** ((self.least_BA > 0).cumsum(1) - 1)
        sets_BC1 = (open_BCA * bits_BA[:, None]).sum(2, keepdim=True).clamp(0, self.following_BAX.shape[2] - 1)
        rest_BCA = _at(self.following_BAX, sets_BC1.expand_as(states_BCA))
        total_BCA = (self.lengths_BA[:, None] - states_BCA + rest_BCA).masked_fill(~open_BCA, _FAR)
        return total_BCA.amin(2).masked_fill(~open_BCA.any(2), 0)

    def _banks(self, states_BCA: Tensor) -> Tensor:
        """Returns the number of each candidate's bank: how many tokens fewer than at the start meet all constraints.

        A met constraint counts with the length of its shortest phrase. Of the unmet ones, only the furthest advanced
        counts, with the tokens it needs fewer than at the start. Overlaps between phrases are ignored.
        """
        met_BCA = ~self._open(states_BCA)
        shortest_BA = (self.same_BAX * self.least_BA[:, None]).sum(2)
        matched_BCA = states_BCA - (self.lengths_BA - shortest_BA)[:, None]
        return (met_BCA * self.least_BA[:, None]).sum(2) + matched_BCA.masked_fill(met_BCA, 0).amax(2)

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
    _, beam, vocabulary = x_BWV.shape
    tokens_BWX = torch.cat((needed_BWA, x_BWV.argmax(2, keepdim=True)), 2)
    first_W1 = torch.arange(beam, device=x_BWV.device)[:, None] * vocabulary
    places_BX = torch.cat((places_BC, (tokens_BWX + first_W1).flatten(1)), 1).sort(1).values
    values_BX = x_BWV.flatten(1).gather(1, places_BX) + offsets_BW.gather(1, places_BX // vocabulary)
    values_BX[:, 1:].masked_fill_(places_BX[:, 1:] == places_BX[:, :-1], -torch.inf)
    return values_BX, places_BX


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
