"""The options of `nmt preprocess`."""

import re
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal

from nmt.config.options import Config, check_languages, flag_name, option, processes_option
from nmt.errors import NmtError

Tokenizer = Literal["auto", "moses", "none"]
Normalization = Literal["both", "source", "none"]
# Alignments are stored as positions of two bytes.
LONGEST_ALIGNED = 65_535
SubwordKind = Literal["bpe", "unigram", "wordpiece"]
corpus_option = partial(option, panel="Corpus")
text_option = partial(option, panel="Text")
subwords_option = partial(option, panel="Subwords")
sampling_option = partial(option, panel="Subword sampling")
filter_option = partial(option, panel="Filter")
work_option = partial(option, panel="Work")


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config):
    """How `nmt preprocess` makes a data folder from text."""

    source_lang: str = corpus_option(help="Source language: the suffix of its files, for example en.")
    target_lang: str = corpus_option(help="Target language: the suffix of its files, for example de.")
    train: tuple[str, ...] = corpus_option(
        help="Training corpus: the PREFIX of the files PREFIX.en and PREFIX.de, also .gz or .xz. May be given several "
        "times."
    )
    weight: tuple[float, ...] = corpus_option(
        (),
        "How often the pairs of a training corpus are used, relative to the others. Give it once for each "
        "--train, in the same order.",
        above=0,
        at_most=1_000_000,
    )
    temperature: float = corpus_option(
        1.0,
        "Values above 1 make the shares of large and small corpora more equal: a corpus of n pairs with "
        "weight w gets a share proportional to (w n)^(1/T).",
        at_least=1,
    )
    tag: tuple[str, ...] = corpus_option(
        (),
        "Piece, such as <bt>, to put before the source sentences of a training corpus; empty for none. Give "
        "it once for each --train, in the same order.",
    )
    alignments: tuple[str, ...] = corpus_option(
        (),
        "File with the word alignments of a training corpus, such as 0-0 1-2, for train --guided-alignment. "
        "Give it once for each --train, in the same order.",
    )
    valid: str = corpus_option(help="Validation corpus: a PREFIX as for --train.")
    test: tuple[str, ...] = corpus_option((), "Test corpus: a PREFIX as for --train. May be given several times.")
    dest: str = corpus_option(help="Data folder to write. It must not exist.")
    like: str | None = text_option(
        None, "Encode text with the tokenisation and vocabulary of this checkpoint, for train --init-from."
    )
    tokenizer: Tokenizer = option(
        "auto",
        "moses tokenises the text and detokenises translations; none does neither. auto uses moses for each "
        "language that it suits, and none for the others.",
        panel="Text",
    )
    normalize_punctuation: Normalization = option(
        "both",
        "Replace typographic quotes, dashes and spaces by ASCII on both sides, on the source only, or not at "
        "all. Only text that moses tokenises is changed.",
        panel="Text",
    )
    lowercase: bool = text_option(False, "Lowercase both sides. The translations are then lowercase too.")
    lower_capitals: bool = text_option(
        False, "Give the model lines in capitals in lower case, and put their translations in capitals."
    )
    subword: SubwordKind = option("bpe", "Kind of subword model to train.", panel="Subwords")
    vocab_size: int = subwords_option(
        37000,
        "Pieces in the vocabulary, or in each one with --separate-vocab. With --symbols, there may be fewer.",
        at_least=8,
        at_most=1_000_000,
    )
    joint_vocab: bool = subwords_option(True, "Use one vocabulary for both languages, so that they share embeddings.")
    subword_model: str | None = subwords_option(
        None, "Use this sentencepiece model instead of training one. With --subword wordpiece, it segments greedily."
    )
    symbols: str | None = subwords_option(
        None, "File with one word on each line. Each word becomes one piece; nmt trees needs this for its brackets."
    )
    subword_sample: int = subwords_option(
        2_000_000, "Lines of each language in the sample that trains the subword model.", at_least=1
    )
    subword_dropout: float = sampling_option(
        0.0, "BPE-dropout (Provilkov et al. 2020): probability of dropping a merge, such as 0.1.", at_least=0, below=1
    )
    subword_alpha: float | None = sampling_option(
        None,
        "Sampling with --subword unigram (Kudo 2018): draw segmentations with a probability proportional to "
        "P^alpha. 0.2 is common.",
        above=0,
        at_most=100,
    )
    sampled_side: Literal["both", "source", "target"] = sampling_option(
        "both", "Side of the training text whose segmentations are sampled."
    )
    encodings: int = sampling_option(
        10, "Sampled segmentations to store of each sentence. Each epoch uses one of them.", at_least=1, at_most=1000
    )
    augment: bool = option(
        False,
        "Change a share of the training pairs to what people type: capitals on both sides 0.07, Title Case 0.05 "
        "(but no capitals for Turkish and Azerbaijani), typing errors in the source 0.05, no final punctuation 0.2, "
        "and lines of random characters to copy 0.0005.",
        panel="Augmentation",
    )
    max_length: int = filter_option(256, "Drop training pairs with more pieces than this on either side.", at_least=1)
    max_length_ratio: float = filter_option(
        9.0, "Drop training pairs if one side has more pieces than the other by more than this factor.", at_least=1
    )
    workers: int | None = processes_option(
        None,
        "Number of processes that tokenise and encode. By default 2, and with --cluster as many as fit.",
        panel="Work",
    )
    seed: int = work_option(
        1, "Seed of the subword model's training sample, of subword sampling and of --augment.", at_least=0
    )

    def _check(self) -> None:
        check_languages(self.source_lang, self.target_lang)
        if self.like is not None:
            decided = [f.name for f in fields(self) if f.metadata["panel"] in ("Text", "Subwords") and f.name != "like"]
            if wrong := [flag_name(name) for name in self.variants() if name in decided]:
                raise NmtError(f"--like decides {', '.join(wrong)}; leave out one or the other")
        if self.lower_capitals and (self.lowercase or self.symbols):
            other = "--lowercase" if self.lowercase else "--symbols"
            raise NmtError(f"--lower-capitals does not go with {other}; leave out one of them")
        if self.tokenizer == "none" and self.normalize_punctuation == "source":
            raise NmtError("--normalize-punctuation is source, but --tokenizer none changes no text; leave out one")
        for flag, values in (("--weight", self.weight), ("--tag", self.tag), ("--alignments", self.alignments)):
            if values and len(values) != len(self.train):
                given = " ".join(map(str, values))
                raise NmtError(f"{flag} must be given once for each of the {len(self.train)} --train, but is {given}")
        if self.alignments and self.max_length > LONGEST_ALIGNED:
            raise NmtError(f"--alignments needs --max-length {LONGEST_ALIGNED} or less, but it is {self.max_length}")
        if self.alignments and self.samples:
            raise NmtError(
                "--alignments link the pieces of one segmentation; leave out --subword-dropout and --subword-alpha"
            )
        for tag in self.tag:
            if tag and not re.fullmatch("<[^<>\\s▁]{1,30}>", tag):
                raise NmtError(f"--tag must be a word in angle brackets, such as <bt>, but is {tag!r:.40}")
            if re.fullmatch("<(pad|unk|s|/s|0x[0-9A-Fa-f]{2})>", tag):
                raise NmtError(f"--tag {tag} is the name of a special piece; choose another")
        if self.subword_dropout and self.subword_alpha:
            raise NmtError("--subword-dropout is for bpe and --subword-alpha for unigram models; give one of them")
        if not self.like:
            self.check_sampling(self.subword)
        if self.symbols and self.samples:
            raise NmtError("--symbols are not to be cut; leave out --subword-dropout and --subword-alpha")
        for name, value in self.variants().items():
            flag = flag_name(name)
            if name in ("sampled_side", "encodings") and not self.samples:
                raise NmtError(f"{flag} is {value}, but needs --subword-dropout or --subword-alpha; add one")
            if name in ("symbols", "vocab_size", "subword_sample") and self.subword_model:
                raise NmtError(f"{flag} is only for training a subword model; leave it out with --subword-model")
        if self.subword_model and not self.joint_vocab:
            raise NmtError("--subword-model is one model for both languages; leave out --separate-vocab")

    @property
    def processes(self) -> int:
        """Processes that work on this machine."""
        return self.workers or 2

    @property
    def samples(self) -> bool:
        """Whether the training text is segmented at random."""
        return bool(self.subword_dropout or self.subword_alpha)

    def check_sampling(self, kind: str) -> None:
        """Raises an error if a subword model of this kind cannot be sampled as the options say."""
        for flag, value, needed in (
            ("--subword-dropout", self.subword_dropout, "bpe"),
            ("--subword-alpha", self.subword_alpha, "unigram"),
        ):
            if value and kind != needed:
                raise NmtError(f"{flag} samples a {needed} model, but the subword model is {kind}; leave it out")
