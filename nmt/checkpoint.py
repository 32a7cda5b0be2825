"""Checkpoints: what is in one, and how it gets to disk and back whole.

A checkpoint is self-contained (architecture, text processing with its subword models, weights, where it came from) and
holds tensors and plain data only, so that opening one never runs code from it. A run folder has

    snapshot-00012000.pt   weights, for averaging and translating
    state-00012000.pt      the same and what training needs to go on; the newest two
    best.pt                the snapshot with the best validation score
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.model.transformer import Transformer
from nmt.text.codec import TextCodec

SCHEMA_VERSION = 1
_MAGIC = "nmt checkpoint"
_STATES_KEPT = 2
_NAMED_DIFFERENCES = 3


@dataclass(frozen=True)
class Checkpoint:
    """Attributes:
    model_config, codec: the architecture, and the way from raw text to ids and back.
    weights: the model's tensors by name, on the CPU.
    provenance: plain data on where this came from (versions, options, data, updates).
    training: plain data and tensors that training needs to go on; empty in a snapshot.
    """

    model_config: ModelConfig
    codec: TextCodec
    weights: dict[str, Tensor]
    provenance: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)

    def snapshot(self) -> "Checkpoint":
        """The same without what only training needs."""
        return replace(self, training={})


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes beside `path`, makes sure it is on disk, and renames: `path` is never half-written.

    Raises:
        NmtError: the folder cannot be written to.
    """
    content = {
        "format": _MAGIC,
        "schema_version": SCHEMA_VERSION,
        "model": checkpoint.model_config.to_dict(),
        "text": checkpoint.codec.to_dict(),
        "weights": checkpoint.weights,
        "provenance": checkpoint.provenance,
        "training": checkpoint.training,
    }
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        _sync_folder(path.parent)
    except (OSError, RuntimeError) as error:  # torch reports a failed write as a RuntimeError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        raise NmtError(f"{path} cannot be written ({reason}); free some space or choose another folder") from error
    finally:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads a checkpoint onto the CPU.

    Raises:
        NmtError: missing, not a checkpoint, damaged, or written in another schema version.
    """
    content = _read(Path(path))
    if content.get("schema_version") != SCHEMA_VERSION:
        raise NmtError(
            f"{path} has checkpoint schema version {content.get('schema_version')}, this nmt reads {SCHEMA_VERSION}; "
            f"read it with the nmt that wrote it"
        )
    return Checkpoint(
        ModelConfig.from_dict(content["model"], str(path)),
        TextCodec.from_dict(content["text"], str(path)),
        content["weights"],
        content["provenance"],
        content["training"],
    )


def _read(path: Path) -> dict[str, Any]:
    if path.is_dir():
        raise NmtError(f"{path} is a folder, not a checkpoint; name a file in it, such as {path / 'average.pt'}")
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise NmtError(f"{path} does not exist; check the name, or train with nmt train first") from error
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    with file:
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file makes torch raise whatever the damage leads to
            raise NmtError(
                f"{path} is no checkpoint of nmt, or it is damaged or truncated; take another one"
            ) from error
    if not isinstance(content, dict) or content.get("format") != _MAGIC:
        raise NmtError(f"{path} is a torch file, but no checkpoint of nmt; name one that nmt train wrote")
    return content


def build_model(checkpoint: Checkpoint, origin: str | Path) -> Transformer:
    """The model with the checkpoint's weights.

    Raises:
        NmtError: the weights do not fit the architecture; names every missing, unexpected and misshapen tensor.
    """
    model = new_model(checkpoint.model_config, checkpoint.codec)
    load_weights(model, checkpoint, origin)
    return model


def load_weights(model: Transformer, checkpoint: Checkpoint, origin: str | Path) -> None:
    """Puts the checkpoint's weights into a model of its architecture.

    Raises:
        NmtError: as `build_model`.
    """
    differences = list(_differences(model.state_dict(), checkpoint.weights))
    if differences:
        raise NmtError(f"{origin} does not fit its own architecture: {'; '.join(differences)}; take another checkpoint")
    model.load_state_dict(checkpoint.weights)


def new_model(config: ModelConfig, codec: TextCodec) -> Transformer:
    return Transformer(config, len(codec.source), len(codec.target), shared=codec.config.joint_vocab)


def _differences(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Iterator[str]:
    for name in expected.keys() - found.keys():
        yield f"{name} is missing"
    for name in found.keys() - expected.keys():
        yield f"{name} is unexpected"
    for name in expected.keys() & found.keys():
        if expected[name].shape != found[name].shape:
            yield f"{name} is {tuple(found[name].shape)} instead of {tuple(expected[name].shape)}"


def numbered(folder: Path, kind: str) -> list[Path]:
    """The files `kind`-NUMBER.pt in a run folder, oldest first."""
    pattern = re.compile(rf"{kind}-(\d+)\.pt")
    found = [(int(m[1]), p) for p in folder.glob(f"{kind}-*.pt") if (m := pattern.fullmatch(p.name))]
    return [path for _, path in sorted(found)]


def numbered_path(folder: Path, kind: str, update: int) -> Path:
    return folder / f"{kind}-{update:08d}.pt"


def save_progress(checkpoint: Checkpoint, folder: Path, update: int, keep: int) -> None:
    """Writes a snapshot and a training state; only then removes all but the newest `keep` and two."""
    save_checkpoint(checkpoint.snapshot(), numbered_path(folder, "snapshot", update))
    save_checkpoint(checkpoint, numbered_path(folder, "state", update))
    for old in numbered(folder, "snapshot")[:-keep] + numbered(folder, "state")[:-_STATES_KEPT]:
        old.unlink()


def average_checkpoints(paths: list[Path]) -> Checkpoint:
    """The mean of the checkpoints' weights (paper §6.1), with the architecture and text processing they share.

    Raises:
        NmtError: two differ in architecture, vocabulary or tensors; names the first differences.
    """
    first = last = load_checkpoint(paths[0])
    sums = {name: tensor.double() for name, tensor in first.weights.items()}
    for path in paths[1:]:
        last = load_checkpoint(path)
        _refuse_differences(paths[0], first, path, last)
        for name, tensor in last.weights.items():
            sums[name] += tensor.double()
    means = {name: (total / len(paths)).to(first.weights[name].dtype) for name, total in sums.items()}
    provenance = {"averaged": [str(path) for path in paths], "last": last.provenance}
    return Checkpoint(first.model_config, first.codec, means, provenance)


def _refuse_differences(first_path: Path, first: Checkpoint, path: Path, other: Checkpoint) -> None:
    mine, theirs = first.model_config.to_dict(), other.model_config.to_dict()
    found = [f"{name} is {theirs[name]} instead of {mine[name]}" for name in mine if mine[name] != theirs[name]]
    if first.codec.to_dict() != other.codec.to_dict():
        found.append("the vocabulary or text processing differs")
    found += _differences(first.weights, other.weights)
    if found:
        raise NmtError(
            f"{path} cannot be averaged with {first_path}: {'; '.join(found[:_NAMED_DIFFERENCES])}; "
            f"average checkpoints of one run"
        )


def newest_snapshots(places: Iterable[str], last: int) -> list[Path]:
    """Files as they are named; for a run folder, its newest `last` snapshots.

    Raises:
        NmtError: a folder has fewer snapshots than that.
    """
    paths: list[Path] = []
    for place in map(Path, places):
        if not place.is_dir():
            paths.append(place)
            continue
        found = numbered(place, "snapshot")
        if len(found) < last:
            raise NmtError(
                f"{place} holds {len(found)} snapshots, --last asks for {last}; ask for fewer or train longer"
            )
        paths += found[-last:]
    return paths
