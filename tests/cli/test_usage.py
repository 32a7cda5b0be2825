"""Wrong command lines, odd values and a hostile environment end every command in one sentence."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import forks
import pytest
import torch
import typer
from commands import failed, run

from nmt.cli.app import app

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "nowhere", "--arch=transformer_tiny", "--save-dir=run"]
PREPROCESS = ["preprocess", "--source-lang=en", "--target-lang=de", "--valid=v", "--dest=d"]
LONG = "x" * 5000

# Command lines that read the file or folder {}, and that fail because of it.
READERS = [
    "generate {}",
    "score --reference {}",
    "average-checkpoints {} --output=o",
    "train {} --arch=transformer_tiny --save-dir=r",
    "preprocess --source-lang=en --target-lang=de --train={} --valid=v --dest=d",
    "report {}",
    "attention {} --source=a --output=o.html",
    "export {} --output=o",
    "serve {} --port=0",
    "serve model --port=0 --token-file={}",
    "trees words --like={}",
    "trees restore --words={}",
    "trees linearize --train={} --dest=d",
]
# Command lines that fail with the path {}, perhaps because of another file.
OTHERS = [
    "generate model --output={}",
    "average-checkpoints model --output={}",
    "preprocess --source-lang=en --target-lang=de --train=t --valid=v --dest={}",
    "benchmark generate --checkpoint={} --input=in",
]


def refused(*arguments: str) -> str:
    """Returns the message about a wrong command line, which is all of standard error and one line."""
    said = run(*arguments, code=2).stderr
    assert said.startswith("error: ")
    assert said.count("\n") == 1, said
    return said.removeprefix("error: ").removesuffix("\n")


@pytest.mark.parametrize("arguments, said", [
    ([*TRAIN, "--dropout", "abc"], "--dropout must be a number, but is 'abc'"),
    ([*TRAIN, "--d-ff", "1.5"], "--d-ff must be a whole number, but is '1.5'"),
    ([*TRAIN, "--device", "tpu"], "--device must be one of auto, cpu, cuda, but is 'tpu'"),
    ([*PREPROCESS, "--train=t", "--weight=2", "--weight=x"], "--weight must be a number, but is 'x'"),
    (["architectures", "--vocab-size=-1"], "--vocab-size must be a whole number from 8 to 1,000,000, but is '-1'"),
    ([*TRAIN, "--dropuot", "1"], "No such option: --dropuot (Possible options: --dropout); see nmt train --help"),
    ([*TRAIN, "--epochs", "3"], "--epochs is called --max-updates here; see nmt train --help"),
    (["generate", "m", "--lenpen=1"], "--lenpen is called --alpha here; see nmt generate --help"),
    ([*TRAIN, "x"], "Got unexpected extra argument(s) (x); see nmt train --help"),
    ([*TRAIN, "--dropout"], "Option '--dropout' requires an argument; see nmt COMMAND --help"),
    ([*TRAIN, "--dry-run=3"], "Option '--dry-run' does not take a value; see nmt COMMAND --help"),
    (PREPROCESS, "Missing option '--train'; see nmt preprocess --help"),
    (["train", "--arch=a", "--save-dir=b"], "Missing argument 'data'; see nmt train --help"),
    (["trian"], "No such command 'trian'. Did you mean 'train'?; see nmt --help"),
    (["trees", "x"], "No such command 'x'; see nmt trees --help"),
])  # fmt: skip
def test_a_wrong_command_line_is_refused_in_one_sentence(arguments: list[str], said: str) -> None:
    assert refused(*arguments) == said


def test_the_message_about_a_very_long_command_line_is_short() -> None:
    assert len(refused("generate", "m", "--workers", LONG)) < 200
    assert len(refused("architectures", *(f"file-{number}" for number in range(5000)))) < 1000


def test_a_command_without_arguments_shows_its_help() -> None:
    done = run("train", code=2)
    assert b"Usage" in done.stdout
    assert not done.stderr


@pytest.mark.parametrize("arguments", [
    "benchmark generate --arch=a --workers=2147483648",
    "benchmark generate --arch=a --lines=2147483648",
    "benchmark batching --pairs=2147483648",
    "benchmark batching --mean-length=1e300",
    "benchmark batching --mean-length=nan",
    "benchmark batching --vocab-size=2147483647",
    "benchmark batching --repeats=2147483648",
    "benchmark train --arch=a --updates=2147483648",
    "architectures --vocab-size=2147483648",
    "average-checkpoints r --output=o --last=2147483648",
    "report r --sustained-tflops=inf",
    "report r --sustained-tflops=0",
    "trees linearize --train=t --dest=d --rare-below=2147483648",
])  # fmt: skip
def test_absurd_numbers_are_refused_as_out_of_range(arguments: str) -> None:
    flag, value = arguments.split()[-1].split("=")
    said = refused(*arguments.split())
    assert said.startswith(f"{flag} must be ")
    assert said.endswith(f"but is '{value}'")


def command_lines(command: Any, name: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Yields a command line for every numeric option of every command. The value of that option is still to be added.

    The files that the command lines name do not exist.
    """
    for sub in getattr(command, "commands", {}).values():
        yield from command_lines(sub, (*name, sub.name))
    given = {
        p.opts[0]: "transformer_tiny" if p.name == "arch" else f"{p.name}-missing"
        for p in command.params
        if p.required or p.name == "data"
    }
    words = [f"{flag}={value}" if flag.startswith("-") else value for flag, value in given.items()]
    for param in command.params:
        if param.type_descriptor.annotation in (int, float, list[int]):
            yield [*name, *words, param.opts[0]]


@pytest.mark.parametrize("value", ["", "-1", "nan", "1e300", "9" * 5000])
def test_odd_values_of_numeric_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.chdir(tmp_path)
    lines = list(command_lines(typer.main.get_command(app)))
    assert len(lines) > 90
    for line in lines:
        done = run(*line, value, code=None)
        assert done.code in (1, 2), line
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("name", [LONG, "loop", "file/x", "\udcff", "a\nb", "\x1b[1mred"])
@pytest.mark.parametrize("arguments", READERS + OTHERS)
def test_odd_names_are_printable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    message = failed(*(word.format(name) for word in arguments.split()), stdin=b"a\n")
    assert message.startswith("error: ")
    assert message.isprintable()


@pytest.mark.parametrize("arguments", READERS)
def test_a_closed_folder_is_named(unprivileged: Callable[[], AbstractContextManager[None]], arguments: str) -> None:
    # This run imports the modules. Without root's privileges, they may not be readable.
    failed(*arguments.format("missing").split(), stdin=b"a\n")
    with unprivileged():
        message = failed(*arguments.format("closed/x").split(), stdin=b"a\n")
    assert "closed/" in message
    assert "ermission" in message


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and Linux's limits on memory")
def test_running_out_of_memory_ends_in_one_sentence(tmp_path: Path) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(2**33)
    command = forks.run("score", "--reference=zeros", stdin=b"a\n", cwd=tmp_path, before=limit_memory, code=1)
    assert command.errors.startswith("error: memory ran out; ")


@pytest.mark.parametrize("fail, said", [
    (lambda *_: torch.empty(2**50), "memory ran out ("),
    (Mock(side_effect=RuntimeError("could not create a primitive")), "memory ran out ("),  # oneDNN's message
    (Mock(side_effect=OSError(12, "Cannot allocate memory")), "memory ran out ("),
    (Mock(side_effect=PermissionError(13, "No", "a", None, "b")), "a and b cannot be used (No); "),
])  # fmt: skip
def test_errors_of_the_system_end_in_one_sentence(monkeypatch: pytest.MonkeyPatch, fail: Any, said: str) -> None:
    monkeypatch.setattr("nmt.pages.report.read_runs", fail)
    assert failed("report", "run").startswith(f"error: {said}")


@pytest.mark.parametrize("bug", [RecursionError("maximum recursion depth exceeded"), OSError("of no system call")])
def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, bug: Exception) -> None:
    monkeypatch.setattr("nmt.pages.report.read_runs", Mock(side_effect=bug))
    with pytest.raises(type(bug)):
        run("report", "run")


def test_help_and_errors_can_be_printed_on_ascii_terminals() -> None:
    """The environment decides on the encoding when the interpreter starts, so this test starts two."""
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    nmt = f"'{sys.executable}' -m nmt"
    command = ["bash", "-c", f"{nmt} generate --help && {nmt} score --hypothesis ä --reference ä"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, timeout=60)
    assert done.returncode == 1
    assert "length) / 6)^?" in done.stdout.decode("ascii")
    assert done.stderr.decode("ascii").splitlines()[-1].startswith("error: ")


def close(*numbers: int) -> None:
    """Closes standard streams, as the interpreter finds them if a shell has closed them."""
    for number in numbers:
        os.close(number)
        name = ("stdin", "stdout", "stderr")[number]
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)


@pytest.mark.parametrize("closed, arguments, code, said", [
    ((1,), ["--version"], 0, ""),
    ((0,), ["score", "--reference", ROOT / "README.md"], 1, "error: "),
    ((2,), ["score", "--reference", "nowhere"], 1, ""),
    ((1, 2), ["--version"], 0, ""),
])  # fmt: skip
def test_closed_streams_are_like_an_empty_device(
    closed: tuple[int, ...], arguments: list[str | Path], code: int, said: str
) -> None:
    command = forks.run(*arguments, before=partial(close, *closed), code=code)
    assert command.errors.startswith(said)
    assert command.errors.count("\n") == (1 if said else 0)
    assert not command.output


def test_a_stream_that_the_shell_closed_is_like_an_empty_device() -> None:
    """This test shows that a true interpreter starts like the forks above."""
    command = f"exec '{sys.executable}' -m nmt --version >&-"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_ends_in_one_sentence() -> None:
    with Path("/dev/full").open("wb") as full:
        command = forks.run("architectures", stdout=full.fileno(), code=1)
    assert command.errors.startswith("error: the system refused an operation (No space left on device)")
    assert command.errors.count("\n") == 1
