"""Random damage to bytes and to nested plain data."""

import math
from collections.abc import Callable
from random import Random
from typing import Any

_HUGE = (10**30, -(10**30), 2**63, 2**31, -1, 1e308, math.inf, math.nan)
_STRANGE = (None, True, 0, -1, 0.5, "text", "", [], {}, ["x"], {"x": 1})
_DEPTH = 300


def damaged(data: bytes, random: Random) -> bytes:
    """Returns the bytes after one random kind of damage."""
    return random.choice((_flipped, _overwritten, _truncated, _appended, _swapped, _zeroed))(data, random)


def _flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 8)):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwritten(data: bytes, random: Random) -> bytes:
    start, new = random.randrange(len(data)), random.randbytes(random.randint(1, 64))
    return (data[:start] + new + data[start + len(new) :])[: len(data)]


def _truncated(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def _appended(data: bytes, random: Random) -> bytes:
    return data + random.randbytes(random.randint(1, 4096))


def _swapped(data: bytes, random: Random) -> bytes:
    first, second, third = sorted(random.randrange(len(data)) for _ in range(3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def _zeroed(data: bytes, random: Random) -> bytes:
    start, length = random.randrange(len(data)), random.randint(1, 4096)
    return data[:start] + bytes(min(length, len(data) - start)) + data[start + length :]


def edit(tree: Any, random: Random) -> None:
    """Makes one random edit somewhere in nested dicts and lists."""
    edits: tuple[Callable[[Any, Any, Random], None], ...] = (_remove, _retype, _enlarge, _nest)
    random.choice(edits)(*place(tree, random), random)


def place(tree: Any, random: Random) -> tuple[Any, Any]:
    """Returns a random container in the tree, and a random key or index of that container."""
    while True:
        key = random.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
        if not (isinstance(tree[key], (dict, list)) and tree[key] and random.random() < 0.8):
            return tree, key
        tree = tree[key]


def _remove(container: Any, key: Any, _: Random) -> None:
    del container[key]


def _retype(container: Any, key: Any, random: Random) -> None:
    container[key] = random.choice([value for value in _STRANGE if type(value) is not type(container[key])])


def _enlarge(container: Any, key: Any, random: Random) -> None:
    container[key] = random.choice(_HUGE)


def _nest(container: Any, key: Any, _: Random) -> None:
    for _depth in range(_DEPTH):
        container[key] = [container[key]]
