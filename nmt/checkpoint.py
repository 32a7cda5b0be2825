"""Checkpoints: what is in one, and how it gets to disk and back whole.

A checkpoint is self-contained (architecture, text processing with its subword models, weights, where it came from) and
holds tensors and plain data only, so that opening one never runs code from it. A run folder has

    snapshot-00012000.pt   weights, for averaging and translating
    state-00012000.pt      the same and what training needs to go on; the newest two
    best.pt                the snapshot with the best validation score

and every file has the SHA-256 of its content in it, so that no damage goes unnoticed.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.files import Output, replaced_file
from nmt.model.transformer import Transformer
from nmt.text.codec import TextCodec

SCHEMA_VERSION = 3
# Names of tensors in schema version 2, and what they are called now.
_RENAMED = {"memory_attention": "cross_attention", "_positions.table_LD": "_positions.table"}
_MAGIC = "nmt checkpoint"
_NAMED_DIFFERENCES = 3
_TAKE_ANOTHER = "take another one"


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
    """Writes a checkpoint file, which replaces the one at `path` when it is whole and on disk.

    Raises:
        NmtError: the folder cannot be written to.
    """
    with replaced_file(path, "free some space or choose another folder (one that exists)") as file:
        write_checkpoint(checkpoint, file)


def write_checkpoint(checkpoint: Checkpoint, file: Output) -> None:
    """Writes a checkpoint to an open file.

    Raises:
        NmtError: it cannot be written.
    """
    content = {
        "model": checkpoint.model_config.to_dict(),
        "text": checkpoint.codec.to_dict(),
        "weights": checkpoint.weights,
        "provenance": checkpoint.provenance,
        "training": checkpoint.training,
    }
    whole = {"format": _MAGIC, "schema_version": SCHEMA_VERSION, "sha256": _sha256(content), "content": content}
    try:
        torch.save(whole, file)  # type: ignore[arg-type] # all that it needs is `write` and `flush`
    except RuntimeError as error:  # which torch raises when a write fails, with the reason behind it
        cause: BaseException | None = error
        while cause and not isinstance(cause, NmtError):
            cause = cause.__context__
        raise cause or error from None


def _sha256(content: Any) -> str:
    """A digest of nested plain data and tensors, in whatever layout they are stored."""
    digest = hashlib.sha256()
    _add_to(digest, content)
    return digest.hexdigest()


def _add_to(digest: "hashlib._Hash", value: Any) -> None:
    if isinstance(value, Tensor):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        digest.update(f"mapping of {len(value)}".encode())
        for key in value:
            _add_to(digest, key)
            _add_to(digest, value[key])
    elif isinstance(value, (list, tuple)):
        digest.update(f"{type(value).__name__} of {len(value)}".encode())
        for item in value:
            _add_to(digest, item)
    else:
        digest.update(f"{type(value).__name__} {value!r}".encode())


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads a checkpoint onto the CPU.

    Raises:
        NmtError: missing, not a checkpoint, damaged, or written in another schema version.
    """
    content = _read(Path(path))
    return Checkpoint(
        ModelConfig.from_dict(content["model"], str(path)),
        TextCodec.from_dict(content["text"], str(path)),
        {_current_name(name): tensor for name, tensor in content["weights"].items()},
        content["provenance"],
        content["training"],
    )


def _current_name(name: str) -> str:
    for old, new in _RENAMED.items():
        name = name.replace(old, new)
    return name


def _read(path: Path) -> dict[str, Any]:
    whole = _read_file(path)
    if not isinstance(whole, dict) or whole.get("format") != _MAGIC:
        raise NmtError(f"{path} is a torch file, but no checkpoint of nmt; name one that nmt train wrote")
    if whole.get("schema_version") not in (2, SCHEMA_VERSION):
        raise NmtError(
            f"{path} has checkpoint schema version {whole.get('schema_version')}, this nmt reads {SCHEMA_VERSION}; "
            f"read it with the nmt that wrote it"
        )
    content = whole.get("content")
    if not isinstance(content, dict) or _sha256(content) != whole.get("sha256"):
        raise NmtError(
            f"{path} is damaged: its content does not have the checksum it was written with; {_TAKE_ANOTHER}"
        )
    return content


def _read_file(path: Path) -> Any:
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
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file makes torch raise whatever the damage leads to
            raise NmtError(f"{path} is no checkpoint of nmt, or it is damaged or truncated; {_TAKE_ANOTHER}") from error


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
        raise NmtError(f"{origin} does not fit the architecture: {'; '.join(differences)}; {_TAKE_ANOTHER}")
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


def remove_older(folder: Path, kind: str, keep: int) -> None:
    """Removes all but the newest `keep` files `kind`-NUMBER.pt."""
    for old in numbered(folder, kind)[:-keep]:
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
    changed = other.model_config.changed_from(first.model_config.to_dict())
    found = [f"{name} is {theirs} instead of {mine}" for name, mine, theirs in changed]
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
        if not found:
            raise NmtError(f"{place} holds no snapshots; give the --save-dir of a training that has written some")
        if len(found) < last:
            raise NmtError(
                f"{place} holds {len(found)} snapshots, --last asks for {last}; ask for fewer, or have nmt train write "
                f"them more often (--save-updates, --save-minutes)"
            )
        paths += found[-last:]
    return paths
