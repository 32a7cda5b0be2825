"""A made-up corpus with the lengths of a real one, for measuring without data."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sentencepiece

from nmt.data.store import token_type
from nmt.data.writer import Flat, StoreWriter
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword

# Standard deviation of log lengths and of the log of target length over source length, as in news text.
_LENGTH_SPREAD, _RATIO_SPREAD = 0.6, 0.2
_LONGEST = 256
_VALIDATION_PAIRS = 200
_PAIRS_AT_ONCE = 500_000
_SPECIAL = EOS + 1


@dataclass(frozen=True)
class Generated:
    """Attributes:
    vocab_size: pieces, all of them words.
    mean_length: pieces of a sentence, on the average (a little less where many would be longer than 256).
    pairs: how many.
    """

    vocab_size: int
    mean_length: float
    pairs: int

    def lengths(self, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Pieces of every source and every target sentence, without EOS: log-normal, as real ones nearly are."""
        center = np.log(self.mean_length) - _LENGTH_SPREAD**2 / 2
        common = draw.normal(center, _LENGTH_SPREAD, self.pairs)
        ratio = draw.normal(0, _RATIO_SPREAD, self.pairs)
        source, target = (np.exp(common + shift).round().astype(np.int64) for shift in (-ratio / 2, ratio / 2))
        return np.clip(source, 1, _LONGEST), np.clip(target, 1, _LONGEST)

    def tokens(self, draw: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        """Pieces of sentences of these lengths, distributed like words: the n-th about 1/n as frequent as the first."""
        words = self.vocab_size - _SPECIAL
        return (_SPECIAL - 1 + words ** draw.random(int(lengths.sum()))).astype(token_type(self.vocab_size))

    def codec(self) -> TextCodec:
        config = TextConfig(
            source_lang="xx", target_lang="yy", tokenizer="none", lowercase=False, subword="bpe", joint_vocab=True
        )
        words, model = self.vocab_size - _SPECIAL, io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([" ".join(f"w{i}" for i in range(words))]),
            model_writer=model,
            model_type="word",
            vocab_size=self.vocab_size,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            max_sentence_length=1 << 30,
            minloglevel=2,
        )
        subword = Subword.from_bytes(model.getvalue(), "bpe", "the generated vocabulary")
        return TextCodec(config, subword, subword)

    def write(self, folder: Path) -> None:
        """A data folder with such a corpus, and a small one of the same kind to validate on."""
        draw, codec, done = np.random.default_rng(0), self.codec(), {}
        with StoreWriter.at(folder) as writer:
            for split, pairs in (("train", self.pairs), ("valid", min(self.pairs, _VALIDATION_PAIRS))):
                with writer.split(split, codec.config, raw=split == "valid") as out:
                    for first in range(0, pairs, _PAIRS_AT_ONCE):
                        both = replace(self, pairs=min(_PAIRS_AT_ONCE, pairs - first)).lengths(draw)
                        out.append(*(Flat(self.tokens(draw, lengths), lengths) for lengths in both))
                done[split] = out.counts
            writer.finish(codec, done, {"generated": vars(self)})

    def sentences(self, codec: TextCodec) -> list[str]:
        """Source sentences as text."""
        draw = np.random.default_rng(0)
        lengths, _ = self.lengths(draw)
        ends = np.cumsum(lengths)[:-1]
        return codec.source.decode([ids.tolist() for ids in np.split(self.tokens(draw, lengths), ends)])
