"""The options of `nmt clean`."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from nmt.config.options import Config, check_languages, option, processes_option
from nmt.errors import NmtError

corpus_option = partial(option, panel="Corpus")
rule_option = partial(option, panel="Rules")
share_option = partial(rule_option, at_least=0, at_most=1)
score_option = partial(option, panel="Scores")
change_option = partial(option, panel="Changes of the text")
output_option = partial(option, panel="Output")


@dataclass(frozen=True, kw_only=True)
class CleanConfig(Config):
    """Which pairs `nmt clean` drops from corpora."""

    source_lang: str = corpus_option(help="Source language: the suffix of its files, for example en.")
    target_lang: str | None = corpus_option(
        None, "Target language: the suffix of its files. Without it, the corpora are text in one language."
    )
    train: tuple[str, ...] = corpus_option(
        help="Corpus to clean: the PREFIX of the files PREFIX.en and PREFIX.de, also .gz or .xz. May be given several "
        "times."
    )
    exclude: tuple[str, ...] = corpus_option(
        (),
        "Validation or test corpus: a PREFIX as for --train. Pairs are dropped if one of their sides occurs in it. May "
        "be given several times.",
    )
    dest: str = output_option(help="PREFIX of the files to write, for example clean for clean.en and clean.de.")
    rejected: str | None = output_option(
        None, "File for the dropped pairs: rule, source and target, with tabs between."
    )
    page: str | None = output_option(None, "HTML page with the counts, random examples and histograms.")
    max_characters: int = rule_option(
        1500, "Drop a pair if a side has more characters than this; 0 for no limit.", at_least=0
    )
    max_ratio: float = rule_option(
        2.0,
        "Drop a pair if (longer side + 10) / (shorter side + 10), in characters, is above this. Chinese, Japanese and "
        "Korean characters count twice. 0 for no limit.",
        at_least=0,
    )
    min_letters: float = share_option(
        0.3,
        "Drop a pair if less than this share of a side's characters, not counting spaces, are letters; 0 for no limit.",
    )
    min_script: float = share_option(
        0.8, "Drop a pair if less than this share of a side's letters are of its language's script; 0 for no limit."
    )
    max_other_language: float = share_option(
        0.7,
        "Drop a pair if a side of 30 or more letters is in another language with a probability above this. 1 switches "
        "the rule off.",
    )
    max_copies: int = rule_option(
        1,
        "Keep at most this many copies of a pair. Pairs are copies if their letters and digits are the same; case, "
        "accents, spaces and punctuation do not count. 0 keeps all.",
        at_least=0,
    )
    control: bool = rule_option(True, "Drop pairs with control characters, private-use or unassigned ones, or U+FFFD.")
    repetition: bool = rule_option(
        True,
        "Drop a pair if a side repeats a phrase of two or more words directly, or a word of five or more letters, or "
        "has any word three times in a row. In languages that double words, such as Turkish and Hindi, a word may "
        "occur twice. Across punctuation other than commas, only a phrase of three or more "
        "words counts.",
    )
    markup: bool = rule_option(True, "Drop pairs with tags of HTML, entities such as &amp; or wiki markup.")
    untranslated: bool = rule_option(True, "Drop pairs whose sides have the same letters and digits.")
    numbers: bool = rule_option(True, "Drop a pair if each side has a number that the other side lacks.")
    score_with: tuple[str, str] | None = score_option(
        None,
        "Checkpoints of a model from source to target and of one in the other direction. They score the pairs that the "
        "rules keep, from 0 to 1: by the cross-entropy of both (as Junczys-Dowmunt 2018), by whether they expect the "
        "sentences to end where they do, and by the ratio of the lengths.",
    )
    keep: float | None = score_option(
        None, "Drop the pairs with the lowest scores, so that this share stays.", above=0, at_most=1
    )
    min_score: float | None = score_option(None, "Drop pairs with a lower score.", at_least=0, at_most=1)
    encoding: Literal["mend", "drop", "keep"] = change_option(
        "mend",
        "What to do with text in a broken encoding, such as Ã© for é: mend it, drop the pair, or keep it. mend and "
        "drop need the package ftfy.",
    )
    normalize: tuple[Literal["spaces", "quotes", "unicode", "invisible"], ...] = change_option(
        (),
        "Change white space to single spaces, typographic quotes to ASCII, or all text to Unicode's form NFKC, or "
        "remove soft hyphens, zero-width characters and byte order marks. May be given several times.",
    )
    workers: int | None = processes_option(
        None, "Number of processes. By default 2, with --cluster as many as fit, and for scoring 1.", panel="Work"
    )

    def _check(self) -> None:
        check_languages(self.source_lang, self.target_lang)
        if self.score_with and self.target_lang is None:
            raise NmtError("--score-with scores pairs, but there is no --target-lang; leave out one of them")
        if [self.keep, self.min_score].count(None) != (1 if self.score_with else 2):
            needs = "--score-with needs --keep or --min-score, and they need it"
            raise NmtError(f"{needs}; give --score-with and one of them")

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages of the corpora: two, or one."""
        return (self.source_lang,) if self.target_lang is None else (self.source_lang, self.target_lang)
