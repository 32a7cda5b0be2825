"""`nmt align` turns two documents, or two folders of documents, into sentence pairs."""

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from nmt import console
from nmt.cli.flags import flags
from nmt.config import AlignConfig, AlignFiles, RuntimeConfig
from nmt.errors import NmtError, naming
from nmt.files import STDIO, identity, output_file, refuse_inputs

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
    """Make sentence pairs of two documents, or of two folders of documents.

    Names of documents that belong together differ in the language alone, such as x.de.docx and x.fr.docx.

    Documents are those that translate-file reads; each line of plain text is a sentence. One to four sentences are
    paired with one to four, in order. If the command is interrupted, the same command resumes, if it has --output.
    """
    from nmt.aligning.documents import document_pairs
    from nmt.aligning.job import aligned
    from nmt.checkpoint_format import read_text_config
    from nmt.documents.document import check_format
    from nmt.pages.page import page
    from nmt.text.corpus import files_of
    from nmt.text.directions import Direction

    check_format(config.format)
    if not config.model and (runtime.device != "auto" or runtime.precision != "auto"):
        raise NmtError("--device and --precision are about --model, which is missing; leave them out")
    for model in config.model:
        with naming(f"--model {model}"):
            read_text_config(model).resolved(Direction(*config.languages))
    paths = document_pairs(source, target, config.languages, config.format)
    outputs = _outputs(files.output, config.languages)
    memories = chain.from_iterable(files_of(path, config.languages) for path in config.memory)
    inputs = [*chain.from_iterable(paths), *config.model, *memories, *filter(None, [config.decisions])]
    written = [("--output", path) for path in (files.output, *outputs)]
    for flag, path in written + ([("--page", files.page)] if files.page else []):
        refuse_inputs(path, inputs, f"{flag} {path}")
    if files.page is not None and not Path(files.page).parent.is_dir():
        raise NmtError(f"--page {files.page} is in a folder that does not exist; make the folder first")
    if files.page is not None and identity(files.page) in map(identity, outputs):
        raise NmtError(f"--page {files.page} is also an output; give another file")
    with (
        console.Progress("align", None, "document pair") as progress,
        aligned(paths, config, files.output, runtime, files.workers, progress) as alignments,
    ):
        pairs = [pair for alignment in alignments for pair in alignment.pairs(config.languages)]
        if files.page is not None:
            with output_file(files.page, flag="--page") as file:
                data = {"languages": config.languages, "alignments": alignments}
                file.write(page("alignment", f"{source} and {target}", data))
        _write(pairs, outputs, config.languages)
    for each in alignments:
        for side in (each.source, each.target):
            if side.unread:
                console.warn(f"{side.path}: not read: {side.unread}")
        if each.crossings:
            places = [f"{each.source.places[i]} with {each.target.places[j]}" for i, j in each.crossings]
            sentences = console.counted(len(places), "sentence")
            where = f"{each.source.path} and {each.target.path}: {sentences} in another order"
            console.warn(f"{where}, which no pair has: {console.listed(places)}")
    if config.model or config.memory:
        console.info(f"{sum(alignment.seconds for alignment in alignments):,.1f} s of translation")
    sources = sum(len(alignment.source.texts) for alignment in alignments)
    targets = sum(len(alignment.target.texts) for alignment in alignments)
    alone = [bead for alignment in alignments for bead in alignment.beads if not bead.is_pair]
    sources_alone, targets_alone = sum(b[1] - b[0] for b in alone), sum(b[3] - b[2] for b in alone)
    count = f"{console.counted(len(pairs), 'pair')} of {sources:,} and {targets:,} sentences"
    console.info(f"{count}; {sources_alone:,} and {targets_alone:,} have no partner")
    if files.output != STDIO:
        console.info(f"wrote {', '.join(outputs)}")
    if failures := [alignment.failure for alignment in alignments if alignment.failure]:
        count = f"{len(failures):,} of {console.counted(len(alignments), 'pair')}"
        where = "standard output" if files.output == STDIO else files.output
        advice = f"the others are in {where}; align the failed ones alone, and give all outputs as --train"
        raise NmtError(f"{count} of documents cannot be aligned ({failures[0]}); {advice}")


def _outputs(output: str, languages: tuple[str, str]) -> list[str]:
    """Returns the files to write: a .tsv, a .tmx, or PREFIX.de and PREFIX.fr; `-` is a table on standard output."""
    from nmt.text.corpus import COMPRESSED

    if output.endswith(("/", ".csv", ".txt", *COMPRESSED)) or os.path.isdir(output):
        raise NmtError(f"--output {output} names no corpus; give a file such as corpus.tsv or corpus.tmx, or a PREFIX")
    return [output] if output == STDIO or output.endswith((".tsv", ".tmx")) else [f"{output}.{x}" for x in languages]


def _write(pairs: "Sequence[AlignedPair]", outputs: Sequence[str], languages: tuple[str, str]) -> None:
    from nmt.corpora.tmx import TmxUnit, tmx

    texts: list[Iterable[str]]
    if len(outputs) == 2:
        texts = [[f"{pair[side]}\n" for pair in pairs] for side in (0, 1)]
    elif outputs[0].endswith(".tmx"):
        texts = [tmx((TmxUnit(languages, pair[:2], score=pair.score) for pair in pairs), languages[0])]
    else:
        names = "\t".join([*languages, "score", "source place", "target place"])
        texts = [[f"{names}\n", *("\t".join([*pair[:2], f"{pair[2]:.4f}", *pair[3:]]) + "\n" for pair in pairs)]]
    with ExitStack() as stack:
        for path, parts in zip(outputs, texts, strict=True):
            file = stack.enter_context(output_file(path))
            for part in parts:
                file.write(part)
