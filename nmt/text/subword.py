"""Subword models, which convert text to piece ids and back. All of them are sentencepiece models.

Models of other toolkits are in `nmt.text.mapped`.

There are four kinds: `bpe` (Sennrich et al. 2016), `unigram` (Kudo 2018), `wordpiece`, a vocabulary chosen by
maximum likelihood and segmented greedily, longest match first (Wu et al. 2016, §4.1), and `char`, characters. Text
that no piece covers is spelt in UTF-8 bytes, with one piece for each byte, so that nothing becomes the unknown
piece. A run of spaces becomes one space, and spaces at both ends of a line are removed. U+2581 (▁), which
sentencepiece uses for a space, counts as a space.
"""

import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from random import Random
from typing import Self

import numpy as np
import sentencepiece

from nmt.errors import NmtError
from nmt.text.words import SPACE

PAD, UNK, BOS, EOS = 0, 1, 2, 3
# Pieces that no translation has. An imported model may give them a high probability.
NEVER = PAD, BOS
# A logit of this size has practically the probability 0. It is finite, because label smoothing sums all logits.
SILENT = -100.0

# The share of the training text's characters that have pieces; the other characters are spelt in bytes. With 1.0,
# every stray character of a crawled text has a piece, which is too rare to be learnt. With sentencepiece's default
# of 0.9995, digits and capitals such as Ö are spelt in bytes in small European corpora. With 0.99995, at most one
# character in 20,000 is spelt in bytes.
_CHARACTER_COVERAGE = 0.99995
_LONGEST_LINE_BYTES = 1 << 30  # sentencepiece does not train on longer lines; its default is 4192
_SURROGATE = re.compile("[\ud800-\udfff]")
_CACHED_WORDS = 1 << 16
_LONGEST_CACHED = 32  # characters; without spaces, a word may be a whole sentence that never comes again
# How much worse than the worst piece sentencepiece scores a character without a piece.
_UNKNOWN_PENALTY = 10.0


class Vocabulary:
    """Pieces and their ids. Ids 0 to 3 are PAD, UNK, BOS and EOS in every model."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = list(vocabulary)
        self._ids = {piece: i for i, piece in enumerate(vocabulary)}

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __contains__(self, piece: str) -> bool:
        return piece in self._ids

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns the pieces with these ids, as text."""
        return [self.vocabulary[i] for i in ids]

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Returns the ids of the pieces; UNK for a piece that is not in the vocabulary."""
        return [self._ids.get(piece, UNK) for piece in pieces]


def processor_of(model: bytes) -> sentencepiece.SentencePieceProcessor:
    """Returns sentencepiece with a model. Raises RuntimeError if the model is damaged."""
    if not model:  # sentencepiece would regard empty data as a missing argument
        raise RuntimeError("no data")
    return sentencepiece.SentencePieceProcessor(model_proto=model)


class Subword(Vocabulary):
    """A model of sentencepiece. Use `train` or `from_bytes` to make one."""

    def __init__(self, model: bytes, kind: str) -> None:
        self.model, self.kind = model, kind
        self._processor = processor_of(model)
        super().__init__(self._processor.id_to_piece(list(range(self._processor.get_piece_size()))))

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        kind: str,
        vocab_size: int,
        symbols: Sequence[str] = (),
        tags: Sequence[str] = (),
        marks: Sequence[str] = (),
        may_be_smaller: bool = False,
    ) -> Self:
        """Returns a model of `vocab_size` pieces: special pieces, 256 bytes, characters and parts of words.

        Args:
            symbols: words that each become one piece.
            tags: more pieces, which need not occur in the text.
            marks: pieces that no text has, even if it spells them.
            may_be_smaller: whether a text that has too few different words may give fewer pieces than `vocab_size`.
                Characters may always be fewer.
        """
        model = io.BytesIO()
        errors: list[BaseException] = []

        def guarded() -> Iterator[str]:  # sentencepiece hides an error of its input in a RuntimeError
            try:
                yield from map(without_surrogates, lines)
            except BaseException as error:
                errors.append(error)
                raise

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=guarded(),
                model_writer=model,
                model_type="unigram" if kind == "wordpiece" else kind,
                vocab_size=vocab_size,
                pad_id=PAD,
                unk_id=UNK,
                bos_id=BOS,
                eos_id=EOS,
                byte_fallback=True,
                character_coverage=_CHARACTER_COVERAGE,
                normalization_rule_name="identity",
                control_symbols=list(marks),
                user_defined_symbols=[*(SPACE + symbol for symbol in symbols), *tags],
                hard_vocab_limit=not may_be_smaller and kind != "char",
                max_sentence_length=_LONGEST_LINE_BYTES,
                num_threads=2,  # the model depends on this number, so it must not depend on the machine
                minloglevel=2,
            )
        except RuntimeError as error:
            if errors:
                raise errors[0] from None
            raise _training_error(str(error), kind, vocab_size) from error
        return cls(model.getvalue(), kind)

    @classmethod
    def from_bytes(cls, data: bytes, kind: str, origin: str) -> Self:
        """Returns the model that `to_bytes` returned, or any sentencepiece model with the same special ids."""
        try:
            model = cls(data, kind)
        except RuntimeError as error:
            raise NmtError(f"{origin} is not a sentencepiece model, or is damaged; make it or copy it again") from error
        processor = model._processor
        ids = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
        if ids != [PAD, UNK, BOS, EOS]:
            wrong = f"{origin} has the ids {', '.join(map(str, ids))} for pad, unk, bos and eos instead of 0, 1, 2, 3"
            raise NmtError(f"{wrong}; train it with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3")
        return model

    @property
    def has_bytes(self) -> bool:
        """Whether the model spells characters without a piece in bytes. Otherwise they are lost."""
        return any(self._processor.is_byte(i) for i in range(len(self)))

    @property
    def has_probabilities(self) -> bool:
        """Whether sentencepiece segments by probabilities, as unigram models do, whatever `kind` says."""
        try:
            self._processor.nbest_encode_as_ids("", 1)
        except RuntimeError:  # other models cannot find several segmentations
            return False
        return True

    def to_bytes(self) -> bytes:
        """Returns the content of the sentencepiece model file."""
        return self.model

    def encode(self, lines: list[str]) -> list[list[int]]:
        """Returns the ids of each line's pieces, without BOS and EOS. Lone surrogates become U+FFFD."""
        clean = map(without_surrogates, lines)
        if self.kind == "wordpiece":
            return [self._segmentations.encode(str(self._processor.normalize(line))) for line in clean]
        # Given a list, sentencepiece would start a thread, which takes several times as long as a line.
        return [self._processor.encode(line) for line in clean]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """Returns one line of text for each sequence of ids. Special ids are dropped; invalid UTF-8 becomes U+FFFD."""
        return [clean_line(str(self._processor.decode([int(i) for i in line if i > EOS]))) for line in ids]

    def sample(self, lines: list[str], strength: float, seeds: Sequence[int]) -> list[list[int]]:
        """Returns the ids of a random segmentation of each line. It depends only on the line and its seed.

        The model must be of the kind bpe or unigram.

        Args:
            strength: for bpe, the probability of dropping a merge; for unigram, the exponent of the probability of
                a segmentation.
            seeds: one for each line.
        """
        sample = self._segmentations.sample
        clean = [str(self._processor.normalize(without_surrogates(line))) for line in lines]
        return [sample(line, self.kind, strength, Random(seed)) for line, seed in zip(clean, seeds, strict=True)]

    @cached_property
    def _segmentations(self) -> "Segmentations":
        return Segmentations(self._processor)


def without_surrogates(line: str) -> str:
    """Returns the line with U+FFFD instead of lone surrogates, which have no UTF-8."""
    return _SURROGATE.sub("\ufffd", line)


def clean_line(text: str) -> str:
    """Returns decoded text as one line. A translation may spell a line break or a ▁ in bytes."""
    return text.replace("\n", " ").replace(SPACE, " ").strip(" ")


def with_bos(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns BOS and the ids of a sentence, int64: the decoder's input for a target sentence."""
    return np.concatenate(([BOS], np.asarray(ids, dtype=np.int64)))


def with_eos(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the ids of a sentence and EOS, int64: the encoder's input, or what the decoder has to predict.

    A source with the token of its language behind EOS, as for older models of NLLB-200, is complete.
    """
    with_int64 = np.asarray(ids, dtype=np.int64)
    return with_int64 if EOS in ids[-2:-1] else np.append(with_int64, EOS)


def _training_error(message: str, kind: str, vocab_size: int) -> NmtError:
    """Returns an error that explains sentencepiece's message and names the flags to change."""
    if largest := re.search(r"Please set it to a value <= (\d+)", message):
        most = f"the training text allows a {kind} vocabulary of at most {largest[1]} pieces"
        return NmtError(f"--vocab-size is {vocab_size}, but {most}; lower --vocab-size or add text")
    if smallest := re.search(r"smaller than required_chars\. \d+ vs (\d+)", message):
        least = f"the special pieces, bytes and characters of the training text need {smallest[1]}"
        return NmtError(f"{vocab_size} pieces are too few, because {least}; give a larger --vocab-size")
    if "!sentences_.empty()" in message or "all_chars_count" in message:
        return NmtError("the training text of the subword model is empty; check the training corpora")
    why = f"sentencepiece could not train a {kind} vocabulary of --vocab-size {vocab_size} ({message.strip()})"
    return NmtError(f"{why}; try another --vocab-size or another --subword")


class Segmentations:
    """Segmentations that sentencepiece does not offer. A word begins with ▁, and no piece reaches beyond its word.

    sentencepiece can sample segmentations, but even with the same seed, its random numbers differ from process to
    process.
    """

    def __init__(self, processor: sentencepiece.SentencePieceProcessor) -> None:
        ids = range(processor.get_piece_size())
        byte_pieces = {processor.id_to_piece(i): i for i in ids if processor.is_byte(i)}
        self._byte_ids = [byte_pieces[f"<0x{byte:02X}>"] for byte in range(256)] if byte_pieces else []
        special = (processor.is_control, processor.is_unknown, processor.is_unused, processor.is_byte)
        self._ids = {processor.id_to_piece(i): i for i in ids if not any(is_special(i) for is_special in special)}
        self.scores = {piece: float(processor.get_score(i)) for piece, i in self._ids.items()}
        self._longest = max(map(len, self._ids), default=1)
        self._unknown = min(self.scores.values(), default=0.0) - _UNKNOWN_PENALTY
        self._greedy = lru_cache(maxsize=_CACHED_WORDS)(lambda word: self._spelt(self.longest_matches(word)))
        self._lattice = lru_cache(maxsize=_CACHED_WORDS)(self._make_lattice)

    def encode(self, line: str) -> list[int]:
        """Returns the ids of a line, segmented greedily."""
        return [i for word in _words(line) for i in self._greedy(word)]

    def sample(self, line: str, kind: str, strength: float, random: Random) -> list[int]:
        """Returns the ids of a random segmentation of a line, for a model of the kind bpe or unigram."""
        draw = self.with_dropout if kind == "bpe" else self.by_probability
        return self._spelt([piece for word in _words(line) for piece in draw(word, strength, random)])

    def _spelt(self, pieces: Iterable[str]) -> list[int]:
        """Returns the ids of pieces. Characters without a piece are spelt in bytes, or are UNK without them."""
        ids: list[int] = []
        for piece in pieces:
            if piece in self._ids:
                ids.append(self._ids[piece])
            else:
                ids += [self._byte_ids[byte] for byte in piece.encode()] if self._byte_ids else [UNK]
        return ids

    def longest_matches(self, word: str) -> Iterator[str]:
        """Yields pieces of a word. The longest one that fits comes first (Wu et al. 2016, §4.1)."""
        start = 0
        while start < len(word):
            ends = range(min(len(word), start + self._longest), start + 1, -1)
            end = next((end for end in ends if word[start:end] in self._ids), start + 1)
            yield word[start:end]
            start = end

    def with_dropout(self, word: str, strength: float, random: Random) -> list[str]:
        """Returns the pieces of a word by BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267, algorithm 1).

        Before each merge, every possible merge is left out with probability `strength`. The best of the others is
        done. If none is left, the word is finished.
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

    def by_probability(self, word: str, strength: float, random: Random) -> list[str]:
        """Returns the pieces of a word by subword regularisation (Kudo 2018, arXiv:1804.10959).

        Segmentation x is drawn with probability ∝ P(x)^α, from the end of the word to its beginning.
        """
        make = self._lattice if len(word) <= _LONGEST_CACHED else self._make_lattice
        begins, weights = make(word, strength)
        pieces: list[str] = []
        end = len(word)
        while end:
            (begin,) = random.choices(begins[end], weights[end]) if len(begins[end]) > 1 else begins[end]
            pieces.append(word[begin:end])
            end = begin
        return pieces[::-1]

    def _make_lattice(self, word: str, strength: float) -> tuple[list[list[int]], list[list[float]]]:
        """Returns the ways to segment a word: two lists with an item for each beginning of the word, by its length.

        An item of the first list holds where the last piece of this beginning may start. An item of the second holds,
        for each of these places, the probability, up to a factor, of all segmentations with that last piece.
        """
        begins: list[list[int]] = [[]]
        weights: list[list[float]] = [[]]
        log_sums = [0.0]  # log Σ P^α of all segmentations of the beginning of the word, by its length
        for end in range(1, len(word) + 1):
            possible = [
                b for b in range(max(0, end - self._longest), end) if end - b == 1 or word[b:end] in self.scores
            ]
            logs = [log_sums[b] + strength * self.scores.get(word[b:end], self._unknown) for b in possible]
            largest = max(logs)
            begins.append(possible)
            weights.append([math.exp(log - largest) for log in logs])
            log_sums.append(largest + math.log(sum(weights[end])))
        return begins, weights


def _words(line: str) -> list[str]:
    return [SPACE + word for word in line.replace(SPACE, " ").split(" ") if word]
