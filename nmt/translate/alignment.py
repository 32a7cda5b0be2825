"""Word alignments of translations, from the model's cross-attention.

A model reads the source and the finished translation once. Each target word is linked to the source word that gets
the largest share of its attention, summed over their pieces. The attention is that of the head that was trained on
alignments, if there is one, or of the last decoder layer, averaged over heads. For each target piece, it is the
attention of the position whose output is this piece. docs/alignments.md compares the layers.

Shapes: see docs/architecture.md; B sentences, T target and S source positions of a sentence.
"""

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch

from nmt.data.sides import make_side
from nmt.errors import NmtError
from nmt.model.attention import recording
from nmt.model.device import Runtime, in_halves, moved
from nmt.model.transformer import DecoderLayer, Transformer
from nmt.text.subword import with_bos, with_eos
from nmt.text.words import NO_WORD, AlignedWords
from nmt.translate.encoding import in_batches

# Padded tokens of source and target that are read at once.
PADDED_TOKENS = {"cpu": 4096, "cuda": 32_768}


class SentencePair(NamedTuple):
    """A source and its translation, as ids without EOS, and the number of the word that each piece belongs to."""

    source: np.ndarray
    source_words: Sequence[int]
    target: Sequence[int] | np.ndarray
    target_words: Sequence[int]

    @property
    def tokens(self) -> int:
        """Positions that it takes in a batch without padding."""
        return len(self.source) + len(self.target) + 2


def align(models: Sequence[Transformer], runtime: Runtime, pairs: Sequence[SentencePair]) -> list[list[AlignedWords]]:
    """Returns the alignment of each pair, sorted, by one model or by the mean attention of several.

    Every target word that has pieces gets one.
    """

    def too_large(pair: SentencePair) -> NmtError:
        return NmtError(
            f"memory ran out while a source of {len(pair.source):,} pieces was aligned with a translation "
            f"of {len(pair.target):,}; leave out --alignments or use a machine with more memory"
        )

    def aligned(batch: Sequence[SentencePair]) -> list[list[AlignedWords]]:
        weights = in_halves(lambda half: _weights(models, runtime, half), batch, too_large)
        return [
            alignment_of(weights_TS, pair.source_words, pair.target_words)
            for weights_TS, pair in zip(weights, batch, strict=True)
        ]

    with runtime.autocast():
        return in_batches(aligned, pairs, [pair.tokens for pair in pairs], PADDED_TOKENS[runtime.device.type])


@torch.no_grad()
def _weights(models: Sequence[Transformer], runtime: Runtime, pairs: Sequence[SentencePair]) -> list[np.ndarray]:
    """Returns the attention of each pair's target pieces to its source pieces."""
    source = moved(make_side([[with_eos(pair.source) for pair in pairs]]), runtime.device)
    target = moved(make_side([[with_bos(pair.target) for pair in pairs]]), runtime.device)
    model_weights = []
    for model in models:
        guided = model.config.guided_alignment
        attention = cast(DecoderLayer, model.decoder[guided - 1 if guided else -1]).cross_attention
        with recording([attention]) as recorded:
            model.decode(target.ids_F, target.layout, model.encode(source.ids_F, source.layout), source.layout)
        weights_BHTS = recorded[attention].float()
        model_weights.append(weights_BHTS[:, 0] if guided else weights_BHTS.mean(1))
    weights_BTS = torch.stack(model_weights).mean(0).cpu().numpy()
    # Behind the pieces of either side is EOS, which is no word.
    return [
        weights_TS[: len(pair.target), : len(pair.source)] for weights_TS, pair in zip(weights_BTS, pairs, strict=True)
    ]


def alignment_of(
    weights_TS: np.ndarray, source_words: Sequence[int], target_words: Sequence[int]
) -> list[AlignedWords]:
    """Returns the alignment of a pair by the attention of its pieces, whose words have these numbers."""
    by_words = _members(target_words).T @ weights_TS @ _members(source_words)
    if not by_words.size:
        return []
    words = sorted(set(target_words) - {NO_WORD})
    return sorted((int(by_words[word].argmax()), word) for word in words)


def _members(words: Sequence[int]) -> np.ndarray:
    """Returns a matrix that has 1 where a piece, its row, belongs to a word, its column, and 0 elsewhere."""
    numbers = np.array(words, dtype=np.int64)
    return (numbers[:, None] == np.arange(numbers.max(initial=NO_WORD) + 1)).astype(np.float32)
