"""The format of checkpoint files: safetensors, with a JSON document in the metadata.

The document has everything that is not a tensor. Opening a file runs no code from it, maps its tensors into memory
instead of reading them, and does not need torch unless the tensors are asked for.

The metadata also has the SHA-256 of the whole content, which finds any damage. The safetensors library itself
finds files that are cut short and headers that contradict themselves.
"""

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open

from nmt.config import ModelConfig
from nmt.errors import DamagedError, NmtError
from nmt.files import Output
from nmt.text.codec import TextCodec
from nmt.text.text_config import TextConfig

_T = TypeVar("_T")
SUFFIX = ".safetensors"
SCHEMA_VERSION = 4
TAKE_ANOTHER = "use another checkpoint"
# The entry of the provenance with calibrations; see `nmt.translate.confidence`.
CALIBRATIONS = "calibrations"
# Files up to this size, in bytes, are compared with their SHA-256 whenever they are opened.
HASHED_BYTES = 256 << 20
# The key of the metadata in the header of a file; and its keys: the JSON document, and the SHA-256.
_METADATA, _DOCUMENT, _SHA256 = "__metadata__", "nmt", "sha256"
# Beginnings of names of tensors. Weights have none of them.
TEXT, TRAINING = "text.", "training."
# The types of tensors in a file, by the names that numpy and torch have for them, and their bytes.
_TYPES = {"float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2), "uint8": ("U8", 1)}
_LENGTH = struct.Struct("<Q")  # of the header, before it


def is_weight(name: str) -> bool:
    """Returns whether the tensor of this name is a weight of the model."""
    return not name.startswith((TEXT, TRAINING))


def without_prefix(tensors: Mapping[str, _T], prefix: str) -> dict[str, _T]:
    """Returns the tensors whose names have a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class Content(NamedTuple):
    """A tensor for a file, whose numbers need not be in memory at once.

    Attributes:
        dtype: a name of `_TYPES`.
        parts: yields the bytes of the tensor, part by part. For a pipe, it is called twice: for the SHA-256, and
            to write.
    """

    dtype: str
    shape: tuple[int, ...]
    parts: Callable[[], Iterable[memoryview]]


def write_file(file: Output, document: Mapping[str, Any], tensors: Mapping[str, np.ndarray | Content]) -> None:
    """Writes a checkpoint file: a document for JSON, and tensors."""
    contents = {name: _content(each) if isinstance(each, np.ndarray) else each for name, each in tensors.items()}
    write_tensors(file, {_DOCUMENT: json.dumps({"schema_version": SCHEMA_VERSION, **document})}, contents, hashed=True)


def write_model(
    file: Output,
    model_config: ModelConfig,
    codec: TextCodec,
    tensors: Mapping[str, np.ndarray | Content],
    provenance: Mapping[str, Any],
    training: Mapping[str, Any] | None = None,
) -> None:
    """Writes a checkpoint file; the arguments are the attributes of `nmt.checkpoint.Checkpoint`."""
    text = codec.to_dict()
    models = {TEXT + name: text.pop(name) for name in ("source_model", "target_model")}
    stored = {name: np.frombuffer(model, np.uint8) for name, model in models.items() if model is not None}
    document = {"model": model_config.to_dict(), "text": text, "provenance": provenance, "training": training or {}}
    write_file(file, document, {**tensors, **stored})


def write_tensors(
    file: Output, metadata: dict[str, str], contents: Mapping[str, Content], *, hashed: bool = False
) -> None:
    """Writes a safetensors file.

    The library's own function is not used: it gives the file other permissions, and does not say that a disk is full.

    Args:
        hashed: whether the metadata get the SHA-256 of the content.
    """
    size = {name: _TYPES[content.dtype][1] for name, content in contents.items()}
    names = sorted(contents, key=lambda name: (-size[name], -math.prod(contents[name].shape), name))
    ends = [0, *accumulate(size[name] * math.prod(contents[name].shape) for name in names)]
    described = {
        name: {"dtype": _TYPES[contents[name].dtype][0], "shape": contents[name].shape, "data_offsets": offsets}
        for name, offsets in zip(names, pairwise(ends), strict=True)
    }

    def parts() -> Iterator[memoryview]:
        return chain.from_iterable(contents[name].parts() for name in names)

    digest = _digest(metadata, described)
    if hashed and not file.is_temporary:
        for part in parts():
            digest.update(part)
    if hashed:
        metadata = metadata | {_SHA256: digest.hexdigest()}  # a temporary file gets another one in the end
    header = json.dumps({_METADATA: metadata, **described}).encode()
    header += b" " * (-(_LENGTH.size + len(header)) % 64)  # processors prefer numbers at a multiple of 64 bytes
    file.write(_LENGTH.pack(len(header)) + header)
    for part in parts():
        file.write(part)
        if hashed and file.is_temporary:
            digest.update(part)
    if hashed and file.is_temporary:
        file.overwrite(_LENGTH.size + header.index(metadata[_SHA256].encode()), digest.hexdigest().encode())


def _content(array: np.ndarray) -> Content:
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return Content(array.dtype.name, array.shape, lambda: [data])


def read_file(path: Path, *, verify: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the document of a checkpoint file and its tensors, which are mapped into memory.

    Args:
        verify: whether to compare a file with its SHA-256 even if it is larger than HASHED_BYTES.

    Raises:
        DamagedError: the file is not a checkpoint, or is damaged.
    """
    with _opened(path, "pt", verify=verify) as (document, file):
        return document, {name: file.get_tensor(name) for name in list(file.keys())}


def read_header(path: str | Path, *, verify: bool = False) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """Returns the document of a checkpoint file and the shapes of its weights. See `read_file` for `verify`."""
    with _opened(Path(path), "np", verify=verify) as (document, file):
        return document, {name: tuple(file.get_slice(name).get_shape()) for name in filter(is_weight, file.keys())}


def read_digest(path: str | Path) -> str:
    """Returns the SHA-256 that a checkpoint has without calibrations; its own is compared with its content."""
    with _opened(Path(path), "np", verify=True) as (document, file):
        stored = str(file.metadata()[_SHA256])
    return _computed(Path(path), without=CALIBRATIONS)[1] if CALIBRATIONS in document["provenance"] else stored


def read_rows(path: Path, name: str, rows: Any) -> Any:
    """Returns a copy of some rows of a tensor. It leaves none of the file in the memory of this process."""
    try:
        with safe_open(path, "pt") as file:
            return file.get_tensor(name)[rows]
    except (OSError, SafetensorError) as error:
        raise NmtError(f"{path}, which is still needed, cannot be read ({error}); put the file back") from error


def read_model(path: str | Path) -> tuple[ModelConfig, TextCodec, dict[str, Any]]:
    """Returns the architecture, the text processing and the provenance of a checkpoint."""
    with _opened(Path(path), "np") as (document, file):
        models = {name: file.get_tensor(name) for name in list(file.keys()) if name.startswith(TEXT)}
    codec = codec_of(document, models, path)
    return ModelConfig.from_dict(document["model"], str(path)), codec, document["provenance"]


def latest(provenance: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the provenance of a checkpoint, or of the last one that it averages."""
    while "averaged" in provenance:
        provenance = provenance["last"]
    return provenance


def read_codec(path: str | Path) -> TextCodec:
    """Returns the text processing of a checkpoint, with the subword models."""
    return read_model(path)[1]


def read_text_config(path: str | Path) -> TextConfig:
    """Returns what determines the text processing of a checkpoint, without the subword models.

    The file is not compared with its SHA-256: what reads the weights does that.
    """
    with _opened(Path(path), "np", hashed=False) as (document, _):
        return TextConfig.from_dict(document["text"], str(path))


def read_provenance(path: str | Path) -> dict[str, Any]:
    """Returns how a checkpoint was made. Like `read_text_config`, it does not compare the file with its SHA-256."""
    with _opened(Path(path), "np", hashed=False) as (document, _):
        return document["provenance"]


def read_model_config(path: str | Path) -> ModelConfig:
    """Returns the architecture of a checkpoint."""
    return ModelConfig.from_dict(read_header(path)[0]["model"], str(path))


def codec_of(document: Mapping[str, Any], tensors: Mapping[str, Any], origin: str | Path) -> TextCodec:
    """Returns the text processing in a document, with the subword models among the tensors."""
    tensor_of = {name: tensors.get(TEXT + name) for name in ("source_model", "target_model")}
    models = {name: None if tensor is None else np.asarray(tensor).tobytes() for name, tensor in tensor_of.items()}
    return TextCodec.from_dict({**document["text"], **models}, str(origin))


@contextmanager
def _opened(
    path: Path, framework: str, *, verify: bool = False, hashed: bool = True
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yields the document of a checkpoint file and the open file. See `read_file` for the arguments and errors.

    Args:
        hashed: whether a file of at most HASHED_BYTES is compared with its SHA-256.
    """
    try:
        if path.is_dir():
            example = next(iter(sorted(path.glob(f"*{SUFFIX}"))), None)  # average.safetensors, if there is one
            train = f"it has none; nmt train {path} --save-dir run trains a model if it is a data folder"
            advice = f"give a file in it, such as {example}" if example else train
            if (path / "config.json").exists():
                has_weights = any(path.glob("*.safetensors*")) or any(path.glob("pytorch_model*.bin*"))
                imported = (
                    f"nmt import huggingface {path} --output model.safetensors makes one of a model of Hugging Face"
                )
                advice = imported if has_weights else "give the checkpoint that this exported folder was made of"
            raise NmtError(f"{path} is a folder, not a checkpoint; {advice}")
        # `safe_open` names no reason if it cannot open a file, and takes no names that are not UTF-8.
        with path.open("rb") as opened, safe_open(f"/dev/fd/{opened.fileno()}", framework=framework) as file:
            document = _document(file, path)
            if verify or (hashed and path.stat().st_size <= HASHED_BYTES):
                _verify(path)
            yield document, file
    except FileNotFoundError as error:
        raise NmtError(f"{path} does not exist; check the name, or train a model with nmt train first") from error
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror or error}); check its name and permissions") from error
    except SafetensorError as error:
        raise DamagedError(f"{path} is not a checkpoint of nmt, or it is damaged ({error}); {TAKE_ANOTHER}") from error


def _document(file: Any, path: str | Path) -> dict[str, Any]:
    text = (file.metadata() or {}).get(_DOCUMENT)
    if text is None:
        raise DamagedError(
            f"{path} is a file of safetensors, but not a checkpoint of nmt; nmt import reads models of other toolkits"
        )
    try:
        document = json.loads(text)
        version = document["schema_version"]
        if version != SCHEMA_VERSION:
            raise NmtError(
                f"{path} has checkpoint schema version {version!r:.20}, but this nmt reads {SCHEMA_VERSION}; use the "
                f"version of nmt that wrote it"
            )
        return {name: dict(document[name]) for name in ("model", "text", "provenance", "training")}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged ({error!r:.80} in its metadata); {TAKE_ANOTHER}") from error


def _verify(path: Path) -> None:
    stored, computed = _computed(path)
    if stored != computed:
        raise DamagedError(f"{path} is damaged: its content does not have its SHA-256; {TAKE_ANOTHER}")


def _computed(path: Path, without: str = "") -> tuple[str | None, str]:
    """Returns the SHA-256 in a file, and that of its content, perhaps without an entry of the provenance."""
    # The file is read, not mapped: an error of the disk then is an exception, but for a mapping it ends the process.
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        described = json.loads(file.read(length))
        metadata = described.pop(_METADATA)
        stored = metadata.pop(_SHA256, None)
        if without:
            document = json.loads(metadata[_DOCUMENT])
            del document["provenance"][without]
            metadata[_DOCUMENT] = json.dumps(document)
        digest = _digest(metadata, described)
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
        return stored, digest.hexdigest()


def _digest(metadata: Mapping[str, str], described: Mapping[str, Any]) -> "hashlib._Hash":
    """Begins the SHA-256 of a file's metadata, its description of the tensors, and its numbers, which follow."""
    return hashlib.sha256(json.dumps([metadata, described]).encode())
