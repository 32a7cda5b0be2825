"""Sentences as ids, end to end in one array."""

from typing import Any

import numpy as np


class Lengths:
    """The number of tokens of every sentence, EOS included, computed on demand to save memory."""

    def __init__(self, offsets: np.ndarray) -> None:
        self._offsets = offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, sentences: np.ndarray, /) -> np.ndarray:
        """Returns the lengths of the sentences with these numbers: int64 [numbers]."""
        sentences = np.asarray(sentences, dtype=np.int64)
        return self._offsets[sentences + 1] - self._offsets[sentences] + 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the lengths of all sentences: int32 [sentences], unless numpy asks for another `dtype`."""
        lengths = np.empty(len(self), dtype=dtype or np.int32)
        np.subtract(self._offsets[1:], self._offsets[:-1], out=lengths, casting="unsafe")
        lengths += 1
        return lengths

    @property
    def total(self) -> int:
        """The sum of all lengths."""
        return int(self._offsets[-1]) + len(self)


class TokenArray:
    """The sentences of one side of a split.

    Args:
        tokens: the ids of all sentences, end to end; [tokens].
        offsets: sentence i is tokens[offsets[i] : offsets[i + 1]]; [sentences + 1].
    """

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray) -> None:
        self.tokens = tokens
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Lengths:
        """The number of tokens of every sentence, EOS included."""
        return Lengths(self.offsets)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest sentence, EOS included."""
        return int(np.max(self.lengths, initial=0))

    def __getitem__(self, index: int) -> np.ndarray:
        """Returns the ids of a sentence, without EOS, as a read-only view of the file."""
        if not 0 <= index < len(self):
            raise IndexError(f"sentence {index} of {len(self)}")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]
