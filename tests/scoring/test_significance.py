"""`nmt score` compares several systems, with the p-values and intervals of the sacrebleu command."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forks
import pytest
from commands import failed, run

NAMES = ["bleu", "ter"]
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


def compared(files: list[str], metric: str, *options: str) -> list[dict[str, Any]]:
    """Returns the scores of the systems under a metric."""
    reference, *systems = files
    hypotheses = [f"--hypothesis={path}" for path in systems]
    done = run("score", "--reference", reference, *hypotheses, "--metric", metric, "--json", *options)
    rows = json.loads(done.stdout)["hypotheses"]
    assert [row["hypothesis"] for row in rows] == systems
    return [row[metric] for row in rows]


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
@pytest.mark.parametrize("test, flag", [("bootstrap", "--paired-bs"), ("ar", "--paired-ar")])
def test_paired_tests_are_those_of_the_sacrebleu_command(files: list[str], metric: str, test: str, flag: str) -> None:
    reference, *systems = files
    arguments = [reference, "-i", *systems, flag, "-m", metric, "-f", "text", "-w", "4"]
    theirs = forks.run(*arguments, instead=sacrebleu_command, env={"NO_COLOR": "1"}).output
    figures = re.findall(r"│ +([\d.]+)(?: \(([\d.]+) ± ([\d.]+)\))? +│", theirs)
    scores = compared(files, metric, "--paired", test)
    alone = json.loads(
        run("score", "--reference", reference, "--hypothesis", systems[1], "--metric", metric, "--json").stdout
    )
    assert scores[1]["details"] == alone[metric]["details"]
    for score, (expected, mean, half_width) in zip(scores, figures, strict=True):
        confidence = score["confidence"]
        assert score["score"] == pytest.approx(float(expected), abs=6e-5)
        assert confidence["low"] < score["score"] < confidence["high"]
        if test == "bootstrap":  # with the other test, the command gives no intervals
            assert confidence["mean"] == pytest.approx(float(mean), abs=6e-5)
            assert (confidence["high"] - confidence["low"]) / 2 == pytest.approx(float(half_width), abs=6e-5)
    (p_value,) = map(float, re.findall(r"p = ([\d.]+)", theirs))
    assert [score["p_value"] for score in scores] == [None, pytest.approx(p_value, abs=6e-5)]
    assert "|bs:1000|" in scores[0]["signature"]
    assert scores[0]["signature"].replace("|bs:1000|ar:", "|ar:") in theirs


@pytest.mark.parametrize("test", ["bootstrap", "ar"])
def test_only_a_clear_difference_has_a_small_p_value(files: list[str], test: str) -> None:
    reference, first, _ = files
    as_bad = str(Path(first).with_name("as_bad"))
    _, second, third = compared([reference, first, as_bad, reference], "bleu", "--paired", test)
    assert second["p_value"] > 0.1
    assert third["p_value"] < 0.01


@pytest.mark.parametrize("test", ["bootstrap", "ar"])
@pytest.mark.parametrize("changes, options", [
    ((str, str), []),
    ((str.upper, str.lower), ["--lowercase"]),
    ((lambda line: line + " Zebra.", lambda line: line + " Yucca."), []),
    ((str.upper, str.lower), ["--metric", "ter", "--lowercase"]),
])  # fmt: skip
def test_equal_systems_differ_by_chance(
    files: list[str], tmp_path: Path, changes: list[Callable[[str], str]], options: list[str], test: str
) -> None:
    reference, first, _ = files
    equal = [tmp_path / name for name in ("equal", "again")]
    for path, change in zip(equal, changes, strict=True):
        path.write_text("".join(f"{change(line)}\n" for line in Path(first).read_text().splitlines()))
    hypotheses = [f"--hypothesis={path}" for path in (*equal, reference)]
    done = run("score", "--reference", reference, *hypotheses, "--paired", test, "--json", *options)
    scores = [score for row in json.loads(done.stdout)["hypotheses"] for name, score in row.items() if name in NAMES]
    assert [score["p_value"] for score in scores[:2]] == [None, 1] and scores[2]["p_value"] < 0.01
    assert done.stderr == ""


def test_the_table_has_a_row_for_each_system(files: list[str]) -> None:
    reference, first, second = files
    ours = ["--reference", reference, "--hypothesis", first, "--hypothesis", second, "--paired", "bootstrap"]
    ours += ["--bootstrap", "200", "--metric", "bleu", "--metric", "chrf"]
    head, *rows, bleu, chrf = run("score", *ours).stdout.decode().splitlines()
    report = json.loads(run("score", *ours, "--json").stdout)
    columns = ["hypothesis", "BLEU", "95 % confidence", "p", "chrF2", "95 % confidence", "p"]
    assert re.split("  +", head) == columns
    for row, system in zip(rows, report["hypotheses"], strict=True):
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
    assert re.split("  +", head) == ["hypothesis", "BLEU", "95 % confidence"]
    for row, path, alone in zip(rows, (first, second), single, strict=True):
        score, low, high = re.findall(r"\d+\.\d+", alone.splitlines()[0])
        assert row.split() == [path, score, low, "to", high]
    assert signature.split()[1] in single[0]


def test_paper_bleu_is_compared_over_its_own_tokens(files: list[str]) -> None:
    reference, *systems = files
    options = ["--metric", "paper-bleu", "--target-lang", "de", "--json", "--reference", reference]
    scores = compared(files, "paper-bleu", "--target-lang", "de", "--paired", "bootstrap")
    for path, score in zip(systems, scores, strict=True):
        alone = json.loads(run("score", *options, "--hypothesis", path).stdout)["paper-bleu"]
        assert score["score"] == pytest.approx(alone["score"])
        assert "|tok:moses-de|punct:ascii-quotes-dashes-dots-wide|compounds:split|" in score["signature"]


def test_systems_that_hardly_differ_get_a_warning(files: list[str], tmp_path: Path) -> None:
    reference, first, second = files
    similar = tmp_path / "similar"
    similar.write_text("Another line.\n" + Path(first).read_text().split("\n", 1)[1])
    options = ["--reference", reference, "--bootstrap", "50", "--hypothesis", first, "--hypothesis", str(similar)]
    stderr = run("score", *options, "--hypothesis", second, "--paired", "bootstrap").stderr
    assert f"{similar} differs from {first} in only 1 of 60 lines" in stderr
    assert stderr.count("warning: ") == 1
    assert run("score", *options).stderr == ""


def test_one_system_cannot_be_compared(files: list[str]) -> None:
    reference, first, _ = files
    options = ["--reference", reference, "--hypothesis", first, "--paired", "ar"]
    assert "--paired ar compares systems, but there is one --hypothesis" in failed("score", *options)
    Path(first + ".short").write_text("One line.\n")
    assert "first.short has 1 line but" in failed("score", *options, "--hypothesis", first + ".short")
