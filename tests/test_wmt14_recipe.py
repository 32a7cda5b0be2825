"""The recipes for WMT14 survive interrupted downloads, damaged archives and bytes that are not UTF-8."""

import gzip
import hashlib
import io
import os
import re
import runpy
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest
from commands import needs_linux, write
from stand_ins import ROOT, run_with

from nmt.resources import usable_cores

LONG = "ä".encode() * 2**20  # in two bytes each, so that none lies in two blocks
# Copies what is missing of the file `served` beside it, as a server does that resumes.
CURL = """#!/usr/bin/env bash
here=${0%/*}
echo "$@" >> "$here/asked"
while [ $# -gt 0 ]; do case $1 in --output) file=$2 ;; --dump-header) head=$2 ;; esac; shift; done
size=$(stat -c %s "$file" 2> /dev/null || echo 0)
if [ "$size" != 0 ] && [ "$size" -ge "$(stat -c %s "$here/served")" ]; then
    echo "HTTP/1.1 302 Found" > "$head"
    echo "HTTP/2 416 " >> "$head"
    exit 22
fi
echo "HTTP/2 206 " > "$head"
tail -c +$((size + 1)) "$here/served" >> "$file"
"""


def copied(file: Path) -> bytes:
    """Returns what utf8.py makes of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["utf8.py", str(file), f"{file}.copy"])
        runpy.run_path(str(ROOT / "recipes" / "utf8.py"))
    return Path(f"{file}.copy").read_bytes()


@pytest.mark.parametrize(("data", "text", "dropped"), [
    (b"a \xff\xfe b\n", b"a  b\n", 2),
    ("Grüße 🙂\r\n\0\ufeff".encode(), "Grüße 🙂\r\n\0\ufeff".encode(), 0),
    (b"cut \xe2\x82\nnext\n", b"cut \nnext\n", 2),
    (b"overlong \xc0\xaf, half a pair \xed\xa0\x80, high \xf4\x90\x80\x80", b"overlong , half a pair , high ", 9),
    (b"end \xf0\x9f\x99", b"end ", 3),
    (b"x" + LONG + b"\xff", b"x" + LONG, 1),
    (b"", b"", 0),
])  # fmt: skip
@pytest.mark.parametrize("name", ["corpus.en", "corpus.en.gz"])
def test_bytes_that_are_not_utf8_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: bytes, text: bytes, dropped: int
) -> None:
    assert copied(write(tmp_path / name, data)) == text
    said = f"{name}: bytes that are not UTF-8 and were left out: {dropped}\n"
    assert capsys.readouterr().err == (said if dropped else "")


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    file = tmp_path / "corpus.en.gz"
    file.write_bytes(gzip.compress(os.urandom(9_000))[:5_000])
    with pytest.raises(SystemExit, match=r"error: .*corpus\.en\.gz is not a complete \.gz file"):
        copied(file)


def archive(name: str) -> bytes:
    """Returns the content of an archive with a text that cannot be compressed."""
    text = os.urandom(20_000)
    if name.endswith(".gz"):
        return gzip.compress(text)
    content, entry = io.BytesIO(), tarfile.TarInfo("text")
    entry.size = len(text)
    with tarfile.open(fileobj=content, mode="w:gz" if name.endswith(".tgz") else "w") as writer:
        writer.addfile(entry, io.BytesIO(text))
    return content.getvalue()


@pytest.mark.parametrize("has_md5", [False, True])
@pytest.mark.parametrize("name", ["a.gz", "a.tgz", "a.tar"])
def test_a_download_goes_on_from_whatever_an_earlier_one_has_left(tmp_path: Path, name: str, has_md5: bool) -> None:
    content, file = archive(name), tmp_path / name
    part, asked = tmp_path / f"{name}.part", tmp_path / "asked"
    (tmp_path / "served").write_bytes(content)
    (tmp_path / "curl").write_text(CURL)
    (tmp_path / "curl").chmod(0o755)
    md5 = [hashlib.md5(content).hexdigest()] * has_md5
    environment = os.environ | {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = '. recipes/common.sh; url=$1 file=$2; download "$url" "$file" "${@:3}"'

    def download(code: int = 0) -> str:
        asked.unlink(missing_ok=True)
        command = ["bash", "-euc", script, "bash", "https://x.invalid/y", str(file), *md5]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert code or (file.read_bytes() == content and not part.exists())
        file.unlink(missing_ok=True)
        return done.stderr

    download()
    assert "--retry 5" in asked.read_text() and "--speed-time 60" in asked.read_text()
    part.write_bytes(content)  # killed before it was renamed
    download()
    assert not asked.exists()
    for left in (content[:9_000], content[:10], b""):
        part.write_bytes(left)
        download()
        assert asked.exists()
    damaged = b"\xff" * len(content)
    part.write_bytes(damaged)  # another file, which the server cannot complete
    assert "could not be downloaded completely" in download(code=1)
    download()
    (tmp_path / "served").write_bytes(content[:-2_000])
    if name != "a.tar" or has_md5:  # a part of the padding of a tar archive may be missing
        assert f"the download of https://x.invalid/y {'does not have' if has_md5 else 'is not a whole'}" in download(1)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["asked", "curl", "served"]


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    """Returns a folder with an `nmt` that does nothing, and a `curl` that fails."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, content in (("nmt", "exit 0"), ("curl", "exit 7")):
        (folder / name).write_text(f"#!/bin/sh\n{content}\n")
        (folder / name).chmod(0o755)
    return folder


def test_another_site_can_be_given(stubs: Path, tmp_path: Path) -> None:
    download = partial(run_with, stubs, "wmt14_en_fr.sh", "download", DATA=tmp_path, RUN=tmp_path / "run", code=1)
    file = "wmt13/training-parallel-europarl-v7.tgz"
    assert f"Downloading https://mirror.example/{file}" in download(SITE="https://mirror.example").stderr
    assert f"Downloading https://www.statmt.org/{file}" in download().stderr


@needs_linux
def test_preprocessing_takes_the_cores_that_it_may_use(stubs: Path, tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        done = run_with(stubs, "wmt14_en_de.sh", "preprocess", RUN=tmp_path / "run", DATA=tmp_path, WORKERS="")
        assert f"--workers {usable_cores()} " in done.stderr and usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize("language", ["de", "fr"])
@pytest.mark.parametrize("size", ["base", "big"])
def test_the_checkpoints_of_the_average_are_equally_far_apart(
    stubs: Path, tmp_path: Path, size: str, language: str
) -> None:
    done = run_with(stubs, f"wmt14_en_{language}.sh", size, "train", RUN=tmp_path / "run", DATA=tmp_path)
    updates, between = (int(re.search(rf"--{name} (\d+)", done.stderr)[1]) for name in ("max-updates", "save-updates"))  # type: ignore[index]
    assert updates % between == 0 and abs(updates - {"base": 100_000, "big": 300_000}[size]) < between
