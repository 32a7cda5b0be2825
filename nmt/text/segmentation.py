"""Segments words with the vocabulary of a sentencepiece model in ways that sentencepiece does not offer.

sentencepiece can sample segmentations, but its random numbers differ from process to process even with the same seed.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import NamedTuple

import sentencepiece

_SPACE = "▁"
_BYTES = 256
_CACHED_WORDS = 1 << 16
_LONGEST_CACHED = 32  # characters; without spaces, a word may be a whole sentence that never comes again
# How much worse than the worst piece sentencepiece scores a character without a piece.
_UNKNOWN_PENALTY = 10.0


class _Words:
    """Converts lines to ids word by word. A word begins with ▁, and no piece reaches beyond its word."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        ids = range(processor.get_piece_size())
        byte_pieces = {processor.id_to_piece(i): i for i in ids if processor.is_byte(i)}
        self._byte_ids = [byte_pieces.get(f"<0x{byte:02X}>", processor.unk_id()) for byte in range(_BYTES)]
        special = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
        self.ids = {processor.id_to_piece(i): i for i in ids if not any(is_special(i) for is_special in special)}
        self.scores = {piece: float(processor.get_score(i)) for piece, i in self.ids.items()}
        self.longest = max(map(len, self.ids), default=1)

    def ids_of(self, pieces: Sequence[str]) -> list[int]:
        """Returns the ids of pieces. Characters without a piece are spelt in bytes."""
        found: list[int] = []
        for piece in pieces:
            if piece in self.ids:
                found.append(self.ids[piece])
            else:
                found += [self._byte_ids[byte] for byte in piece.encode()]
        return found


def _words(line: str) -> list[str]:
    return [_SPACE + word for word in line.replace(_SPACE, " ").split(" ") if word]


class Greedy(_Words):
    """The longest piece that fits comes first, as in wordpiece models (Wu et al. 2016, §4.1)."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__(processor)
        self._encode_word = lru_cache(maxsize=_CACHED_WORDS)(self._segment)

    def encode(self, line: str) -> list[int]:
        """Returns the ids of a line."""
        return [i for word in _words(line) for i in self._encode_word(word)]

    def _segment(self, word: str) -> tuple[int, ...]:
        pieces: list[str] = []
        start = 0
        while start < len(word):
            longest = min(len(word), start + self.longest)
            end = next((end for end in range(longest, start + 1, -1) if word[start:end] in self.ids), start + 1)
            pieces.append(word[start:end])
            start = end
        return tuple(self.ids_of(pieces))


class Sampler(_Words, ABC):
    """Draws random segmentations."""

    def sample(self, line: str, strength: float, random: Random) -> list[int]:
        """Returns the ids of a random segmentation of a line."""
        return self.ids_of([piece for word in _words(line) for piece in self.sample_word(word, strength, random)])

    @abstractmethod
    def sample_word(self, word: str, strength: float, random: Random) -> list[str]:
        """Returns the pieces of a random segmentation of a word."""


class BpeDropout(Sampler):
    """BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267, algorithm 1)."""

    def sample_word(self, word: str, strength: float, random: Random) -> list[str]:
        """Returns the pieces of a word.

        Before each merge, every possible merge is left out with probability `strength`. The best of the others is done.
        If none is left, the word is finished.
        """
        pieces, scores = list(word), self.scores
        while True:
            merges = sorted(
                (-scores[left + right], i) for i, (left, right) in enumerate(pairwise(pieces)) if left + right in scores
            )
            # Drawing from the best merge on until one is kept gives the same distribution as drawing for all of them.
            chosen = next((i for _, i in merges if random.random() >= strength), None)
            if chosen is None:
                return pieces
            pieces[chosen : chosen + 2] = [pieces[chosen] + pieces[chosen + 1]]


class _Lattice(NamedTuple):
    """The ways to segment a word.

    Attributes:
        begins: for each end of a piece in the word, where pieces that end there begin.
        weights: for each of these beginnings, the probability of all segmentations up to the end whose last piece
            begins there, up to a factor.
    """

    begins: list[list[int]]
    weights: list[list[float]]


class UnigramSampling(Sampler):
    """Subword regularisation (Kudo 2018, arXiv:1804.10959): segmentation x is drawn with probability ∝ P(x)^α."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        super().__init__(processor)
        self._unknown = min(self.scores.values(), default=0.0) - _UNKNOWN_PENALTY
        self._lattice = lru_cache(maxsize=_CACHED_WORDS)(self._make_lattice)

    def sample_word(self, word: str, strength: float, random: Random) -> list[str]:
        """Returns the pieces of a word, drawn from its end to its beginning."""
        make = self._lattice if len(word) <= _LONGEST_CACHED else self._make_lattice
        begins, weights = make(word, strength)
        pieces: list[str] = []
        end = len(word)
        while end:
            (begin,) = random.choices(begins[end], weights[end]) if len(begins[end]) > 1 else begins[end]
            pieces.append(word[begin:end])
            end = begin
        return pieces[::-1]

    def _make_lattice(self, word: str, strength: float) -> _Lattice:
        begins: list[list[int]] = [[]]
        weights: list[list[float]] = [[]]
        log_sums = [0.0]  # log Σ P^α of all segmentations of the beginning of the word, by its length
        for end in range(1, len(word) + 1):
            possible = [b for b in range(max(0, end - self.longest), end) if end - b == 1 or word[b:end] in self.scores]
            logs = [log_sums[b] + strength * self.scores.get(word[b:end], self._unknown) for b in possible]
            largest = max(logs)
            begins.append(possible)
            weights.append([math.exp(log - largest) for log in logs])
            log_sums.append(largest + math.log(sum(weights[end])))
        return _Lattice(begins, weights)
