"""Search for translations: beam search or sampling."""

import torch

from nmt.errors import NmtError
from nmt.search.api import Cache, SearchBatch, Step, TokenHypothesis
from nmt.search.beam import beam_search
from nmt.search.sampling import sample


@torch.no_grad()
def search(step: Step, cache: Cache, batch: SearchBatch) -> list[list[TokenHypothesis]]:
    """Returns the finished hypotheses of each sentence: the `n_best` of beam search, best first, or the samples.

    A sentence has no hypotheses if the model gives NaN.

    Args:
        cache: the state before the first token, for `batch.config.hypotheses` hypotheses of each sentence.
    """
    config = batch.config
    if any(wanted.constraints for wanted in batch.required):
        if config.sample:
            raise NmtError(
                "constraints and glossaries work with beam search only, but --sample was given; leave out one of them"
            )
        if config.beam_groups > 1:
            raise NmtError(
                f"constraints and glossaries work with a single group of hypotheses, but --beam-groups is "
                f"{config.beam_groups}; set it to 1 or leave them out"
            )
    return sample(step, cache, batch) if config.sample else beam_search(step, cache, batch)
