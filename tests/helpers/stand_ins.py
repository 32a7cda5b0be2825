"""Runs recipes on a stand-in for a corpus, with stand-ins for `nmt` and `python`, which fork commands and programs."""

import gzip
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import commands
import forks
import pytest
from conftest import invented_pairs

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "recipes"), str(ROOT / "recipes" / "measure")]  # where their programs import from
BIN = Path(sys.executable).parent
TINY = [
    *commands.SMALL, "--max-updates=5", "--save-updates=1", "--batch-tokens=300", "--device-tokens=500",
    "--valid-metric=nll", "--device=cpu", "--precision=fp32",
]  # fmt: skip
LONGER = [*TINY, "--max-updates=20"]  # as many checkpoints as the recipe averages
# What is added to the arguments of commands and programs, so that they take less time. None: the program is not run.
Added = dict[str, list[str] | None]
BENCHMARK = "recipes/measure/benchmark.py"
QUICK: Added = {"generate": ["--max-length-offset=5"], BENCHMARK: ["--max-length-offset=5"]}
NOT_RUN = ("chaos", "compare_peers", "load", "table3", "translate_cluster")  # programs that measure or kill
# The same for recipes that take no options.
QUICKER: Added = QUICK | {
    "preprocess": ["--vocab-size=400"],
    "train": [*TINY, "--max-updates=2", "--decoder-layers=3"],
    BENCHMARK: ["--help"],  # checks the flags and ends
    "recipes/grammar.py": ["--train=120", "--valid=4", "--test=6"],
    **dict.fromkeys(f"recipes/measure/{name}.py" for name in NOT_RUN),
}
# The file `nmt` or `python`, which hands its arguments to `answer` and ends as that says.
STAND_IN = f"""#!/usr/bin/env bash
here=${{0%/*}} name=${{0##*/}}
if [ $name = python ] && [[ $1 != recipes/* ]]; then exec "{BIN}/python" "$@"; fi
exec 9> "$here/lock"  # recipes run commands side by side
flock 9
printf '%s\\0' "$PWD" $name "$@" > "$here/asked"
read -r code < "$here/answered"
cat "$here/stdout"
cat "$here/stderr" >&2
exit "$code"
"""
Recipe = Callable[..., subprocess.CompletedProcess[str]]


def answer(folder: Path, added: Added) -> None:
    """Forks the commands and programs that the files in `folder` ask for, until an empty text is written to `asked`."""
    # A benchmark measures how long an interpreter takes to start, too. That figure is not tested here.
    no_interpreters = partial(exec, "import sys; sys.executable = 'true'")
    while asked := (folder / "asked").read_text():
        cwd, name, *arguments = asked.split("\0")[:-1]
        more = added.get(arguments[0], [])
        program = None
        if name == "python":
            program = partial(runpy.run_path, str(ROOT / arguments.pop(0)), run_name="__main__")
        if more is None:
            program = partial(print, "not run")
        try:
            command = forks.start(*arguments, *(more or ()), cwd=cwd, before=no_interpreters, instead=program)
            code, output, errors = command.wait(), command.output, command.errors
        except BaseException:  # otherwise, the recipe would wait forever
            code, output, errors = 1, "", traceback.format_exc()
        (folder / "stdout").write_text(output)
        (folder / "stderr").write_text(errors)
        (folder / "answered").write_text(f"{code}\n")


@contextmanager
def stand_ins(folder: Path, added: Added) -> Iterator[Path]:
    """Makes `nmt` and `python` in `folder` start forked commands and programs, with the arguments in `added`."""
    for name in ("nmt", "python"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    for name in ("asked", "answered"):
        os.mkfifo(folder / name)
    thread = Thread(target=answer, args=(folder, added), daemon=True)
    thread.start()
    yield folder
    if thread.is_alive():
        (folder / "asked").write_text("")
    thread.join()


def run_with(
    path: Path, script: str, *arguments: str, code: int = 0, **settings: str | Path
) -> subprocess.CompletedProcess[str]:
    """Runs a recipe with the commands in the folder `path`, and checks its exit code."""
    environment = os.environ | {"ENVIRONMENT": "active", "WORKERS": "1"}
    environment |= {name: str(value) for name, value in settings.items()}
    environment["PATH"] = f"{path}:{BIN}:{os.environ['PATH']}"
    command = ["bash", str(ROOT / "recipes" / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(params=["forked", pytest.param("whole", marks=pytest.mark.nightly)])
def recipe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipe]:
    """Returns a function that runs a recipe."""
    if request.param == "whole":
        yield partial(run_with, BIN)
    else:
        with stand_ins(tmp_path_factory.mktemp("bin"), QUICK) as path:
            yield partial(run_with, path)


@pytest.fixture
def quicker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipe]:
    """Returns a function that runs a recipe with less text and less training than the recipe says."""
    with stand_ins(tmp_path_factory.mktemp("bin"), QUICKER) as path:
        yield partial(run_with, path)


def corpus(pairs: int, seed: int) -> tuple[bytes, bytes]:
    sides = zip(*invented_pairs(pairs, seed), strict=True)
    source, target = ("".join(f"{line}\n" for line in side).encode() for side in sides)
    return source, target


@pytest.fixture
def multi30k(tmp_path: Path) -> Path:
    """A stand-in for the corpus."""
    folder = tmp_path / "multi30k"
    (folder / "tok").mkdir(parents=True)
    for seed, (name, size) in enumerate({"train": 101, "val": 4, "test_2016_flickr": 5}.items()):
        for lang, text in zip(("en", "de"), corpus(size, seed), strict=True):
            (folder / f"{name}.{lang}.gz").write_bytes(gzip.compress(text))
            (folder / "tok" / f"{name}.lc.norm.tok.{lang}").write_bytes(text.lower())
    return folder
