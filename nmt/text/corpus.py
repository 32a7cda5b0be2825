"""Line-aligned reading of parallel text: plain files, .gz files and standard input, streamed.

A line ends at "\\n" and nowhere else, so that both sides of a corpus are cut alike by every tool that counts lines: a
form feed, U+0085 or U+2028 is text. A "\\r" directly before the "\\n" is dropped, and so is a byte order mark at the
beginning of a file, which some editors write.
"""

import codecs
import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import IO

from nmt.errors import NmtError

STDIN = "-"


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a file, without their ends; `-` is standard input and `.gz` is decompressed.

    Raises:
        NmtError: the file cannot be read, is damaged, or a line is not UTF-8.
    """
    name = "standard input" if str(path) == STDIN else str(path)
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, start=1):
                yield _decode(raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw, name, number)
    except FileNotFoundError as error:
        raise NmtError(f"{name} does not exist; check the path") from error
    except IsADirectoryError as error:
        raise NmtError(f"{name} is a folder; give the path of a text file") from error
    except PermissionError as error:
        raise NmtError(f"{name} may not be read (permission denied); change its permissions or copy it") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise NmtError(f"{name} is not a whole gzip file ({error}); compress or copy it anew") from error
    except OSError as error:
        raise NmtError(f"{name} cannot be read ({error.strerror or error}); check the file and its disk") from error


def _open(path: str | Path) -> AbstractContextManager[IO[bytes]]:
    if str(path) == STDIN:
        return nullcontext(sys.stdin.buffer)
    if str(path).endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return open(path, "rb")


def _decode(raw: bytes, name: str, number: int) -> str:
    if raw.endswith(b"\n"):
        raw = raw[:-2] if raw.endswith(b"\r\n") else raw[:-1]
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NmtError(
            f"{name}, line {number}: byte {error.start + 1} ({raw[error.start]:#04x}) is not UTF-8; "
            f"convert the file, for example with iconv -t UTF-8"
        ) from error


def parallel_paths(prefix: str, source_lang: str, target_lang: str) -> tuple[Path, Path]:
    """The two files of a corpus: PREFIX.en, or else PREFIX.en.gz, and likewise for the target.

    Raises:
        NmtError: a side is missing, or the system does not let us look for it.
    """
    return _one_side(prefix, source_lang), _one_side(prefix, target_lang)


def _one_side(prefix: str, lang: str) -> Path:
    wanted = [Path(f"{prefix}.{lang}"), Path(f"{prefix}.{lang}.gz")]
    for path in wanted:
        if _exists(path):
            return path
    raise NmtError(f"neither {wanted[0]} nor {wanted[1]} exists; {_what_exists(wanted[0].parent, Path(prefix).name)}")


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise NmtError(
            f"{path} cannot be read ({error.strerror}); check the prefix and the permissions of its folders"
        ) from error
    return True


def _what_exists(folder: Path, stem: str) -> str:
    """The end of the message about a missing file: what lies beside where it was looked for."""
    if not folder.is_dir():
        return f"the folder {folder} does not exist either, so check the prefix"
    try:
        near = sorted(name for name in os.listdir(folder) if name.startswith(stem))
    except OSError as error:
        return f"the folder {folder} cannot be listed ({error.strerror}), so check the prefix and its permissions"
    if not near:
        return f"nothing in {folder} starts with {stem!r}, so check the prefix"
    listed = ", ".join(near[:5]) + (", …" if len(near) > 5 else "")
    return f"{folder} has {listed}, so check the prefix and the languages"


def read_pairs(source_path: str | Path, target_path: str | Path) -> Iterator[tuple[str, str]]:
    """Pairs of lines of the two files.

    Raises:
        NmtError: as `read_lines`, or at the end, if one file has more lines than the other.
    """
    source, target = read_lines(source_path), read_lines(target_path)
    for pairs, (source_line, target_line) in enumerate(zip_longest(source, target)):
        if source_line is None or target_line is None:
            rest = 1 + sum(1 for _ in (target if source_line is None else source))
            counts = (pairs, pairs + rest) if source_line is None else (pairs + rest, pairs)
            raise NmtError(
                f"{source_path} has {counts[0]:,} lines but {target_path} has {counts[1]:,}; "
                f"the two must be aligned line by line"
            )
        yield source_line, target_line
