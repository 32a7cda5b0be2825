"""`nmt score` compares several systems, with the p-values and intervals of the sacrebleu command."""

import json
import random
import re
from pathlib import Path
from typing import Any

import forks
import pytest
from commands import failed, run

WORDS = ["the", "a", "man", "woman", "dog", "house", "tree", "sees", "builds", "likes", "green", "old", "in", "near"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the paths of references and of two systems, of which the second makes fewer mistakes."""
    folder, draw = tmp_path_factory.mktemp("systems"), random.Random(2)
    references = [draw.choices(WORDS, k=draw.randint(5, 12)) for _ in range(60)]
    for name, mistakes in {"reference": 0.0, "first": 0.2, "second": 0.13, "as_bad": 0.2}.items():
        lines = [[draw.choice(WORDS) if draw.random() < mistakes else word for word in line] for line in references]
        (folder / name).write_text("".join(" ".join(line).capitalize() + ".\n" for line in lines))
    return [str(folder / name) for name in ("reference", "first", "second")]


def sacrebleu_command() -> None:
    from sacrebleu.sacrebleu import main  # changes how its process treats SIGPIPE

    main()


def sacrebleu(reference: str, systems: list[str], *options: str) -> str:
    """Returns the output of the sacrebleu command with four digits."""
    arguments = [reference, "-i", *systems, *options, "-w", "4"]
    return forks.run(*arguments, instead=sacrebleu_command, env={"NO_COLOR": "1"}).output


def compared(files: list[str], metric: str, *options: str) -> list[dict[str, Any]]:
    """Returns the scores of the systems under a metric."""
    reference, *systems = files
    hypotheses = [f"--hypothesis={path}" for path in systems]
    done = run("score", "--reference", reference, *hypotheses, "--metric", metric, "--json", *options)
    found = json.loads(done.stdout)["hypotheses"]
    assert [row["hypothesis"] for row in found] == systems
    return [row[metric] for row in found]


METRICS = ["bleu", "chrf", "ter"]


@pytest.mark.parametrize("metric", METRICS)
def test_the_paired_bootstrap_is_that_of_sacrebleu(files: list[str], metric: str) -> None:
    theirs = sacrebleu(files[0], files[1:], "--paired-bs", "-m", metric, "-f", "text")
    scores = compared(files, metric, "--paired", "bootstrap")
    expected = [tuple(map(float, row)) for row in re.findall(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)", theirs)]
    actual = []
    for score in scores:
        low, high = score["confidence"]["low"], score["confidence"]["high"]
        actual.append((score["score"], score["confidence"]["mean"], (high - low) / 2))
    assert actual == [pytest.approx(row, abs=6e-5) for row in expected]
    (p_value,) = map(float, re.findall(r"p = ([\d.]+)", theirs))
    assert [score["p_value"] for score in scores] == [None, pytest.approx(p_value, abs=6e-5)]
    assert scores[0]["signature"] in theirs


@pytest.mark.parametrize("metric", METRICS)
def test_approximate_randomisation_is_that_of_sacrebleu(files: list[str], metric: str) -> None:
    theirs = json.loads(sacrebleu(files[0], files[1:], "--paired-ar", "-m", metric, "-f", "json"))
    scores = compared(files, metric, "--paired", "ar")
    for score, row in zip(scores, theirs, strict=True):
        assert score["score"] == pytest.approx(row[score["name"]]["score"])
        assert score["p_value"] == row[score["name"]]["p_value"]
        assert score["confidence"]["low"] < score["score"] < score["confidence"]["high"]
    assert "|bs:1000|ar:10000|" in scores[0]["signature"]


@pytest.mark.parametrize("test", ["bootstrap", "ar"])
def test_only_a_clear_difference_has_a_small_p_value(files: list[str], test: str) -> None:
    reference, first, _ = files
    as_bad = str(Path(first).with_name("as_bad"))
    _, second, third = compared([reference, first, as_bad, reference], "bleu", "--paired", test)
    assert second["p_value"] > 0.1
    assert third["p_value"] < 0.01


def test_the_table_has_a_row_for_each_system(files: list[str]) -> None:
    reference, first, second = files
    ours = ["--reference", reference, "--hypothesis", first, "--hypothesis", second, "--paired", "bootstrap"]
    ours += ["--bootstrap", "200", "--metric", "bleu", "--metric", "chrf"]
    head, *rows, bleu, chrf = run("score", *ours).stdout.decode().splitlines()
    found = json.loads(run("score", *ours, "--json").stdout)
    assert re.split("  +", head) == ["hypothesis", *["BLEU", "95% confidence", "p"], *["chrF2", "95% confidence", "p"]]
    for row, system in zip(rows, found["hypotheses"], strict=True):
        cells = [system["hypothesis"]]
        for score in (system["bleu"], system["chrf"]):
            interval = f"{score['confidence']['low']:.2f} to {score['confidence']['high']:.2f}"
            p_value = "-" if score["p_value"] is None else f"{score['p_value']:.4f}"
            cells += [f"{score['score']:.2f}", interval, p_value]
        assert re.split("  +", row) == cells
    assert bleu.startswith("BLEU nrefs:1|bs:200|seed:12345|")
    assert chrf.startswith("chrF2 nrefs:1|bs:200|seed:12345|")


def test_several_systems_are_scored_without_a_test(files: list[str]) -> None:
    reference, first, second = files
    done = run("score", "--reference", reference, "--hypothesis", first, "--hypothesis", second)
    single = [run("score", "--reference", reference, "--hypothesis", path).stdout.decode() for path in (first, second)]
    head, *rows, signature = done.stdout.decode().splitlines()
    assert head.split() == ["hypothesis", "BLEU"]
    assert [row.split() for row in rows] == [[p, s.split()[1]] for p, s in zip((first, second), single, strict=True)]
    assert signature.split()[1] in single[0]


def test_paper_bleu_is_compared_over_its_own_tokens(files: list[str]) -> None:
    reference, first, second = files
    options = ["--reference", reference, "--metric", "paper-bleu", "--target-lang", "de", "--json"]
    done = run("score", *options, "--hypothesis", first, "--hypothesis", second, "--paired", "bootstrap")
    compared = [row["paper-bleu"] for row in json.loads(done.stdout)["hypotheses"]]
    for path, score in zip((first, second), compared, strict=True):
        alone = json.loads(run("score", *options, "--hypothesis", path).stdout)["paper-bleu"]
        assert score["score"] == pytest.approx(alone["score"])
        assert "|tok:moses-de|compounds:split|" in score["signature"]


def test_systems_that_hardly_differ_get_a_warning(files: list[str], tmp_path: Path) -> None:
    reference, first, second = files
    similar = tmp_path / "similar"
    similar.write_text("Another line.\n" + Path(first).read_text().split("\n", 1)[1])
    options = ["--reference", reference, "--bootstrap", "50", "--hypothesis", first, "--hypothesis", str(similar)]
    found = run("score", *options, "--hypothesis", second, "--paired", "bootstrap").stderr
    assert f"{similar} differs from {first} in only 1 of 60 lines" in found
    assert found.count("warning: ") == 1
    assert run("score", *options).stderr == ""


def test_one_system_cannot_be_compared(files: list[str]) -> None:
    reference, first, second = files
    options = ["--reference", reference, "--hypothesis", first, "--paired", "ar"]
    assert "--paired ar compares systems, but there is one --hypothesis" in failed("score", *options)
    Path(first + ".short").write_text("One line.\n")
    assert "first.short has 1 lines but" in failed("score", *options, "--hypothesis", first + ".short")
    evalb = ["--metric=evalb", "--reference", reference, "--hypothesis", first, "--hypothesis", second]
    assert "one --hypothesis" in failed("score", *evalb)
