"""The way from a corpus to a page in README.md runs as it is written."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from commands import SMALL, run
from conftest import invented_pairs, write_pairs
from servers import running

ROOT = Path(__file__).parents[2]


def test_the_way_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## From your corpus to a page\n")[2]
    block = re.search(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert block
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "corpus", invented_pairs(4500))
    small = "--max-updates=4", "--save-updates=2", "--batch-tokens=400", "--device-tokens=2000", "--device=cpu", *SMALL
    *commands, last = block[1].splitlines()
    for command in commands:
        program, *words = shlex.split(command)
        if program == "nmt":
            done = run(*words, *small * (words[0] == "train"))
        else:
            subprocess.run(command, shell=True, check=True)
        if words[0] == "score":
            assert re.match(r"BLEU .*, with 95 % confidence between .*\n.*\nsignature nrefs:1", done.stdout.decode())
    assert len((tmp_path / "test.out.de").read_text().splitlines()) == 1000
    assert (tmp_path / "letter.de.md").exists()
    with running(*shlex.split(last)[1:]) as server:
        assert server.get("/").status == 200
