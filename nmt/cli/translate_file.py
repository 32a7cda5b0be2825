"""`nmt translate-file` translates documents."""

from typing import Annotated

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Argument

from nmt import console
from nmt.cli.flags import flags
from nmt.config import DirectionConfig, DocumentFiles, EngineConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError

# A row of the table, which may have a message, stays on one line.
_WIDTH = 10_000


@flags(without=("n_best", "samples", "alignments", "mbr"))  # a document has one translation
def translate_file(
    documents: Annotated[
        list[str], Argument(metavar="FILE", help="Documents, or folders of documents; - is standard input.")
    ],
    files: DocumentFiles,
    languages: DirectionConfig,
    search: SearchConfig,
    options: JobConfig,
    runtime: RuntimeConfig,
    engine: EngineConfig,
) -> None:
    """Translate documents. What is not text stays as it is.

    A sentence that occurs several times is translated once. If the command is interrupted, the same command resumes.
    """
    from nmt.documents.document import check_format
    from nmt.documents.translation import translate
    from nmt.jobs.run import executing
    from nmt.memories.files import with_memories
    from nmt.translate.setup import Setup, placed

    check_format(files.format)
    with executing(options, files.workers) as execution, console.Progress("translate", None, "sentence") as progress:
        runtime = placed(runtime, options, engine.engine)
        setup = Setup(files.model, search, runtime, engine, languages, files.glossary, files.memory)
        setup = with_memories(setup)
        reports = translate(documents, files, setup, execution, progress)
    if options.shard is None:
        table = Table(box=None, pad_edge=False)
        in_files = any(report.output != report.path for report in reports)
        counts = ["sentences", *["from memory"] * bool(files.memory), *["terms used"] * bool(files.glossary)]
        for name in ("file", *["translation"] * in_files, *counts, "left as they are"):
            table.add_column(name, justify="right" if name in counts else "left")
        for path, output, sentences, left, failure, from_memory, terms, _ in reports:
            values = {"sentences": sentences, "from memory": from_memory, "terms used": terms}
            cells = [*([output] * in_files), *(f"{values[name]:,}" for name in counts)]
            shown = (path, *("" if failure else cell for cell in cells), failure or left)
            table.add_row(*(escape(console.visible(cell)) for cell in shown))
        doubtful = Table("confidence", "reason", "file", "source", "translation", box=None, pad_edge=False)
        pairs = [(report.path, *pair) for report in reports for pair in report.doubtful]
        for path, sentence, new in sorted(pairs, key=lambda pair: pair[2].confidence or 0.0):
            texts = (escape(console.visible(text)) for text in (path, sentence.text, new.text))
            is_low = new.confidence is not None and new.confidence < files.doubtful
            reasons = [*new.reasons, *["low"] * is_low]
            confidence = "" if new.confidence is None else f"{new.confidence:.2f}"
            doubtful.add_row(confidence, ", ".join(reasons), *texts)
        if pairs:
            doubtful.caption, doubtful.caption_justify = (
                "Read the others, too: a sentence may be wrong without a sign.",
                "left",
            )
        for each in (table, doubtful)[: 1 + (files.doubtful > 0 or bool(pairs))]:
            Console(stderr=True, width=_WIDTH, highlight=False, emoji=False).print(each)
    if count := sum(bool(report.failure) for report in reports):
        all_files = console.counted(len(reports), "file")
        raise NmtError(f"{count:,} of {all_files} cannot be translated; the table says why")
