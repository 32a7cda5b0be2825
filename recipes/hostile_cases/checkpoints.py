"""Damaged checkpoints, and crafted checkpoints, which have odd content with a correct checksum."""

import hashlib
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import ANY

import torch
from torch import Tensor

from hostile_cases.commands import COMMANDS, undamaged
from hostile_cases.damage import damaged, edit, place
from hostile_cases.outcomes import Trial

_FILES = {
    "generate": ("average.safetensors",),
    "attention": ("average.safetensors",),
    "average": ("run/snapshot-00000012.safetensors", "run/snapshot-00000024.safetensors"),
    "resume": ("run/state-00000024.safetensors", "run/state-00000012.safetensors"),
}
_BOMB_BYTES = 1600 << 20
# Larger tensors get no correct checksum, because computing it would take more memory than a case may take.
_CHECKED_NUMBERS = 1 << 24


def checkpoint(random: Random) -> Trial:
    """Damages a checkpoint, or crafts one, and returns a command that reads it."""
    name = random.choice(list(_FILES))
    path = Path(random.choice(_FILES[name]))
    if random.random() < 0.5:
        path.write_bytes(damaged(path.read_bytes(), random))
        return Trial(COMMANDS[name], undamaged[name])
    if random.random() < 0.25:
        _rezip(path, random)
        return Trial(COMMANDS[name], undamaged[name])
    _craft(path, random)
    return Trial(COMMANDS[name], ANY)


def _rezip(path: Path, random: Random) -> None:
    """Rewrites the archive with two entries swapped, with compression, or with an entry that unpacks to 1.6 GB."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    one, other = random.sample(list(entries), 2)
    compression = zipfile.ZIP_STORED
    bomb = ""
    match random.randrange(3):
        case 0:
            entries[one], entries[other] = entries[other], entries[one]
        case 1:
            compression = zipfile.ZIP_DEFLATED
        case 2:
            bomb = one
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            if name == bomb:
                _write_zeros(archive, name)
            else:
                archive.writestr(name, data)


def _write_zeros(archive: zipfile.ZipFile, name: str) -> None:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    block = bytes(16 << 20)
    with archive.open(entry, "w", force_zip64=True) as file:
        for _ in range(_BOMB_BYTES // len(block)):
            file.write(block)


def _craft(path: Path, random: Random) -> None:
    """Edits the content, and corrects the checksum if the new content can have one."""
    whole = torch.load(path, weights_only=True)
    assert whole["sha256"] == _checksum(whole["content"])
    if random.random() < 0.1:
        edit(whole, random)
    else:
        random.choice((edit, _odd_tensor, _odd_tensor, _odd_object))(whole["content"], random)
    with suppress(Exception):  # some content has no checksum: it is too large, refers to itself, or is missing
        whole["sha256"] = _checksum(whole["content"])
    torch.save(whole, path)


def _checksum(content: Any) -> str:
    digest = hashlib.sha256()
    for part in _parts(content):
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Yields the bytes that the checksum covers.

    This is a second implementation of the format, so that a fault in the first one is noticed.
    """
    if isinstance(value, Tensor):
        if value.numel() > _CHECKED_NUMBERS:
            raise MemoryError
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, dict):
        yield f"mapping of {len(value)}".encode()
        for key, item in value.items():
            yield from _parts(key)
            yield from _parts(item)
    elif isinstance(value, (list, tuple)):
        yield f"{type(value).__name__} of {len(value)}".encode()
        for item in value:
            yield from _parts(item)
    else:
        yield f"{type(value).__name__} {value!r}".encode()


def _odd_tensor(content: dict[str, Any], random: Random) -> None:
    """Replaces a random tensor by a tensor of an odd kind, type or shape."""
    while True:
        container, key = place(content, random)
        if isinstance(container[key], Tensor):
            break
    value = container[key]
    claimed = [1 << random.randint(0, 17), 1 << random.randint(0, 17)]  # a shape of up to 64 GiB
    container[key] = random.choice(
        (
            value.to("meta"),
            value.to_sparse(),
            torch.zeros(1).expand(claimed),
            torch.zeros(claimed, device="meta"),
            value.new_zeros(0),
            value.unsqueeze(0),
            value.to(random.choice((torch.complex64, torch.int8, torch.bool, torch.float64, torch.bfloat16))),
            torch.quantize_per_tensor(value.float(), 0.1, 0, torch.qint8),
            value.tolist(),
        )
    )


def _odd_object(content: dict[str, Any], random: Random) -> None:
    """Replaces a random value by an object that a checkpoint never holds."""
    container, key = place(content, random)
    odd = (container, content, [content], b"bytes", set(), 1j, torch.float32, torch.Size([1]), OrderedDict(), "\udcff")
    container[key] = random.choice(odd)
