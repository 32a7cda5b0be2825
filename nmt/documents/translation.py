"""Translates documents as one job: each different sentence once, and then the documents are written."""

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt import console
from nmt.config import DocumentFiles
from nmt.documents.document import BILINGUAL, Document, ReadOptions, documents_in, format_of, suffix_of
from nmt.documents.sentences import Sentences, sentence_unit
from nmt.errors import NmtError, importing
from nmt.files import STDIO, identity, output_file, refuse_inputs, writing
from nmt.jobs.run import Run, can_resume
from nmt.jobs.source import Rows
from nmt.jobs.stream import Execution
from nmt.text.corpus import name_of
from nmt.translate.setup import Setup
from nmt.translate.units import Sentence, Translation


class Report(NamedTuple):
    """What became of a document."""

    path: str  # `-` is standard input or output
    output: str
    sentences: int = 0  # in its passages
    left: str = ""  # what of it stays as it is, and why
    failure: str = ""  # why it cannot be translated, if so
    from_memory: int = 0  # the sentences that a memory has
    terms: int = 0  # how often the translations have terms of the glossary
    doubtful: Sequence[tuple[Sentence, Translation]] = ()  # see `Translation.is_doubtful`


def _files(paths: Sequence[str], output: str | None, form: str | None, target_lang: str) -> list[tuple[str, str]]:
    """Returns the documents that arguments name, and the files that their translations are written to.

    A folder stands for all files in it whose format is known, except for hidden ones. The output is a file, or a
    folder if there are several documents or it ends in a slash; by default a file beside the only document.

    Raises:
        NmtError: an output is missing, names two documents, or would replace a document.
    """
    if len(paths) == 1 and not os.path.isdir(paths[0]):
        (path,) = paths
        name, suffix = os.path.splitext(path)
        beside = STDIO if path == STDIO else f"{name}.{target_lang}{suffix}"
        written = beside if output is None else output
        if output is not None and (os.path.isdir(output) or output.endswith("/")):
            if path == STDIO:
                raise NmtError(f"--output {output} is a folder, but standard input has no name; give a file")
            written = os.path.join(output, os.path.basename(path))
        if output is None and path != STDIO and os.path.exists(beside):  # a person may have corrected it
            raise NmtError(f"{beside} exists already; give --output {beside} to replace it, or another file")
        refuse_inputs(written, paths, f"--output {written}")
        return [(path, written)]
    files = list(_tree(paths, output, form))
    if not files:
        raise NmtError(f"{', '.join(paths):.200} has no documents; give files such as x.docx, or a folder with some")
    inputs = {identity(path): path for path, _ in files if os.path.exists(path)}
    path_by_output: dict[str, str] = {}
    for path, written in files:
        if (other := path_by_output.setdefault(os.path.realpath(written), path)) != path:
            raise NmtError(f"{other} and {path} would both be written to {written}; translate them separately")
        if same := inputs.get(identity(written)):
            raise NmtError(f"--output {written} is the same file as the input {same}; choose another folder")
    return files


def _tree(paths: Sequence[str], output: str | None, form: str | None) -> Iterator[tuple[str, str]]:
    """Yields documents that are written to a folder."""
    if output is None or output == STDIO or STDIO in paths or os.path.isfile(output):
        obstacle = "- was given" if STDIO in (output, *paths) else f"--output is {output or 'missing'}"
        raise NmtError(f"several documents are translated into a folder, but {obstacle}; give files and a new folder")
    for path in paths:
        if os.path.isdir(path) and Path(os.path.realpath(output)).is_relative_to(os.path.realpath(path)):
            raise NmtError(f"--output {output} is in the folder {path}, which is translated; choose another folder")
        if not os.path.isdir(path):
            yield path, os.path.join(output, os.path.basename(path))
            continue
        for name in documents_in(path, form):
            yield os.path.join(path, name), os.path.join(output, name)


def _content(path: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if path == STDIO else Path(path).read_bytes()
    except OSError as error:
        raise NmtError(f"{name_of(path)} cannot be read ({error.strerror}); check the path") from error


def _failure(name: str, error: Exception) -> str:
    """Returns why a document cannot be translated. A bug must not harm other documents; its traceback is shown."""
    if isinstance(error, NmtError):
        return str(error)
    traceback.print_exception(error)
    return f"{name} cannot be translated because of a fault in nmt ({error!r:.100}); please report it"


def translate(
    paths: Sequence[str], files: DocumentFiles, setup: Setup, execution: Execution, progress: console.Progress
) -> list[Report]:
    """Translates documents. Returns what became of each. With --shard, no document is written.

    Raises:
        NmtError: no document can be read, or translation or writing failed.
        StoppedError: a signal asked the process to end, and the same command resumes the job.
    """
    with importing("sentencex", "nmt translate-file", extra="documents"):
        import sentencex  # noqa: F401
    direction = setup.text.resolved(setup.direction)
    outputs = _files(paths, files.output, files.format, direction.target)
    if files.keys and not any((files.format or suffix_of(path)) in ("json", "arb") for path, _ in outputs):
        raise NmtError(f"--keys chooses values of JSON, but {', '.join(paths):.200} has none; leave it out")
    if files.all and not any((files.format or suffix_of(path)) in BILINGUAL for path, _ in outputs):
        raise NmtError(f"--all is about PO and XLIFF, but {', '.join(paths):.200} has none; leave it out")
    for _, output in outputs:
        refuse_inputs(output, setup.files, f"--output {output}")
    options = ReadOptions("", *direction, files.all, setup.protected, files.keys, files.doubtful, files.doubtful_stays)
    sentences = Sentences(
        setup.maker("sentence", offers=False), options, has_known=bool(setup.memories or setup.glossary)
    )
    reports, documents = list[Report](), dict[int, Document]()
    for i, (path, output) in enumerate(outputs):
        name = name_of(path)
        try:
            content = _content(path)
            document = sentences.read(content, files.format or format_of(name), name)
            count = sum(len(unit.sentences) for unit in document.passages)
            reports.append(Report(path, output, count, document.left(content)))
            documents[i] = document
        except Exception as error:
            reports.append(Report(path, output, failure=_failure(name, error)))
    if not documents:
        others = f"; neither can the other {len(reports) - 1:,} of {console.counted(len(reports), 'file')}"
        raise NmtError(reports[0].failure + others * (len(reports) > 1))
    first = reports[0].output
    is_resumable = can_resume([*(reports[i].path for i in documents), *setup.models], first, execution.options)
    offers = any(document.offer for document in documents.values())
    job = setup.job("text", offers=offers, alignments=sentences.has_markup, confidence=files.doubtful > 0)
    maker, settings = setup.maker("unit", offers=offers), setup.settings | {"--doubtful": files.doubtful > 0}
    different = list(sentences.distinct)
    source = Rows("the text of the documents", different, lambda row, _: sentence_unit(Sentence(*row), maker))
    output = first if files.output is None or len(reports) == 1 else files.output
    run = Run(job, source, output, settings, execution, progress, is_resumable)
    with run.records() as records:
        if records is None:
            return reports
        for sentence, record in zip(different, records, strict=True):
            sentences.set_translation(sentence, record.translations[0], record.matches)
        for i, document in documents.items():
            path, output = reports[i].path, reports[i].output
            try:
                content, pairs = sentences.written(document)
                from_memory = sum(translation.origin == "memory" for _, translation in pairs)
                terms = sum(
                    term.form_in(translation.text) is not None
                    for sentence, translation in pairs
                    for term in maker.terms_in(sentence, direction)
                )
                doubtful = [pair for pair in pairs if pair[1].is_doubtful(files.doubtful)]
                reports[i] = reports[i]._replace(from_memory=from_memory, terms=terms, doubtful=doubtful)
            except Exception as error:
                reports[i] = reports[i]._replace(failure=_failure(name_of(path), error))
                continue
            folder = Path(output).parent
            with writing(folder, "correct that and start the same command again"):
                folder.mkdir(parents=True, exist_ok=True)
            with output_file(output) as out:
                out.write(content)
    return reports
