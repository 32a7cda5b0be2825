"""Odd values for the flags of commands. The command works, or it refuses them in one sentence."""

import os
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from random import Random
from threading import Thread
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin
from unittest.mock import ANY

import typer

from hostile_cases.child import MEMORY_BYTES
from hostile_cases.commands import PREPROCESS, TRAINING, Command
from hostile_cases.outcomes import Trial
from nmt.cli.app import app
from nmt.config.options import flag_name

_ARGUMENTS = {
    "preprocess": (*PREPROCESS, "--train=corpus/train", "--dest=new", "--workers=1"),
    "train": ("train", "data", "--save-dir=new", "--max-updates=2", *TRAINING),
    "average-checkpoints": ("average-checkpoints", "run", "--last=2", "--output=new.safetensors"),
    "generate": (
        "generate", "average.safetensors", "--input=corpus/test.en", "--output=new.out", "--max-length-offset=5",
    ),
    "score": ("score", "--reference=corpus/test.de", "--hypothesis=corpus/test.out"),
    "report": ("report", "run", "--output=new.html"),
    "attention": ("attention", "average.safetensors", "--source=Bade.", "--output=new.html"),
    "export ctranslate2": ("export", "ctranslate2", "average.safetensors", "--output=new"),
    "architectures": ("architectures",),
    "trees linearize": ("trees", "linearize", "--train=corpus/trees.mrg", "--dest=new"),
    "trees words": ("trees", "words", "--like=trees", "--input=trees/train.words", "--output=new.out"),
    "trees restore": (
        "trees", "restore", "--words=trees/train.words", "--sequences=trees/train.trees", "--output=new.out",
    ),
}  # fmt: skip
_INTEGERS = (
    "0", "-1", "1", "2", "3", "-2147483649", "2147483647", "2147483648", "9223372036854775808", "1" + "0" * 40, "1e3",
    "1.5", "abc", "", " 7", "0x10", "٣", "nan", "--", "1_0",
)  # fmt: skip
_NUMBERS = (
    "0", "-0.0", "1", "-1", "0.5", "1e-300", "1e300", "1e999", "inf", "-inf", "nan", "abc", "", "1,5", "0x1p3", "½",
)  # fmt: skip
_TEXTS = (
    "", ".", "..", "-", "--", "~", " ", "missing/folder/x", "average.safetensors/x", "x" * 300, "x/" * 3000,
    "\udcff", "a\nb",
    "\x1b[31mred", "\u202e", "data", "run", "corpus", "treasure", "trees", "en", "none", "[bold]", "{}", "*", "[", "%s",
)  # fmt: skip
_FILES = ("average.safetensors", "corpus/test.en", "run/metrics.jsonl")
# More outputs: folders of the user that look unfinished, a named pipe, and a path that leads back to a folder.
_OUTPUTS = ("theirs", "linked", "locked", "pipe", "pipe", "new.html/..", "new.svg")
_WRITTEN = ("--output", "--dest", "--save-dir")
# Flags for which this value is valid, but takes too long or starts too many processes.
_MUCH_WORK = "2147483647"
_WORK = {
    "--workers", "--gpus", "--max-updates", "--bootstrap", "--encoder-layers", "--decoder-layers",
    "--max-length-offset",
}  # fmt: skip


def _registered() -> Iterator[tuple[str, Callable[..., None]]]:
    """Yields the name of every command and the function that implements it."""
    groups = [group.typer_instance for group in app.registered_groups]
    for prefix, group in (("", app), *((f"{group.info.name} ", group) for group in groups)):
        for command in group.registered_commands:
            yield prefix + (command.name or command.callback.__name__.replace("_", "-")), command.callback


def _flags(function: Callable[..., None]) -> dict[str, Any]:
    """Returns the flags of a command that take a value, and the type of each value."""
    found = {}
    for parameter in signature(function, eval_str=True).parameters.values():
        if parameter.annotation is typer.Context:
            continue
        kind, info = get_args(parameter.annotation)[:2]
        if isinstance(info, typer.models.OptionInfo) and kind is not bool:
            spelling = [name for name in info.param_decls or () if name.startswith("--")]
            found[spelling[0] if spelling else flag_name(parameter.name)] = _inner(kind)
    return found


def _inner(kind: Any) -> Any:
    """Returns the type of a single value: int for int | None and for list[int]."""
    if isinstance(kind, UnionType) or get_origin(kind) is list:
        return next(inner for inner in get_args(kind) if inner is not NoneType)
    return kind


_COMMANDS = {name: _flags(function) for name, function in _registered() if name in _ARGUMENTS}
assert _COMMANDS.keys() == _ARGUMENTS.keys()


def flags(random: Random) -> Trial:
    """Returns a command with odd values for one to three of its flags."""
    name = random.choice(list(_COMMANDS))
    arguments, known = list(_ARGUMENTS[name]), _COMMANDS[name]
    chosen = random.sample(list(known), min(len(known), random.choice((1, 1, 2, 3))))
    if "--best" in chosen:
        arguments.remove("--last=2")  # which is refused beside it
    # Outputs come last, because the value of an output may be one of the inputs.
    for flag in sorted(chosen, key=lambda flag: flag in _WRITTEN):
        arguments.append(f"{flag}={_value(flag, known[flag], arguments, random)}")
    changes = "run" if name == "train" else ""
    return Trial(Command(tuple(arguments), lambda: None, changes), ANY, MEMORY_BYTES)


def _value(flag: str, kind: Any, arguments: list[str], random: Random) -> str:
    if get_origin(kind) is Literal:
        return random.choice((*get_args(kind), *_TEXTS[:4]))
    if kind in (int, float):
        values = _INTEGERS if kind is int else _NUMBERS
        return random.choice([value for value in values if flag not in _WORK or value != _MUCH_WORK])
    if flag in _WRITTEN:
        return _output(flag, arguments, random)
    return random.choice((*_TEXTS, *_FILES, *_INTEGERS))


def _output(flag: str, arguments: list[str], random: Random) -> str:
    """Returns an output path: an input of the same command, a link to one, an odd name, or one of _OUTPUTS."""
    given = dict(argument.partition("=")[::2] for argument in arguments)  # the last value of a flag counts
    inputs = [path for flag, value in given.items() if os.path.exists(path := value or flag)]
    match random.randrange(4):
        case 0 if inputs:
            return random.choice(inputs)
        case 1 if inputs:
            os.symlink(random.choice(inputs), "alias")
            return "alias"
        case 2:
            return random.choice(_TEXTS if flag == "--save-dir" else (*_TEXTS, "/"))
    _make_pipe()
    return random.choice(_OUTPUTS)


def _make_pipe() -> None:
    """Makes a named pipe, and reads everything that is written to it in a thread."""
    if Path("pipe").exists():
        return
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDWR)

    def drain() -> None:
        while os.read(reader, 1 << 16):
            pass

    Thread(target=drain, daemon=True).start()
