"""Damaged data folders and damaged logs."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

from hostile_cases.commands import COMMANDS, undamaged
from hostile_cases.damage import damaged, edit
from hostile_cases.outcomes import Trial

_LEVELS = 100_000


def _trial(name: str) -> Trial:
    return Trial(COMMANDS[name], undamaged[name])


def _training(random: Random) -> Trial:
    return _trial(random.choice(("train", "resume")))


def _side(random: Random, suffix: str) -> Path:
    return Path(f"data/{random.choice(('train', 'train', 'valid'))}.{random.choice(('en', 'de'))}.{suffix}")


def offsets(random: Random) -> Trial:
    """Damages an offsets file of the data folder, and returns a training on it."""
    _damage_numbers(_side(random, "offsets"), "<i8", (-1, 0, 1, 2**31, 2**62, -(2**63)), random)
    return _training(random)


def tokens(random: Random) -> Trial:
    """Damages a tokens file of the data folder, and returns a training on it."""
    _damage_numbers(_side(random, "tokens"), "<u2", (0, 1, 3, 329, 330, 65535), random)
    return _training(random)


def _damage_numbers(path: Path, kind: str, odd: tuple[int, ...], random: Random) -> None:
    data = path.read_bytes()
    if random.random() < 0.5:
        path.write_bytes(damaged(data, random))
        return
    numbers = np.frombuffer(data, dtype=kind).copy()
    edits: tuple[Callable[[np.ndarray, tuple[int, ...], Random], None], ...] = (_put_odd, _shift, _swap, _reverse)
    random.choice(edits)(numbers, odd, random)
    path.write_bytes(numbers.tobytes())


def _put_odd(numbers: np.ndarray, odd: tuple[int, ...], random: Random) -> None:
    numbers[random.randrange(len(numbers))] = random.choice(odd)


def _shift(numbers: np.ndarray, _: tuple[int, ...], random: Random) -> None:
    """Adds 1 to one number, or to it and to all numbers after it."""
    start = random.randrange(len(numbers))
    numbers[start : random.choice((start + 1, None))] += 1


def _swap(numbers: np.ndarray, _: tuple[int, ...], random: Random) -> None:
    places = random.sample(range(len(numbers)), 2)
    numbers[places] = numbers[places[::-1]]


def _reverse(numbers: np.ndarray, *_: object) -> None:
    numbers[:] = numbers[::-1].copy()


def meta(random: Random) -> Trial:
    """Damages the bytes, the syntax or the values of meta.json, and returns a training on that data."""
    path = Path("data/meta.json")
    choice = random.random()
    if choice < 0.3:
        path.write_bytes(damaged(path.read_bytes(), random))
    elif choice < 0.4:
        path.write_text(_odd_json(random))
    else:
        path.write_text(_edited(path.read_text(), random))
    return _training(random)


def log(random: Random) -> Trial:
    """Damages the bytes or one line of metrics.jsonl, and returns a command that reads the log."""
    path = Path("run/metrics.jsonl")
    if random.random() < 0.3:
        path.write_bytes(damaged(path.read_bytes(), random))
    else:
        lines = path.read_text().splitlines()
        number = random.randrange(len(lines))
        lines[number] = _odd_line(lines[number], random)
        path.write_text("\n".join(lines) + random.choice(("", "\n")), errors="surrogateescape")
    return _trial(random.choice(("resume", "report")))


def _odd_line(line: str, random: Random) -> str:
    odd = ("", " ", "\0", "\udcff", line[: len(line) // 2], line + line, "x" * 10**6, f"\ufeff{line}", f"{line}\r")
    return random.choice((_odd_json(random), _edited(line, random), _edited(line, random), random.choice(odd)))


def _odd_json(random: Random) -> str:
    return random.choice(
        ("", "null", "[]", "{}", "NaN", "1e999", '"text"', "[" * _LEVELS + "]" * _LEVELS, '{"a":' * _LEVELS)
    )


def _edited(text: str, random: Random) -> str:
    content = json.loads(text)
    edit(content, random)
    return json.dumps(content)
