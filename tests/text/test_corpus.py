"""Reading text: where lines end, which files are refused, and with which message."""

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import pytest
from commands import write
from hypothesis import given
from hypothesis import strategies as st

from nmt.errors import NmtError
from nmt.text.corpus import parallel_paths, read_lines, read_rows

any_line = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])).filter(
    lambda line: not line.endswith("\r") and not line.startswith("\ufeff")
)


@given(lines=st.lists(any_line), ending=st.sampled_from(["\n", "\r\n"]), suffix=st.sampled_from(["en", "en.gz"]))
def test_lines_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ending: str, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"text.{suffix}"
    write(path, "".join(line + ending for line in lines).encode())
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize("data, lines", [
    (b"", []),
    (b"a\nb", ["a", "b"]),
    (b"a\r\nb\r", ["a", "b\r"]),
    (b"a\rb\n", ["a\rb"]),
    (b"a\r\r\n", ["a\r"]),
    ("a\u2028b\x85c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\x1cf"]),
    ("\ufeffa\n\ufeffb\n".encode(), ["a", "\ufeffb"]),  # a byte order mark
])  # fmt: skip
def test_only_a_newline_ends_a_line(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path / "text", data))) == lines


def test_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("eins\u2028zwei\nä\n".encode() + b"\xff\n")))
    lines = read_lines("-")
    assert [next(lines), next(lines)] == ["eins\u2028zwei", "ä"]
    with pytest.raises(NmtError, match="standard input, line 3: byte 1"):
        next(lines)


def test_the_message_about_bytes_that_are_not_utf8_names_file_line_and_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "latin1.de.gz", b"gut\nauch gut\nf\xfcr\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["gut", "auch gut"]  # streamed: what comes before the fault is there
    with pytest.raises(NmtError, match=r"latin1\.de\.gz, line 3: byte 2 \(0xfc\) is not UTF-8; .*iconv -f CP1252 -t"):
        next(lines)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_the_advice_for_a_file_with_the_mark_of_utf_16_names_it(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(NmtError, match=r"line 1: byte 1 .*iconv -f UTF-16 -t UTF-8"):
        next(read_lines(write(tmp_path / "x.txt", "\ufeffab\n".encode(encoding))))


COMPRESSED = gzip.compress(Random(0).randbytes(50_000).hex().encode())


@pytest.mark.parametrize("data", [
    COMPRESSED[:-1000],
    COMPRESSED[:20_000] + bytes(100) + COMPRESSED[20_100:],
    COMPRESSED[:10] + b"\xff" + COMPRESSED[11:],  # the byte behind the header gives a kind of block that does not exist
    b"this is no gzip file\n",
], ids=["truncated", "overwritten", "unknown block", "plain text"])  # fmt: skip
def test_a_damaged_gzip_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "text.en.gz"
    path.write_bytes(data)
    with pytest.raises(NmtError, match=r"text\.en\.gz is not a complete \.gz file \(.+\); compress it or copy it"):
        list(read_lines(path))


@pytest.mark.parametrize("data, program", [
    (COMPRESSED, "gzip"),
    (lzma.compress(b"text\n"), "xz"),
    (bz2.compress(b"text\n"), "bzip2"),
    (bytes.fromhex("28b52ffd0405290000746578740a"), "zstd"),
])  # fmt: skip
def test_a_compressed_file_needs_a_name_that_says_so(tmp_path: Path, data: bytes, program: str) -> None:
    (tmp_path / "text.en").write_bytes(data)
    with pytest.raises(NmtError, match=rf"text\.en is compressed; decompress it with {program} -dc, into a pipe"):
        list(read_lines(tmp_path / "text.en"))


def test_xz_files_are_read_like_gzip_files(tmp_path: Path) -> None:
    (tmp_path / "text.en.xz").write_bytes(lzma.compress("ä\nb\n".encode()))
    write(tmp_path / "text.de.gz", b"c\nd\n")
    paths = parallel_paths(str(tmp_path / "text"), "en", "de")
    assert list(read_rows(*paths)) == [("ä", "c"), ("b", "d")]
    (tmp_path / "text.en.xz").write_bytes(lzma.compress(b"text\n" * 999)[:-20])
    with pytest.raises(NmtError, match=r"text\.en\.xz is not a complete \.xz file"):
        list(read_lines(paths[0]))


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match="nowhere does not exist"):
        list(read_lines(tmp_path / "nowhere"))
    with pytest.raises(NmtError, match="is a folder"):
        list(read_lines(tmp_path))


def test_missing_permissions_are_reported(unprivileged: Callable[[], AbstractContextManager[None]]) -> None:
    with unprivileged():
        with pytest.raises(NmtError, match=r"^closed/text cannot be read \(permission denied"):
            list(read_lines("closed/text"))
        with pytest.raises(NmtError, match=r"exists; the folder closed cannot be listed \(Permission denied\), so"):
            parallel_paths("closed/train", "en", "de")
        with pytest.raises(NmtError, match=r"exists; the folder unlisted cannot be listed \(Permission denied\), so"):
            parallel_paths("unlisted/train", "en", "de")


@pytest.mark.parametrize("prefix, message", [
    ("train", r"neither .*/train\.de nor .*/train\.de\.gz exists; .*train\.en, train\.fr"),
    ("tain", r"no file in .* starts with 'tain'"),
    ("no/train", "folder .*/no cannot be listed"),
    ("train.fr/train", r"train\.fr cannot be listed"),
    ("x" * 5000, r"no file in .* starts with 'xxx"),
])  # fmt: skip
def test_the_message_about_a_missing_side_says_what_was_found(tmp_path: Path, prefix: str, message: str) -> None:
    for name in ("train.en", "train.fr"):
        (tmp_path / name).touch()
    with pytest.raises(NmtError, match=message):
        parallel_paths(str(tmp_path / prefix), "en", "de")


def test_a_prefix_finds_plain_files_before_compressed_files(tmp_path: Path) -> None:
    write(tmp_path / "c.v2.en", b"a\n")
    write(tmp_path / "c.v2.de.gz", b"b\n")
    paths = parallel_paths(str(tmp_path / "c.v2"), "en", "de")
    assert [path.name for path in paths] == ["c.v2.en", "c.v2.de.gz"]
    assert list(read_rows(*paths)) == [("a", "b")]
    write(tmp_path / "c.v2.de", b"plain\n")
    assert parallel_paths(str(tmp_path / "c.v2"), "en", "de")[1].name == "c.v2.de"


@pytest.mark.parametrize("source, target, counts", [(2, 5, "2 lines but .*b has 5;"), (1003, 0, "1,003 .*b has 0;")])
def test_the_line_counts_of_misaligned_files_are_named(tmp_path: Path, source: int, target: int, counts: str) -> None:
    paths = write(tmp_path / "a", b"x\n" * source), write(tmp_path / "b", b"y\n" * target)
    with pytest.raises(NmtError, match=rf"a has {counts} the two must be aligned line by line"):
        list(read_rows(*paths))


def test_pairs_are_streamed(tmp_path: Path) -> None:
    paths = write(tmp_path / "a", b"x\n\xff\n"), write(tmp_path / "b", b"y\n")
    assert next(read_rows(*paths)) == ("x", "y")
