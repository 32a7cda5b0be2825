"""Runs a job on its input: as a stream, or shard by shard in a folder from which interrupted work resumes.

The folder of an unfinished job has its settings, its plan, and the results of finished shards.
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from nmt import __version__, console, files
from nmt.config import JobConfig
from nmt.config.options import Config, flag_name
from nmt.errors import NmtError, StoppedError
from nmt.jobs.source import CHUNK_UNITS, ArrivingChunks, Plan, Shard, Source, in_chunks
from nmt.jobs.stream import Chunk, Chunks, Execution, Job, Outcome, Result, records_in_order
from nmt.locks import locked
from nmt.signals import cleaning_up, end_as_usual
from nmt.text.corpus import is_regular

# What a result depends on besides the text of the input, by name.
Settings = Mapping[str, Any]
# Makes what all shards need, in the folder it is given.
Prepare = Callable[[Path, Plan], None]
_MANIFEST = "manifest.json"
_SHARD_LINES = "--shard-lines"
# The version of the form of the files in the folder.
_VERSION = 3
# The end of the message if a file of the job cannot be written.
_ADVICE = "correct that and start the same command again"
_SHARDS, _DATA = "shards", "data"
# One lock is held as long as a process works on the job, the other one only while the job is prepared.
_WORKING, _PREPARING = ".lock", ".preparing"
_OWN = {_MANIFEST, _SHARDS, _DATA, _WORKING, _PREPARING}


def settings_of(*configs: Config, without: Collection[str] = ()) -> dict[str, Any]:
    """Returns what a result depends on: the version, and the options by flag but for those of these names."""
    options = {name: value for config in configs for name, value in config.to_dict().items() if name not in without}
    if path := options.get("user_module"):
        options["user_module"] = shown_digest(files.digest_of(path))
    return {"version of nmt": __version__} | {flag_name(name): value for name, value in options.items()}


def contents_of(paths: Iterable[str]) -> dict[str, str]:
    """Returns the digests of files that a result depends on, as settings."""
    return {f"content of {path}": shown_digest(files.digest_of(path)) for path in paths}


def shown_digest(digest: str) -> str:
    """Returns the beginning of a SHA-256, as settings and messages have it."""
    return f"SHA-256 {digest[:16]}…"


def executing(options: JobConfig, workers: int | None = None) -> AbstractContextManager[Execution]:
    """Returns how jobs are computed: on the cluster of --cluster, or without it on this machine."""
    if options.cluster is None:
        return nullcontext(Execution(options, workers))
    from nmt.jobs.ray import connected

    return connected(options, workers)


class JobFolder:
    """The folder of a job, which has a file for each finished shard. `job_folder` makes one."""

    def __init__(self, path: Path, source: Source, plan: Plan) -> None:
        self.path, self.source, self.plan = path, source, plan
        self._job = files.digest_of(str(path / _MANIFEST))  # an earlier job, whose folder was deleted, has another
        self.is_complete = False
        self.data = path / _DATA

    @property
    def rows_done(self) -> int:
        """Rows of finished shards."""
        return self.plan.rows - sum(shard.rows for shard in self.todo())

    def todo(self, part: int = 0, parts: int = 1) -> list[Shard]:
        """Returns the unfinished shards of part number `part`, counted from 0, if the job is divided into `parts`."""
        done = {int(path.name) for path in (self.path / _SHARDS).glob("*") if path.name.isdecimal()}
        return [shard for shard in self.plan.shards[part::parts] if shard.number not in done]

    def add(self, shard: Shard, result: Result) -> None:
        """Writes the result of a shard: a line with the digest of the rest, the values, and the arrays."""
        content = BytesIO()
        content.write(json.dumps({"values": result.values, "arrays": list(result.arrays)}).encode() + b"\n")
        for array in result.arrays.values():
            np.save(content, array)
        with files.replaced_file(self._result_path(shard), _ADVICE) as file:
            file.write(json.dumps({"job": self._job, "sha256": sha256(content.getbuffer()).hexdigest()}) + "\n")
            file.write(content.getbuffer())

    def results(self) -> Iterator[tuple[Shard, Result]]:
        """Yields the results of all shards in order."""
        self.check_input()
        if missing := self.todo():
            count, named = len(self.plan.shards), console.listed(list(map(self.plan.named, missing)))
            problem = f"{len(missing):,} of the {count:,} shards of {self.path} are missing ({named})"
            advice = "run the --shard that failed again, or run the command without --shard and --merge to do the rest"
            raise NmtError(f"{problem}; {advice}")
        for shard in self.plan.shards:
            yield shard, self._result(self._result_path(shard))

    def _result(self, path: Path) -> Result:
        try:
            with files.loading(path, "check it and its permissions"), path.open("rb") as file:
                header, content = json.loads(file.readline()), file.read()
            if sha256(content).hexdigest() != header["sha256"]:
                raise ValueError("checksum mismatch")
            if header["job"] != self._job:
                raise ValueError("it belongs to another job")
            rest = BytesIO(content)
            saved = json.loads(rest.readline())
            return Result(saved["values"], {name: np.load(rest) for name in saved["arrays"]})
        except (ValueError, KeyError, TypeError) as error:
            path.unlink(missing_ok=True)
            problem = f"{path} is damaged ({error}) and was removed"
            raise NmtError(f"{problem}; the same command, without --merge, makes it anew") from error

    def _result_path(self, shard: Shard) -> Path:
        return self.path / _SHARDS / f"{shard.number:08}"

    def check_input(self, segment: int | None = None) -> None:
        """Raises NmtError if the input, or the files of one segment, have changed since the plan was made."""
        if changed := self.plan.changed_file(segment):
            advice = f"restore it and start the same command again, or delete {self.path} and start anew"
            raise NmtError(f"{changed} has changed since the job began; {advice}")

    def finish_shards(self, job: Job, execution: Execution, progress: console.Progress) -> None:
        """Does all shards of the job that are not finished, or those of the part that --shard names."""
        options = execution.options
        part, parts = options.part
        todo = self.todo(part, parts)
        rows = sum(shard.rows for shard in self.plan.shards[part::parts])
        progress.begin(rows, rows - sum(shard.rows for shard in todo))
        if progress.completed:
            console.info(f"resuming after {progress.completed:,} of {console.counted(rows, progress.unit)}")
        if options.shard:
            console.info(f"{options.shard}: {len(todo):,} of {console.counted(len(self.plan.shards), 'shard')} to do")
        if not todo:
            return
        shards = {shard.first: shard for shard in todo}
        failures: list[Outcome] = []
        chunks = (Chunk(shard.first, self.source.read(shard), shard.first - shard.start - 1) for shard in todo)
        with closing(execution.executor(job, Chunks(chunks, len(todo)), execution.workers, progress)) as outcomes:
            for outcome in outcomes:
                shard = shards[outcome.chunk.first]
                if outcome.result is not None:
                    self.check_input(shard.segment)  # what was read of a changed file must not stay
                    self.add(shard, outcome.result)
                else:
                    failures.append(outcome)
                    console.warn(f"{self.plan.named(shard)} failed: {outcome.failure}; the rest goes on")
        self.check_input()
        if failures:
            named = console.listed([self.plan.named(shards[failed.chunk.first]) for failed in failures], 3)
            shard_count = console.counted(len(self.plan.shards), "shard")
            problem = f"{len(failures):,} of {shard_count} failed ({named}: {failures[0].failure})"
            advice = f"the others are kept in {self.path}, and the same command does only these again"
            raise NmtError(f"{problem}; {advice}")

    def finish(self) -> None:
        """Removes the folder, because the output of the job is complete."""
        self.is_complete = True
        self.discard()

    def discard(self) -> None:
        """Removes the folder with all that the job has written there."""
        _remove(self.path)


@contextmanager
def job_folder(
    dest: str, source: Source, options: JobConfig, shard_rows: int, settings: Settings, prepare: Prepare | None = None
) -> Iterator[JobFolder]:
    """Yields the folder of the job that makes `dest`. The block calls `finish` when `dest` is complete.

    If the block fails before a shard is finished, the folder is removed, unless --shard or --merge is given.

    Args:
        options: with --shard, other processes work on the same job, and the folder always stays. With --merge, the
            job must have begun.
        shard_rows: how many rows a shard should have, without --shard-lines.

    Raises:
        StoppedError: a signal asked the process to end; the same command resumes the job.
    """
    end_as_usual()
    path = Path(f"{os.path.realpath(dest)}.unfinished")
    if options.merge and not (path / _MANIFEST).exists():
        raise NmtError(f"{path} holds no job to merge; do its parts first, with --shard 1/N to N/N")
    missing = files.missing_folders(path.parent)
    with files.writing(path, "choose another output"):
        path.mkdir(parents=True, exist_ok=True)
    names = set(os.listdir(path))
    foreign = sorted(name for name in names if name not in _OWN and not files.is_partial(name))
    if foreign or (names - {_WORKING} and _PREPARING not in names):
        stranger = path / foreign[0] if foreign else path
        raise NmtError(f"{stranger} was not made by this command; move it elsewhere or choose another output")
    busy = f"{path} is in use by another process; wait for its end or choose another output"
    waiting = f"waiting for another process, which prepares {path}"
    with cleaning_up(), locked(path / _WORKING, busy, _ADVICE, shared=bool(options.shard)):
        folder = None
        try:
            with locked(path / _PREPARING, waiting, _ADVICE, patience=math.inf):
                folder = _opened(path, source, options, shard_rows, settings, prepare)
            yield folder
        except (SystemExit, KeyboardInterrupt):  # the second in a Python program
            if folder and folder.is_complete:
                _remove(path)
                return
            rows = folder.rows_done if folder else 0
            kept = f" after {console.counted(rows, 'line')}, which are kept in {path}" if rows else ""
            raise StoppedError(f"stopped{kept}; start the same command again" + " to resume" * bool(kept)) from None
        finally:
            has_begun = folder.rows_done > 0 if folder else (path / _MANIFEST).exists()
            if not (options.shard or options.merge or has_begun):
                _remove(path)
                files.remove_empty(missing)


def _opened(
    path: Path, source: Source, options: JobConfig, shard_rows: int, settings: Settings, prepare: Prepare | None
) -> JobFolder:
    """Returns the folder of a job, which is prepared first unless an earlier process did that."""
    # What merges the parts computes nothing, so it may be another machine.
    free = {"--device", "--precision"} if options.merge else set()
    manifest_file = path / _MANIFEST
    try:
        saved: dict[str, Any] = json.loads(manifest_file.read_text(encoding="utf-8"))
        if saved.pop("sha256") != files.digest_of_json(saved):
            raise ValueError("checksum mismatch")
    except FileNotFoundError:
        saved = {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NmtError(f"{manifest_file} is damaged ({error}); delete {path} and start again") from error
    if not saved:
        _remove_work(path)
        for name in (_SHARDS, _DATA):
            with files.writing(path / name, _ADVICE):
                (path / name).mkdir(exist_ok=True)
    if options.merge and saved:  # whose own guess may differ, such as on another machine
        shard_rows = saved["settings"][_SHARD_LINES]
    shard_rows = options.shard_lines or shard_rows
    plan = source.plan(shard_rows, Plan.from_dict(saved["plan"]) if saved else None)
    every: dict[str, Any] = {"version of its files": _VERSION}
    for segment_number, segment in enumerate(plan.segments, start=1):
        for column, read in zip(source.columns, segment, strict=True):
            name = column if len(plan.segments) == 1 else f"{column} {segment_number}"
            every[name] = shown_digest(read.digest)
    every |= {**settings, _SHARD_LINES: shard_rows}  # the last, because it may follow from the others
    now: dict[str, Any] = json.loads(json.dumps(every))  # tuples become lists
    then = saved.get("settings", now)
    for name in dict.fromkeys([*then, *now]):
        if name in free or (name in then and name in now and then[name] == now[name]):
            continue
        difference = f"{name} was {'not ' if name in now else ''}given"
        if name in then and name in now:
            difference = f"{name} was {_as_text(then[name])} and is now {_as_text(now[name])}"
        problem = f"{path} belongs to an unfinished job of another command, in which {difference}"
        raise NmtError(f"{problem}; start that command again, or delete the folder")
    if not saved:
        if prepare:
            prepare(path / _DATA, plan)
        manifest = {"settings": now, "plan": plan.to_dict()}
        with files.replaced_file(manifest_file, _ADVICE) as output:
            output.write(json.dumps({"sha256": files.digest_of_json(manifest), **manifest}))
    return JobFolder(path, source, plan)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _remove(path: Path) -> None:
    """Removes the folder of a job with all that jobs write there."""
    (path / _MANIFEST).unlink(missing_ok=True)
    _remove_work(path)
    with suppress(OSError):  # the folder is gone
        files.remove_partial_files(path)
        # If a file of somebody else is there, or a late result, the locks stay, so that a later job knows the folder.
        if set(os.listdir(path)) <= {_PREPARING, _WORKING}:
            (path / _PREPARING).unlink(missing_ok=True)
            (path / _WORKING).unlink(missing_ok=True)
            path.rmdir()


def _remove_work(path: Path) -> None:
    """Removes the results of shards and what was prepared for them."""
    shutil.rmtree(path / _DATA, ignore_errors=True)
    with suppress(OSError):  # there is none, or somebody has put a file there
        for file in os.scandir(path / _SHARDS):
            if file.name.isdecimal() or files.is_partial(file.name):
                os.unlink(file.path)
        (path / _SHARDS).rmdir()


@dataclass(frozen=True)
class Run:
    """A job with its input, its output, and what computes it.

    Attributes:
        output: a file, or `-` for standard output.
        settings: what the output depends on besides the input and the models, by name. A job is resumed only if
            they are the same.
        is_resumable: whether the results of finished shards are kept, so that the same command resumes the job.
    """

    job: Job
    source: Source
    output: str
    settings: Settings
    execution: Execution
    progress: console.Progress
    is_resumable: bool = True

    @contextmanager
    def records(self) -> Iterator[Iterator[Any] | None]:
        """Yields the records of all units in order; None with --shard, which does only a part of the work.

        If the job is resumable, it is finished when the block, which writes the output, has succeeded.

        Raises:
            StoppedError: a signal asked the process to end, and the same command resumes the job.
        """
        job, options = self.job, self.execution.options
        if not self.is_resumable:
            units = self.source.units()
            are_ready = all(map(is_regular, self.source.paths))  # from a pipe, lines arrive slowly
            chunks = Chunks(in_chunks(units, CHUNK_UNITS)) if are_ready else ArrivingChunks(units, CHUNK_UNITS)
            with closing(self.execution.executor(job, chunks, self.execution.workers, self.progress)) as outcomes:
                yield records_in_order(outcomes)
            return
        files.refuse_inputs(self.output, [*self.source.paths, *job.models], f"--output {self.output}")
        models = {f"checkpoint {i}": shown_digest(files.digest_of(path)) for i, path in enumerate(job.models, 1)}
        size = sum(os.path.getsize(path) for path in job.models)
        # Lines times bytes of the model are at most 10^11 on a CPU: less than a minute of work on two cores.
        rows = max(1, 10**11 // max(size, 1))
        if job.device == "cuda":  # many lines have full batches of similar lengths; few should keep all workers busy
            rows = 256 << (self.source.estimated_rows >> 14).bit_length()
        settings = models | dict(self.settings)
        with job_folder(self.output, self.source, options, min(rows, CHUNK_UNITS), settings) as folder:
            if not options.merge:
                folder.finish_shards(job, self.execution, self.progress)
            if options.shard:
                yield None
                return
            yield (job.restored(record) for _, result in folder.results() for record in result.values)
            folder.finish()  # from here on, it ends without an error if a signal comes

    def write(self, text: Callable[[Any], str]) -> bool:
        """Writes the text of each record to the output. Returns whether there is one: with --shard, there is none."""
        inputs, advice = [*self.source.paths, *self.job.models], None
        if self.is_resumable:
            path = os.path.realpath(self.output)
            if not os.path.isdir(os.path.dirname(path)):
                raise NmtError(f"--output {self.output} is in a folder that does not exist; make the folder first")
            advice = f"correct that and start the same command again; what is finished stays in {path}.unfinished"
        with self.records() as records:
            if records is not None:
                with files.output_file(self.output, inputs, advice=advice) as out:
                    for record in records:
                        out.write(text(record))
                        if not self.is_resumable:
                            out.flush()  # whoever waits for the answer to a line gets it now
        return records is not None


def check_inputs(paths: Sequence[str]) -> None:
    """Raises NmtError if an input is missing or a folder, before others are read for hours."""
    for path in paths:
        if path != files.STDIO and (os.path.isdir(path) or not os.path.exists(path)):
            wrong = "is a folder; give files" if os.path.isdir(path) else "does not exist; check the path"
            raise NmtError(f"{path} {wrong}")


def can_resume(inputs: Sequence[str], output: str, options: JobConfig) -> bool:
    """Returns whether work on these files is a job with shards, because all are regular files.

    If not, signals from now on end the process as usual, and not as a job that can be resumed.

    Raises:
        NmtError: an option needs a job with shards, but these files allow none.
    """
    from_files = files.STDIO not in inputs and all(map(os.path.isfile, inputs))
    if from_files and output not in ("", files.STDIO) and files.is_replaceable(output):
        return True
    if options.needs_shards:
        check_inputs(inputs)
        raise NmtError(f"{options.needs_shards} needs files as input and as --output; give the names of files")
    end_as_usual()
    return False
