"""Translates documents as one job: each different sentence once, and then the documents are written."""

import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from nmt import console
from nmt.checkpoint_format import read_codec
from nmt.config import DirectionConfig, DocumentFiles, EngineConfig, RuntimeConfig, SearchConfig
from nmt.documents.document import Document, ReadOptions, Sentences
from nmt.documents.formats import FORMATS, format_of, read_document, suffix_of
from nmt.errors import NmtError, importing
from nmt.files import STDIO, identity, output_file, refuse_inputs, writing
from nmt.jobs.run import Run, check_files
from nmt.jobs.source import Rows
from nmt.jobs.stream import Execution
from nmt.memories.memory import Memory
from nmt.text.codec import TextCodec
from nmt.text.corpus import files_of, name_of
from nmt.text.glossary import Glossary
from nmt.text.protected import Protected
from nmt.translate.job import TranslatedLine, TranslationJob, direction_of, placed, settings_of, settings_of_files


class Report(NamedTuple):
    """What became of a document.

    Attributes:
        path: its file; `-` is standard input.
        output: the file that its translation is written to; `-` is standard output.
        document: None if the file cannot be translated.
        sentences: the number of sentences in its passages.
        left: what of it stays as it is, and why.
        failure: why the file cannot be translated.
        from_memory: how many of the sentences a memory has.
    """

    path: str
    output: str
    document: Document | None
    sentences: int = 0
    left: str = ""
    failure: str = ""
    from_memory: int = 0


def _files(paths: Sequence[str], output: str | None, form: str | None, target_lang: str) -> list[tuple[str, str]]:
    """Returns the documents that arguments name, and the files that their translations are written to.

    A folder stands for all files in it whose format is known, except for hidden ones.

    Args:
        output: a file, or a folder if there are several documents or it ends in a slash; by default a file beside the
            only document.
        form: the format of all files, if it is given.

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
        refuse_inputs(written, paths, f"--output {written}")
        return [(path, written)]
    files = list(_tree(paths, output, form))
    inputs = {identity(path): path for path, _ in files if os.path.exists(path)}
    of_output: dict[str, str] = {}
    for path, written in files:
        if (other := of_output.setdefault(os.path.realpath(written), path)) != path:
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
        for file in sorted(Path(path).rglob("*")):
            name = file.relative_to(path)
            is_hidden = any(part.startswith(".") for part in name.parts)
            if file.is_file() and not is_hidden and (form or suffix_of(file.name) in FORMATS):
                yield os.path.join(path, name), os.path.join(output, name)


def _read(path: str, output: str, files: DocumentFiles, sentences: Sentences, codec: TextCodec) -> Report:
    """Reads a document, and adds its sentences."""
    name = name_of(path)
    languages = codec.config.source_lang, codec.config.target_lang
    options = ReadOptions(name, *languages, files.all, codec.protected, files.keys)
    try:
        data = sys.stdin.buffer.read() if path == STDIO else Path(path).read_bytes()
        document = read_document(data, files.format or format_of(name), options)
        count = sentences.add(document)
        return Report(path, output, document, count, document.left(count, data))
    except OSError as error:
        return Report(path, output, None, failure=f"{name} cannot be read ({error.strerror}); check the path")
    except Exception as error:
        return Report(path, output, None, failure=_failure(name, error))


def _failure(name: str, error: Exception) -> str:
    """Returns why a document cannot be translated. Of a bug, which must not harm others, the traceback is shown."""
    if isinstance(error, NmtError):
        return str(error)
    traceback.print_exception(error)
    return f"{name} cannot be translated because of a fault in nmt ({error!r:.100}); please report it"


def translate(
    paths: Sequence[str],
    files: DocumentFiles,
    search: SearchConfig,
    runtime: RuntimeConfig,
    engine: EngineConfig,
    languages: DirectionConfig,
    execution: Execution,
    progress: console.Progress,
    memories: tuple[Memory, ...] = (),
) -> list[Report]:
    """Translates documents. Returns what became of each. With --shard, no document is written.

    Raises:
        NmtError: no document can be read, or translation or writing failed.
        StoppedError: a signal asked the process to end, and the same command resumes the job.
    """
    options, direction = execution.options, direction_of(languages.to_dict(), languages)
    codec = read_codec(files.model[0], Protected(engine.keep, engine.protect)).towards(direction)
    sentences = Sentences(codec, codec, has_memory=bool(memories))
    with importing("sentencex", "nmt translate-file", extra="documents"):
        import sentencex  # noqa: F401
    outputs = _files(paths, files.output, files.format, codec.config.target_lang)
    if files.keys and not any((files.format or suffix_of(path)) == "json" for path, _ in outputs):
        raise NmtError(f"--keys chooses values of JSON, but {', '.join(paths):.200} has none; leave it out")
    memory_files = [files_of(path, (codec.config.source_lang, codec.config.target_lang)) for path in files.memory]
    models_and_terms = [*files.model, *filter(None, [files.glossary, engine.vocabulary_map])]
    for _, output in outputs:
        refuse_inputs(output, [*models_and_terms, *chain.from_iterable(memory_files)], f"--output {output}")
    reports = [_read(path, output, files, sentences, codec) for path, output in outputs]
    documents = [(report, report.document) for report in reports if report.document]
    if not documents:
        several = f"{', '.join(paths)}: no file can be translated"
        raise NmtError(reports[0].failure if len(reports) == 1 else several)
    search = replace(search, alignments=sentences.has_markup)
    first = reports[0].output
    output = first if files.output is None or len(reports) == 1 else files.output
    inputs = [*(report.path for report, _ in documents), *files.model]
    glossary = None if files.glossary is None else Glossary.read(files.glossary)
    runtime = placed(runtime, options, engine.engine)
    settings = settings_of(search, runtime, engine, languages) | settings_of_files(
        engine, files.glossary, memories, output, options
    )
    is_resumable = check_files(inputs, first, options)
    offers = any(document.offer for _, document in documents)
    job = TranslationJob(
        files.model, runtime, search, engine, languages, glossary, "sentence", memories=memories, offers=offers
    )
    rows = [(text, json.dumps([kept, has_elements])) for text, kept, has_elements in sentences.keys]
    source = Rows("the text of the documents", rows)
    with Run(job, source, output, settings, execution, progress, is_resumable).records() as records:
        if records is None:
            return reports
        for key, record in zip(sentences.keys, records, strict=True):
            line = TranslatedLine.of(record)
            sentences.translate(key, line.translations[0], line.matches)
        for report, document in documents:
            try:
                content, from_memory = sentences.written(document)
            except Exception as error:
                failure = _failure(name_of(report.path), error)
                reports[reports.index(report)] = report._replace(document=None, failure=failure)
                continue
            folder = Path(report.output).parent
            with writing(folder, "correct that and start the same command again"):
                folder.mkdir(parents=True, exist_ok=True)
            with output_file(report.output) as out:
                out.write(content)
            reports[reports.index(report)] = report._replace(from_memory=from_memory)
    return reports
