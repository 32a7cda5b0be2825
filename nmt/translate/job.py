"""Translation as a job: the work that workers share, and its output."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nmt import __version__, console
from nmt.config import EngineConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.config.options import Config, flag_name
from nmt.errors import NmtError, naming
from nmt.files import STDIO, digest_of, is_replaceable, output_file, refuse_inputs, replaced_file
from nmt.jobs.folder import JobFolder, Preparation, job_folder
from nmt.jobs.plan import Row
from nmt.jobs.ray import has_gpus
from nmt.jobs.run import MAXI_BATCH, Batch, LineJob, Place, add_up, do_maxi_batches, finish_shards, in_line_order
from nmt.model.device import device_type, precision_of
from nmt.signals import end_as_usual
from nmt.text.codec import TextCodec
from nmt.text.corpus import maxi_batches_of, name_of, read_rows
from nmt.text.glossary import Glossary
from nmt.translate.engines import Engine, load_engine
from nmt.translate.formats import LineFormat
from nmt.translate.requests import (
    EncodedRequest,
    Hypothesis,
    Request,
    batches,
    encode,
    longest_first,
    padded_width,
    with_terms,
)
from nmt.translate.rescoring import ModelJob
from nmt.translate.texts import Sentence, Text, sentences_of

# Sentence k (from 0) of line n of HTML has number n + k · this. A translator uses smaller multiples for parts.
_NUMBERS_OF_LINES = 2**80


@dataclass(frozen=True)
class TranslationJob(ModelJob):
    """Which model translates, how it searches, the form of its lines, and its glossary. The rest is in `ModelJob`."""

    search: SearchConfig
    engine: EngineConfig = field(default_factory=EngineConfig)
    format: LineFormat = field(default_factory=LineFormat)
    glossary: Glossary | None = None

    def load(self, models: Sequence[str], process: int) -> "TranslationProcessor":
        """Loads the model; see `nmt.model.device.set_up` for `process`."""
        engine = load_engine(models, self.engine, self.runtime, process)
        return TranslationProcessor(engine, self.search, log_probs=self.format.output == "jsonl")

    def record(self, row: Row, place: Place) -> Request:
        """Returns the request of a row. Raises NmtError with the place of the row if it is not a valid request."""
        return self.format.request(row, place)

    def batched(self, codec: TextCodec, records: Sequence[Request], first_number: int) -> Iterator[Batch]:
        """Yields the batches of a maxi-batch of requests, longest first."""
        requests = [with_terms(codec, one, self.glossary, self.search.max_source_length) for one in records]
        lines = encode(codec, requests, first_number, self.search)
        for batch in batches(lines, self.search.tokens_at_once(device_type(self.runtime))):
            yield Batch([first_number + i for i in batch], [records[i] for i in batch], [lines[i] for i in batch])

    def output(self, record: Request, result: list[Hypothesis]) -> tuple[str, dict[str, Any]]:
        """Returns the text for a line, and the values that `_unmet` returns."""
        return self.format.written(record, result, self.search.outputs), _unmet(record.place, result)


class TranslationProcessor:
    """An engine with the settings of its search; a `nmt.jobs.run.Processor`."""

    def __init__(self, engine: Engine, search: SearchConfig, *, log_probs: bool) -> None:
        self.engine, self.search, self.log_probs = engine, search, log_probs
        self.codec, self.session = engine.codec, engine.session

    def __call__(self, batch: Sequence[EncodedRequest]) -> list[list[Hypothesis]]:
        """Returns the translations of each line of a batch."""
        return self.engine.search(batch, self.search, log_probs=self.log_probs)


def _unmet(place: str, result: Sequence[Hypothesis]) -> dict[str, Any]:
    """Returns values that count a line with an unmet constraint and name its place; none if all are met."""
    return {"unmet": 1, "first unmet": place} if any(h.unmet for h in result) else {}


class HtmlLine(NamedTuple):
    """A line of HTML: its markup, what messages call it, its sentences, and the codec for them."""

    text: Text
    place: str
    sentences: Sequence[Sentence]
    codec: TextCodec


@dataclass(frozen=True)
class HtmlJob(ModelJob):
    """Translates lines of HTML, as `nmt.text.markup.parse` explains."""

    search: SearchConfig
    engine: EngineConfig
    glossary: Glossary | None

    def load(self, models: Sequence[str], process: int) -> "HtmlProcessor":
        """Loads the model; see `nmt.model.device.set_up` for `process`."""
        return HtmlProcessor(load_engine(models, self.engine, self.runtime, process), self.search)

    def record(self, row: Row, place: Place) -> tuple[Text, str]:
        """Returns the text in a row, and its place. Raises NmtError with the place if the HTML is not whole."""
        with naming(str(place)):
            return Text.of(row[0], "html"), str(place)

    def batched(self, codec: TextCodec, records: Sequence[tuple[Text, str]], first_number: int) -> Iterator[Batch]:
        """Yields the batches of a maxi-batch of lines, longest first."""
        longest = self.engine.longest_with_phrases(self.search)
        lines = [
            HtmlLine(text, place, list(sentences_of(text, codec, longest, split_lines=False)), codec)
            for text, place in records
        ]
        encoded = [self._encoded(line, n) for n, line in enumerate(lines, first_number)]
        tokens = [sum(padded_width(part) for sentence in line for part in sentence.parts) for line in encoded]
        for batch in longest_first(tokens, self.search.tokens_at_once(device_type(self.runtime))):
            yield Batch([first_number + i for i in batch], [lines[i] for i in batch], [encoded[i] for i in batch])

    def _encoded(self, line: HtmlLine, number: int) -> list[EncodedRequest]:
        requests = [Request(text, constraints=phrases, place=line.place) for _, text, phrases in line.sentences]
        requests = [with_terms(line.codec, one, self.glossary, self.search.max_source_length) for one in requests]
        encoded = encode(line.codec, requests, number, self.search)
        # Samples depend on the number, so no sentence has that of another line.
        return [replace(one, number=number + k * _NUMBERS_OF_LINES) for k, one in enumerate(encoded)]

    def output(self, record: HtmlLine, result: list[Hypothesis]) -> tuple[str, dict[str, Any]]:
        """Returns the text for a line, and the values that `_unmet` returns."""
        translated = record.text.translated(zip(record.sentences, result, strict=True), record.codec)
        return f"{translated}\n", _unmet(record.place, result)


class HtmlProcessor:
    """An engine that translates the sentences of lines; a `nmt.jobs.run.Processor`."""

    def __init__(self, engine: Engine, search: SearchConfig) -> None:
        self.engine, self.search = engine, search
        self.codec, self.session = engine.codec, engine.session

    def __call__(self, batch: Sequence[Sequence[EncodedRequest]]) -> list[list[Hypothesis]]:
        """Returns the best translation of each sentence of each line."""
        found = iter(self.engine.search(list(chain.from_iterable(batch)), self.search, log_probs=False))
        return [[next(found)[0] for _ in line] for line in batch]


# On a CPU, lines of a shard times bytes of the model are at most this: less than a minute of work on two cores.
_CPU_SHARD = 10**11
# Options that change the speed, but not the output.
_SPEED = {"batch_tokens"}


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """Runs a job on lines, and writes its output.

    The same command resumes an interrupted job if all inputs are regular files, not `-`, and the output is a regular
    file or does not exist yet.

    Attributes:
        segments: the input files; see `nmt.jobs.plan`.
        flags: the flags that name the files of a segment.
        output: a file, or `-` for standard output.
        settings: what the output depends on besides the files, by name. A job is resumed only if they are the same.
    """

    job: LineJob
    segments: Sequence[Sequence[str]]
    flags: Sequence[str]
    output: str
    settings: Mapping[str, Any]
    options: JobConfig
    workers: int | None
    progress: console.Progress

    def write(self) -> dict[str, Any] | None:
        """Runs the job. Returns the sums of the values of `LineJob.output`; None with --shard, which writes no output.

        Raises:
            StoppedError: a signal asked the process to end, and the same command resumes the job.
        """
        has_folder = os.path.isdir(os.path.dirname(os.path.realpath(self.output)))
        if not (has_folder and is_resumable(self._inputs(), self.output)):
            return self._write_directly()  # which says that the folder is missing
        refuse_inputs(self.output, self._inputs(), f"--output {self.output}")
        totals = None
        with self.finished_shards() as folder:  # after `finish`, it ends without an error if a signal comes
            if not self.options.shard:
                totals = self._merge(folder)
                folder.finish()
        return totals

    def _inputs(self) -> list[str]:
        return [*chain.from_iterable(self.segments), *self.job.models]

    def _write_directly(self) -> dict[str, Any]:
        end_as_usual()
        totals: dict[str, Any] = {}
        with output_file(self.output, self._inputs()) as out:
            maxi_batches = maxi_batches_of(chain.from_iterable(self.segments), self._records(), MAXI_BATCH)
            with closing(do_maxi_batches(self.job, maxi_batches.take, self.workers or 1)) as batches:
                for record, result in in_line_order(batches, self.progress.advance):
                    text, values = self.job.output(record, result)
                    out.write(text)
                    out.flush()  # whoever waits for the answer to a line gets it now
                    add_up(totals, values)
        return totals

    def _records(self) -> Iterator[Any]:
        for number, files in enumerate(self.segments):
            for line, row in enumerate(read_rows(*files), start=1):
                yield self.job.record(row, Place(name_of(files[0]), line, number))

    @contextmanager
    def finished_shards(self, make_input: Callable[[], None] = lambda: None) -> Iterator[JobFolder]:
        """Yields the folder of the job when its shards are done; with --shard, those of this part.

        Args:
            make_input: makes the input files, if the command does that itself.
        """
        models = {f"checkpoint {i}": _content_of(path) for i, path in enumerate(self.job.models, 1)}
        preparation = Preparation(
            segments=self.segments,
            columns=self.flags,
            shard_rows=self.options.shard_lines or _shard_rows(self.job),
            settings=models | dict(self.settings),
            make_input=make_input,
        )
        with job_folder(self.output, "--output", preparation, self.options) as folder:
            if not self.options.merge:
                finish_shards(self.job, folder, self.options, self.workers, self.progress)
            yield folder

    def _merge(self, folder: JobFolder) -> dict[str, Any]:
        totals: dict[str, Any] = {}
        advice = f"correct that and start the same command again; what is finished stays in {folder.path}"
        with replaced_file(Path(os.path.realpath(self.output)), advice, f"--output {self.output}") as out:
            for _, result in folder.results():
                out.write(result.content)
                add_up(totals, result.summary)
        return totals


def is_resumable(inputs: Sequence[str], output: str) -> bool:
    """Returns whether work on these files is a job with shards, because all are regular files."""
    from_files = STDIO not in inputs and all(map(os.path.isfile, inputs))
    return from_files and output not in ("", STDIO) and is_replaceable(output)


def check_files(inputs: Sequence[str], output: str, options: JobConfig) -> None:
    """Raises NmtError if an option needs a job with shards, but these files allow none."""
    if options.needs_shards and not is_resumable(inputs, output):
        missing = next((path for path in inputs if path != STDIO and not os.path.exists(path)), None)
        if missing:
            raise NmtError(f"{missing} does not exist; check the path")
        raise NmtError(f"{options.needs_shards} needs files as input and as --output; give the names of files")


def placed(runtime: RuntimeConfig, options: JobConfig, engine: str = "pytorch") -> RuntimeConfig:
    """Returns the runtime with a device and a precision in place of `auto`. With --cluster, it must be connected."""
    if options.cluster and runtime.user_module:
        raise NmtError(
            "--user-module does not work with --cluster, because other machines lack the file; leave out one"
        )
    if options.cluster and runtime.device != "cpu" and has_gpus():
        bf16 = runtime.precision == "auto" and engine == "pytorch"
        return RuntimeConfig(device="cuda", precision="bf16" if bf16 else runtime.precision)
    if options.cluster and runtime.device == "cuda":
        raise NmtError("--device is cuda, but the cluster has no GPU; give --device cpu")
    here = replace(runtime, device="cpu") if options.cluster else runtime
    precision = precision_of(here) if engine == "pytorch" else runtime.precision
    return RuntimeConfig.from_dict(
        {**here.to_dict(), "device": device_type(here), "precision": precision}, "this machine"
    )


def _shard_rows(job: LineJob) -> int:
    """Returns how many lines a shard has: MAXI_BATCH, or fewer for a large model on a CPU."""
    size = sum(os.path.getsize(path) for path in job.models if os.path.isfile(path))
    return MAXI_BATCH if job.device == "cuda" else min(MAXI_BATCH, max(1, _CPU_SHARD // max(size, 1)))


def settings_of_files(engine: EngineConfig, glossary: str | None, output: str, options: JobConfig) -> dict[str, str]:
    """Returns the content of the files that the output depends on besides models and lines, by flag."""
    if engine.vocabulary_map is not None and options.cluster:
        raise NmtError("--vocabulary-map does not work with --cluster: other machines lack the file; leave out one")
    paths = {"--vocabulary-map": engine.vocabulary_map, "--glossary": glossary}
    given = {flag: path for flag, path in paths.items() if path is not None}
    refuse_inputs(output, given.values(), f"--output {output}")
    return {flag: _content_of(path) for flag, path in given.items()}


def _content_of(path: str) -> str:
    return f"SHA-256 {digest_of(path)[:16]}…"


def settings_of(*configs: Config) -> dict[str, Any]:
    """Returns what output depends on: the version, and options by flag."""
    options = {name: value for config in configs for name, value in config.to_dict().items() if name not in _SPEED}
    if path := options.get("user_module"):
        options["user_module"] = _content_of(path)
    return {"version of nmt": __version__} | {flag_name(name): value for name, value in options.items()}
