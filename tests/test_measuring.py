"""The recipes that measure or attack reach their programs, and the programs of the paper's tables work."""

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import commands
import pytest
from stand_ins import Recipe

import table1  # isort: skip # `stand_ins` has added its folder to the path
import table3  # isort: skip


def test_settings_are_compared_on_held_out_text(quicker: Recipe, multi30k: Path, tmp_path: Path) -> None:
    folders = {"MULTI30K": multi30k, "RUN": tmp_path / "run"}
    done = quicker("measure/ablation.sh", "--updates", "2", "base", HELD_OUT="5", **folders)
    assert re.search(r"^base: 2 updates of 1, BLEU [\d.]+ on val, [\d.]+ held out$", done.stdout, re.MULTILINE)


def test_text_as_people_type_it_is_translated_and_scored(quicker: Recipe, trained: Path, tmp_path: Path) -> None:
    files = [str(trained / name) for name in ("run/average.safetensors", "test.en", "test.de")]
    done = quicker("measure/robustness.sh", *files, RUN=tmp_path / "run")
    names = ["plain", "capitals", "title-case", "no-final-punctuation", "typing-errors"]
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [[name, "BLEU"] for name in names]
    assert "case:lc" in done.stdout
    assert (tmp_path / "run" / "capitals.source").read_text() == (trained / "test.en").read_text().upper()


@pytest.mark.parametrize("script, arguments, starts", [
    ("chaos.sh", ["3"], ["chaos.py {run}/data --folder {run} --kills 3 --gpus 1"]),
    ("compare_peers.sh", ["--only", "train"], ["compare_peers.py {run} --repeats 3 --only train"]),
    ("load.sh", [], [f"load.py {{model}} {{run}}/data/test.en.txt --engine {engine} --repeats 3" for engine in
                     ("pytorch --compute-type auto", "ctranslate2 --compute-type int8")]),
    ("translate_cluster.sh", [], ["translate_cluster.py {model} {run}/input {run} --shard-lines 1000"]),
    ("table3.sh", ["base", "--updates=2"], ["table3.py {run}/data {run} base --updates=2"]),
    ("benchmark_gpu.sh", [], []),
])  # fmt: skip
def test_recipes_that_measure_or_kill_reach_their_programs(
    quicker: Recipe, trained: Path, tmp_path: Path, script: str, arguments: list[str], starts: list[str]
) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    model = run / "model" / "average.safetensors"
    shutil.copy(trained / "run" / "average.safetensors", model)
    shutil.copytree(trained / "data", run / "data")
    settings = {"RUN": run, "DATA": run / "data", "MODEL": model, "TEXT": trained / "test.en", "LINES": "25"}
    done = quicker(f"measure/{script}", *arguments, **settings)
    found = [line for line in done.stderr.splitlines() if line.startswith("== python recipes/measure/")]
    expected = [f"== python recipes/measure/{start.format(run=run, model=model)}" for start in starts]
    assert found == expected
    if script == "translate_cluster.sh":
        assert (run / "input").read_text().count("\n") == 25


def test_table_3_trains_each_row_once(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table3, "SMALL", replace(table3.SMALL, width=16, depth=6))
    monkeypatch.setattr(table3.subprocess, "run", lambda command: Mock(returncode=commands.run(*command[3:]).code))
    options = ["base", "a_h4", "--updates=2", "--device=cpu", "--device-tokens=2500"]
    monkeypatch.setattr(sys, "argv", ["table3.py", str(trained / "data"), str(tmp_path), *options])
    for _ in range(2):  # the second time, it only prints the results of the first
        table3.main()
        printed = capsys.readouterr()
    assert "nmt train" not in printed.err
    first, second = json.loads((tmp_path / "table3.json").read_text())
    assert (first["name"], second["name"]) == ("base", "a_h4")
    assert (first["paper_ppl"], first["paper_bleu"], first["paper_parameters"]) == (4.92, 25.8, "65M")
    assert first["parameters"] == second["parameters"]
    assert first["ppl"] == pytest.approx(commands.records(tmp_path / "base", "valid")[-1]["ppl"], abs=0.01)
    assert (tmp_path / "table3.md").read_text() == printed.out


def test_table_1_measures_every_kind_of_layer() -> None:
    assert [table1.seconds(kind, 40, 64, "cpu", 1) > 0 for kind in table1.KINDS] == [True] * 5
