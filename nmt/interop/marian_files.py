"""Reads the files of Marian, which are not trusted: models (.bin, .npz), YAML and lexical shortlists. Needs no torch.

The formats are those of src/common/binary.cpp, src/common/io.cpp and src/data/shortlist.cpp of marian-dev.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np

from nmt.errors import NmtError, importing
from nmt.files import loading

Array = np.ndarray
OPTIONS = "special:model.yml"  # the tensor with the YAML of a model's options
# The factor by which the inputs of a product become 8 bits, which nmt does not need.
_INPUT_FACTOR = "_QuantMultA"
FLOAT32, INT8, TEXT = 0x404, 0x4101, 0x101  # types of numbers in a binary model
_NUMPY_TYPES = {FLOAT32: "<f4", INT8: "i1", TEXT: "u1"}
_LONGEST_NAME, _MOST_DIMENSIONS, _DEEPEST_YAML = 200, 4, 5
_SHORTLIST = 0xF11A48D5013417F5  # what a binary shortlist begins with
ADVICE = "download it again"


class Stored(NamedTuple):
    """A tensor in a file, perhaps mapped: what `read` returns, times a factor, which is an array of one number."""

    numbers: Array
    factor: Array = np.ones(1, np.float32)

    def read(self) -> Array:
        """Returns the numbers of the tensor."""
        return self.numbers / self.factor


def read_yaml(data: bytes, path: Path) -> dict[str, Any]:
    """Returns the values in YAML by name: text, or lists and dicts of it.

    YAML that is deeply nested or has aliases is refused, because a short text of that kind could fill the memory.
    """
    with importing("pyyaml", "a model of Marian", extra="marian"):
        import yaml
    depth = 0
    try:
        for event in yaml.parse(data, yaml.CBaseLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST_YAML or isinstance(event, yaml.AliasEvent):
                raise ValueError("it is deeply nested or has aliases")
        values = yaml.load(data, yaml.CBaseLoader)
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise NmtError(f"{path} is not YAML as Marian writes it ({reason:.100}); download it again") from error
    if not isinstance(values, dict):
        raise NmtError(f"{path} has no options by name; download it again")
    return values


def read_model(path: Path) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Returns the options of a model, and its tensors by name.

    Raises:
        NmtError: the file is damaged, or has other types of numbers.
    """
    tensors = _read_npz(path) if path.suffix == ".npz" else _read_binary(path)
    if OPTIONS not in tensors:
        raise NmtError(f"{path} does not say its architecture in {OPTIONS}; take a model of Marian 1.5 or newer")
    return read_yaml(tensors.pop(OPTIONS).numbers.tobytes().rstrip(b"\0"), path), tensors


class _Reader:
    """Returns the numbers of a mapped file one after the other.

    Attributes:
        damaged: what is raised if the file ends too early or contradicts itself.
    """

    def __init__(self, path: Path, content: str) -> None:
        self.damaged = NmtError(f"{path} is not {content}; download it again")
        with loading(path, "download it again"):
            if not path.stat().st_size:  # cannot be mapped
                raise self.damaged
            self._data, self._position = np.memmap(path, np.uint8, "r"), 0

    def take(self, count: int, kind: str) -> Array:
        """Returns the next numbers of this type."""
        end = self._position + count * np.dtype(kind).itemsize
        if end > len(self._data):
            raise self.damaged
        first, self._position = self._position, end
        return self._data[first:end].view(kind)


def _read_binary(path: Path) -> dict[str, Stored]:
    """Returns the tensors of a binary model.

    It has its version, the number of tensors, then the length of the name, the type, the dimensions and the bytes
    of each tensor, all names, all shapes, padding, and all contents.
    """
    reader = _Reader(path, "a whole binary model of Marian")
    version, count = reader.take(2, "<u8").tolist()
    headers = reader.take(4 * count, "<u8").reshape(-1, 4).tolist()
    if version != 1 or any(name > _LONGEST_NAME or dimensions > _MOST_DIMENSIONS for name, _, dimensions, _ in headers):
        raise reader.damaged
    names = [reader.take(length, "u1").tobytes().rstrip(b"\0").decode(errors="replace") for length, *_ in headers]
    shapes = [tuple(reader.take(dimensions, "<i4").tolist()) for _, _, dimensions, _ in headers]
    reader.take(int(reader.take(1, "<u8")[0]), "u1")
    tensors = {}
    for name, shape, (_, kind, _, size) in zip(names, shapes, headers, strict=True):
        content, length = reader.take(size, "u1"), math.prod(shape)
        if name.endswith(_INPUT_FACTOR):
            continue
        if kind not in _NUMPY_TYPES:
            kinds = f"{path} has numbers of type {kind:#x} in {name!r:.80}, but nmt reads float32 and int8"
            raise NmtError(f"{kinds}; take another file of this model")
        end = length * np.dtype(_NUMPY_TYPES[kind]).itemsize
        if min(shape, default=0) < 1 or end + 4 * (kind == INT8) > size:
            raise reader.damaged
        numbers, factor = content[:end].view(_NUMPY_TYPES[kind]), np.ones(1, np.float32)
        if kind == INT8 and not 0 < (factor := content[end : end + 4].view("<f4"))[0] < math.inf:
            raise reader.damaged
        # A matrix of 8 bits lies in memory as its transpose, unless it is an embedding.
        is_transposed = kind == INT8 and not name.endswith("Wemb")
        tensors[name] = Stored(numbers.reshape(shape[::-1]).T if is_transposed else numbers.reshape(shape), factor)
    return tensors


def _read_npz(path: Path) -> dict[str, Stored]:
    try:
        with ZipFile(path) as archive:
            size = sum(file.file_size for file in archive.infolist())
        if size > path.stat().st_size:
            raise ValueError("it is compressed, which Marian's models are not")
        with np.load(path, allow_pickle=False) as file:
            tensors = {name: file[name] for name in file.files}
        if wrong := [name for name in tensors if tensors[name].dtype.kind != "f" and name != OPTIONS]:
            raise ValueError(f"{wrong[0]:.60} has no floats")
    except Exception as error:  # for a damaged file, the libraries may raise any exception
        raise NmtError(f"{path} is not a whole .npz model of Marian ({error!s:.100}); download it again") from error
    return {name: Stored(tensor) for name, tensor in tensors.items()}


def read_shortlist(path: Path, source_size: int, target_size: int) -> list[Array]:
    """Returns the target ids that are candidates of every sentence, and then those of each source id.

    Raises:
        NmtError: the file is damaged, or is for vocabularies with other numbers of pieces.
    """
    reader = _Reader(path, "a whole binary shortlist for these vocabularies")
    begin, _, always, _, offsets_size, ids_size = reader.take(6, "<u8").tolist()
    if begin != _SHORTLIST or offsets_size != source_size + 1:
        raise reader.damaged
    offsets, ids = reader.take(offsets_size, "<u8"), reader.take(ids_size, "<u4")
    if offsets[0] or offsets[-1] != ids_size or (offsets[1:] < offsets[:-1]).any() or (ids >= target_size).any():
        raise reader.damaged
    return [np.arange(min(always, target_size)), *np.split(ids, offsets[1:-1].astype(np.int64))]
