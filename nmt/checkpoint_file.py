"""Writes checkpoint files with torch.save, and reads them without trusting them.

A checkpoint file is an uncompressed zip archive. The pickled content is in the entry data.pkl, and the numbers of each
tensor are in a separate entry. The file has the SHA-256 of its content, so that damage is always detected.

A malicious file may have a correct checksum. Therefore every size is compared with the size of the file before memory
is allocated, and tensors are read only after everything else was checked. They are read, not mapped into memory: if the
file becomes shorter meanwhile, reading raises an error, but a mapping would kill the process.
"""

import errno
import hashlib
import math
import os
import stat
import struct
import sys
import zipfile
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.errors import Damaged, NmtError
from nmt.files import Output
from nmt.model.runtime import is_out_of_memory
from nmt.plain_pickle import plain_data

SCHEMA_VERSION = 3
# Version 2 differs only in the names of some tensors.
_READABLE = (2, 3)
TAKE_ANOTHER = "use another checkpoint"
_MAGIC = "nmt checkpoint"
_NUMBER_BYTES = 4
# The offset, in the local header of an entry, of the lengths of the name and of the extra field.
_LENGTHS_AT = 26
_PLAIN = (type(None), bool, int, float, str, bytes)


def write_content(content: Mapping[str, Any], file: Output) -> None:
    """Writes plain data and contiguous fp32 tensors as a checkpoint file.

    Raises:
        NmtError: the file cannot be written.
    """
    record = {"format": _MAGIC, "schema_version": SCHEMA_VERSION, "sha256": _sha256(content), "content": content}
    try:
        torch.save(record, file, pickle_protocol=2)  # type: ignore[arg-type] # torch calls only `write` and `flush`
    except RuntimeError as error:  # torch raises this if a write fails; the reason is in its context
        cause: BaseException | None = error
        while cause and not isinstance(cause, NmtError):
            cause = cause.__context__
        raise cause or error from None


def read_content(path: Path) -> dict[str, Any]:
    """Returns the content of a checkpoint file: plain data, and contiguous fp32 tensors on the CPU.

    Raises:
        Damaged: the file is not a checkpoint, or is damaged.
        NmtError: the file is missing, cannot be read, is too large for the memory, or has another schema version.
    """
    with opened(path) as file:
        try:
            archive = _Archive(file)
            record = archive.data()
            _check_header(record, path)
            archive.read_tensors()
            content, checksum = record["content"], _sha256(record["content"])
        except NmtError:
            raise
        except Exception as error:  # for a damaged file, zipfile and torch may raise any exception
            raise _explained(error, file, path) from error
    if not isinstance(content, dict) or checksum != record.get("sha256"):
        raise Damaged(f"{path} is damaged: its content does not have the checksum in the file; {TAKE_ANOTHER}")
    return content


def _explained(error: Exception, file: BufferedReader, path: Path) -> NmtError:
    """Returns the error that says why a checkpoint file cannot be read."""
    if is_out_of_memory(error):
        return NmtError(f"{path} does not fit into memory; free some memory or use another machine")
    if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a wrong offset in the file causes EINVAL
        return NmtError(f"{path} cannot be read ({error.strerror}); check the disk and try again")
    if _is_text(file):
        return Damaged(f"{path} is a text file, not a checkpoint of nmt; give text by an option such as --input")
    return Damaged(f"{path} is not a checkpoint of nmt, or it is damaged or truncated; {TAKE_ANOTHER}")


def _is_text(file: BufferedReader) -> bool:
    file.seek(0)
    beginning = file.read(1000)
    try:
        beginning[: beginning.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError:
        return False
    return b"\n" in beginning and b"\0" not in beginning


def opened(path: Path) -> BufferedReader:
    """Returns the open file of a checkpoint.

    Raises:
        NmtError: it is missing, is not a regular file, or cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise NmtError(f"{path} is a folder, not a checkpoint; give a file in it, such as {path / 'average.pt'}")
        if not stat.S_ISREG(mode):
            raise NmtError(f"{path} is a pipe or a device, not a checkpoint; copy the checkpoint into a file")
        return path.open("rb")
    except FileNotFoundError as error:
        raise NmtError(f"{path} does not exist; check the name, or train a model with nmt train first") from error
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); check its name and permissions") from error
    except ValueError as error:  # the name contains a NUL character
        raise NmtError(f"{str(path)!r} cannot be the name of a file; check the name") from error


class _Archive:
    """The zip archive that torch.save writes.

    Raises:
        ValueError: an entry is compressed, or all entries together claim more bytes than the file has.
    """

    def __init__(self, file: BufferedReader) -> None:
        self._file, self._zip = file, zipfile.ZipFile(file)
        self._entries = uncompressed_entries(file)
        self._tensors: list[tuple[Tensor, zipfile.ZipInfo]] = []

    def data(self) -> Any:
        """Returns the content of the archive. The numbers of its tensors are uninitialised until `read_tensors`."""
        return plain_data(self._zip.read(self._entries["data.pkl"]), self._tensor)

    def _tensor(self, key: str, shape: tuple[int, ...]) -> Tensor:
        entry = self._entries.pop(f"data/{key}")  # removed, so that no two tensors share an entry
        if math.prod(shape) * _NUMBER_BYTES != entry.file_size:
            raise ValueError("a tensor whose shape does not fit the size of its entry")
        self._tensors.append((torch.empty(shape), entry))
        return self._tensors[-1][0]

    def read_tensors(self) -> None:
        """Reads the numbers of all tensors that `data` returned."""
        swapped = self._zip.read(self._entries["byteorder"]).decode() != sys.byteorder
        for tensor, entry in self._tensors:
            self._read(tensor, entry)
            if swapped:
                tensor.numpy().byteswap(inplace=True)

    def _read(self, tensor: Tensor, entry: zipfile.ZipInfo) -> None:
        # Reading with `zipfile` would also compute the checksum of zip, which makes loading a third slower.
        self._file.seek(data_start(self._file, entry))
        if self._file.readinto(_numbers(tensor)) != entry.file_size:
            raise EOFError


def data_start(file: BufferedReader, entry: zipfile.ZipInfo) -> int:
    """Returns the offset in the file at which the data of an uncompressed entry begins."""
    file.seek(entry.header_offset + _LENGTHS_AT)
    name_bytes, extra_bytes = struct.unpack("<HH", file.read(4))
    return file.tell() + int(name_bytes) + int(extra_bytes)


def uncompressed_entries(file: BufferedReader) -> dict[str, zipfile.ZipInfo]:
    """Returns the entries of the zip archive that torch.save writes, by their names without the archive's name.

    Raises:
        ValueError: an entry is compressed, or all entries together claim more bytes than the file has.
    """
    entries = zipfile.ZipFile(file).infolist()
    if any(e.compress_type != zipfile.ZIP_STORED or e.file_size != e.compress_size for e in entries):
        raise ValueError("an archive with compressed entries")
    if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
        raise ValueError("an archive with entries that overlap")
    return {entry.filename.partition("/")[2]: entry for entry in entries}


def _check_header(record: Any, path: Path) -> None:
    if not isinstance(record, dict) or record.get("format") != _MAGIC:
        raise Damaged(f"{path} is a torch file, but not a checkpoint of nmt; give one that nmt train wrote")
    version = record.get("schema_version")
    if version not in _READABLE:
        raise NmtError(
            f"{path} has checkpoint schema version {version!r:.20}, but this nmt reads "
            f"{' and '.join(map(str, _READABLE))}; use the version of nmt that wrote it"
        )


def _is_storable(tensor: Tensor) -> bool:
    """Returns whether a tensor is contiguous, fp32, and uses all of its storage."""
    return (
        tensor.dtype == torch.float32
        and tensor.is_contiguous()
        and tensor.untyped_storage().nbytes() == tensor.numel() * _NUMBER_BYTES
    )


def _numbers(tensor: Tensor) -> memoryview:
    """Returns the bytes of a tensor's numbers. If the tensor is on the CPU, writing to them changes the tensor."""
    return tensor.detach().cpu().view(-1).view(torch.uint8).numpy().data


def _sha256(content: Any) -> str:
    """Returns the SHA-256 of nested plain data and tensors, in hexadecimal.

    Raises:
        TypeError: the content has a value that `read_content` would refuse.
    """
    digest = hashlib.sha256()
    _add_to(digest, content)
    return digest.hexdigest()


def _add_to(digest: "hashlib._Hash", value: Any) -> None:
    kind = type(value)
    if kind is Tensor and _is_storable(value):
        digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
        digest.update(_numbers(value))
    elif kind is dict:
        digest.update(f"mapping of {len(value)}".encode())
        for key in value:
            _add_to(digest, key)
            _add_to(digest, value[key])
    elif kind in (list, tuple):
        digest.update(f"{kind.__name__} of {len(value)}".encode())
        for item in value:
            _add_to(digest, item)
    elif kind in _PLAIN:
        digest.update(f"{kind.__name__} {value!r}".encode())
    else:
        raise TypeError(f"a checkpoint may hold plain data and contiguous fp32 tensors, but not this {kind.__name__}")
