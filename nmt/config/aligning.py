"""The options of `nmt align`."""

from dataclasses import dataclass

from nmt.config.data import check_languages
from nmt.config.jobs import workers_option
from nmt.config.options import Config, Processes, option


@dataclass(frozen=True, kw_only=True)
class AlignConfig(Config, panel="Input and comparison"):
    """How `nmt align` reads documents, and what compares their sentences."""

    source_lang: str = option(help="Language of the first document.")
    target_lang: str = option(help="Language of the second document, its translation.")
    format: str | None = option(None, "Format of the documents, such as txt, if their names do not end in it.")
    model: tuple[str, ...] = option(
        (),
        "Model that translates the source, so that translations are compared. Given several times, they form an "
        "ensemble. By default, lengths, equal words, and words learnt from the documents are compared.",
        checkpoint=True,
    )
    memory: tuple[str, ...] = option(
        (),
        "File of earlier translations, as in nmt translate-file: sentences that are equal or similar to one of its "
        "sources are compared by its translation. May be given several times. Needs the extra memory.",
    )
    embeddings: bool = option(False, "Also compare what sentences mean, in 16 languages. Needs the extra align.")
    decisions: str | None = option(
        None,
        "File that the page has saved. Its pairs are taken, and nothing is aligned.",
        excludes="model memory embeddings",
    )

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source_lang, self.target_lang

    def _check(self) -> None:
        check_languages(self.source_lang, self.target_lang)


@dataclass(frozen=True, kw_only=True)
class AlignFiles(Config, panel="Output"):
    """What `nmt align` writes."""

    output: str = option(
        "-",
        "File to write: .tsv with source, target, score and the places of both; .tmx; or a PREFIX, for PREFIX.de and "
        "PREFIX.fr. - is a table on standard output.",
    )
    page: str | None = option(
        None, "Also write an HTML page with the pairs, the doubtful ones first, to join, split and drop them."
    )
    workers: Processes | None = workers_option(None, help="Number of processes, each of which aligns other documents.")
