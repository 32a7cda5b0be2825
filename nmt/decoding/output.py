"""Writes the output of a job: as it comes, or so that an interrupted job can be resumed."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from nmt import __version__
from nmt.config import RuntimeConfig
from nmt.console import Progress
from nmt.decoding.jobs import WINDOW, IsDone, Job, in_line_order, run
from nmt.decoding.unfinished import unfinished
from nmt.files import STDIO, digest_of, is_replaceable, output_file, refuse_inputs
from nmt.model.runtime import resolve
from nmt.options import Config, flag_name
from nmt.signals import end_as_usual
from nmt.text.windows import windows_of


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """The output of a job.

    If all inputs and the output are regular files, the same command resumes the job when it was interrupted.

    Attributes:
        records: the lines of the input.
        form: makes the text that is kept of a line.
        finish: makes a line's output, which ends in a line break, of that text; called once for each line, in order.
        inputs: the files that the command reads, by what they are to it; `records` reads the first.
        output: a file, or `-` for standard output.
        settings: what the output depends on besides the content of the inputs, by name.
    """

    job: Job
    records: Iterator[Any]
    form: Callable[[Any, Any], str]
    finish: Callable[[str], str] = str
    inputs: Mapping[str, str]
    output: str
    settings: Mapping[str, Any]
    workers: int
    progress: Progress

    def write(self) -> None:
        """Runs the job.

        Raises:
            Interrupted: a signal asked the process to end, and the same command resumes the job.
            NmtError: something cannot be read or written, or the output is an input.
        """
        if self._is_resumable():
            refuse_inputs(self.output, self.inputs.values(), f"--output {self.output}")
            self._write_resumably()
        else:
            self._write_directly()

    def _is_resumable(self) -> bool:
        from_file = STDIO not in self.inputs.values() and all(map(os.path.isfile, self.inputs.values()))
        return from_file and self.output not in ("", STDIO) and is_replaceable(self.output)

    def _finished(self, is_done: IsDone) -> Generator[tuple[list[int], list[str]], None, None]:
        """Yields numbers and texts of the lines of each batch."""
        windows = windows_of(next(iter(self.inputs.values())), self.records, WINDOW)
        with closing(run(self.job, windows, self.workers, is_done)) as batches:
            for batch in batches:
                self.progress.advance(len(batch.numbers))
                yield batch.numbers, list(map(self.form, batch.records, batch.results))

    def _write_directly(self) -> None:
        end_as_usual()
        with (
            output_file(self.output, self.inputs.values()) as out,
            closing(self._finished(lambda _: False)) as finished,
        ):
            for text in in_line_order(finished):
                out.write(self.finish(text))
                out.flush()  # whoever waits for the answer to a line gets it now

    def _write_resumably(self) -> None:
        settings = {name: _digest(path) for name, path in self.inputs.items()} | dict(self.settings)
        with unfinished(self.output, settings) as lines:
            self.progress.skip(lines.done)
            with closing(self._finished(lines.is_done)) as finished:
                for numbers, texts in finished:
                    lines.add(numbers, texts)
            with output_file(self.output, self.inputs.values()) as out:
                for text in lines.outputs():
                    out.write(self.finish(text))


def _digest(path: str) -> str:
    return f"SHA-256 {digest_of(path)[:16]}…"


def settings_of(runtime: RuntimeConfig, *configs: Config) -> dict[str, Any]:
    """Returns what output depends on: the version, the device, the precision, and all options by flag."""
    resolved = resolve(runtime)
    found = {"version of nmt": __version__, "device": resolved.device.type, "precision": resolved.precision}
    return found | {flag_name(name): value for config in configs for name, value in config.to_dict().items()}
