"""`nmt align` turns two documents, or two folders of documents, into sentence pairs."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from nmt import console
from nmt.cli.flags import flags
from nmt.config import AlignConfig, AlignFiles, RuntimeConfig
from nmt.files import STDIO, output_file

if TYPE_CHECKING:
    from nmt.aligning.job import AlignedPair


@flags()
def align(
    source: Annotated[str, Argument(help="Document, or folder of documents.")],
    target: Annotated[str, Argument(help="Its translation, or the folder of the translations.")],
    config: AlignConfig,
    files: AlignFiles,
    runtime: RuntimeConfig,
) -> None:
    """Make sentence pairs of two documents, or of two folders whose documents have the same names.

    Documents are those that translate-file reads; each line of plain text is a sentence. One to four sentences are
    paired with one to four, in order. If the command is interrupted, the same command resumes.
    """
    from nmt.aligning.documents import document_pairs
    from nmt.aligning.job import aligned
    from nmt.documents.document import check_format
    from nmt.pages.page import page

    check_format(config.format)
    paths = document_pairs(source, target, config.languages, config.format)
    with (
        console.Progress("align", None, "document") as progress,
        aligned(paths, config, files.output, runtime, files.workers, progress) as alignments,
    ):
        pairs = [pair for alignment in alignments for pair in alignment.pairs(config.languages)]
        if files.page is not None:
            with output_file(files.page, flag="--page") as file:
                data = {"languages": config.languages, "alignments": alignments}
                file.write(page("alignment", f"{source} and {target}", data))
        _write(pairs, files.output, config.languages)
    for each in alignments:
        if each.crossings:
            places = [f"{each.source.places[i]} with {each.target.places[j]}" for i, j in each.crossings]
            sentences = console.counted(len(places), "sentence")
            where = f"{each.source.path} and {each.target.path}: {sentences} in another order"
            console.warn(f"{where}, which no pair has: {console.listed(places)}")
    if config.model or config.memory:
        console.info(f"{sum(alignment.seconds for alignment in alignments):,.1f} s of translation")
    sources = sum(len(alignment.source.texts) for alignment in alignments)
    targets = sum(len(alignment.target.texts) for alignment in alignments)
    console.info(f"{console.counted(len(pairs), 'pair')} of {sources:,} and {targets:,} sentences")


def _write(pairs: "Sequence[AlignedPair]", output: str, languages: tuple[str, str]) -> None:
    """Writes pairs to a .tsv, a .tmx, or PREFIX.de and PREFIX.fr; `-` is a table on standard output."""
    from nmt.corpora.tmx import TmxUnit, tmx

    texts: dict[str, Iterable[str]]
    if output == STDIO or output.endswith(".tsv"):
        names = "\t".join([*languages, "score", "source place", "target place"])
        texts = {
            output: [f"{names}\n", *("\t".join([*pair[:2], f"{pair[2]:.4f}", *pair[3:]]) + "\n" for pair in pairs)]
        }
    elif output.endswith(".tmx"):
        texts = {output: tmx((TmxUnit(languages, pair[:2], score=pair.score) for pair in pairs), languages[0])}
    else:
        texts = {f"{output}.{lang}": [f"{pair[side]}\n" for pair in pairs] for side, lang in enumerate(languages)}
    with ExitStack() as stack:
        for path, parts in texts.items():
            file = stack.enter_context(output_file(path))
            for part in parts:
                file.write(part)
