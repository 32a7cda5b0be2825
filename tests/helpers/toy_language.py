"""A language small enough to enumerate, for tests of search."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.search.api import Required, SearchBatch, TokenHypothesis
from nmt.search.beam import beam_search
from nmt.search.sampling import sample

BOS, EOS, VOCABULARY = 0, 1, 4


@dataclass(frozen=True)
class History:
    """A cache of all that was said: the sentences, and the tokens of their hypotheses."""

    sentences: list[int]
    tokens: list[list[tuple[int, ...]]]

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> "History":
        chosen = range(len(self.sentences)) if sentences_B is None else sentences_B.tolist()
        tokens = [[self.tokens[b][w] for w in parents] for b, parents in zip(chosen, parents_BW.tolist(), strict=True)]
        return History([self.sentences[b] for b in chosen], tokens)

    def join(self, others: "History", places_X: Tensor) -> "History":
        said = dict(enumerate(zip(self.sentences, self.tokens, strict=True)))
        said |= zip(places_X.tolist(), zip(others.sentences, others.tokens, strict=True), strict=True)
        sentences, tokens = zip(*(said[place] for place in range(len(said))), strict=True)
        return History(list(sentences), list(tokens))


@cache
def _table(vocabulary: int) -> tuple[Tensor, ...]:
    """Distributions of next tokens; every history has one of them."""
    generator = torch.Generator().manual_seed(vocabulary)
    return (torch.randn(10_007, vocabulary, generator=generator) * 1.5).log_softmax(-1).unbind()


class Language:
    """Random next-token probabilities for every sentence and history, the same whenever they are asked for."""

    def __init__(self, seed: int, vocabulary: int = VOCABULARY) -> None:
        self.seed, self.vocabulary = seed, vocabulary

    def log_probs(self, sentence: int, tokens: tuple[int, ...]) -> Tensor:
        table = _table(self.vocabulary)
        return table[hash((self.seed, sentence, tokens)) % len(table)]

    def step(self, last_R: Tensor, caches: list[History]) -> tuple[Tensor, list[History]]:
        (cache,), last = caches, iter(last_R.tolist())
        tokens = [[(*said, next(last)) for said in hypotheses] for hypotheses in cache.tokens]
        # Scores are log-probabilities up to a constant that may be another in every row.
        rows = [self.log_probs(s, t) for s, ts in zip(cache.sentences, tokens, strict=True) for t in ts]
        return torch.stack(rows) + last_R[:, None], [History(cache.sentences, tokens)]

    def search(
        self,
        max_lengths: list[int],
        config: SearchConfig,
        sentences: list[int] | None = None,
        required: Sequence[Required] | None = None,
        streams: Sequence[int] | None = None,
        borders: Sequence[bool] | None = None,
    ) -> list[list[TokenHypothesis]]:
        caches, batch = begun(max_lengths, config, sentences, required, streams)
        batch = replace(batch, borders_V=None if borders is None else torch.tensor(borders))
        return (sample if config.sample else beam_search)(self.step, caches, batch)

    def token_log_probs(self, sentence: int, tokens: Sequence[int]) -> list[float]:
        """log P of the tokens and EOS."""
        whole = (*tokens, EOS)
        return [float(self.log_probs(sentence, (BOS, *whole[:i]))[token]) for i, token in enumerate(whole)]

    def score(self, sentence: int, tokens: Sequence[int], alpha: float) -> float:
        """log P of the tokens and EOS over the length penalty."""
        return sum(self.token_log_probs(sentence, tokens)) / ((5 + len(tokens) + 1) / 6) ** alpha

    def outputs(self, longest: int) -> list[tuple[int, ...]]:
        """Every output of at most `longest` tokens, EOS included."""
        others = [t for t in range(self.vocabulary) if t != EOS]
        return [o for n in range(longest) for o in itertools.product(others, repeat=n)]


def begun(
    max_lengths: list[int],
    config: SearchConfig,
    sentences: list[int] | None = None,
    required: Sequence[Required] | None = None,
    streams: Sequence[int] | None = None,
) -> tuple[list[History], SearchBatch]:
    """Returns what search begins with."""
    numbers = sentences or list(range(len(max_lengths)))
    required, streams = required or [Required()] * len(numbers), streams or range(len(numbers))
    lengths_B = torch.tensor(max_lengths)
    options = {"config": config, "required": required, "streams": [(stream,) for stream in streams]}
    options["min_length"] = config.min_length
    batch = SearchBatch(max_lengths_B=lengths_B, first_B=torch.full_like(lengths_B, BOS), bos=BOS, eos=EOS, **options)
    return [History(numbers, [[()] * config.hypotheses for _ in numbers])], batch


class Scripted(Language):
    """A model whose probabilities are a function of BOS and the tokens so far; it counts its steps."""

    def __init__(self, probabilities: Callable[[tuple[int, ...]], list[float]], vocabulary: int = VOCABULARY) -> None:
        super().__init__(0, vocabulary)
        self.probabilities, self.steps = probabilities, 0

    def log_probs(self, sentence: int, tokens: tuple[int, ...]) -> Tensor:  # noqa: ARG002
        return torch.tensor(self.probabilities(tokens)).log()

    def step(self, last_R: Tensor, caches: list[History]) -> tuple[Tensor, list[History]]:
        self.steps += 1
        return super().step(last_R, caches)


def occurs(phrase: Sequence[int], tokens: Sequence[int]) -> bool:
    """Whether the phrase is in the tokens: compared as text, which is another way than the package's."""
    return "".join(f"<{t}>" for t in phrase) in "".join(f"<{t}>" for t in tokens)
