"""Writes the output of a job: as it comes, or so that an interrupted job can be resumed."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from hashlib import file_digest
from typing import Any

from nmt import __version__
from nmt.config import RuntimeConfig
from nmt.console import Progress
from nmt.decoding.jobs import WINDOW, IsDone, Job, in_line_order, run
from nmt.decoding.unfinished import unfinished
from nmt.errors import NmtError
from nmt.files import STDIO, is_replaceable, output_file, refuse_inputs
from nmt.model.runtime import resolve
from nmt.options import Config, flag_name
from nmt.text.windows import is_regular, windows_of

# Turns the record of a line and its result into text.
Form = Callable[[Any, Any], str]


def write_output(
    job: Job,
    records: Iterator[Any],
    form: Form,
    *,
    finish: Callable[[str], str] = str,
    inputs: Mapping[str, str],
    output: str,
    settings: Mapping[str, Any],
    workers: int,
    progress: Progress,
) -> None:
    """Runs a job and writes its output.

    If all inputs and the output are regular files, the same command resumes the job when it was interrupted.

    Args:
        form: makes the text that is kept of a line.
        finish: makes a line's output, which ends in a line break, of that text; called once for each line, in order.
        inputs: the files that the command reads, by what they are to it; `records` reads the first.
        output: a file, or `-` for standard output.
        settings: what the output depends on besides the content of the inputs, by name.

    Raises:
        Interrupted: a signal asked the process to end, and the same command resumes the job.
        NmtError: something cannot be read or written, or the output is an input.
    """

    def finished(is_done: IsDone = lambda _: False) -> Generator[tuple[list[int], list[str]], None, None]:
        windows = windows_of(next(iter(inputs.values())), records, WINDOW)
        with closing(run(job, windows, workers, is_done)) as batches:
            for batch in batches:
                progress.advance(len(batch.numbers))
                yield batch.numbers, list(map(form, batch.records, batch.results))

    if output == STDIO or not is_replaceable(output) or not all(map(is_regular, inputs.values())):
        _write_directly(finished(), finish, inputs, output)
        return
    refuse_inputs(output, inputs.values(), f"--output {output}")
    whole = {name: _digest(path) for name, path in inputs.items()} | dict(settings)
    with unfinished(output, whole) as lines:
        progress.skip(lines.done)
        with closing(finished(lines.is_done)) as batches:
            for numbers, texts in batches:
                lines.add(numbers, texts)
        with output_file(output, inputs.values()) as out:
            for text in lines.outputs():
                out.write(finish(text))


def _write_directly(
    finished: Iterator[tuple[list[int], list[str]]],
    finish: Callable[[str], str],
    inputs: Mapping[str, str],
    output: str,
) -> None:
    with output_file(output, inputs.values()) as out:
        for text in in_line_order(finished):
            out.write(finish(text))
            out.flush()  # whoever waits for the answer to a line gets it now


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return f"SHA-256 {file_digest(file, 'sha256').hexdigest()[:16]}…"
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror or error}); check the path") from error


def settings_of(runtime: RuntimeConfig, *configs: Config) -> dict[str, Any]:
    """Returns what output depends on: the version, the device, the precision, and all options by flag."""
    resolved = resolve(runtime)
    found = {"version of nmt": __version__, "device": resolved.device.type, "precision": resolved.precision}
    return found | {flag_name(name): value for config in configs for name, value in config.to_dict().items()}
