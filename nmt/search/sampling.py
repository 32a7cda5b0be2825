"""Sampling over a step function, for any model.

The token at a position is the inverse of the cumulative distribution at a uniform random number. That number depends on
the seed, the sentence's stream, the number of the sample and the position alone, so samples are the same for any batch.

Shapes: see docs/architecture.md; B sentences still being sampled, W samples a sentence, R = B·W rows, T tokens so
far, V vocabulary, X tokens from the most probable down, E ended samples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.errors import NmtError
from nmt.search.api import DONE_SHARE, BySentence, Caches, SearchBatch, Step, TokenHypothesis
from nmt.search.beam import scored
from nmt.search.rules import Rules

# Positions whose random numbers are made at once.
_BLOCK = 64


def _uniforms(batch: SearchBatch, sentences: Sequence[int], block: int) -> Tensor:
    """Returns uniform random numbers in [0, 1) for each sentence, sample and position of a block, float64, BWX."""
    generators = [np.random.default_rng((batch.config.seed, *batch.streams[b], block)) for b in sentences]
    # Row by row, so that the number of samples does not change the numbers of the first ones.
    uniforms = [generator.random((batch.config.samples, _BLOCK)) for generator in generators]
    return torch.from_numpy(np.array(uniforms)).to(batch.max_lengths_B.device)


@dataclass
class _Samples(BySentence):
    """The samples of the sentences that are not done; sample w of sentence b is row b·W + w.

    Attributes:
        sentences_B: the numbers of the sentences.
        tokens_BWT: BOS and the tokens so far.
        history_BWT: the log P of each token; that of BOS is never read.
        done_BW: whether the sample has ended.
        uniforms_BWX: random numbers for the present block of positions, as many as `_BLOCK`.
    """

    rules: Rules
    sentences_B: Tensor
    tokens_BWT: Tensor
    history_BWT: Tensor
    done_BW: Tensor
    uniforms_BWX: Tensor

    def advance(self, scores_RV: Tensor) -> list[tuple[int, int, TokenHypothesis]]:
        """Draws the next tokens; returns sentence, number and hypothesis of each sample that ends here."""
        config, uniforms_BW = self.rules.batch.config, self.uniforms_BWX[:, :, (self.tokens_BWT.shape[2] - 1) % _BLOCK]
        log_probs_BWV = torch.log_softmax(scores_RV, 1, out=scores_RV).unflatten(0, (-1, config.samples))
        self.rules.apply(log_probs_BWV, self.tokens_BWT)
        # Rows at once, to bound the memory of float64 copies. On a CPU, they fit into its cache.
        rows = max(1, 2 ** (18 if scores_RV.device.type == "cpu" else 24) // scores_RV.shape[1])
        chunks = zip(log_probs_BWV.flatten(0, 1).split(rows), uniforms_BW.flatten().split(rows), strict=True)
        tokens_BW1 = torch.cat([_drawn(*chunk, config) for chunk in chunks]).view(*uniforms_BW.shape, 1)
        log_probs_BW1 = log_probs_BWV.gather(2, tokens_BW1)
        self.tokens_BWT = torch.cat((self.tokens_BWT, tokens_BW1), 2)
        self.history_BWT = torch.cat((self.history_BWT, log_probs_BW1), 2)
        # A sample of NaN probabilities would never draw EOS.
        ended_BW = ((tokens_BW1 == self.rules.batch.eos) | ~log_probs_BW1.isfinite())[:, :, 0] & ~self.done_BW
        self.done_BW |= ended_BW
        b_E, w_E = ended_BW.nonzero(as_tuple=True)
        tokens_ET, log_probs_ET = self.tokens_BWT[b_E, w_E, 1:-1], self.history_BWT[b_E, w_E, 1:]
        pairs = zip(tokens_ET.tolist(), log_probs_ET.tolist(), strict=True)
        hypotheses = [scored(tokens, log_probs, config.alpha) for tokens, log_probs in pairs]
        return list(zip(self.sentences_B[b_E].tolist(), w_E.tolist(), hypotheses, strict=True))


def sample(step: Step, caches: Caches, batch: SearchBatch) -> list[list[TokenHypothesis]]:
    """Returns `samples` independent samples of each sentence, in the order of their numbers; see `beam_search`.

    Temperature, top-k, top-p and epsilon (Hewitt et al. 2022) change the distribution that is sampled from. The log P
    that is returned is that before these changes.
    """
    if any(wanted.constraints for wanted in batch.required):
        raise NmtError("constraints work with beam search only, but --sample was given; leave out one of them")
    device, size = batch.max_lengths_B.device, (len(batch.required), batch.config.samples)
    samples = _Samples(
        Rules.of(batch),
        sentences_B=torch.arange(size[0], device=device),
        tokens_BWT=batch.first_B[:, None, None].repeat(1, size[1], 1),
        history_BWT=torch.zeros(*size, 1, device=device),
        done_BW=torch.zeros(size, dtype=torch.bool, device=device),
        uniforms_BWX=_uniforms(batch, range(size[0]), 0),
    )
    hypotheses: list[dict[int, TokenHypothesis]] = [{} for _ in batch.required]
    parents_W = torch.arange(size[1], device=device)
    while len(samples.sentences_B):
        scores_RV, caches = step(samples.tokens_BWT[:, :, -1].flatten(), caches)
        for sentence, w, hypothesis in samples.advance(scores_RV):
            hypotheses[sentence][w] = hypothesis
        chosen = [b for b, done in enumerate(samples.done_BW.all(1).tolist()) if not done]
        if len(chosen) <= (1 - DONE_SHARE) * len(samples.done_BW):
            chosen_B = torch.tensor(chosen, dtype=torch.long, device=device)
            samples = samples.at(chosen_B)
            caches = [cache.select(parents_W.expand(len(chosen), -1), chosen_B) for cache in caches]
        block, column = divmod(samples.tokens_BWT.shape[2] - 1, _BLOCK)
        if column == 0:
            samples.uniforms_BWX = _uniforms(batch, samples.sentences_B.tolist(), block)
    in_order = [[by_number[w] for w in range(size[1])] for by_number in hypotheses]
    return [several if all(math.isfinite(h.score) for h in several) else [] for several in in_order]


def _drawn(log_probs_RV: Tensor, uniforms_R: Tensor, config: SearchConfig) -> Tensor:
    """Returns a token for each row, drawn in float64 from the filtered and renormalised distribution."""
    x_RV = log_probs_RV.double()
    # A maximum of 0 stays 0 at any temperature.
    x_RV = (x_RV - x_RV.amax(1, keepdim=True)) / config.temperature
    if config.epsilon:
        x_RV.masked_fill_((log_probs_RV < math.log(config.epsilon)) & (x_RV < 0), -torch.inf)
    x_RV = _filtered(x_RV, config)
    cumulative_RV = x_RV.exp().cumsum(1)
    total_R1 = cumulative_RV[:, -1:].contiguous()
    drawn_R1 = torch.searchsorted(cumulative_RV, uniforms_R[:, None] * total_R1, right=True)
    # Rounding can give the total itself, which belongs to the last token of positive probability.
    last_R1 = torch.searchsorted(cumulative_RV, total_R1)
    return torch.minimum(drawn_R1, last_R1).clamp(max=x_RV.shape[1] - 1)[:, 0]


def _filtered(x_RV: Tensor, config: SearchConfig) -> Tensor:
    """Returns log P with -inf for tokens outside top-k and top-p."""
    k = min(config.top_k or x_RV.shape[1], x_RV.shape[1])
    if config.top_p < 1:
        sorted_RX, kept_R1 = _nucleus(x_RV, k, config.top_p)
    elif k < x_RV.shape[1]:
        sorted_RX = _largest(x_RV, k + 1)
        kept_R1 = torch.full_like(sorted_RX[:, :1], k, dtype=torch.long)
    else:
        return x_RV
    lowest_R1, next_R1 = (sorted_RX.gather(1, (kept_R1 + n).clamp(max=sorted_RX.shape[1] - 1)) for n in (-1, 0))
    kept_RV = x_RV >= lowest_R1
    # Of equal tokens, those with the lowest ids are kept, so that ties are the same on every device.
    if bool(((next_R1 == lowest_R1) & (kept_R1 < x_RV.shape[1])).any()):
        above_RV = x_RV > lowest_R1
        equal_RV = kept_RV & ~above_RV
        kept_RV = above_RV | (equal_RV & (equal_RV.cumsum(1) <= kept_R1 - above_RV.sum(1, keepdim=True)))
    return torch.where(kept_RV, x_RV, -torch.inf)


def _nucleus(x_RV: Tensor, k: int, p: float) -> tuple[Tensor, Tensor]:
    """Returns the most probable tokens' log P from the largest down, RX, and how many reach the mass `p`, R1.

    The mass is that of the `k` most probable tokens, renormalised. Behind them, there is one more token, if any.
    """
    vocabulary = x_RV.shape[1]
    total_R1 = (x_RV if k == vocabulary else _largest(x_RV, k)).logsumexp(1, keepdim=True)
    several = min(k, 256)  # the tokens that are sorted first
    while True:
        sorted_RX = _largest(x_RV, min(several + 1, vocabulary))
        probs_RX = (sorted_RX[:, :several] - total_R1).exp()
        before_RX = probs_RX.cumsum(1) - probs_RX
        if several == k or bool((before_RX[:, -1] >= p).all()):
            return sorted_RX, (before_RX < p).sum(1, keepdim=True).clamp(min=1)
        several = min(k, 8 * several)


def _largest(x_RV: Tensor, count: int) -> Tensor:
    """Returns the largest log P of each row from the largest down, RX. On a CPU, NumPy is faster than `topk`."""
    if x_RV.device.type != "cpu":
        return x_RV.topk(count).values
    rest = x_RV.shape[1] - count
    largest_RX = np.partition(x_RV.numpy(), rest, axis=1)[:, rest:] if rest else x_RV.numpy()
    return torch.from_numpy(np.sort(largest_RX, axis=1)[:, ::-1].copy())
