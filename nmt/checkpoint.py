"""Writes and reads checkpoints, and builds the models in them.

A checkpoint is self-contained: it has the architecture, the text processing with its subword models, the weights
and the provenance. `nmt.checkpoint_format` defines the format of the file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.checkpoint_format import (
    SUFFIX,
    TAKE_ANOTHER,
    TRAINING,
    Content,
    codec_of,
    is_weight,
    read_file,
    without_prefix,
    write_model,
)
from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.files import Output, replaced_file
from nmt.model.architectures import parameter_count
from nmt.model.device import without_memory
from nmt.model.transformer import Transformer
from nmt.resources import memory_bytes
from nmt.text.codec import TextCodec

WEIGHT_BYTES = 4  # of a parameter
# The largest number of tensors that a message lists.
_NAMED_TENSORS = 100


@dataclass(frozen=True)
class Computed:
    """A tensor that is computed part by part, so that a large one need not fit into memory.

    Attributes:
        parts: the tensors that it is computed from, along the first axis; each gives a part of it.
        change: computes a part.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: Sequence["Tensor | Computed"]
    change: Callable[[Tensor], Tensor]

    def changed(self) -> Iterator[Tensor]:
        """Yields the parts of the tensor."""
        return (self.change(materialized(part)) for part in self.parts)


def materialized(tensor: Tensor | Computed) -> Tensor:
    """Returns a tensor, which is computed if it has to be."""
    return tensor if isinstance(tensor, Tensor) else torch.cat(list(tensor.changed()))


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint.

    Attributes:
        model_config: the architecture.
        codec: the text processing.
        weights: the model's tensors by name, on the CPU.
        provenance: how the weights were made: versions, options, data, updates.
        training: what training needs to resume, besides tensors. It is empty unless this is a training state.
        training_tensors: tensors that training needs to resume, by name.
        computed: weights that are computed when the checkpoint is written.

    `provenance` and `training` have what JSON has, so lists take the place of tuples when a checkpoint is read.
    """

    model_config: ModelConfig
    codec: TextCodec
    weights: dict[str, Tensor]
    provenance: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    training_tensors: dict[str, Tensor] = field(default_factory=dict)
    computed: Mapping[str, Computed] = field(default_factory=dict)


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Writes a checkpoint file. It replaces the file at `path` only when it is complete and on disk."""
    with replaced_file(path, "free some space or choose another folder (one that exists)") as file:
        write_checkpoint(checkpoint, file)


def write_checkpoint(checkpoint: Checkpoint, file: Output) -> None:
    """Writes a checkpoint to an open file."""
    tensors = checkpoint.weights | {TRAINING + name: t for name, t in checkpoint.training_tensors.items()}
    contents = contents_of(tensors) | contents_of(checkpoint.computed)
    model_config, codec = checkpoint.model_config, checkpoint.codec
    write_model(file, model_config, codec, contents, checkpoint.provenance, checkpoint.training)


def contents_of(tensors: Mapping[str, Tensor | Computed]) -> dict[str, Content]:
    """Returns tensors as `nmt.checkpoint_format` writes them."""

    def content(tensor: Tensor | Computed) -> Content:
        def parts() -> Iterator[memoryview]:
            for part in [tensor] if isinstance(tensor, Tensor) else tensor.changed():
                yield part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data

        return Content(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), parts)

    return {name: content(tensor) for name, tensor in tensors.items()}


def load_checkpoint(path: str | Path, *, verify: bool = False, whole: bool = True) -> Checkpoint:
    """Returns the checkpoint in a file. All tensors are on the CPU and mapped into memory.

    The SHA-256 of a file of up to 256 MiB is checked.

    Args:
        path: a file that nmt wrote, such as best.safetensors of a run folder.
        verify: whether to check the SHA-256 of a larger file, too.
        whole: whether to refuse a file with only the weights that have learned (--lora, --freeze embeddings).

    Raises:
        DamagedError: the file is not a checkpoint, or is damaged.
        NmtError: the file is missing or was written by another version of nmt.
    """
    document, tensors = read_file(Path(path), verify=verify)
    if whole and "learned_from" in document["provenance"]:
        raise NmtError(
            f"{path} has only the weights that have learnt since {document['provenance']['learned_from']['path']}; "
            f"take best{SUFFIX}, or nmt average-checkpoints {path} --output FILE makes a whole model of a snapshot"
        )
    return Checkpoint(
        ModelConfig.from_dict(document["model"], str(path)),
        codec_of(document, tensors, path),
        {name: tensor for name, tensor in tensors.items() if is_weight(name)},
        document["provenance"],
        document["training"],
        without_prefix(tensors, TRAINING),
    )


def build_model(checkpoint: Checkpoint, origin: str | Path) -> Transformer:
    """Returns the model with the checkpoint's weights, in evaluation mode (without dropout), on the CPU.

    Weights in 32 bits are not copied; those in 16 bits become 32 bits.

    Args:
        origin: the name of the checkpoint's file in error messages.

    Raises:
        NmtError: the weights do not fit the architecture.
    """
    model = meta_model(checkpoint.model_config, checkpoint.codec)  # the sizes in the checkpoint are not trusted
    _check_fit(model.state_dict(), checkpoint, origin)
    model.load_state_dict({name: weight.float() for name, weight in checkpoint.weights.items()}, assign=True)
    return model.eval()


def load_weights(model: Transformer, checkpoint: Checkpoint, origin: str | Path) -> None:
    """Copies the checkpoint's weights into a model; of a file with only the weights that have learned, these."""
    only_learned = "learned_from" in checkpoint.provenance
    _check_fit(learned_weights(model) if only_learned else model.state_dict(), checkpoint, origin)
    model.load_state_dict(checkpoint.weights, strict=not only_learned)


def learned_weights(model: Transformer) -> dict[str, Tensor]:
    """Returns the weights of a model that learn, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def new_model(config: ModelConfig, codec: TextCodec) -> Transformer:
    """Returns a model with random weights."""
    check_memory(config, codec, WEIGHT_BYTES)
    return _new_model(config, codec)


def meta_model(config: ModelConfig, codec: TextCodec) -> Transformer:
    """Returns a model whose weights have sizes, but no memory."""
    with without_memory():
        return _new_model(config, codec)


def _new_model(config: ModelConfig, codec: TextCodec) -> Transformer:
    return Transformer(config, len(codec.source), len(codec.target), shared=codec.config.joint_vocab)


def check_memory(config: ModelConfig, codec: TextCodec, bytes_each: float) -> None:
    """Raises an error if a model needs more memory than the machine has.

    Without this check, the system may grant more memory than there is, and kill the process when it uses the memory.
    """
    count = parameter_count(config, codec)
    if count * bytes_each > memory_bytes():
        raise NmtError(
            f"a model of {count:,} parameters does not fit into memory; choose a smaller one, for example with a lower "
            f"--d-model, --d-ff or --vocab-size"
        )


def _check_fit(expected: Mapping[str, Tensor], checkpoint: Checkpoint, origin: str | Path) -> None:
    differences = list(differences_of(expected, checkpoint.weights))
    if differences:
        listed = differences[:_NAMED_TENSORS]
        if len(differences) > len(listed):
            listed.append(f"and {len(differences) - len(listed):,} more")
        raise NmtError(f"{origin} does not fit the architecture: {'; '.join(listed)}; {TAKE_ANOTHER}")


def differences_of(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> Iterator[str]:
    """Yields, in words, how weights differ from the expected ones in names, shapes and types."""
    for name, tensor in expected.items():
        weight = weights.get(name)
        if weight is None:
            yield f"{name} is missing"
        elif tensor.shape != weight.shape:
            yield f"{name} is {tuple(weight.shape)} instead of {tuple(tensor.shape)}"
        elif weight.dtype not in (tensor.dtype, torch.float16, torch.bfloat16):
            yield f"{name} is of {weight.dtype} instead of {tensor.dtype}"
    for name in weights.keys() - expected.keys():
        yield f"{name!r:.80} is unexpected"


def joint_codec(codec: TextCodec, other: TextCodec) -> TextCodec | None:
    """Returns the text processing of two models with the directions of both; None if their pieces may differ."""
    corpus_fields = {"directions": (), "endings": ()}  # say nothing about the pieces
    if codec.to_dict() | corpus_fields != other.to_dict() | corpus_fields:
        return None
    first, second = codec.config.directions, other.config.directions
    directions = dict.fromkeys((*first, *second)) if first and second else ()  # () if those of a model are unknown
    return TextCodec(replace(codec.config, directions=tuple(directions)), codec.source, codec.target)
