"""The options of commands that make corpora, vocabularies and data folders from text, such as `nmt preprocess`."""

import re
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from typing import Literal

from nmt.config.options import Config, Count, Natural, Positive, Probability, Processes, Share, names_in, option
from nmt.errors import NmtError

Tokenizer = Literal["moses", "none"]
Normalization = Literal["both", "source", "none"]
# Alignments are stored as positions of two bytes.
LONGEST_ALIGNED = 65_535
SubwordKind = Literal["bpe", "unigram", "wordpiece", "char"]
corpus_option = partial(option, panel="Corpus")
text_option = partial(option, panel="Text", excludes="like")
subwords_option = partial(option, panel="Subwords", excludes="like")
sampling_option = partial(option, panel="Subword sampling")
filter_option = partial(option, panel="Filter")
work_option = partial(option, panel="Work")
score_option = partial(option, panel="Scores")
change_option = partial(option, panel="Changes of the text")
file_option = partial(option, panel="Output")


def check_languages(source: str, target: str | None) -> None:
    """Raises an error if --source-lang or --target-lang cannot be the suffix of a file, or if they are the same."""
    for flag, lang in (("--source-lang", source), ("--target-lang", target)):
        if lang is not None and (not lang or "/" in lang):
            raise NmtError(f"{flag} must be the suffix of a file name, such as en, but is {lang!r}")
    if source == target:
        raise NmtError(f"--source-lang and --target-lang are both {source!r}; they must differ")


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(Config, panel="Corpus files"):
    """How files of sentence pairs are read, such as TMX and tables."""

    columns: str | None = option(
        None,
        "In tables and JSON lines: the columns of source, target and perhaps a score, by numbers from 1, by names in "
        "the first line, or by fields, such as 2,3,1 or en,de,score. By default, columns with the names of the "
        "languages or sides, or the only two of a table.",
        needs="target_lang languages",
    )
    least_score: float | None = option(
        None,
        "Leave out lines with a lower score, in the third column of --columns or in the one with the name score, and "
        "units of TMX with a lower score, in the property x-score, which nmt align writes.",
        needs="target_lang languages",
    )
    inline: Literal["drop", "keep"] = option(
        "drop",
        "Whether to drop or keep the codes of tags inside sentences of TMX and XLIFF, such as the <b> in "
        "<bpt>&lt;b></bpt>. Keep them only if the model should translate text with such codes.",
        needs="target_lang languages",
    )

    def _check(self) -> None:
        named = names_in(self.columns) if self.columns else []
        if named and (not 2 <= len(named) <= 3 or len(set(named)) < len(named) or not all(named) or "0" in named):
            raise NmtError(
                f"--columns must be two or three different columns, such as 1,2,3, but is {self.columns!r:.80}"
            )
        if self.least_score is not None and 0 < len(named) < 3:
            raise NmtError("--least-score needs the column of the score; give --columns SOURCE,TARGET,SCORE")


@dataclass(frozen=True, kw_only=True)
class CleanConfig(Config, panel="Rules"):
    """Which pairs `nmt clean` drops from corpora."""

    source_lang: str = corpus_option(help="Source language: the suffix of its files, for example en.")
    target_lang: str | None = corpus_option(
        None, "Target language: the suffix of its files. Without it, the corpora are text in one language."
    )
    train: tuple[str, ...] = corpus_option(
        help="Corpus to clean: the PREFIX of the files PREFIX.en and PREFIX.de, also compressed, or a file like .tmx. "
        "May be given several times."
    )
    exclude: tuple[str, ...] = corpus_option(
        (),
        "Validation or test corpus: a PREFIX as for --train. Pairs are dropped if one of their sides occurs in it, "
        "or nearly. May be given several times.",
    )
    dest: str = file_option(help="PREFIX of the files to write, for example clean for clean.en and clean.de.")
    rejected: str | None = file_option(None, "File for the dropped pairs: rule, source and target, with tabs between.")
    page: str | None = file_option(None, "HTML page with the counts, random examples and histograms.")
    max_characters: Natural = option(1500, "Drop a pair if a side has more characters than this; 0 for no limit.")
    max_ratio: float = option(
        2.0,
        "Drop a pair if (longer side + 10) / (shorter side + 10), in characters, is above this. Chinese characters "
        "count three times, Korean ones twice, and Japanese kana 1.5 times. 0 for no limit.",
        at_least=0,
    )
    min_letters: Share = option(
        0.3,
        "Drop a pair if less than this share of a side's characters, not counting spaces, are letters; 0 for no limit.",
    )
    min_script: Share = option(
        0.8, "Drop a pair if less than this share of a side's letters are of its language's script; 0 for no limit."
    )
    max_other_language: Share = option(
        0.7,
        "Drop a pair if a side of 30 or more letters is in another language with a probability above this. 1 switches "
        "the rule off.",
    )
    max_copies: Natural = option(
        1,
        "Keep at most this many copies of a pair. Pairs are copies if their letters and digits are the same; case, "
        "accents, spaces and punctuation do not count. 0 keeps all.",
    )
    control: bool = option(True, "Drop pairs with control characters, private-use or unassigned ones, or U+FFFD.")
    repetition: bool = option(
        True,
        "Drop a pair if a side repeats a phrase of two or more words directly, or a word of five or more letters, or "
        "has any word three times in a row. In languages that double words, such as Turkish and Hindi, a word may "
        "occur twice. Across punctuation other than commas, only a phrase of three or more words counts.",
    )
    markup: bool = option(True, "Drop pairs with tags of HTML, entities such as &amp; or wiki markup.")
    untranslated: bool = option(True, "Drop pairs whose sides have the same letters and digits.")
    numbers: bool = option(True, "Drop a pair if each side has a number that the other side lacks.")
    score_with: tuple[str, str] | None = score_option(
        None,
        "Checkpoints of a model from source to target and of one in the other direction. They score the pairs that the "
        "rules keep, from 0 to 1: by the cross-entropy of both (as Junczys-Dowmunt 2018), by whether they expect the "
        "sentences to end where they do, and by the ratio of the lengths.",
        needs="keep min_score",
        excludes="shard merge",
        checkpoint=True,
    )
    keep: Positive | None = score_option(
        None,
        "Drop the pairs with the lowest scores, so that this share stays.",
        needs="score_with",
        excludes="min_score",
        at_most=1,
    )
    min_score: Share | None = score_option(None, "Drop pairs with a lower score.", needs="score_with")
    encoding: Literal["mend", "drop", "keep"] = change_option(
        "mend",
        "What to do with text in a broken encoding, such as Ã© for é: mend it, drop the pair, or keep it. mend and "
        "drop need the extra clean.",
    )
    normalize: tuple[Literal["spaces", "quotes", "unicode", "invisible"], ...] = change_option(
        (),
        "Change white space to single spaces, typographic quotes to ASCII, or all text to Unicode's form NFKC, or "
        "remove soft hyphens, zero-width characters and byte order marks. May be given several times.",
    )
    workers: Processes | None = option(
        None, "Number of processes. By default 2, with --cluster as many as fit, and for scoring 1.", panel="Work"
    )

    def _check(self) -> None:
        check_languages(self.source_lang, self.target_lang)
        if self.score_with and self.target_lang is None:
            raise NmtError(
                "--score-with scores pairs, but there is no --target-lang; add it, or leave out --score-with"
            )

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the corpora: two, or one."""
        return (self.source_lang,) if self.target_lang is None else (self.source_lang, self.target_lang)


@dataclass(frozen=True, kw_only=True)
class DataConfig(Config, panel="Corpus"):
    """How `nmt preprocess` makes a data folder from text."""

    source_lang: str | None = option(
        None, "Source language: the suffix of its files, such as en. Required without --languages."
    )
    target_lang: str | None = option(
        None, "Target language: the suffix of its files, such as de. Required without --languages."
    )
    languages: str | None = option(
        None,
        "Languages of one model of several, such as en,de,fr, in place of --source-lang and --target-lang. Two files "
        "of a PREFIX in two of the languages are a corpus: PREFIX.en and PREFIX.de, or PREFIX.en-de.en and "
        "PREFIX.en-de.de. The source is the language that comes first in this list.",
        excludes="source_lang target_lang tokenizer joint_vocab",
    )
    both_ways: bool = option(
        False, "With --languages: train both directions of every corpus.", needs="languages", excludes="directions"
    )
    directions: str | None = option(
        None, "With --languages: train these directions, such as en-de,de-en, and no others.", needs="languages"
    )
    copies: Positive | None = option(
        None,
        "With --languages: also train the model to restore lines of every target language from copies with missing and "
        "moved words. Directions without parallel text need this; the others do not. The number is the weight of these "
        "lines: with 0.25, a good value, an epoch has each of them a quarter as often as each pair.",
        needs="languages",
        excludes="alignments",
        at_most=100,
    )
    train: tuple[str, ...] = option(
        help="Training corpus: the PREFIX of the files PREFIX.en and PREFIX.de, also compressed, or a file like .tmx. "
        "May be given several times."
    )
    weight: tuple[float, ...] = option(
        (),
        "How often the pairs of a training corpus are used, relative to the others. Give it once for each "
        "--train, in the same order.",
        above=0,
        at_most=1_000_000,
    )
    temperature: float = option(
        1.0,
        "Values above 1 make the shares of large and small corpora more equal: a corpus of n pairs with "
        "weight w gets a share proportional to (w n)^(1/T).",
        at_least=1,
    )
    tag: tuple[str, ...] = option(
        (),
        "Word in angle brackets, such as <bt>, to put before each source sentence of a training corpus; an empty word "
        "for none. Give it once for each --train, in the same order.",
    )
    alignments: tuple[str, ...] = option(
        (),
        "File with the word alignments of a training corpus, such as 0-0 1-2, for train --guided-alignment. "
        "Give it once for each --train, in the same order.",
        excludes="subword_dropout subword_alpha",
    )
    valid: str = option(help="Validation corpus: a PREFIX as for --train.")
    test: tuple[str, ...] = option((), "Test corpus: a PREFIX as for --train. May be given several times.")
    dest: str = option(help="Data folder to write. It must not exist.")
    like: str | None = option(
        None,
        "Encode text with the tokenisation and vocabulary of this checkpoint, for train --init-from.",
        panel="Text",
        checkpoint=True,
    )
    tokenizer: Tokenizer = text_option(
        "none",
        "none: the raw text is cut into subwords. moses: the text is tokenised first, and translations are "
        "detokenised, as in the papers on WMT.",
    )
    normalize_punctuation: Normalization = text_option(
        "none",
        "With --tokenizer moses: replace typographic quotes, dashes, dots and spaces by ASCII on both sides, on the "
        "source only, or not at all.",
        needs="tokenizer=moses",
    )
    lowercase: bool = text_option(False, "Lowercase both sides. The translations are then lowercase too.")
    lower_capitals: bool = text_option(
        False,
        "Lowercase lines that are all in capitals before they are translated, and put their translations in capitals.",
        excludes="like lowercase symbols",
    )
    language_tokens: Literal["target_on_source", "both_sides"] = text_option(
        "target_on_source",
        "With --languages, where the tokens stand that name a language to the model. target_on_source: the token of "
        "the target language before the source. both_sides: the token of each language before its side, as in "
        "NLLB-200, so that the model is also told the source language.",
        needs="languages",
    )
    subword: SubwordKind = subwords_option("bpe", "Kind of subword model to train. char: each character is a piece.")
    vocab_size: int | None = subwords_option(
        None,
        "Pieces in the vocabulary, or in each one with --separate-vocab. With --symbols and --subword char, there may "
        "be fewer. By default, a size that suits the corpus, such as 10,000 for 30,000 pairs, but at most the paper's "
        "37,000.",
        at_least=8,
        at_most=1_000_000,
    )
    joint_vocab: bool = subwords_option(
        True, "Use one vocabulary for both languages, so that they share embeddings.", off="--separate-vocab"
    )
    subword_model: str | None = subwords_option(
        None,
        "Use this sentencepiece model instead of training one. With --subword wordpiece, words are cut as WordPiece "
        "does, by the longest piece that fits.",
        excludes="like joint_vocab vocab_size subword_sample symbols",
    )
    symbols: str | None = subwords_option(
        None,
        "File with one word on each line, which becomes a piece of its own that is never cut, such as the brackets of "
        "nmt trees.",
        excludes="like subword_dropout subword_alpha",
    )
    subword_sample: Count = subwords_option(
        500_000,
        "Lines for each language in the sample that trains the subword model; a file has a share by its number of "
        "lines. unigram and wordpiece take about 20 bytes of RAM for each character of it, bpe 3.",
    )
    subword_dropout: Probability = sampling_option(
        0.0, "BPE-dropout (Provilkov et al. 2020): probability of dropping a merge, such as 0.1."
    )
    subword_alpha: Positive | None = sampling_option(
        None,
        "Sampling with --subword unigram (Kudo 2018): draw segmentations with a probability proportional to "
        "P^alpha. 0.2 is common.",
        at_most=100,
    )
    sampled_side: Literal["both", "source", "target"] = sampling_option(
        "both", "Side of the training text whose segmentations are sampled.", needs="subword_dropout subword_alpha"
    )
    encodings: Count = sampling_option(
        10,
        "With --subword-dropout or --subword-alpha: sampled segmentations to store of each sentence. Each epoch uses "
        "one of them. Without sampling, one is stored.",
        needs="subword_dropout subword_alpha",
        at_most=1000,
    )
    augment: bool = option(
        False,
        "Change a share of the training pairs, so that the model is robust to what people type. The shares are 0.07 "
        "for capitals on both sides, 0.05 for Title Case, 0.05 for typing errors in the source, 0.2 for no final "
        "punctuation, and 0.0005 for lines of random characters, which are to be copied.",
        panel="Augmentation",
    )
    terms: Share = option(
        0.0,
        "Share of the training pairs, such as 0.1, in which the translation of some words stands behind them, so that "
        "the model learns to use the terms of a glossary. It is taken from --alignments.",
        panel="Terms and context",
        needs="alignments",
        excludes="joint_vocab",
    )
    context: int = option(
        0,
        "Most earlier source lines that the model reads before a line, so that it knows what a pronoun means. Blank "
        "lines are between documents. A share of the lines is learnt without context.",
        panel="Terms and context",
        at_least=0,
        at_most=20,
    )
    similar: Share = option(
        0.0,
        "Share of the training pairs, such as 0.5, in which the translation of the most similar other pair stands "
        "behind the source, so that the model learns to use the similar sentences of a memory. Pairs without a similar "
        "one stay as they are.",
        panel="Terms and context",
        excludes="joint_vocab augment",
    )
    max_length: Count = filter_option(256, "Drop training pairs with more pieces than this on either side.")
    max_length_ratio: float = filter_option(
        9.0, "Drop training pairs if one side has more pieces than the other by more than this factor.", at_least=1
    )
    workers: Processes | None = option(
        None,
        "Number of processes that tokenise and encode. By default 2 on any machine, so give more if you have more "
        "cores; with --cluster as many as fit.",
        panel="Work",
    )
    seed: Natural = work_option(
        1, "Seed of the subword model's training sample, of subword sampling, and of what is drawn at random."
    )

    def _check(self) -> None:
        if self.languages is not None:
            codes = names_in(self.languages)
            if len(set(codes)) < max(2, len(codes)) or not all(re.fullmatch(r"[\w-]{1,30}", code) for code in codes):
                form = "different languages, such as en,de,fr"
                raise NmtError(f"--languages must be {form}, but is {self.languages!r:.80}")
            self.pairs  # noqa: B018 (checks the names of directions)
        elif self.source_lang is None or self.target_lang is None:
            raise NmtError("the languages are missing; give --source-lang and --target-lang, or --languages")
        else:
            check_languages(self.source_lang, self.target_lang)
        for flag, values in (("--weight", self.weight), ("--tag", self.tag), ("--alignments", self.alignments)):
            if values and len(values) != len(self.train):
                given = " ".join(map(str, values))
                raise NmtError(f"{flag} must be given once for each of the {len(self.train)} --train, but is {given}")
        if self.languages is None and len(self.train) == 1 and (self.weight or self.temperature > 1):
            flag = "--weight" if self.weight else "--temperature"
            raise NmtError(f"{flag} is about the shares of several --train, but there is one; leave it out")
        if self.alignments and self.max_length > LONGEST_ALIGNED:
            raise NmtError(f"--alignments needs --max-length {LONGEST_ALIGNED} or less, but it is {self.max_length}")
        for tag in self.tag:
            if tag and not re.fullmatch("<[^<>\\s▁]{1,30}>", tag):
                raise NmtError(f"--tag must be a word in angle brackets, such as <bt>, but is {tag!r:.40}")
            if re.fullmatch("<(pad|unk|s|/s|0x[0-9A-Fa-f]{2})>", tag):
                raise NmtError(f"--tag {tag} is the name of a special piece; choose another")
        if not self.like:
            self.check_sampling(self.subword)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The directions that the options ask for: source and target language of each.

        Raises:
            NmtError: --directions names something else than two of --languages.
        """
        if self.languages is None:
            return [(str(self.source_lang), str(self.target_lang))]
        codes = names_in(self.languages)
        if self.directions is None:
            forward = combinations(codes, 2)
            return [pair for a, b in forward for pair in [(a, b), (b, a)][: 1 + self.both_ways]]
        pairs = {f"{source}-{target}": (source, target) for source, target in permutations(codes, 2)}
        named = list(dict.fromkeys(names_in(self.directions)))
        if unknown := [name for name in named if name not in pairs]:
            raise NmtError(f"--directions has {unknown[0]!r:.60}; name two of --languages, such as {min(pairs)}")
        return [pairs[name] for name in named]

    @property
    def processes(self) -> int:
        """Processes that work on this machine."""
        return self.workers or 2

    def samples_side(self, side: str) -> bool:
        """Returns whether `source` or `target` of the training text is segmented at random."""
        return bool(self.subword_dropout or self.subword_alpha) and self.sampled_side in ("both", side)

    def check_sampling(self, kind: str) -> None:
        """Raises an error if a subword model of this kind cannot be sampled as the options say."""
        for flag, value, needed in (
            ("--subword-dropout", self.subword_dropout, "bpe"),
            ("--subword-alpha", self.subword_alpha, "unigram"),
        ):
            if value and kind != needed:
                raise NmtError(f"{flag} samples a {needed} model, but the subword model is {kind}; leave it out")
