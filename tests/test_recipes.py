"""The WMT14 recipes from archives to scores, on tiny stand-ins for the corpora, in their formats and of their names."""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import invented_pairs
from marian import write_model

ROOT = Path(__file__).parents[1]
TINY = [
    "--d-model=32", "--d-ff=64", "--heads=2", "--d-k=16", "--d-v=16", "--encoder-layers=1", "--decoder-layers=1",
    "--max-updates=20", "--save-updates=1", "--batch-tokens=800", "--valid-metric=nll", "--device=cpu",
]  # fmt: skip


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
        "training-parallel-europarl-v7.tgz": "training/europarl-v7.{}-en",
        "training-parallel-commoncrawl.tgz": "commoncrawl.{}-en",
        "training-parallel-nc-v9.tgz": "training/news-commentary-v9.{}-en",
        "training-parallel-un.tgz": "un/undoc.2000.{}-en",
    }
    for seed, (name, prefix) in enumerate(corpora.items()):
        members = {}
        for target in ("de", "fr"):
            english, other = corpus(60, seed)
            english = english[:-1] + b" \xff\n"  # not UTF-8
            members |= {f"{prefix.format(target)}.en": english, f"{prefix.format(target)}.{target}": other}
        pack(folder / name, members)
    english, french = map(gzip.compress, corpus(60, 7))
    giga = {"giga-fren.release2.fixed.en.gz": english, "giga-fren.release2.fixed.fr.gz": french}
    pack(folder / "training-giga-fren.tar", giga)
    for year in (2012, 2013):
        english, other = map(sgm, corpus(8, year))
        sides = {"en": english, "de": other, "fr": other}
        pack(folder / f"newstest{year}.tgz", {f"test/newstest{year}-src.{lang}.sgm": sides[lang] for lang in sides})
    for name, top, lines in (("test-full", "test-full", 6), ("test-filtered", "test", 4)):
        english, other = map(sgm, corpus(lines, 9))
        members = {}
        for pair, target in (("deen", "de"), ("fren", "fr")):
            members |= {f"{top}/newstest2014-{pair}-src.en.sgm": english}
            members |= {f"{top}/newstest2014-{pair}-ref.{target}.sgm": other}
        pack(folder / f"{name}.tgz", members)
    return folder


def run_recipe(script: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"ENVIRONMENT": "active", "WORKERS": "1"} | settings
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", str(ROOT / "recipes" / script), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def recipe(name: str, data: Path, run_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_recipe(f"wmt14_{name}.sh", *arguments, DATA=str(data), RUN=str(run_dir), VOCAB_SIZE="400")


@pytest.mark.parametrize(("name", "size", "train", "valid"), [("en_de", "base", 180, 8), ("en_fr", "big", 300, 16)])
def test_from_archives_to_scores(name: str, size: str, train: int, valid: int, archives: Path, tmp_path: Path) -> None:
    done = recipe(name, archives, tmp_path / "run", size, "--", *TINY)
    assert done.returncode == 0, done.stderr
    target = name[-2:]
    assert f"train: {train} pairs" in done.stderr
    assert f"valid: {valid} pairs" in done.stderr
    assert (tmp_path / "run" / "text" / "newstest2014.en").read_bytes() == corpus(6, 9)[0]
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["BLEU", "paper-BLEU"] * 2
    assert all(("compounds:split" in line) == (target == "de") for line in lines if line.startswith("paper"))
    assert len((tmp_path / "run" / size / f"newstest2014-filtered.{target}").read_text().splitlines()) == 4
    again = recipe(name, archives, tmp_path / "run", size, "preprocess", "train", "--", *TINY)
    assert again.returncode == 0
    assert "data exists already" in again.stderr
    assert "nothing to do" in again.stderr


def test_what_is_wrong_with_an_archive_is_said(archives: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for path in archives.iterdir():
        (data / path.name).symlink_to(path)
    broken = data / "training-parallel-commoncrawl.tgz"
    broken.unlink()
    broken.write_bytes((archives / broken.name).read_bytes()[:500])
    done = recipe("en_de", data, tmp_path / "run", "unpack")
    assert done.returncode == 1
    assert (
        "training-parallel-commoncrawl.tgz does not have all of commoncrawl.de-en.en commoncrawl.de-en.de"
        in done.stderr
    )
    assert not (tmp_path / "run" / "text" / "commoncrawl.de-en.de").exists()
    pack(broken, {"commoncrawl.de-en.en": b"a\n"})
    assert "does not have all of" in recipe("en_de", data, tmp_path / "run", "unpack").stderr
    assert "steps (all of them if none is named)" in recipe("en_de", data, tmp_path / "run", "trian").stderr


def test_parsing_from_a_treebank_to_f1_with_sentences_that_have_no_trees(tmp_path: Path) -> None:
    subjects = ["cats", "dogs", "birds", "fish", "(cows)"]
    bank = [f"( (S (NP-SBJ (NNS {noun}{i})) (VP (VBP sleep)) (. .)))" for i, noun in enumerate(subjects * 4)]
    for name, trees in (("train", bank), ("dev", bank[:3])):
        text = "".join(f"{tree}\n" for tree in trees).replace("(cows)", "-LRB-cows-RRB-")
        (tmp_path / f"{name}.mrg").write_text(text)
    (tmp_path / "unlabelled").write_text("cats :) sleep .\n\n( dogs ) sleep\n")
    paths = {"TREEBANK": str(tmp_path), "UNLABELLED": str(tmp_path / "unlabelled"), "RUN": str(tmp_path / "run")}
    options = [flag for flag in TINY if flag not in ("--valid-metric=nll", "--batch-tokens=800")]
    done = run_recipe(
        "wsj_parsing.sh", *options, "--batch-tokens=200", **paths, VOCAB_SIZE="330", SEMI_VOCAB_SIZE="340", WEIGHT="2"
    )
    assert done.returncode == 0, done.stderr
    assert "train: 22 pairs" in done.stderr  # 20 trees, which are used twice as often, and two that are new
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["EVALB", "F1"]] * 4
    silver = (tmp_path / "run" / "silver" / "trees.mrg").read_text()
    assert "(. .)" in silver and ":-RRB-" in silver


@pytest.fixture
def multi30k(tmp_path: Path) -> Path:
    """A stand-in for the corpus."""
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for seed, (name, size) in enumerate({"train": 101, "val": 20, "test_2016_flickr": 10}.items()):
        for lang, text in zip(("en", "de"), corpus(size, seed), strict=True):
            (folder / f"{name}.{lang}.gz").write_bytes(gzip.compress(text))
    return folder


def test_back_translation_from_half_a_corpus_to_scores(multi30k: Path, tmp_path: Path) -> None:
    paths = {"MULTI30K": str(multi30k), "RUN": str(tmp_path / "run"), "VOCAB_SIZE": "430", "AVERAGED": "2"}
    done = run_recipe("back_translation.sh", "sample", *TINY, **paths)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["BLEU", "BLEU"]
    synthetic = tmp_path / "run" / "synthetic-sample"
    assert [len((synthetic / f"text.{lang}").read_text().splitlines()) for lang in ("en", "de")] == [50, 50]
    assert "is not beam or sample; usage" in run_recipe("back_translation.sh", "x", **paths).stderr


def test_distillation_from_a_teacher_to_scores_and_speeds(trained: Path, multi30k: Path, tmp_path: Path) -> None:
    paths = {"MULTI30K": str(multi30k), "RUN": str(tmp_path / "run"), "AVERAGED": "2", "REPEATS": "1"}
    teacher = str(trained / "run" / "average.pt")
    done = run_recipe("distillation.sh", teacher, "--", *TINY, **paths)
    assert done.returncode == 0, done.stderr
    speeds = [line for line in done.stdout.splitlines() if "sentences/s" in line]
    assert [line.split(":")[0] for line in speeds] == ["teacher", "student"]
    assert done.stdout.count("out.int8.de") == 2
    assert len((tmp_path / "run" / "distilled.de").read_text().splitlines()) == 101
    assert "no teacher is given; usage" in run_recipe("distillation.sh", "--", *TINY, **paths).stderr


def test_a_model_of_transformers_is_tuned_compared_and_exported(tmp_path: Path) -> None:
    write_model(tmp_path / "marian", scale_embedding=True, activation_function="swish")
    paths = {"RUN": str(tmp_path / "run")}
    for seed, (name, size) in enumerate({"TRAIN": 60, "VALID": 10, "TEST": 3}.items()):
        for lang, text in zip(("en", "fr"), corpus(size, seed), strict=True):
            (tmp_path / f"{name}.{lang}").write_bytes(text)
        paths[name] = str(tmp_path / name)
    options = ["--lr=1e-2", "--batch-tokens=1000", "--valid-updates=2", "--max-updates=4", "--device=cpu"]
    done = run_recipe("fine_tune.sh", str(tmp_path / "marian"), "en", "fr", *options, **paths)
    assert done.returncode == 0, done.stderr
    assert "before.fr" in done.stdout and "after.fr" in done.stdout and "bs:1000" in done.stdout
    assert "BLEU" in (tmp_path / "run" / "exported" / "README.md").read_text()
    assert "usage: TRAIN=prefix" in run_recipe("fine_tune.sh", "marian", **paths).stderr


def test_table_1_measures_every_kind_of_layer() -> None:
    program = (
        "import table1\n"
        "for kind in table1.KINDS:\n"
        "    assert table1.seconds(kind, 40, 64, 'cpu', 1) > 0, kind\n"
        "print(len(table1.KINDS))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT / "recipes", capture_output=True, text=True, timeout=100)
    assert done.stdout == "5\n", done.stderr
