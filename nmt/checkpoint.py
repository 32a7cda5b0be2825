"""Checkpoints: what is in one, the model in it, and their average.

A checkpoint is self-contained (architecture, text processing with its subword models, weights, where it came from).
`nmt.checkpoint_file` reads and writes its file. A run folder has

    snapshot-00012000.pt   weights, for averaging and translating
    state-00012000.pt      the same and what training needs to resume; the newest two
    best.pt                the snapshot with the best validation score
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nmt.checkpoint_file import TAKE_ANOTHER, read_content, write_content
from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.files import Output, replaced_file
from nmt.model.cost import parameters
from nmt.model.runtime import is_out_of_memory
from nmt.model.transformer import Transformer
from nmt.resources import memory_bytes
from nmt.text.codec import TextCodec

# Names of tensors in schema version 2, and what they are called now.
_RENAMED = {"memory_attention": "cross_attention", "_positions.table_LD": "_positions.table"}
_WEIGHT_BYTES = 4
# A message lists no more tensors than this, and no more differences between two checkpoints than that.
_NAMED_TENSORS, _NAMED_DIFFERENCES = 100, 3


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
        "weights": dict(checkpoint.weights),
        "provenance": checkpoint.provenance,
        "training": checkpoint.training,
    }
    write_content(content, file)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads a checkpoint onto the CPU.

    Raises:
        NmtError: missing, not a checkpoint, damaged, or written in another schema version.
    """
    content = read_content(Path(path))
    _check_parts(content, path)
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


def _check_parts(content: Mapping[str, Any], origin: str | Path) -> None:
    """Raises NmtError unless the content has exactly the parts of a checkpoint, each a dict with names as keys."""
    expected = {"model", "text", "weights", "provenance", "training"}
    wrong = expected ^ content.keys() or {
        part for part, values in content.items() if type(values) is not dict or not _all_are(str, values)
    }
    if not wrong and not _all_are(Tensor, content["weights"].values()):
        wrong = {"weights"}
    if wrong:
        raise NmtError(
            f"{origin} was written by another version of nmt or is damaged "
            f"({', '.join(sorted(f'{part!r:.20}' for part in wrong))} is wrong); {TAKE_ANOTHER}"
        )


def _all_are(kind: type, values: Iterable[Any]) -> bool:
    return all(type(value) is kind for value in values)


def build_model(checkpoint: Checkpoint, origin: str | Path) -> Transformer:
    """Returns the model with the checkpoint's weights. It uses their memory, without a copy.

    Raises:
        NmtError: the weights do not fit the architecture; names the missing, unexpected and misshapen tensors.
    """
    with torch.device("meta"), _WithoutRandomWeights():  # takes no memory, whatever sizes the checkpoint claims
        model = _untrained(checkpoint.model_config, checkpoint.codec)
    _check_fit(model, checkpoint, origin)
    model.load_state_dict(checkpoint.weights, assign=True)
    return model


def load_weights(model: Transformer, checkpoint: Checkpoint, origin: str | Path) -> None:
    """Copies the checkpoint's weights into a model of its architecture.

    Raises:
        NmtError: as `build_model`.
    """
    _check_fit(model, checkpoint, origin)
    model.load_state_dict(checkpoint.weights)


def new_model(config: ModelConfig, codec: TextCodec) -> Transformer:
    """Returns a model with random weights.

    Raises:
        NmtError: it does not fit into memory.
    """
    check_memory(config, codec, _WEIGHT_BYTES)
    try:
        return _untrained(config, codec)
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise _too_large(config, codec) from error
        raise


def check_memory(config: ModelConfig, codec: TextCodec, bytes_each: int) -> None:
    """Raises NmtError if the model would take more than all memory, at `bytes_each` for a parameter.

    The system may grant more memory than there is, and end the process when it is used.
    """
    if _parameters(config, codec) * bytes_each > memory_bytes():
        raise _too_large(config, codec)


def _parameters(config: ModelConfig, codec: TextCodec) -> int:
    own_sources = 0 if codec.config.joint_vocab else len(codec.source)
    return parameters(config, own_sources + len(codec.target))


def _too_large(config: ModelConfig, codec: TextCodec) -> NmtError:
    return NmtError(
        f"a model of {_parameters(config, codec):,} parameters does not fit into memory; choose a smaller one, for "
        f"example with a lower --d-model, --d-ff or --vocab-size"
    )


class _WithoutRandomWeights(TorchFunctionMode):
    """Skips the initialisation of embeddings: on the meta device it would load torch's compiler for a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)


def _untrained(config: ModelConfig, codec: TextCodec) -> Transformer:
    return Transformer(config, len(codec.source), len(codec.target), shared=codec.config.joint_vocab)


def _check_fit(model: Transformer, checkpoint: Checkpoint, origin: str | Path) -> None:
    differences = list(_differences(model.state_dict(), checkpoint.weights))
    if differences:
        listed = differences[:_NAMED_TENSORS]
        if len(differences) > len(listed):
            listed.append(f"and {len(differences) - len(listed):,} more")
        raise NmtError(f"{origin} does not fit the architecture: {'; '.join(listed)}; {TAKE_ANOTHER}")


def _differences(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Iterator[str]:
    for name, tensor in expected.items():
        if name not in found:
            yield f"{name} is missing"
        elif tensor.shape != found[name].shape:
            yield f"{name} is {tuple(found[name].shape)} instead of {tuple(tensor.shape)}"
    for name in found.keys() - expected.keys():
        yield f"{name!r:.80} is unexpected"


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
