"""Rules for the next token: forbidden tokens, minimum and maximum length, no repeated n-grams, forced prefixes.

A rule sets the log P of the other tokens to -inf and leaves the rest as the model gives it.

Shapes: see docs/architecture.md; B sentences, W hypotheses a sentence, T tokens so far, V vocabulary.
"""

import torch
from torch import Tensor

from nmt.search.api import SearchBatch


class Rules:
    """The rules for the outputs of a batch; a later rule overrides the earlier ones, and the user's own scorer.

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
        # A prefix is always whole, so the shortest output that it allows must be allowed.
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
