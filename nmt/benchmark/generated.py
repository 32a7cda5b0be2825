"""Generates a corpus with realistic sentence lengths, for measurements without data."""

import io
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sentencepiece

from nmt.data.folder import token_type
from nmt.data.writer import Flat, SplitWriter, complete
from nmt.files import new_folder
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword

# Standard deviations of log(length) and of log(target length / source length) in news text.
_LENGTH_SPREAD = 0.6
_RATIO_SPREAD = 0.2
_LONGEST = 256
_VALIDATION_PAIRS = 200
_PAIRS_AT_ONCE = 500_000
_SPECIAL = EOS + 1


@dataclass(frozen=True)
class Generated:
    """The description of a generated corpus.

    Attributes:
        vocab_size: the number of pieces; every piece is a word.
        mean_length: the mean number of pieces per sentence. Lengths are limited to 256, which lowers large means a
            little.
        pairs: the number of sentence pairs.
    """

    vocab_size: int
    mean_length: float
    pairs: int

    def lengths(self, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws the lengths of the source and target sentences in pieces, without EOS."""
        center = np.log(self.mean_length) - _LENGTH_SPREAD**2 / 2
        common = random.normal(center, _LENGTH_SPREAD, self.pairs)
        ratio = random.normal(0, _RATIO_SPREAD, self.pairs)
        source, target = (np.exp(common + shift).round().astype(np.int64) for shift in (-ratio / 2, ratio / 2))
        return np.clip(source, 1, _LONGEST), np.clip(target, 1, _LONGEST)

    def tokens(self, random: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        """Draws the ids of sentences of these lengths, all in one array; word n is about 1/n as frequent as word 1."""
        words = self.vocab_size - _SPECIAL
        return (_SPECIAL - 1 + words ** random.random(int(lengths.sum()))).astype(token_type(self.vocab_size))

    def codec(self) -> TextCodec:
        """Returns a codec whose vocabulary is the generated words."""
        config = TextConfig(
            source_lang="xx",
            target_lang="yy",
            source_tokenizer="none",
            target_tokenizer="none",
            normalize_punctuation="none",
            lowercase=False,
            subword="bpe",
            joint_vocab=True,
        )
        subword = Subword.from_bytes(_word_model(self.vocab_size), "bpe", "the generated vocabulary")
        return TextCodec(config, subword, subword)

    def write(self, folder: Path) -> None:
        """Writes a data folder with a training set of `pairs` pairs and a small validation set."""
        random = np.random.default_rng(0)
        codec = self.codec()
        done = {}
        with new_folder(folder, "--dest") as data:
            for split, pairs in (("train", self.pairs), ("valid", min(self.pairs, _VALIDATION_PAIRS))):
                with SplitWriter(data, split, codec.config, raw=split == "valid") as out:
                    for first in range(0, pairs, _PAIRS_AT_ONCE):
                        both = replace(self, pairs=min(_PAIRS_AT_ONCE, pairs - first)).lengths(random)
                        out.append(*(Flat(self.tokens(random, lengths), lengths) for lengths in both))
                done[split] = out.meta
            complete(data, codec, done, {"generated": vars(self)})

    def sentences(self, codec: TextCodec) -> list[str]:
        """Returns the source sentences as text."""
        random = np.random.default_rng(0)
        lengths, _ = self.lengths(random)
        ends = np.cumsum(lengths)[:-1]
        return codec.source.decode([ids.tolist() for ids in np.split(self.tokens(random, lengths), ends)])


def _word_model(vocab_size: int) -> bytes:
    """Returns a sentencepiece model whose pieces are the words w0, w1, … and the special pieces."""
    words = vocab_size - _SPECIAL
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(f"w{i}" for i in range(words))]),
        model_writer=model,
        model_type="word",
        vocab_size=vocab_size,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        max_sentence_length=1 << 30,
        minloglevel=2,
    )
    return model.getvalue()
