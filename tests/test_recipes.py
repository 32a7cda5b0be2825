"""The recipes from raw files to scores, on tiny stand-ins for the corpora, in their formats and of their names.

In the gate, the recipes' commands are forked. The nightly tests run the same recipes with the `nmt` on the PATH.
"""

import gzip
import hashlib
import io
import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import commands
import pytest
from conftest import invented_pairs, write_pairs
from marian import write_model
from stand_ins import BIN, LONGER, ROOT, TINY, Recipe, corpus, run_with

import nmt
from nmt.text.corpus import COMPRESSED, parallel_paths

import americasnlp  # isort: skip # `stand_ins` has added its folder to the path
import documentation  # isort: skip
import grammar  # isort: skip
import peer_plain  # isort: skip
import table1  # isort: skip
import table3  # isort: skip


def sgm(lines: bytes) -> bytes:
    segments = enumerate(lines.decode().splitlines(), start=1)
    inside = "".join(f'<seg id="{index}"> {line} </seg>\n' for index, line in segments)
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


def test_a_file_that_another_command_made_is_not_used(tmp_path: Path) -> None:
    def make(*command: str, run: Path = tmp_path / "run", code: int = 0) -> str:
        run.mkdir(exist_ok=True)
        script = 'run_dir=$1 source=en; shift; . recipes/common.sh; unless_there "$run_dir/file" "$@"'
        bash = ["bash", "-euc", script, "bash", str(run), *(word.format(run=run) for word in command)]
        done = subprocess.run(bash, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == code
        return done.stderr

    first = ["cp", "/dev/null", "{run}/file"]
    make(*first)
    assert "file exists already" in make(*first, "--workers=3", "--gpus", "2")
    for flag, name, value in (
        ("--train", "memory.tsv", "memory.tsv"),
        ("--input", "test.en", "test.en"),
        ("--valid", "dev.en-de.en.gz", "dev"),
    ):
        corpus, folder = tmp_path / name, tmp_path / flag
        corpus.write_text("a\tb\n")
        os.utime(corpus, (1, 1))
        command = ["cp", flag, str(tmp_path / value)]
        folder.mkdir()
        (folder / "file").touch()
        (folder / "file.made-from").write_text(" ".join(command))
        assert "file exists already" in make(*command, run=folder)
        os.utime(corpus, (2**32, 2**32))
        assert f"{name} has changed since" in make(*command, run=folder, code=1)
    shutil.move(tmp_path / "run", tmp_path / "moved")
    other = make("touch", "{run}/file", run=tmp_path / "moved", code=1)
    assert "file was made by 'cp /dev/null RUN/file', but the command is now 'touch RUN/file'; set RUN to" in other
    (tmp_path / "moved" / "file.made-from").unlink()  # as if the user had put the file there
    assert "file exists already" in make("touch", "{run}/file", run=tmp_path / "moved")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "state-00000009.safetensors").touch()  # of a training that was interrupted
    (tmp_path / "begun" / "file.made-from").write_text("echo nmt train --lr 1\n")
    make("echo", "nmt", "train", "--lr", "1", run=tmp_path / "begun")
    other = make("echo", "nmt", "train", "--lr", "2", run=tmp_path / "begun", code=1)
    assert f"or delete {tmp_path}/begun and what was made from it" in other


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
    assert f"commoncrawl.{target}-en.en: bytes that are not UTF-8 and were left out: 1\n" in done.stderr
    assert (tmp_path / "run" / "text" / "newstest2014.en").read_bytes() == corpus(6, 9)[0]
    assert re.findall(r"^(.+): (.*BLEU)", done.stdout, re.MULTILINE) == [
        (name, metric) for name in ("newstest2014", "newstest2014-filtered") for metric in ("BLEU", "paper-BLEU")
    ]
    paper = re.findall("signature .*tok:moses.*", done.stdout)
    assert len(paper) == 2 and all(("compounds:split" in line) == (target == "de") for line in paper)
    assert (tmp_path / "run" / size / "scores.txt").read_text() == done.stdout
    assert len((tmp_path / "run" / size / f"newstest2014-filtered.{target}").read_text().splitlines()) == 4
    again = wmt14("preprocess", "train", "--", *options)
    assert "data exists already" in again.stderr
    assert "nothing to do" in again.stderr
    wmt14("preprocess", "train", "--", *options, SEED="2")
    model = next((tmp_path / "run" / f"{size}-seed2").glob("snapshot-*.safetensors"))
    assert nmt.load_checkpoint(model).provenance["options"]["seed"] == 2


def test_what_is_wrong_with_an_archive_is_said(archives: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(archives, tmp_path / "data"))
    unpack = partial(run_with, BIN, "wmt14_en_de.sh", DATA=data, RUN=tmp_path / "run", code=1)
    broken = data / "training-parallel-commoncrawl.tgz"
    broken.write_bytes(broken.read_bytes()[:500])
    assert f"{broken.name} is not a whole tar archive in gzip; remove it and run" in unpack("unpack").stderr
    assert not (tmp_path / "run" / "text" / "commoncrawl.de-en.de").exists()
    pack(broken, {"commoncrawl.de-en.en": b"a\n"})
    missing = "does not have all of commoncrawl.de-en.en commoncrawl.de-en.de"
    assert f"{broken.name} {missing}" in unpack("unpack").stderr
    assert "steps (all of them if none is named)" in unpack("trian").stderr


@pytest.mark.parametrize("script, arguments, message", [
    ("multi30k.sh", ["--save-dir=x"], "--save-dir cannot be given, because this recipe sets it; set RUN to another"),
    ("wmt14_en_de.sh", ["--", "--seed", "2"], "--seed cannot be given, because this recipe sets it; set SEED, as in"),
    ("wmt14_en_de.sh", ["--", "--save-minutes=5"], "--save-minutes cannot be given, because this recipe sets it; give"),
])  # fmt: skip
def test_options_that_a_recipe_sets_are_refused(
    script: str, arguments: list[str], message: str, tmp_path: Path
) -> None:
    assert message in run_with(BIN, script, *arguments, RUN=tmp_path / "run", code=1).stderr
    assert not list(tmp_path.iterdir())


def test_the_help_of_a_recipe_is_its_first_comment() -> None:
    for script in (*ROOT.glob("recipes/*.sh"), *ROOT.glob("recipes/measure/*.sh")):
        if script.stem not in ("common", "wmt14"):
            text = run_with(BIN, str(script.relative_to(ROOT / "recipes")), "--help").stdout
            assert "bash recipes/" in text and script.read_text().startswith(
                "#!/usr/bin/env bash\n# " + text.split("\n")[0]
            )
            assert "set -euo" not in text


def test_a_download_shows_its_progress_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "curl").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "curl").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ours, terminal = os.openpty()
    for errors, option in ((terminal, "--progress-bar"), (subprocess.DEVNULL, "--silent")):
        fetch = ["bash", "-c", ". recipes/common.sh; fetch https://x.invalid/y y.part"]
        done = subprocess.run(fetch, cwd=ROOT, env=os.environ | path, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert option in done.stdout and "https://x.invalid/y" in done.stdout
    os.close(ours)
    os.close(terminal)


def test_wsj_parsing_with_sentences_that_have_no_trees(recipe: Recipe, tmp_path: Path) -> None:
    subjects = ["cats", "dogs", "birds", "fish", "(cows)"]
    bank = [f"( (S (NP-SBJ (NNS {noun}{i})) (VP (VBP sleep)) (. .)))" for i, noun in enumerate(subjects * 4)]
    for name, trees in (("train", bank), ("dev", bank[:2])):
        text = "".join(f"{tree}\n" for tree in trees).replace("(cows)", "-LRB-cows-RRB-")
        (tmp_path / f"{name}.mrg").write_text(text)
    (tmp_path / "unlabelled").write_text("cats :) sleep .\n\n( dogs ) sleep\n")
    paths = {"TREEBANK": tmp_path, "UNLABELLED": tmp_path / "unlabelled", "RUN": tmp_path / "run"}
    done = recipe("wsj_parsing.sh", *TINY, **paths, VOCAB_SIZE="330", SEMI_VOCAB_SIZE="340", WEIGHT="2")
    assert "train: 22 pairs" in done.stderr  # 20 trees, which are used twice as often, and two that are new
    assert [line.split()[1:3] for line in done.stdout.splitlines()] == [["EVALB", "F1"]] * 4
    silver = (tmp_path / "run" / "silver" / "trees.mrg").read_text()
    assert "(. .)" in silver and ":-RRB-" in silver
    paths = {"TREEBANK": tmp_path, "SILVER": tmp_path / "run" / "silver" / "trees.mrg", "RUN": tmp_path / "given"}
    again = recipe("wsj_parsing.sh", *TINY, **paths, VOCAB_SIZE="330", SEMI_VOCAB_SIZE="340", WEIGHT="2")
    assert "train: 22 pairs" in again.stderr and again.stdout.count("EVALB F1") == 4
    both = recipe("wsj_parsing.sh", **paths, UNLABELLED=tmp_path / "unlabelled", code=1)
    assert "SILVER and UNLABELLED are both set; leave out one of them" in both.stderr


def test_pronunciations_are_learnt_and_scored(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "data" / "low").mkdir(parents=True)
    rows = "".join(f"caf\u00e9 {n}\tk a f e {n}\n" for n in "0123456789")
    (tmp_path / "data" / "low" / "xyz_train.tsv").write_text(rows)
    (tmp_path / "data" / "low" / "xyz_dev.tsv.gz").write_bytes(gzip.compress(rows.encode()))
    settings = {"G2P": tmp_path / "data", "RUN": tmp_path / "run", "MODELS": "1", "MINUTES": "1"}
    done = recipe("g2p.sh", "--", *TINY, **settings)
    (_, columns, language, mean) = done.stdout.splitlines()
    assert columns.split() == ["WER", "PER"] * 2
    assert language.split()[0] == "low/xyz" and mean.split()[3:] == language.split()[1:]
    assert (tmp_path / "run" / "low" / "xyz" / "train.word").read_text().startswith("<xyz> c a f e \u0301 _ 0\n")
    wrong = recipe("g2p.sh", "low/abc", **settings | {"RUN": tmp_path / "other"}, code=1)
    assert "low/abc_train.tsv is missing or empty; check G2P" in wrong.stderr
    assert (
        "low/xyz_test.tsv does not exist; change EVALUATE"
        in recipe("g2p.sh", "--", *TINY, **settings, EVALUATE="test", code=1).stderr
    )
    changed = recipe("g2p.sh", "--", *TINY, **settings | {"MINUTES": "2"}, code=1).stderr
    assert "model1/average.safetensors was made by" in changed


def test_nine_languages_are_trained_and_scored_beside_the_baseline(recipe: Recipe, tmp_path: Path) -> None:
    lines, others = (text.decode() for text in corpus(40, 3))
    for lang, folder in americasnlp.FOLDERS.items():
        path = tmp_path / "task" / "data" / f"{folder}-spanish"
        path.mkdir(parents=True)
        for split in ("train_nontok" if lang == "tar" else "train", "dev"):
            (path / f"{split}.es").write_text(lines)
            (path / f"{split}.{lang}").write_text(others)
    settings = {"AMERICASNLP": tmp_path / "task", "RUN": tmp_path / "run", "VOCAB_SIZE": "430", "SAMPLES": "2"}
    done = recipe("americasnlp.sh", "--", *TINY, **settings, MINUTES="1", MODELS="1")
    table = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in table[1:11]] == [*americasnlp.FOLDERS, "mean"]
    assert table[10][2] == "12.70" and table[11][0].startswith("nrefs:1")
    assert len((tmp_path / "run" / "out" / "aym.txt").read_text().splitlines()) == 40
    (tmp_path / "task" / "data" / "aymara-spanish" / "dev.aym").unlink()
    settings["RUN"] = tmp_path / "other"
    assert (
        "neither dev.es-aym.aym nor aymara-spanish/dev.aym; set" in recipe("americasnlp.sh", **settings, code=1).stderr
    )


def test_rounds_translate_text_of_both_languages(recipe: Recipe, multi30k: Path, tmp_path: Path) -> None:
    for lang in ("en", "de"):
        (tmp_path / f"more.{lang}").write_bytes(gzip.decompress((multi30k / f"train.{lang}.gz").read_bytes()))
    settings = {"VALID": multi30k / "val", "TEST": multi30k / "test_2016_flickr", "RUN": tmp_path / "run"}
    settings |= {"SOURCE_TEXT": tmp_path / "more.en", "TARGET_TEXT": tmp_path / "more.de", "TEXT_LINES": "30"}
    improve = partial(
        recipe, "rounds.sh", "en", "de", str(multi30k / "train"), "--", *TINY, VOCAB_SIZE="430", **settings
    )
    done = improve(ROUNDS="1")
    card = (tmp_path / "run" / "README.md").read_text()
    assert done.stdout == card
    first, second = (line.split("|")[1:3] for line in card.splitlines()[4:6])
    assert [first, second] == [[" 0 ", " 0 "], [" 1 ", " 60 "]] and card.count("kept") == 1
    tags = {str(path.parent.name): path for path in (tmp_path / "run" / "round1").glob("*/text.de")}
    assert set(tags) == {"synthetic-en", "synthetic-de"}
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert improve(ROUNDS="1").stdout == card
    assert "neither SOURCE_TEXT nor TARGET_TEXT is set" in improve(SOURCE_TEXT="", TARGET_TEXT="", code=1).stderr
    assert "no.de does not exist; check SOURCE_TEXT" in improve(TARGET_TEXT=tmp_path / "no.de", code=1).stderr


def test_the_plain_loop_trains_on_a_data_folder(trained: Path) -> None:
    measured = peer_plain.run_plain(str(trained / "data"), "transformer_tiny", updates=2, bf16=False)
    assert measured["speed"] > 0 and measured["memory"] > 0


def test_folders_of_others_are_not_emptied(recipe: Recipe, tmp_path: Path) -> None:
    (tmp_path / "eole").mkdir()
    (tmp_path / "eole" / "work").touch()
    with pytest.raises(SystemExit, match="exists already and has other files"):
        documentation.main(tmp_path / "eole")
    assert "is not a run of this recipe" in recipe("measure/hostile.sh", RUN=tmp_path / "eole", code=1).stderr
    command = f"set -e; . {ROOT}/recipes/common.sh; own_environment {tmp_path}/eole eole"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode and "is no environment; remove it" in done.stderr
    assert [path.name for path in (tmp_path / "eole").iterdir()] == ["work"]


def test_back_translation(recipe: Recipe, multi30k: Path, tmp_path: Path) -> None:
    translate = partial(recipe, "back_translation.sh", MULTI30K=multi30k, RUN=tmp_path / "run")
    done = translate("sample", *TINY, VOCAB_SIZE="430")
    assert len(re.findall("^BLEU", done.stdout, re.MULTILINE)) == 2
    synthetic = tmp_path / "run" / "synthetic-sample"
    assert [len((synthetic / f"text.{lang}").read_text().splitlines()) for lang in ("en", "de")] == [50, 50]
    assert "is not beam or sample; usage" in translate("x", code=1).stderr
    assert "/sample/data was made by" in translate("sample", *TINY, VOCAB_SIZE="430", WEIGHT=2, code=1).stderr


def test_distillation(recipe: Recipe, trained: Path, multi30k: Path, tmp_path: Path) -> None:
    distil = partial(recipe, "distillation.sh", MULTI30K=multi30k, RUN=tmp_path / "run", REPEATS="1")
    done = distil(str(trained / "run" / "average.safetensors"), "--", *TINY)
    speeds = [line for line in done.stdout.splitlines() if "sentences/s" in line]
    assert [line.split(":")[0] for line in speeds] == ["teacher", "student"]
    assert done.stdout.count("out.int8.de") == 2
    assert len((tmp_path / "run" / "distilled.de").read_text().splitlines()) == 101
    assert "no teacher is given; usage" in distil("--", *TINY, code=1).stderr


def test_students_learn_from_translations_in_both_directions(recipe: Recipe, multi30k: Path, tmp_path: Path) -> None:
    options = {"MULTI30K": multi30k, "RUN": tmp_path / "run", "VOCAB_SIZE": 400, "UPDATES": 4}
    train = [option for option in TINY if "updates" not in option]
    done = recipe("diversification.sh", "3", "4", "--", *train, **options)
    assert len(re.findall("^BLEU", done.stdout, re.MULTILINE)) == 4
    assert "train: 404 pairs" in done.stderr  # the corpus, and three translations of it
    assert (tmp_path / "run" / "student-4" / "average.safetensors").exists()
    other = recipe("diversification.sh", "3", "--", *train, **options | {"UPDATES": 6}, code=1)
    assert "UPDATES=4', but the command is now 'write_text" in other.stderr
    assert "a SEED (options of nmt train follow --) must" in recipe("diversification.sh", "x", **options, code=1).stderr
    given = recipe("diversification.sh", "3", "--", "--seed=2", **options, code=1)
    assert "--seed cannot be given, because this recipe sets it; name the seeds before --" in given.stderr


def test_a_raw_corpus_becomes_a_service(recipe: Recipe, trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = {"RUN": run, "HELD_OUT": 10, "VOCAB_SIZE": 330, "LICENCE": "Made up & free."}
    corpus = str(tmp_path / "corpus")
    for language in ("en", "de"):
        lines = (trained / f"train.{language}").read_text().splitlines()[:120]
        Path(f"{corpus}.{language}").write_text("\n".join(lines) + "\n")
    train = ["--", *LONGER, "--decoder-layers=3"]
    start = partial(recipe, "corpus_to_service.sh", "en", "de", corpus, "--hours")
    done = start("0.01", *train, **options)
    assert f"nmt serve {run}/student/average.safetensors --engine ctranslate2 --compute-type int8" in done.stdout
    card, page = (run / "README.md").read_text(), (run / "index.html").read_text()
    assert "Made up & free." in card and "Made up &amp; free." in page
    stages = re.findall(r"\| (.+) \| \d:\d\d:\d\d \|", card)
    assert stages[:4] == ["clean", "split", "exclude", "preprocess teacher"] and stages[-1] == "robustness"
    assert all((run / name).exists() for name in re.findall(r'href="(.*?)"', page))
    again = start("0.01", *train, "--device-tokens=600", **options)
    assert "== nmt train" not in again.stderr
    assert "/teacher/average.safetensors was made by" in start("0.02", *train, **options, code=1).stderr
    assert "HELD_OUT=10" in start("0.01", *train, **options | {"HELD_OUT": 11}, code=1).stderr
    assert "--hours must be a number, but is ''; usage" in start(**options, code=1).stderr
    assert "usage: corpus_to_service.sh" in recipe("corpus_to_service.sh", "en", "de", code=1).stderr
    options |= {"RUN": tmp_path / "few", "HELD_OUT": 60}
    few = recipe("corpus_to_service.sh", "en", "de", corpus, **options, code=1)
    assert "pairs; lower HELD_OUT, which is 60" in few.stderr


def test_two_folders_of_documents_become_a_corpus(recipe: Recipe, tmp_path: Path) -> None:
    """A document that cannot be aligned is left out. The recipe ends before it trains, because nothing is left."""
    english, backwards = corpus(120, 1)
    for lang, text in (("en", english), ("de", backwards)):
        lines = text.decode().splitlines()
        (tmp_path / lang).mkdir()
        for i in range(3):
            (tmp_path / lang / f"{i}.txt").write_text("\n".join(lines[40 * i : 40 * (i + 1)]))
    (tmp_path / "de" / "2.txt").write_text("")
    options = {"RUN": tmp_path / "run", "HELD_OUT": 60}
    done = recipe("corpus_to_service.sh", "en", "de", str(tmp_path / "en"), str(tmp_path / "de"), **options, code=1)
    assert "de/2.txt has no sentences" in done.stderr
    assert "pairs; lower HELD_OUT, which is 60" in done.stderr
    assert (tmp_path / "run" / "aligned.html").exists()
    pairs = list(zip(english.decode().splitlines(), backwards.decode().splitlines(), strict=True))
    clean = [(tmp_path / "run" / f"clean.{lang}").read_text().splitlines() for lang in ("en", "de")]
    assert 60 < len(clean[0]) <= 80 and set(zip(*clean, strict=True)) <= set(pairs)
    alone = recipe("corpus_to_service.sh", "en", "de", str(tmp_path / "en"), **options, code=1)
    assert "/en is a folder, but '' is none; give two folders of documents; usage" in alone.stderr


@pytest.mark.nightly
def test_a_given_model_of_several_languages_teaches_a_student(recipe: Recipe, trained: Path, tmp_path: Path) -> None:
    files = f"--train={trained}/train", f"--valid={trained}/valid", f"--dest={tmp_path}/data", "--vocab-size=340"
    commands.run("preprocess", "--languages=en,de", "--both-ways", *files)
    commands.train(tmp_path / "data", tmp_path / "teacher", "--max-updates=100", "--valid-metric=nll")
    teacher = tmp_path / "teacher" / "best.safetensors"
    text = {lang: (trained / f"train.{lang}").read_text().splitlines()[:130] for lang in ("en", "de")}
    for lang, lines in text.items():
        (tmp_path / f"corpus.{lang}").write_text("".join(f"{line}\n" for line in lines[:100]))
    (tmp_path / "more.en").write_text("".join(f"{line}\n" for line in text["en"][100:]))
    command = ["en", "de", str(tmp_path / "corpus"), "--hours", "0.01", "--more", str(tmp_path / "more.en")]
    options = {"RUN": tmp_path / "run", "HELD_OUT": 10, "VOCAB_SIZE": 330}
    start = partial(recipe, "corpus_to_service.sh", *command)
    done = start("--teacher", str(teacher), "--", *LONGER, **options)
    assert "nmt train" in done.stderr and "backward-data" not in done.stderr
    translated = len((tmp_path / "run" / "distilled.de").read_text().splitlines())
    assert translated == len((tmp_path / "run" / "train.en").read_text().splitlines()) + 30
    assert b"330" in commands.run("info", tmp_path / "run" / "student" / "average.safetensors").stdout
    assert "--teacher none does not exist" in start("--teacher", "none", **options, code=1).stderr


def test_a_model_of_several_languages_is_scored_in_every_direction(quicker: Recipe, tmp_path: Path) -> None:
    """Languages come from the names of files. Half of the validation set is scored, also between unseen languages."""
    for seed, (name, size) in enumerate({"train.en-de": 80, "train.fr-en": 60, "dev": 6}.items()):
        english, backwards = corpus(size, seed)
        texts = {"en": english, "de": backwards, "fr": english.upper()}
        for lang, text in texts.items():
            if name == "dev" or lang in name:
                end = {"en": ".zst", "de": ".xz", "fr": ".bz2"}[lang]
                with COMPRESSED[end](tmp_path / f"{name}.{lang}{end}", "wb") as file:
                    file.write(text)
    settings = {"VALID": tmp_path / "dev", "RUN": tmp_path / "run", "VOCAB_SIZE": "400"}
    done = quicker("multilingual.sh", "--hours", "0.01", str(tmp_path / "train"), "--", "--seed=2", **settings)
    shown = [line.split()[:3] for line in done.stdout.splitlines()]
    trained = [[f"{pair}", "trained", "BLEU"] for pair in ("de-en", "en-de", "en-fr", "fr-en")]
    assert shown == [
        *trained,
        *([pair, "unseen", "BLEU"] for pair in ("de-fr", "fr-de")),
        *(["mean", kind, "BLEU"] for kind in ("trained", "unseen")),
    ]
    assert (tmp_path / "run" / "scores").read_text() == done.stdout
    reference = tmp_path / "run" / "out" / "en-fr.reference"
    assert reference.read_bytes().splitlines() == texts["fr"].splitlines()[1::2]
    given = settings | {"VALID": tmp_path / "run" / "valid", "TEST": tmp_path / "dev"}
    done = quicker("multilingual.sh", "--hours", "0.01", str(tmp_path / "train"), "--", "--seed=2", **given)
    assert [
        line.split()[:3] for line in done.stdout.splitlines()
    ] == shown and "average.safetensors exists already" in done.stderr
    assert reference.read_bytes() == texts["fr"]
    assert "VALID is not set; usage" in quicker("multilingual.sh", "train", code=1).stderr
    assert "PREFIX is missing; usage" in quicker("multilingual.sh", "--hours", "1", code=1, **settings).stderr
    assert "--hours must be a number" in quicker("multilingual.sh", "train", "--hours", code=1, **settings).stderr


def test_one_model_is_compared_with_a_model_of_each_direction(quicker: Recipe, tmp_path: Path) -> None:
    sizes = {"train.en-de": 80, "train.pt-BR-en": 60, "dev.en-de": 6, "dev.pt-BR-en": 6, "dev.de-en": 4}
    for seed, (name, size) in enumerate(sizes.items()):
        for lang, text in zip(
            ("en", name.partition(".")[2].replace("en", "").strip("-")), corpus(size, seed), strict=True
        ):
            (tmp_path / f"{name}.{lang}").write_bytes(text)
    settings = {"VALID": tmp_path / "dev", "RUN": tmp_path / "run"}
    done = quicker("measure/one_or_many.sh", "--hours", "0.01", str(tmp_path / "train"), **settings)
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[1:]] == ["de-en", "en-de", "en-pt-BR", "pt-BR-en", "mean"]
    assert all(float(row[5]) == pytest.approx(float(row[3]) - float(row[4]), abs=0.011) for row in rows[1:])
    reference = (tmp_path / "run" / "one" / "out" / "en-de.reference").read_bytes()
    assert (
        len((tmp_path / "run" / "many" / "en-de" / "out.de").read_bytes().splitlines()) == 3 == reference.count(b"\n")
    )
    (tmp_path / "run" / "one" / "out" / "en-fr.json").write_text("{}")  # of an earlier test set
    assert (
        quicker("measure/one_or_many.sh", "--hours", "0.01", str(tmp_path / "train"), **settings).stdout == done.stdout
    )


def test_what_could_not_be_scored_is_not_trained(quicker: Recipe, tmp_path: Path) -> None:
    for name in ("train.en", "train.de", "dev.en", "dev.de", "test.en", "test.de.zip", "one.en.gz"):
        (tmp_path / name).touch()
    settings = {"VALID": tmp_path / "dev", "TEST": tmp_path / "test", "RUN": tmp_path / "run"}
    for prefix, sets, message in (
        ("train", {}, "test has no files in two of the languages de,en, so nothing could be scored"),
        ("train", {"TEST": tmp_path / "none"}, "none has no files in two of the languages de,en"),
        ("one", {}, "one end in en; name at least two in LANGUAGES"),
        ("train", {"TEST": "", "VALID": tmp_path / "none"}, "no file begins with"),
    ):
        done = quicker("multilingual.sh", str(tmp_path / prefix), code=1, **settings | sets)
        assert message in done.stderr and "nmt " not in done.stderr


def test_recipes_find_the_files_that_commands_find(tmp_path: Path) -> None:
    def file_of(prefix: str) -> str:
        script = ['. recipes/common.sh; echo $COMPRESSED; file_of "$0" pt-BR', str(tmp_path / prefix)]
        done = subprocess.run(["bash", "-euc", *script], cwd=ROOT, capture_output=True, text=True, check=True)
        ends, path = done.stdout.splitlines()
        assert [f".{end}" for end in ends.split()] == list(COMPRESSED)
        return path

    for ends in itertools.combinations(["", *COMPRESSED], 2):
        for end in ends:
            (tmp_path / f"{''.join(ends)}.pt-BR{end}").touch()
        prefix = str(tmp_path / "".join(ends))
        assert file_of("".join(ends)) == str(parallel_paths(prefix, "pt-BR", "pt-BR")[0])
    assert file_of("none") == str(tmp_path / "none.pt-BR")


def law(language: str, terms: tuple[str, str], *sections: str) -> str:
    """Returns a law whose titles are in capitals. `sections` are the inner parts of its sections."""
    defined = "".join(
        f"<DefinedTerm{lang}>{term}</DefinedTerm{lang}>" for lang, term in zip(("En", "Fr"), terms, strict=True)
    )
    numbered = "".join(f"<Section><Label>{i}.</Label>{text}</Section>" for i, text in enumerate(sections, 1))
    return f"""<Statute><Heading><TitleText>TITLE {language}</TitleText></Heading><Body>{numbered}
        <Definition><Text>{defined} means\n something {language}</Text></Definition>
        <HistoricalNote><Text>1985, c. 1</Text></HistoricalNote></Body></Statute>"""


def test_laws_become_a_corpus(quicker: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provisions are paired by their labels, whatever their order; what only one language has is left out."""
    names: dict[int, str] = {}
    numbers = itertools.count()
    while not {0, 1, 7} <= names.keys():  # a document's name decides where its text goes
        name = f"SOR-{next(numbers)}.xml"
        names[int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100] = name
    folders = {"en": tmp_path / "laws" / "eng" / "regulations", "fr": tmp_path / "laws" / "fra" / "reglements"}
    long = "<Text>Nobody may {} fish without a <Emphasis>licence</Emphasis> of the {} minister.</Text>"
    for bucket in (0, 1, 7):
        sections = [long.format(bucket, "first"), "<Subsection><Label>(2)</Label><Text>Only here.</Text></Subsection>"]
        for lang, folder in folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            name = names[bucket] if lang == "en" else names[bucket].replace("SOR-", "DORS-")
            text = law(lang, ("fish", "poisson"), *(sections if lang == "en" else [long.format(bucket, "premier")]))
            (folder / name).write_text(text, encoding="utf-8")
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    git = ["git", "-C", str(tmp_path / "laws"), *settings]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "laws"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.chdir(tmp_path)
    wrong = quicker("laws_en_fr.sh", "--hour", "1", REPOSITORY="laws", RUN=tmp_path / "run", code=1)
    assert "--hour is not a valid argument; usage" in wrong.stderr and not (tmp_path / "run").exists()
    quicker("laws_en_fr.sh", "--prepare", REPOSITORY="laws", RUN=tmp_path / "run")
    text = {path.name: path.read_text().splitlines() for path in (tmp_path / "run" / "text").iterdir()}
    assert text["train.en"] == [
        "Nobody may 7 fish without a licence of the first minister.",
        "fishpoisson means something en",
        "TITLE en",
    ]
    assert text["train.fr"][0] == "Nobody may 7 fish without a licence of the premier minister."
    assert text["valid.en"] == ["Nobody may 0 fish without a licence of the first minister."]
    assert text["test.fr"] == ["Nobody may 1 fish without a licence of the premier minister."]
    empty = quicker("laws_en_fr.sh", "--prepare", REPOSITORY=tmp_path / "none", RUN=tmp_path / "other", code=1)
    assert "none could not be cloned" in empty.stderr


@pytest.mark.nightly
def test_other_programs_translate_with_exported_models(tmp_path: Path) -> None:
    done = run_with(BIN, "verify_exports.sh", RUN=tmp_path / "run")
    programs = ["argos", "optimum (split)", "optimum (merged)", "transformers.js"]
    lines = [line for line in done.stdout.splitlines() if "equal" in line]
    assert lines[:4] == [f"{program}: all 200 lines are equal" for program in programs]
    assert lines[4].startswith("page: ")


def test_fine_tuning_of_a_model_of_transformers(recipe: Recipe, tmp_path: Path) -> None:
    write_model(tmp_path / "marian", scale_embedding=True, activation_function="swish")
    paths = {"RUN": tmp_path / "run", "XDG_CACHE_HOME": tmp_path}
    for seed, (name, size) in enumerate({"TRAIN": 60, "VALID": 10, "TEST": 3}.items()):
        sides = corpus(size, seed)
        for lang, text in zip(("en", "fr"), sides, strict=True):
            (tmp_path / f"{name}.{lang}").write_bytes(text)
        paths[name] = tmp_path / name
    rows = zip(*(side.splitlines() for side in sides), strict=True)
    paths["TEST"] = tmp_path / "test.tsv"
    paths["TEST"].write_bytes(b"".join(b"\t".join(row) + b"\n" for row in rows))
    options = ["--lr=1e-2", "--batch-tokens=300", "--device-tokens=500", "--valid-updates=1", "--max-updates=2"]
    done = recipe("fine_tune.sh", str(tmp_path / "marian"), "en", "fr", *options, **paths)
    assert "before.fr" in done.stdout and "after.fr" in done.stdout and "bs:1000" in done.stdout
    assert "BLEU" in (tmp_path / "run" / "exported" / "README.md").read_text()
    assert "test.tsv: 3 pairs of en and fr" in done.stderr
    paths["TEST"] = paths["VALID"]
    other = recipe("fine_tune.sh", str(tmp_path / "marian"), "en", "fr", *options, **paths, code=1)
    assert "before.fr was made by 'nmt generate RUN/model.safetensors" in other.stderr
    assert "usage: TRAIN=prefix" in recipe("fine_tune.sh", "marian", **paths, code=1).stderr


def test_quickstart_and_alignments(quicker: Recipe, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert "run recipes/quickstart.sh first" in quicker("alignments.sh", RUN=run, code=1).stderr
    done = quicker("quickstart.sh", RUN=run, UPDATES=2, code=1)
    *samples, score, _, _ = filter(None, done.stdout.splitlines())
    assert [line.split()[0] for line in samples] == ["source", "output", "reference"] * 5
    assert score.startswith("BLEU")
    assert re.search(r"in total  [\d.]+ (seconds|minutes) without validation, [\d.]+ epochs, ", done.stderr)
    assert "error: the model is not good: it has 0 BLEU on the test set, and at least 90 are expected" in done.stderr
    for arguments in ([], ["--guided"]):
        process = quicker("alignments.sh", *arguments, RUN=run)
        assert [line.split()[0] for line in process.stdout.splitlines()] == ["AER", "AER"]


@pytest.mark.nightly
def test_the_quickstart_ends_with_a_good_model(tmp_path: Path) -> None:
    run_with(BIN, "quickstart.sh", RUN=tmp_path)


@pytest.mark.parametrize(("arguments", "tokenizer"), [([], "13a"), (["--published"], "none")])
def test_multi30k(quicker: Recipe, multi30k: Path, tmp_path: Path, arguments: list[str], tokenizer: str) -> None:
    train = partial(quicker, "multi30k.sh", *arguments, MULTI30K=multi30k, RUN=tmp_path / "run")
    train("--prepare")
    assert not (tmp_path / "run" / "model").exists()
    assert f"tok:{tokenizer}" in train().stdout


# The recipes that measure or attack reach their programs


def test_settings_are_compared_on_held_out_text(quicker: Recipe, multi30k: Path, tmp_path: Path) -> None:
    folders = {"CORPUS": multi30k, "RUN": tmp_path / "run"}
    done = quicker("measure/ablation.sh", "--updates", "2", "base", HELD_OUT="5", **folders)
    assert re.search(r"^base: 2 updates of 1, BLEU [\d.]+ on val, [\d.]+ held out$", done.stdout, re.MULTILINE)
    assert "HELD_OUT=5" in quicker("measure/ablation.sh", "base", HELD_OUT="6", **folders, code=1).stderr
    assert "--updates must be a whole number, but is ''" in quicker("measure/ablation.sh", "--updates", code=1).stderr


def test_text_as_people_type_it_is_translated_and_scored(quicker: Recipe, trained: Path, tmp_path: Path) -> None:
    files = [str(trained / name) for name in ("run/average.safetensors", "test.en", "test.de")]
    done = quicker("measure/robustness.sh", *files, "de", RUN=tmp_path / "run")
    names = ["plain", "capitals", "title-case", "no-final-punctuation", "typing-errors"]
    *scores, signature = done.stdout.splitlines()
    assert [line.split()[:2] for line in scores] == [[name, "BLEU"] for name in names]
    assert "case:lc" in signature
    assert (tmp_path / "run" / "capitals.source").read_text() == (trained / "test.en").read_text().upper()
    missing = quicker("measure/robustness.sh", *files[:2], str(tmp_path / "none"), "de", code=1)
    assert "none does not exist" in missing.stderr


def test_confidence_is_compared_with_chrf(quicker: Recipe, trained: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "text", invented_pairs(110, seed=3))
    files = [tmp_path / "text.en", tmp_path / "text.de"]
    model = Path(shutil.copy(trained / "run" / "average.safetensors", tmp_path / "model.safetensors"))
    words, settings = [str(model), *map(str, files)], {"RUN": tmp_path / "run", "ROUNDS": "1"}
    assert "has no confidence; calibrate" in quicker("measure/confidence.sh", *words, **settings, code=1).stderr
    commands.run("calibrate", model, "--source", files[0], "--target", files[1])
    table = quicker("measure/confidence.sh", *words, **settings).stdout.splitlines()
    values = {cells[1].strip(): cells[2].strip() for cells in (row.split("|") for row in table)}
    assert values["lines"] == "110" and float(values["error of the calibration"]) < 0.3
    assert -1 <= float(values["rank correlation of confidence and chrF"]) <= 1
    assert values["time with confidence"].endswith("x")


@pytest.mark.parametrize("script, arguments, starts", [
    ("chaos.sh", ["3"], ["chaos.py {run}/data --folder {run} --kills 3 --gpus 1"]),
    ("compare_peers.sh", ["--only", "train"], ["compare_peers.py {run} --repeats 3 --only train"]),
    ("load.sh", [], [f"load.py {{model}} {{run}}/data/test.en.txt --engine {engine} --repeats 3" for engine in
                     ("pytorch --compute-type auto", "ctranslate2 --compute-type int8")]),
    ("translate_cluster.sh", [], ["translate_cluster.py {model} {run}/input {run} --shard-lines 1000"]),
    ("table3.sh", ["base", "--updates=2"], ["table3.py {run}/data {run} base --updates=2"]),
    ("benchmark_gpu.sh", ["--json"], [
        *(f"benchmark.py train --arch transformer_{size} --device cuda --batch-tokens 25000 --updates 20 {how} --json"
          for size in ("base", "big") for how in ("--no-compile", "--compile")),
        *(f"benchmark.py generate --arch transformer_base --device cuda --lines 3000 --batch-tokens {tokens} "
          "--max-length-offset 0 --json" for tokens in (4096, 16384, 65536)),
    ]),
])  # fmt: skip
def test_recipes_that_measure_or_kill_reach_their_programs(
    quicker: Recipe, trained: Path, tmp_path: Path, script: str, arguments: list[str], starts: list[str]
) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    model = run / "model" / "average.safetensors"
    shutil.copy(trained / "run" / "average.safetensors", model)
    shutil.copytree(trained / "data", run / "data")
    settings = {"RUN": run, "DATA": run / "data", "MODEL": model, "TEXT": trained / "test.en", "TEXT_LINES": "25"}
    done = quicker(f"measure/{script}", *arguments, **settings)
    calls = [line for line in done.stderr.splitlines() if line.startswith("== python recipes/measure/")]
    expected = [f"== python recipes/measure/{start.format(run=run, model=model)}" for start in starts]
    assert calls == expected
    if script == "translate_cluster.sh":
        assert (run / "input").read_text().count("\n") == 25


def test_table_3_trains_each_row_once(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table3, "SMALL", replace(table3.SMALL, width=16, depth=6))
    trainings: list[commands.Done] = []

    def start(command: list[str]) -> Mock:
        trainings.append(commands.run(*command[3:]))
        return Mock(returncode=trainings[-1].code)

    monkeypatch.setattr(table3.subprocess, "run", start)
    options = ["--updates=2", "--device=cpu", "--device-tokens=2500"]

    def print_table(*row: str) -> str:
        monkeypatch.setattr(sys, "argv", ["table3.py", str(trained / "data"), str(tmp_path), *row, *options])
        table3.main()
        return capsys.readouterr().out

    for row in ("base", "a_h4"):
        print_table(row)
    validation = commands.records(tmp_path / "base", "valid")[-1]
    with (tmp_path / "base" / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"kind": "tra')  # as a training that was killed leaves it
    printed = print_table("base", "--lr-scale=9")  # the row is finished
    assert "changed option: --lr-scale was 1.0 and is now 9.0" in trainings[-1].stderr
    assert "nothing to do" in trainings[-1].stderr
    first, second = json.loads((tmp_path / "table3.json").read_text())
    assert (first["name"], second["name"]) == ("base", "a_h4")
    assert (first["published_ppl"], first["published_bleu"], first["published_parameters"]) == (4.92, 25.8, "65M")
    assert first["paper_bleu"] == pytest.approx(validation["paper_bleu"], abs=0.01)
    assert first["parameters"] == second["parameters"]
    assert first["ppl"] == pytest.approx(validation["ppl"], abs=0.01)
    assert (tmp_path / "table3.md").read_text() == printed


@pytest.mark.parametrize("program, arguments, message", [
    ("aer.py", ["--sure={one}", "--possible={one}", "{none}"], "none does not exist"),
    ("aer.py", ["--sure={one}", "--possible={one}", "{two}"], "one has 1 line but {two} has 2"),
    ("aer.py", ["--sure={empty}", "--possible={empty}", "{empty}"], "neither sure nor found links"),
    ("measure/markup.py", ["--source={one}", "--target={one}", "--sure={two}", "--links={one}"], "{two} has 2"),
    ("measure/table1.py", ["{none}", "--repeats=0"], "--repeats must be at least 1, but is 0"),
    ("grammar.py", ["--out={one}/x"], "--out {one}/x cannot be made"),
    ("laws.py", [], "required: clone, folder"),
    ("service_card.py", [], "required: run, source_lang, target_lang, licence"),
    ("scores_by_direction.py", [], "required: run"),
])  # fmt: skip
def test_mistakes_in_the_use_of_programs_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    program: str, arguments: list[str], message: str,
) -> None:  # fmt: skip
    names = {name: tmp_path / name for name in ("none", "empty", "one", "two")}
    for lines, name in enumerate(("empty", "one", "two")):
        names[name].write_text("0-0\n" * lines)
    monkeypatch.setattr(sys, "argv", [program, *(argument.format(**names) for argument in arguments)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "recipes" / program), run_name="__main__")
    assert message.format(**names) in f"{ended.value.code}{capsys.readouterr().err}"


def test_the_files_of_a_tutorial_are_written_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(tutorial: str) -> str:
        monkeypatch.setattr(sys, "argv", ["tutorial_files.py", tutorial, str(folder)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "recipes" / "tutorial_files.py"), run_name="__main__")
            sys.exit("")
        return f"{ended.value.code}{capsys.readouterr().err}"

    folder = tmp_path / "words"
    all_pairs = grammar.corpus
    monkeypatch.setattr(grammar, "corpus", lambda size, seed: all_pairs(size // 3, seed))  # is faster
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "run pip install transformers -c constraints.txt" in refused("language")
    assert not list(folder.iterdir())
    (folder / "model").mkdir()
    assert not refused("company")
    files = sorted(folder.iterdir())
    assert [file.name for file in files] == ["handbook.html", "memory.tmx", "model", "news.md", "terms.tsv"]
    assert "already has handbook.html, memory.tmx" in refused("company")
    assert sorted(folder.iterdir()) == files


def test_table_1_measures_every_kind_of_layer() -> None:
    assert [table1.seconds(kind, 40, 64, "cpu", 1) > 0 for kind in table1.KINDS] == [True] * 5
