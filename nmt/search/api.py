"""The interface of search: required tokens, the sentences of a batch, the step of a model, and hypotheses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from nmt.config import SearchConfig

# Finished sentences leave the batch when they are this share of it, because leaving copies the cache of the others.
DONE_SHARE = 0.1


# (the tokens so far BWT, behind BOS or the token of a language; log P of the next token BWV) -> log P of the next
# token that search uses, BWV.
Scorer = Callable[[Tensor, Tensor], Tensor]
# What a step keeps for the next one, for example of each model of an ensemble. Each cache has the method `select`
# of `nmt.model.cache.DecoderCache` and, if sentences join the search, `join`.
Caches = list[Any]
# (newest ids R, caches) -> (logits RV of the next token, caches). Search overwrites the logits.
Step = Callable[[Tensor, Caches], tuple[Tensor, Caches]]
Phrase = tuple[int, ...]
Constraint = tuple[Phrase, ...]  # alternatives, of which one must occur


@dataclass(frozen=True)
class Required:
    """What the output of one sentence must contain.

    Attributes:
        prefix: the ids that the output begins with.
        constraints: sets of phrases; the output must contain a phrase of each set. Occurrences may overlap. Only
            `SearchBatch.borders_V` may follow a phrase, unless it continues another one.
    """

    prefix: Phrase = ()
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchBatch:
    """The sentences that are searched together, and how.

    Attributes:
        max_lengths_B: most tokens of each sentence's output, EOS included, at least 1. A longer prefix is kept whole.
        first_B: the token before the first one of each sentence's output: BOS, or that of a language.
        required: prefix and constraints of each sentence.
        streams: the numbers that the random numbers of each sentence depend on.
        min_length: fewest tokens of an output, without EOS.
        never: tokens that no output has.
        borders_V: whether a token may stand directly behind a required phrase; None if any may.
        scorer: changes the log P of the next tokens. Search may end too early if a token gets a log P above 0,
            because it expects that the log P of a hypothesis only falls.
    """

    max_lengths_B: Tensor
    first_B: Tensor
    bos: int
    eos: int
    config: SearchConfig
    required: Sequence[Required]
    streams: Sequence[tuple[int, ...]]
    min_length: int = 0
    never: Sequence[int] = ()
    borders_V: Tensor | None = None
    scorer: Scorer | None = None


def contains(tokens: Sequence[int], phrase: Sequence[int]) -> bool:
    """Returns whether the phrase occurs in `tokens`. An empty phrase occurs in everything."""
    wanted = tuple(phrase)
    return any(tuple(tokens[i : i + len(wanted)]) == wanted for i in range(len(tokens) - len(wanted) + 1))


def meets(tokens: Sequence[int], constraint: Constraint) -> bool:
    """Returns whether a phrase of the constraint occurs in `tokens`."""
    return any(contains(tokens, phrase) for phrase in constraint)


@dataclass
class BySentence:
    """A part of the state of a search: its tensors have the sentences as their first axis."""

    def at(self, indices_B: Tensor, others: Self | None = None) -> Self:
        """Returns the state of the sentences at these indices; those behind the last sentence are in `others`."""
        changes: dict[str, Any] = {}
        for name in (field.name for field in fields(self)):
            value: Any = getattr(self, name)
            other: Any = getattr(others, name, None)
            if isinstance(value, Tensor):
                changes[name] = (value if others is None else torch.cat((value, other)))[indices_B]
            elif isinstance(value, BySentence):
                changes[name] = value.at(indices_B, other)
        return replace(self, **changes)


@dataclass(frozen=True)
class TokenHypothesis:
    """A finished hypothesis in tokens.

    Attributes:
        tokens: its ids without EOS.
        log_probs: natural log P of each token, from the user's scorer if there is one; that of EOS is last.
        score: log P of the hypothesis over the length penalty.
        unmet: whether a constraint is not met, because the longest output cannot hold all of them.
    """

    tokens: list[int]
    log_probs: list[float]
    score: float
    unmet: bool = False
