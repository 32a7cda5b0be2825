"""The recipes from raw files to scores, on tiny stand-ins for the corpora, in their formats and of their names.

In the gate, the recipes' commands are forked. The nightly tests run the same recipes with the `nmt` on the PATH.
"""

import gzip
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from unittest.mock import Mock

import commands
import forks
import pytest
from conftest import invented_pairs
from marian import write_model

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "recipes"), str(ROOT / "recipes" / "measure")]

import table1  # noqa: E402
import table3  # noqa: E402

BIN = Path(sys.executable).parent
TINY = [
    *commands.SMALL, "--max-updates=5", "--save-updates=1", "--batch-tokens=300", "--device-tokens=500",
    "--valid-metric=nll", "--device=cpu", "--precision=fp32",
]  # fmt: skip
LONGER = [*TINY, "--max-updates=20"]  # as many checkpoints as the recipe averages
# What is added to the arguments of commands and programs, so that they take less time. None: the program is not run.
Added = dict[str, list[str] | None]
QUICK: Added = {"generate": ["--max-length-offset=5"], "benchmark": ["--max-length-offset=5"]}
NOT_RUN = ("chaos", "compare_peers", "load", "table3", "translate_cluster")  # programs that measure or kill
# The same for recipes that take no options.
QUICKER: Added = QUICK | {
    "preprocess": ["--vocab-size=400"],
    "train": [*TINY, "--max-updates=2", "--decoder-layers=3"],
    "average-checkpoints": ["--last=2"],
    "benchmark": ["--help"],  # checks the flags and ends
    "recipes/grammar.py": ["--train=120", "--valid=4", "--test=6"],
    **dict.fromkeys(f"recipes/measure/{name}.py" for name in NOT_RUN),
}
# The file `nmt` or `python`, which hands its arguments to `answer` and ends as that says.
STAND_IN = f"""#!/usr/bin/env bash
here=${{0%/*}} name=${{0##*/}}
if [ $name = python ] && [[ $1 != recipes/* ]]; then exec "{BIN}/python" "$@"; fi
printf '%s\\0' "$PWD" $name "$@" > "$here/asked"
read -r code < "$here/answered"
cat "$here/stdout"
cat "$here/stderr" >&2
exit "$code"
"""
Recipe = Callable[..., subprocess.CompletedProcess[str]]


def corpus(pairs: int, seed: int) -> tuple[bytes, bytes]:
    sides = zip(*invented_pairs(pairs, seed), strict=True)
    source, target = ("".join(f"{line}\n" for line in side).encode() for side in sides)
    return source, target


def sgm(lines: bytes) -> bytes:
    segments = enumerate(lines.decode().splitlines(), start=1)
    inside = "".join(f'<seg id="{number}"> {line} </seg>\n' for number, line in segments)
    return f'<srcset setid="x" srclang="any">\n<doc docid="y">\n<p>\n{inside}</p>\n</doc>\n</srcset>\n'.encode()


def pack(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wmt14")
    corpora = {
        "training-parallel-europarl-v7.tgz": "training/europarl-v7",
        "training-parallel-commoncrawl.tgz": "commoncrawl",
        "training-parallel-nc-v9.tgz": "training/news-commentary-v9",
        "training-parallel-un.tgz": "un/undoc.2000",
    }
    for seed, (name, prefix) in enumerate(corpora.items()):
        english, other = corpus(60, seed)
        english = english[:-1] + b" \xff\n"  # not UTF-8
        sides = {"de-en.en": english, "de-en.de": other, "fr-en.en": english, "fr-en.fr": other}
        pack(folder / name, {f"{prefix}.{side}": text for side, text in sides.items()})
    english, french = map(gzip.compress, corpus(60, 7))
    giga = {"giga-fren.release2.fixed.en.gz": english, "giga-fren.release2.fixed.fr.gz": french}
    pack(folder / "training-giga-fren.tar", giga)
    for year in (2012, 2013):
        english, other = map(sgm, corpus(8, year))
        sides = {"en": english, "de": other, "fr": other}
        pack(folder / f"newstest{year}.tgz", {f"test/newstest{year}-src.{lang}.sgm": sides[lang] for lang in sides})
    for name, top, lines in (("test-full", "test-full", 6), ("test-filtered", "test", 4)):
        english, other = map(sgm, corpus(lines, 9))
        sides = {"deen-src.en": english, "deen-ref.de": other, "fren-src.en": english, "fren-ref.fr": other}
        pack(folder / f"{name}.tgz", {f"{top}/newstest2014-{side}.sgm": text for side, text in sides.items()})
    return folder


def answer(folder: Path, added: Added) -> None:
    """Forks the commands and programs that the files in `folder` ask for, until an empty text is written to `asked`."""
    # A benchmark measures how long an interpreter takes to start, too. That figure is not tested here.
    no_interpreters = partial(exec, "import sys; sys.executable = 'true'")
    while asked := (folder / "asked").read_text():
        cwd, name, *arguments = asked.split("\0")[:-1]
        more = added.get(arguments[0], [])
        program = None
        if name == "python":
            program = partial(runpy.run_path, str(ROOT / arguments.pop(0)), run_name="__main__")
        if more is None:
            program = partial(print, "not run")
        try:
            command = forks.start(*arguments, *(more or ()), cwd=cwd, before=no_interpreters, instead=program)
            code, output, errors = command.wait(), command.output, command.errors
        except BaseException:  # otherwise, the recipe would wait forever
            code, output, errors = 1, "", traceback.format_exc()
        (folder / "stdout").write_text(output)
        (folder / "stderr").write_text(errors)
        (folder / "answered").write_text(f"{code}\n")


@contextmanager
def stand_ins(folder: Path, added: Added) -> Iterator[Path]:
    """Makes `nmt` and `python` in `folder` start forked commands and programs, with the arguments in `added`."""
    for name in ("nmt", "python"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    for name in ("asked", "answered"):
        os.mkfifo(folder / name)
    thread = Thread(target=answer, args=(folder, added), daemon=True)
    thread.start()
    yield folder
    if thread.is_alive():
        (folder / "asked").write_text("")
    thread.join()


def run_with(
    path: Path, script: str, *arguments: str, code: int = 0, **settings: str | Path
) -> subprocess.CompletedProcess[str]:
    """Runs a recipe with the commands in the folder `path`, and checks its exit code."""
    environment = os.environ | {"ENVIRONMENT": "active", "WORKERS": "1"}
    environment |= {name: str(value) for name, value in settings.items()}
    environment["PATH"] = f"{path}:{BIN}:{os.environ['PATH']}"
    command = ["bash", str(ROOT / "recipes" / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(params=["forked", pytest.param("whole", marks=pytest.mark.nightly)])
def recipe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipe]:
    """Returns a function that runs a recipe."""
    if request.param == "whole":
        yield partial(run_with, BIN)
    else:
        with stand_ins(tmp_path_factory.mktemp("bin"), QUICK) as path:
            yield partial(run_with, path)


@pytest.fixture
def quicker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipe]:
    """Returns a function that runs a recipe with less text and less training than the recipe says."""
    with stand_ins(tmp_path_factory.mktemp("bin"), QUICKER) as path:
        yield partial(run_with, path)


@pytest.mark.parametrize("target, size, options, train, valid", [
    ("de", "base", TINY, 180, 8),
    ("fr", "big", LONGER, 300, 16),
])  # fmt: skip
def test_wmt14(
    target: str, size: str, options: list[str], train: int, valid: int, recipe: Recipe, archives: Path, tmp_path: Path
) -> None:
    wmt14 = partial(recipe, f"wmt14_en_{target}.sh", size, DATA=archives, RUN=tmp_path / "run", VOCAB_SIZE="400")
    done = wmt14("--", *options)
    assert f"train: {train} pairs" in done.stderr
    assert f"valid: {valid} pairs" in done.stderr
    assert (tmp_path / "run" / "text" / "newstest2014.en").read_bytes() == corpus(6, 9)[0]
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["BLEU", "paper-BLEU"] * 2
    assert all(("compounds:split" in line) == (target == "de") for line in lines if line.startswith("paper"))
    assert len((tmp_path / "run" / size / f"newstest2014-filtered.{target}").read_text().splitlines()) == 4
    again = wmt14("preprocess", "train", "--", *options)
    assert "data exists already" in again.stderr
    assert "nothing to do" in again.stderr


def test_what_is_wrong_with_an_archive_is_said(archives: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(archives, tmp_path / "data"))
    unpack = partial(run_with, BIN, "wmt14_en_de.sh", DATA=data, RUN=tmp_path / "run", code=1)
    broken = data / "training-parallel-commoncrawl.tgz"
    broken.write_bytes(broken.read_bytes()[:500])
    missing = "does not have all of commoncrawl.de-en.en commoncrawl.de-en.de"
    assert f"{broken.name} {missing}" in unpack("unpack").stderr
    assert not (tmp_path / "run" / "text" / "commoncrawl.de-en.de").exists()
    pack(broken, {"commoncrawl.de-en.en": b"a\n"})
    assert missing in unpack("unpack").stderr
    assert "steps (all of them if none is named)" in unpack("trian").stderr


def test_wsj_parsing_with_sentences_that_have_no_trees(recipe: Recipe, tmp_path: Path) -> None:
    subjects = ["cats", "dogs", "birds", "fish", "(cows)"]
    bank = [f"( (S (NP-SBJ (NNS {noun}{i})) (VP (VBP sleep)) (. .)))" for i, noun in enumerate(subjects * 4)]
    for name, trees in (("train", bank), ("dev", bank[:2])):
        text = "".join(f"{tree}\n" for tree in trees).replace("(cows)", "-LRB-cows-RRB-")
        (tmp_path / f"{name}.mrg").write_text(text)
    (tmp_path / "unlabelled").write_text("cats :) sleep .\n\n( dogs ) sleep\n")
    paths = {"TREEBANK": tmp_path, "UNLABELLED": tmp_path / "unlabelled", "RUN": tmp_path / "run"}
    done = recipe("wsj_parsing.sh", *LONGER, **paths, VOCAB_SIZE="330", SEMI_VOCAB_SIZE="340", WEIGHT="2")
    assert "train: 22 pairs" in done.stderr  # 20 trees, which are used twice as often, and two that are new
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["EVALB", "F1"]] * 4
    silver = (tmp_path / "run" / "silver" / "trees.mrg").read_text()
    assert "(. .)" in silver and ":-RRB-" in silver


@pytest.fixture
def multi30k(tmp_path: Path) -> Path:
    """A stand-in for the corpus."""
    folder = tmp_path / "multi30k"
    (folder / "tok").mkdir(parents=True)
    for seed, (name, size) in enumerate({"train": 101, "val": 4, "test_2016_flickr": 5}.items()):
        for lang, text in zip(("en", "de"), corpus(size, seed), strict=True):
            (folder / f"{name}.{lang}.gz").write_bytes(gzip.compress(text))
            (folder / "tok" / f"{name}.lc.norm.tok.{lang}").write_bytes(text.lower())
    return folder


def test_back_translation(recipe: Recipe, multi30k: Path, tmp_path: Path) -> None:
    translate = partial(recipe, "back_translation.sh", MULTI30K=multi30k, RUN=tmp_path / "run", AVERAGED="2")
    done = translate("sample", *TINY, VOCAB_SIZE="430")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["BLEU", "BLEU"]
    synthetic = tmp_path / "run" / "synthetic-sample"
    assert [len((synthetic / f"text.{lang}").read_text().splitlines()) for lang in ("en", "de")] == [50, 50]
    assert "is not beam or sample; usage" in translate("x", code=1).stderr


def test_distillation(recipe: Recipe, trained: Path, multi30k: Path, tmp_path: Path) -> None:
    distil = partial(recipe, "distillation.sh", MULTI30K=multi30k, RUN=tmp_path / "run", AVERAGED="2", REPEATS="1")
    done = distil(str(trained / "run" / "average.safetensors"), "--", *TINY)
    speeds = [line for line in done.stdout.splitlines() if "sentences/s" in line]
    assert [line.split(":")[0] for line in speeds] == ["teacher", "student"]
    assert done.stdout.count("out.int8.de") == 2
    assert len((tmp_path / "run" / "distilled.de").read_text().splitlines()) == 101
    assert "no teacher is given; usage" in distil("--", *TINY, code=1).stderr


def test_fine_tuning_of_a_model_of_transformers(recipe: Recipe, tmp_path: Path) -> None:
    write_model(tmp_path / "marian", scale_embedding=True, activation_function="swish")
    paths = {"RUN": tmp_path / "run"}
    for seed, (name, size) in enumerate({"TRAIN": 60, "VALID": 10, "TEST": 3}.items()):
        for lang, text in zip(("en", "fr"), corpus(size, seed), strict=True):
            (tmp_path / f"{name}.{lang}").write_bytes(text)
        paths[name] = tmp_path / name
    options = ["--lr=1e-2", "--batch-tokens=300", "--device-tokens=500", "--valid-updates=1", "--max-updates=2"]
    done = recipe("fine_tune.sh", str(tmp_path / "marian"), "en", "fr", *options, **paths)
    assert "before.fr" in done.stdout and "after.fr" in done.stdout and "bs:1000" in done.stdout
    assert "BLEU" in (tmp_path / "run" / "exported" / "README.md").read_text()
    assert "usage: TRAIN=prefix" in recipe("fine_tune.sh", "marian", **paths, code=1).stderr


def test_quickstart_and_alignments(quicker: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert "run recipes/quickstart.sh first" in quicker("alignments.sh", RUN=run, code=1).stderr
    done = quicker("quickstart.sh", RUN=run)
    *samples, score = filter(None, done.stdout.splitlines())
    assert [line.split()[0] for line in samples] == ["source", "output", "reference"] * 5
    assert score.startswith("BLEU")
    for arguments in ([], ["--guided"]):
        found = quicker("alignments.sh", *arguments, RUN=run)
        assert [line.split()[0] for line in found.stdout.splitlines()] == ["AER", "AER"]


@pytest.mark.parametrize(("arguments", "tokenizer"), [([], "13a"), (["--published"], "none")])
def test_multi30k(quicker: Recipe, multi30k: Path, tmp_path: Path, arguments: list[str], tokenizer: str) -> None:
    train = partial(quicker, "multi30k.sh", *arguments, MULTI30K=multi30k, RUN=tmp_path / "run")
    train("--prepare")
    assert not (tmp_path / "run" / "model").exists()
    assert f"tok:{tokenizer}" in train().stdout


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
