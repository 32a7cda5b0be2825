"""Constraints on outputs: rules for the next token, and phrases that must occur (Post & Vilar 2018, Hu et al. 2019).

A rule sets the log P of the tokens that it forbids to -inf, and leaves that of the other tokens as the model gives it.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, T tokens so far, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.search.api import Required, SearchBatch, contains


class Rules:
    """The rules for the outputs of a batch. The user's own scorer comes first; a later rule overrides the earlier ones.

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
        self.longest_prefix = max(lengths)
        self.prefix_lengths_B = torch.tensor(lengths, device=device)
        padded = [
            [*wanted.prefix, *[batch.eos] * (self.longest_prefix - len(wanted.prefix))] for wanted in batch.required
        ]
        self.prefixes_BT = torch.tensor(padded, dtype=torch.long, device=device)
        # A prefix is never cut, so an output may have as many tokens as the prefix and EOS.
        self.max_lengths_B = torch.maximum(batch.max_lengths_B, self.prefix_lengths_B + 1)
        # The first length at which a hypothesis must end. A number on the host spares waiting for the device.
        self.first_end = int(self.max_lengths_B.min())

    def apply(
        self, log_probs_BWV: Tensor, tokens_BWT: Tensor, sentences_B: Tensor, needed_BWX: Tensor | None = None
    ) -> None:
        """Changes the log P of the next token in place.

        Args:
            tokens_BWT: BOS and the tokens so far.
            sentences_B: numbers of the sentences.
            needed_BWX: tokens that continue a required phrase, which may repeat an n-gram.
        """
        length = tokens_BWT.shape[2]  # with the next token
        if self.scorer:
            log_probs_BWV.copy_(self.scorer(tokens_BWT, log_probs_BWV))
        for token in self.never:
            log_probs_BWV[:, :, token] = -torch.inf
        if self.config.no_repeat_ngram:
            pieces_BWT, exempt_BWX = tokens_BWT[:, :, 1:], self._exempt(tokens_BWT, sentences_B, needed_BWX)
            _block_repeats(log_probs_BWV, pieces_BWT, self.config.no_repeat_ngram, exempt_BWX)
        if length <= self.config.min_length:
            self._block_end(log_probs_BWV, self.max_lengths_B[sentences_B] > length)
        if length >= self.first_end:
            must_end_B = self.max_lengths_B[sentences_B] <= length
            _force(log_probs_BWV, must_end_B, torch.full_like(sentences_B, self.eos))
        if length <= self.longest_prefix:
            forced_B = self.prefix_lengths_B[sentences_B] >= length
            _force(log_probs_BWV, forced_B, self.prefixes_BT[sentences_B, length - 1])

    def _exempt(self, tokens_BWT: Tensor, sentences_B: Tensor, needed_BWX: Tensor | None) -> Tensor | None:
        """Returns the tokens that may repeat an n-gram: those of the prefix and of phrases; None if there are none."""
        length = tokens_BWT.shape[2]
        if length > self.longest_prefix:
            return needed_BWX
        prefix_BW1 = self.prefixes_BT[sentences_B, length - 1, None, None].expand(-1, tokens_BWT.shape[1], 1)
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


def within(required: Required, max_length: int) -> Required:
    """Returns `required` with only those phrases that its prefix lacks and that no other phrase contains.

    If the phrases do not fit into `max_length` one after another, none is kept.
    """
    distinct = dict.fromkeys(filter(None, required.phrases))
    whole = [p for p in distinct if not any(p != other and contains(other, p) for other in distinct)]
    missing = tuple(p for p in whole if not contains(required.prefix, p))
    fits = len(required.prefix) + sum(map(len, missing)) < max_length
    return Required(required.prefix, missing if fits else ())


_FAR = 2**31


class Constraints:
    """The phrases of the sentences in the search, and how many tokens of each phrase their hypotheses match.

    The state of a phrase is the largest n for which the newest n tokens of a hypothesis are the first n tokens of the
    phrase. A phrase is met when all its tokens are matched, and then stays met.

    Attributes:
        phrases_BAO: the token that each state needs next; -1 for a met phrase.
        lengths_BA: the number of tokens of each phrase; 0 for padding, which counts as met.
        room_B: the largest number of tokens of an output, EOS left out.
        matches_BWAO: for each n, whether the newest n tokens are the first n of the phrase. The last entry of a phrase,
            which says that it is met, stays true.
    """

    def __init__(self, required: Sequence[Required], rules: Rules, beam: int) -> None:
        self.eos, device = rules.eos, rules.max_lengths_B.device
        longest = max(len(phrase) for wanted in required for phrase in wanted.phrases)
        phrases_BAO = torch.full((len(required), max(len(wanted.phrases) for wanted in required), longest + 1), -1)
        for b, wanted in enumerate(required):
            for a, phrase in enumerate(wanted.phrases):
                phrases_BAO[b, a, : len(phrase)] = torch.tensor(phrase)
        self.phrases_BAO = phrases_BAO.to(device)
        self.lengths_BA = (self.phrases_BAO >= 0).sum(2)
        self.room_B = rules.max_lengths_B - 1
        no_token_O = torch.arange(longest + 1, device=device) == 0
        self.matches_BWAO = no_token_O.expand(*self.lengths_BA.shape, -1)[:, None].repeat(1, beam, 1, 1)

    def needed(self) -> Tensor:
        """Returns the tokens that continue the phrases, BWA; EOS for a met phrase."""
        states_BAW = _states(self.matches_BWAO).transpose(1, 2)
        tokens_BWA = self.phrases_BAO.gather(2, states_BAW).transpose(1, 2)
        return tokens_BWA.masked_fill(tokens_BWA < 0, self.eos)

    def block_end(self, log_probs_BWV: Tensor) -> None:
        """Forbids EOS where a phrase is unmet."""
        unmet_BW = (_states(self.matches_BWAO) < self.lengths_BA[:, None]).any(2)
        log_probs_BWV[:, :, self.eos].masked_fill_(unmet_BW, -torch.inf)

    def deal(
        self, x_BWV: Tensor, offsets_BW: Tensor, best_BC: Tensor, places_BC: Tensor, length: int
    ) -> tuple[Tensor, Tensor]:
        """Returns log P and place of the candidates that search keeps, in the order of preference, BC each.

        The candidates are the best ones of all, `best_BC`, and for each hypothesis its best token and the tokens that
        continue its phrases. Candidates without room for the rest of a phrase are left out. Sentences without phrases
        keep `best_BC` and `places_BC`.
        """
        values_BX, places_BX = _extended(x_BWV, offsets_BW, places_BC, self.needed())
        tokens_BX, parents_BX = places_BX % x_BWV.shape[2], places_BX // x_BWV.shape[2]
        states_BXA, lengths_B1A = _states(self._moved(parents_BX, tokens_BX)), self.lengths_BA[:, None]
        late_BX = (lengths_B1A - states_BXA).amax(2) > (self.room_B - length).clamp(min=0)[:, None]
        met_BXA = states_BXA == lengths_B1A
        # A bank is the number of tokens of met phrases, plus the most matched tokens of a single unmet phrase.
        banks_BX = (states_BXA * met_BXA).sum(2) + (states_BXA * ~met_BXA).amax(2)
        values_BX = values_BX.masked_fill(late_BX, -torch.inf)
        order_BX = _dealt(values_BX, banks_BX, self.lengths_BA.sum(1), offsets_BW.shape[1])
        order_BC = order_BX[:, : best_BC.shape[1]]
        constrained_B1 = self.lengths_BA.any(1, keepdim=True)
        return (
            torch.where(constrained_B1, values_BX.gather(1, order_BC), best_BC),
            torch.where(constrained_B1, places_BX.gather(1, order_BC), places_BC),
        )

    def _moved(self, parents_BC: Tensor, tokens_BC: Tensor) -> Tensor:
        """Returns the matches after these tokens have continued hypotheses `parents_BC`, BCAO."""
        before_BCAO = self.matches_BWAO[torch.arange(len(parents_BC), device=parents_BC.device)[:, None], parents_BC]
        fits_BCAO = self.phrases_BAO[:, None] == tokens_BC[:, :, None, None]
        grown_BCAO = F.pad((before_BCAO & fits_BCAO)[..., :-1], (1, 0), value=True)
        return grown_BCAO | (before_BCAO & (self.phrases_BAO[:, None] < 0))

    def advance(self, parents_BW: Tensor, tokens_BW: Tensor) -> None:
        """Continues hypotheses `parents_BW` with these tokens."""
        self.matches_BWAO = self._moved(parents_BW, tokens_BW)

    def keep(self, chosen_B: Tensor) -> None:
        """Drops all sentences except `chosen_B`."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[chosen_B])


def _states(matches_BCAO: Tensor) -> Tensor:
    """Returns the state of each phrase, BCA."""
    return (matches_BCAO * torch.arange(matches_BCAO.shape[3], device=matches_BCAO.device)).amax(3)


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
