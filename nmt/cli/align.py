"""`nmt align` turns two documents, or two folders of documents, into sentence pairs."""

from typing import Annotated

from typer import Argument

from nmt import console
from nmt.cli.flags import flags
from nmt.config import AlignConfig, AlignFiles, RuntimeConfig
from nmt.errors import NmtError
from nmt.files import output_file


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
    from nmt.aligning.output import write
    from nmt.documents.document import FORMATS
    from nmt.pages.page import page

    if config.format not in (None, *FORMATS):
        raise NmtError(f"--format must be one of {', '.join(FORMATS)}, but is {config.format!r:.40}")
    paths = document_pairs(source, target, config.languages)
    with (
        console.Progress("align", None, "document") as progress,
        aligned(paths, config, files.output, runtime, files.workers, progress) as alignments,
    ):
        pairs = [pair for alignment in alignments for pair in alignment.pairs(config.languages)]
        if files.page is not None:
            with output_file(files.page, flag="--page") as file:
                data = {"languages": config.languages, "alignments": [each.to_json() for each in alignments]}
                file.write(page("alignment", f"{source} and {target}", data))
        write(pairs, files.output, config.languages)
    sources = sum(len(alignment.source.texts) for alignment in alignments)
    targets = sum(len(alignment.target.texts) for alignment in alignments)
    console.info(f"{console.counted(len(pairs), 'pair')} of {sources:,} and {targets:,} sentences")
