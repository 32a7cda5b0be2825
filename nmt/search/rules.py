"""The rules for the next token of an output.

A rule sets the log P of the tokens that it forbids to -inf, and leaves that of the other tokens as the model gives it.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, T tokens so far, V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from nmt.search.api import BySentence, SearchBatch


@dataclass
class Rules(BySentence):
    """The rules for the outputs of a batch, which are applied in this order after the user's own scorer.

    A token that one rule forbids stays forbidden. Prefix and phrases may repeat n-grams, and an output may be too
    short if every other token would repeat one.

    1. Tokens in `never` do not occur.
    2. No n-gram of pieces occurs twice.
    3. An output has a minimum length.
    4. An output of its maximum length ends.
    5. An output begins with its prefix.

    Attributes:
        batch: the options, EOS, and what else is the same for all sentences.
        prefixes_BT: the prefixes, of these lengths, filled up with EOS.
        starts_B: the step before the first one of each sentence.
        ends_B: the step at which the longest output of a sentence ends.
    """

    batch: SearchBatch
    prefix_lengths_B: Tensor
    prefixes_BT: Tensor
    starts_B: Tensor
    ends_B: Tensor

    def __post_init__(self) -> None:
        # Numbers on the host spare waiting for the device.
        self.first_end = min(self.ends_B.tolist(), default=0)
        self.last_start = max(self.starts_B.tolist(), default=0)

    @classmethod
    def of(cls, batch: SearchBatch) -> Self:
        """Returns the rules for sentences that begin at the first step."""
        device, prefixes = batch.max_lengths_B.device, [required.prefix for required in batch.required]
        longest = max(map(len, prefixes))
        lengths_B = torch.tensor([len(prefix) for prefix in prefixes], device=device)
        padded = [[*prefix, *[batch.eos] * (longest - len(prefix))] for prefix in prefixes]
        prefixes_BT = torch.tensor(padded, dtype=torch.long, device=device).view(len(padded), longest)
        # A prefix is never cut, so an output may have as many tokens as the prefix and EOS.
        ends_B = torch.maximum(batch.max_lengths_B, lengths_B + 1)
        starts_B = torch.zeros_like(lengths_B)
        return cls(batch, lengths_B, prefixes_BT, starts_B, ends_B)

    def later(self, steps: int) -> Self:
        """Returns the rules for sentences that begin and end so many steps later."""
        return replace(self, starts_B=self.starts_B + steps, ends_B=self.ends_B + steps)

    def apply(self, log_probs_BWV: Tensor, tokens_BWT: Tensor, needed_BWX: Tensor | None = None) -> None:
        """Changes the log P of the next token in place.

        Args:
            tokens_BWT: BOS and the tokens so far; in front of them, BOS for each step before a sentence begins.
            needed_BWX: tokens that continue a required phrase, which may repeat an n-gram.
        """
        length = tokens_BWT.shape[2]  # of the output with the next token, because BOS does not count
        batch, ngram = self.batch, self.batch.config.no_repeat_ngram
        if batch.scorer:
            log_probs_BWV.copy_(batch.scorer(tokens_BWT, log_probs_BWV))
        for token in batch.never:
            log_probs_BWV[:, :, token] = -torch.inf
        if ngram:
            # The tokens of the prefix and of phrases may repeat an n-gram.
            exempt_BWX = self.prefixes_BT[:, None, length - 1 : length].expand(-1, tokens_BWT.shape[1], -1)
            if needed_BWX is not None:
                exempt_BWX = torch.cat((exempt_BWX, needed_BWX), 2)
            _block_repeats(log_probs_BWV, tokens_BWT[:, :, 1:], ngram, exempt_BWX)
        if length <= self.last_start + batch.min_length:
            is_short_B = length - self.starts_B <= batch.min_length
            self._block_end(log_probs_BWV, is_short_B & (self.ends_B > length))
        if length >= self.first_end:
            _force(log_probs_BWV, self.ends_B <= length, torch.full_like(self.ends_B, batch.eos))
        if length <= self.prefixes_BT.shape[1]:
            _force(log_probs_BWV, self.prefix_lengths_B >= length, self.prefixes_BT[:, length - 1])

    def _block_end(self, log_probs_BWV: Tensor, chosen_B: Tensor) -> None:
        """Forbids EOS in the chosen sentences, except where all other tokens would repeat an n-gram."""
        end_BW = log_probs_BWV[:, :, self.batch.eos].clone()
        blocked_BW = chosen_B[:, None].expand_as(end_BW)
        log_probs_BWV[:, :, self.batch.eos] = end_BW.masked_fill(blocked_BW, -torch.inf)
        if self.batch.config.no_repeat_ngram:
            stuck_BW = log_probs_BWV.amax(2) == -torch.inf
            log_probs_BWV[:, :, self.batch.eos] = end_BW.masked_fill(blocked_BW & ~stuck_BW, -torch.inf)


def _block_repeats(log_probs_BWV: Tensor, pieces_BWT: Tensor, n: int, exempt_BWX: Tensor) -> None:
    """Forbids tokens that would complete an n-gram for the second time, unless they are exempt."""
    if pieces_BWT.shape[2] < n:
        return
    exempt_log_probs_BWX = log_probs_BWV.gather(2, exempt_BWX)
    grams_BWTX = pieces_BWT.unfold(2, n, 1)
    same_BWT = (grams_BWTX[..., :-1] == pieces_BWT[:, :, None, pieces_BWT.shape[2] - n + 1 :]).all(3)
    # Adding -inf for a repeated token and 0 for others spares a loop over hypotheses.
    addends_BWT = torch.zeros_like(same_BWT, dtype=log_probs_BWV.dtype).masked_fill(same_BWT, -torch.inf)
    log_probs_BWV.scatter_add_(2, grams_BWTX[..., -1], addends_BWT)
    log_probs_BWV.scatter_(2, exempt_BWX, exempt_log_probs_BWX)


def _force(log_probs_BWV: Tensor, chosen_B: Tensor, tokens_B: Tensor) -> None:
    """Forbids all tokens except `tokens_B` in the chosen sentences."""
    b_X = chosen_B.nonzero()[:, 0]
    kept_XW = log_probs_BWV[b_X, :, tokens_B[b_X]]
    log_probs_BWV[b_X] = -torch.inf
    log_probs_BWV[b_X, :, tokens_B[b_X]] = kept_XW
