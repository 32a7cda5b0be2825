"""Search over a step function: beam search or sampling. It knows no model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.decoding.beam import beam_search
from nmt.decoding.outputs import Found, Required
from nmt.decoding.protocol import Cache, Step
from nmt.decoding.sampling import sample
from nmt.errors import NmtError

__all__ = ["Cache", "Found", "Required", "Step", "search"]


@torch.no_grad()
def search(
    step: Step,
    cache: Cache,
    max_lengths_B: Tensor,
    *,
    bos: int,
    eos: int,
    config: SearchConfig,
    required: Sequence[Required] | None = None,
    streams: Sequence[int] | None = None,
    never: Sequence[int] = (),
) -> list[list[Found]]:
    """Returns the finished hypotheses of each sentence: the `n_best` of beam search, best first, or the samples.

    A sentence has none if the model gives probabilities that are no numbers.

    Args:
        cache: the state of `config.width` hypotheses a sentence before any token.
        max_lengths_B: most tokens of each sentence's output, EOS included, at least 1. A longer prefix is kept whole.
        required: prefix and phrases of each sentence; none if not given.
        streams: the numbers that the random numbers of each sentence depend on; 0, 1, … if not given.
        never: tokens that no output has.

    Raises:
        NmtError: phrases are required of samples or of diverse beam search.
    """
    required = required if required is not None else [Required()] * len(max_lengths_B)
    if any(wanted.phrases for wanted in required):
        _check_phrases(config)
    if config.sample:
        streams = range(len(max_lengths_B)) if streams is None else streams
        return sample(
            step, cache, max_lengths_B, bos=bos, eos=eos, config=config, required=required, streams=streams, never=never
        )
    return beam_search(step, cache, max_lengths_B, bos=bos, eos=eos, config=config, required=required, never=never)


def _check_phrases(config: SearchConfig) -> None:
    """Raises NmtError if this search cannot hold required phrases."""
    if config.sample:
        raise NmtError("required phrases work with beam search only, but --sample was given; leave out one of the two")
    if config.beam_groups > 1:
        raise NmtError(
            f"required phrases work with a single group of hypotheses, but --beam-groups is {config.beam_groups}; "
            f"set it to 1 or leave out the phrases"
        )
