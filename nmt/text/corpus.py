"""Reads text and parallel text line by line."""

import bz2
import codecs
import gzip
import lzma
import os
import stat
import sys
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import BytesIO
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Any, Literal

from nmt import console
from nmt.errors import NmtError, importing
from nmt.files import STDIO


@contextmanager
def _open_zstd(path: str | Path, mode: Literal["rb", "wb"] = "rb") -> Iterator[Any]:
    with importing("backports.zstd", str(path), extra="zstd"):
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    try:
        with zstd.open(path, mode) as file:
            yield file
    except zstd.ZstdError as error:
        raise EOFError(str(error)) from error


# What reads compressed files, by the end of their names.
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": _open_zstd}
# How compressed files begin, by the program that decompresses them.
_BEGINNINGS = {"gzip": b"\x1f\x8b", "xz": b"\xfd7zXZ", "bzip2": b"BZh", "zstd": b"\x28\xb5\x2f\xfd"}


def read_lines(path: str | Path) -> Generator[str, None, None]:
    """Yields the lines of a file, without their line breaks. See `opened`."""
    with opened(path) as file:
        yield from decoded_lines(file, name_of(path))


def decoded_lines(file: Iterable[bytes], name: str, first: int = 1) -> Iterator[str]:
    """Yields the remaining lines of an open file. The next line has the number `first`."""
    for line_number, raw in enumerate(file, start=first):
        if line_number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        if raw.endswith(b"\n"):
            raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            program = next((name for name, start in _BEGINNINGS.items() if raw.startswith(start)), None)
            if line_number == 1 and program:
                raise NmtError(
                    f"{name} is compressed; decompress it with {program} -dc, into a pipe or another file"
                ) from error
            if line_number == 1 and raw.startswith((b"PK\x03\x04", b"%PDF")):
                raise NmtError(f"{name} is no text, but a document; see nmt translate-file and nmt align") from error
            likely = "UTF-16" if line_number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "CP1252"
            raise NmtError(
                f"{name}, line {line_number}: byte {error.start + 1} ({raw[error.start]:#04x}) is not UTF-8; "
                f"convert the file from its encoding, such as with iconv -f {likely} -t UTF-8"
            ) from error
        yield line


def table_lines(file: IO[bytes], name: str) -> tuple[Iterator[str], bool]:
    """Returns the lines of a table, and whether it is in UTF-16, in which spreadsheets put quotes around cells."""
    start = next(iter(file), b"")
    raw: Iterable[bytes] = chain([start], file)
    if encoding := utf_16_of(start):
        try:
            raw = BytesIO(b"".join(raw).decode(encoding).encode())
        except UnicodeDecodeError as error:
            raise NmtError(f"{name} is damaged: it is not UTF-16 at byte {error.start:,}; save it again") from error
    lines = decoded_lines(raw, name)
    first = list(islice(lines, 2))
    if len(first) == 1:  # perhaps with the line breaks of old Macs
        first = first[0].removesuffix("\r").split("\r")
    return chain(first, lines), bool(encoding)


def utf_16_of(start: bytes) -> str:
    """Returns the kind of UTF-16 that a file with this start is in, or an empty text."""
    if start.startswith((codecs.BOM_UTF16_BE, codecs.BOM_UTF16_LE)):
        return "utf-16"
    return ("utf-16-le" if start[0] else "utf-16-be") if b"\0" in start[:2] else ""


@contextmanager
def opened(path: str | Path) -> Iterator[IO[bytes]]:
    """Yields a file of text as bytes. `-` is standard input, and files with an end of COMPRESSED are decompressed."""
    with reading(name_of(path)), _open(path) as file:
        yield file


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns errors in opening and reading a file of text into sentences."""
    try:
        yield
    except FileNotFoundError as error:
        raise NmtError(f"{name} does not exist; check the path") from error
    except IsADirectoryError as error:
        raise NmtError(f"{name} is a folder; give the path of a text file") from error
    except PermissionError as error:
        raise NmtError(f"{name} cannot be read (permission denied); change its permissions") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise NmtError(f"{name} cannot be read ({error.strerror}); check the file and its disk") from error
        broken = f"{name} is not a complete {Path(name).suffix} file ({error!s:.100})"
        raise NmtError(f"{broken}; compress it or copy it again") from error


def name_of(path: str | Path) -> str:
    """Returns what messages call a file: its path, or `standard input` for `-`."""
    return "standard input" if str(path) == STDIO else str(path)


def _open(path: str | Path) -> AbstractContextManager[IO[bytes]]:
    if Path(path).suffix in COMPRESSED:
        return COMPRESSED[Path(path).suffix](path)
    if str(path) != STDIO:
        return open(path, "rb")
    if sys.stdin.isatty():
        console.info("type or paste sentences, one on each line; Ctrl-D ends the input")
    try:
        # Not `sys.stdin` itself: Python aborts at its end if another thread still waits for a line of that object.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except (OSError, ValueError):  # it is not a file, as in tests
        return nullcontext(sys.stdin.buffer)


def parallel_paths(prefix: str, source_lang: str, target_lang: str) -> tuple[Path, Path]:
    """Returns the source and the target file of a corpus: PREFIX.LANG, or if it is missing a compressed one."""
    return _one_side(prefix, source_lang), _one_side(prefix, target_lang)


def has_side(prefix: str, lang: str) -> bool:
    """Returns whether a corpus has a file in a language."""
    return any(os.path.lexists(f"{prefix}.{lang}{suffix}") for suffix in ("", *COMPRESSED))


def files_of(path: str, langs: tuple[str, str]) -> Sequence[str | Path]:
    """Returns the files of a corpus: PREFIX.LANG of both languages, or if one of them is missing, the path itself."""
    is_prefix = all(has_side(path, lang) for lang in langs)
    return parallel_paths(path, *langs) if is_prefix else [path]


def memory_files(
    path: str, languages: tuple[str, str], asked: Sequence[str]
) -> tuple[Sequence[str | Path], tuple[str, str]]:
    """Returns the files of a memory, and what they call the languages: as the user or as the model does."""
    source_lang, target_lang = (code or lang for code, lang in zip(asked or languages, languages, strict=True))
    named = source_lang, target_lang
    for langs in (named, languages):
        paths = files_of(path, langs)
        if len(paths) > 1:
            return paths, langs
    return paths, named


def _one_side(prefix: str, lang: str) -> Path:
    plain = Path(f"{prefix}.{lang}")
    for path in (plain, *(Path(f"{plain}{suffix}") for suffix in COMPRESSED)):
        if os.path.lexists(path):  # opening it says what is wrong with a link or a folder
            if not is_regular(path) and not path.is_dir():
                raise NmtError(f"{path} is a pipe or a device, but a corpus is read several times; give a file")
            return path
    folder, stem = plain.parent, Path(prefix).name
    try:
        similar = sorted(name for name in os.listdir(folder) if name.startswith(stem))
        hint = f"no file in {folder} starts with {stem!r}, so check the prefix"
        if similar:
            hint = f"{folder} has {console.listed(similar)}, so check the prefix and the languages"
    except OSError as error:
        hint = f"the folder {folder} cannot be listed ({error.strerror}), so check the prefix and the permissions"
    raise NmtError(f"neither {plain} nor {plain}.gz exists; {hint}")


def read_rows(*paths: str | Path) -> Iterator[tuple[str, ...]]:
    """Yields line i of all files together."""
    files = [read_lines(path) for path in paths]
    for rows, row in enumerate(zip_longest(*files)):
        if None in row:
            lines = [rows + (line is not None) + sum(1 for _ in file) for line, file in zip(row, files, strict=True)]
            other = next(i for i, count in enumerate(lines) if count != lines[0])
            raise NmtError(unequal(paths[0], lines[0], paths[other], lines[other], translates=other == 1))
        yield row


def unequal(path: str | Path, lines: int, other: str | Path, other_lines: int, *, translates: bool) -> str:
    """Returns the sentence about two files with different numbers of lines.

    Args:
        translates: whether the other file is a translation. Both are then read again for the place where they diverge.
    """
    diverging = ""
    can_reread = translates and STDIO not in (str(path), str(other))
    pairs = zip(read_lines(path), read_lines(other), strict=False) if can_reread else ()
    for line_number, pair in enumerate(pairs, start=1):
        shorter, longer = sorted(len(line) + 10 for line in pair)
        if longer > 3 * shorter:
            diverging = f", and line {line_number:,} is the first where one is three times as long as the other"
            break
    return (
        f"{name_of(path)} has {console.counted(lines, 'line')} but {name_of(other)} has {other_lines:,}{diverging}; "
        f"the two must be aligned line by line"
    )


def is_regular(path: str | Path) -> bool:
    """Returns whether input comes from a regular file. What does not exist counts as one."""
    try:
        status = os.fstat(sys.stdin.fileno()) if str(path) == STDIO else os.stat(path)
    except (OSError, ValueError):  # a stream that is no file, as in tests
        return True
    return stat.S_ISREG(status.st_mode)
