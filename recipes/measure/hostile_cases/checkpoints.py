"""Damaged checkpoints, and crafted checkpoints, which have odd content with a correct SHA-256."""

import hashlib
import json
from pathlib import Path
from random import Random
from unittest.mock import ANY

from hostile_cases.commands import COMMANDS, undamaged
from hostile_cases.damage import damaged, edit
from hostile_cases.outcomes import Trial

_FILES = {
    "generate": ("average.safetensors",),
    "attention": ("average.safetensors",),
    "average": ("run/snapshot-00000012.safetensors", "run/snapshot-00000024.safetensors"),
    "resume": ("run/state-00000024.safetensors", "run/state-00000012.safetensors"),
}


def checkpoint(random: Random) -> Trial:
    """Damages a checkpoint, or crafts one, and returns a command that reads it."""
    name = random.choice(list(_FILES))
    path = Path(random.choice(_FILES[name]))
    if name == "resume" or random.random() < 0.5:
        path.write_bytes(damaged(path.read_bytes(), random))
        return Trial(COMMANDS[name], undamaged[name])
    _craft(path, random)
    return Trial(COMMANDS[name], ANY)


def _craft(path: Path, random: Random) -> None:
    """Edits the architecture, the text processing or the description of the tensors, and corrects the SHA-256.

    This is a second implementation of the format, so that a fault in the first one is noticed.
    """
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    described, numbers = json.loads(content[8:end]), content[end:]
    metadata = described.pop("__metadata__")
    document = json.loads(metadata["nmt"])
    assert metadata.pop("sha256") == _sha256(metadata, described, numbers)
    edit(random.choice(({"model": document["model"], "text": document["text"]}, described)), random)
    metadata["nmt"] = json.dumps(document, default=str)
    header = json.loads(json.dumps(described, default=str))
    sha256 = _sha256(metadata, header, numbers)
    text = json.dumps({"__metadata__": {**metadata, "sha256": sha256}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)


def _sha256(metadata: object, described: object, numbers: bytes) -> str:
    return hashlib.sha256(json.dumps([metadata, described]).encode() + numbers).hexdigest()
