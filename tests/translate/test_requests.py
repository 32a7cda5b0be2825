"""Prefixes, constraints and JSON lines of `nmt generate`, and samples that depend on the line alone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from checkpoints import generated
from commands import failed, run
from sacrebleu.metrics import CHRF

OPTIONS = ["--precision=fp32", "--device=cpu", "--max-length-offset=15"]
SOURCES = ["Ba de ki.", "Lo mu na po ra.", "", "Si."]


@pytest.fixture(scope="module")
def model(trained: Path) -> Path:
    return trained / "run" / "best.safetensors"


def generate(model: Path, *arguments: str | Path, lines: list[str] = SOURCES) -> list[dict[str, Any]]:
    return generated(model, lines, *OPTIONS, *arguments)


def test_constraints_occur_in_every_translation(model: Path, tmp_path: Path) -> None:
    (tmp_path / "constraints").write_text("ad\tum um\n\nxyz\n\n")
    translations = generate(model, "--constraints", tmp_path / "constraints", "--beam=4", "--n-best=3")
    for phrase, line in (("ad", 0), ("um um", 0), ("xyz", 2)):
        assert len(translations[line]["hypotheses"]) == 3
        assert all(phrase in h["text"] for h in translations[line]["hypotheses"])
    assert not any("unmet" in h for line in translations for h in line["hypotheses"])
    plain = generate(model, "--beam=4", "--n-best=3")
    assert [translations[1], translations[3]] == [plain[1], plain[3]]


def test_a_phrase_that_detokenisation_would_change_stands_as_given(model: Path) -> None:
    phrases = ["ba's-de", "ad , um"]
    line = json.dumps({"source": "Ba de ki.", "constraints": phrases})
    (translation,) = generate(model, "--input-format=jsonl", "--alignments", lines=[line])
    text, links = translation["hypotheses"][0]["text"], translation["hypotheses"][0]["alignment"].split()
    assert all(phrase in text for phrase in phrases)
    assert {int(link.split("-")[1]) for link in links} <= set(range(len(text.split())))


def test_json_lines_take_prefix_and_constraints_and_pass_other_fields_through(model: Path) -> None:
    objects = [
        {"id": 3, "source": SOURCES[0], "prefix": "um ol", "constraints": ["ad", "xyz"]},
        {"source": SOURCES[1], "hypotheses": "of someone else", "é": None},
    ]
    outputs = generate(model, "--input-format=jsonl", lines=[json.dumps(value) for value in objects])
    hypotheses = [line.pop("hypotheses") for line in outputs]
    assert outputs == [objects[0], {"source": SOURCES[1], "é": None}]
    (best,) = hypotheses[0]
    assert best["text"].startswith("um ol")
    assert all(phrase in best["text"] for phrase in ("ad", "xyz"))
    assert len(best["log_probs"]) == len(best["pieces"]) + 1
    assert sum(best["log_probs"]) == pytest.approx(best["log_prob"])
    assert hypotheses[1] == generate(model)[1]["hypotheses"]


def test_one_alternative_of_a_constraint_occurs(model: Path) -> None:
    """A blank alternative is ignored, and so is one that the maximum length cannot hold."""
    constraints = [["xyz", "xyzab " * 40], ["", "um um", "ad ad"], [" ", ""], []]
    lines = [json.dumps({"source": source, "constraints": constraints}) for source in SOURCES]
    for line in generate(model, "--input-format=jsonl", "--beam=4", "--n-best=3", lines=lines):
        for h in line["hypotheses"]:
            assert "xyz" in h["text"] and ("um um" in h["text"] or "ad ad" in h["text"])
            assert "unmet" not in h


def test_a_line_whose_constraints_do_not_fit_says_so(model: Path) -> None:
    line = json.dumps({"source": "Ba.", "constraints": ["ab " * 40]})
    done = run("generate", model, *OPTIONS, "--input-format=jsonl", "--output-format=jsonl", stdin=line.encode())
    assert json.loads(done.stdout)["hypotheses"][0]["unmet"] is True
    assert re.search("line 1: .*constraint", done.stderr)


def test_samples_depend_on_seed_line_and_number_alone(model: Path) -> None:
    """Neither processes nor batches nor the number of samples change them, but equal lines have different samples."""

    def texts(*options: str, lines: list[str] = SOURCES) -> list[list[str]]:
        samples = generate(model, "--sample", "--seed=5", *options, lines=lines)
        return [[hypothesis["text"] for hypothesis in line["hypotheses"]] for line in samples]

    expected = texts("--samples=3")
    assert texts("--samples=3", "--workers=2", "--batch-tokens=30") == expected
    assert [line[:3] for line in texts("--samples=5")] == expected
    first, second = texts("--samples=3", lines=[SOURCES[0], SOURCES[0]])
    assert first == expected[0] != second


@pytest.mark.parametrize("options", [["--beam=4", "--n-best=4"], ["--sample", "--samples=5", "--epsilon=0.02"]])
def test_the_least_risk_is_that_of_sacrebleus_chrf_over_the_translations_of_all_models(
    model: Path, options: list[str]
) -> None:
    """Each model translates alone; samples of the second one have the next seed."""
    models, lines = [model, model.with_name("snapshot-00000020.safetensors")], [*SOURCES[:2], SOURCES[0]]
    least = ["--min-length=1"]  # a single translation is not empty
    alone = [generate(path, *options, *least, f"--seed={n}", lines=lines) for n, path in enumerate(models, start=7)]
    chosen = generated(models[0], lines, *OPTIONS, models[1], *options, "--seed=7", "--mbr=chrf")
    chrf = CHRF()
    for line, *lists in zip(chosen, *alone, strict=True):
        pool = [hypothesis["text"] for each in lists for hypothesis in each["hypotheses"]]
        scores = [sum(chrf.sentence_score(text, [other]).score for other in pool) / len(pool) for text in pool]
        (best,) = line["hypotheses"]
        assert best["text"] == pool[scores.index(max(scores))]
        assert 100 * best["utility"] == pytest.approx(max(scores))


def test_messages_name_the_line_of_its_file(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text('{"source": "Ba."}\n' * 3)
    (tmp_path / "b").write_text(json.dumps({"source": "", "prefix": "ba " * 90}))
    inputs = ["--input-format=jsonl", "--input", tmp_path / "a", "--input", tmp_path / "b"]
    for output in ([], ["--output", tmp_path / "out"]):
        said = failed("generate", model, *OPTIONS, *inputs, *output)
        assert re.search(r"/b, line 1: its prefix has \d+ pieces", said), said


@pytest.mark.parametrize("arguments, stdin, message", [
    (["--input-format=jsonl"], "{}\n", r'standard input, line 1 has no text as its "source"'),
    (["--input-format=jsonl"], '{"source": ""}\nnot\n', "standard input, line 2 is not JSON"),
    (["--input-format=jsonl"], "[" * 100_000, "standard input, line 1 is not JSON"),
    (["--input-format=jsonl"], '{"source": "", "prefix": 3}', 'line 1: "prefix" must be text, but is 3'),
    (["--input-format=jsonl"], '{"source": "", "constraints": "a"}', 'line 1: "constraints" must be a list of texts'),
    (["--input-format=jsonl"], '{"source": "", "constraints": [["a", 3]]}', "texts or of lists, but is .*'a', 3"),
    (["--input-format=jsonl", "--prefixes=x"], "", "--prefixes x does not work with --input-format jsonl"),
    (["--prefixes={folder}/test.de"], "Ba.\n", "standard input has 1 line but .*test.de has 10; the two must be"),
    (["--constraints={folder}/test.de"], "Ba.\n" * 11, "input has 11 lines but .*test.de has 10; the two must be"),
    (["--input-format=jsonl"], '{"source": "' + "ba " * 900 + '", "prefix": "a"}', "cannot be translated in parts"),
    (["--prefixes=-"], "Ba.\n", "standard input can be only one of --input, --prefixes and --constraints"),
    (["--constraints="], "Ba.\n", "--constraints is empty; give a value or leave it out"),
    (["--input="], "", "--input is empty; give the name of a file"),
    (["--input-format=jsonl", "--sample"], '{"source": "", "constraints": ["a"]}', "work with beam search only"),
])  # fmt: skip
def test_bad_requests_are_one_sentence(trained: Path, arguments: list[str], stdin: str, message: str) -> None:
    flags = [argument.format(folder=trained) for argument in arguments]
    said = failed("generate", trained / "run" / "best.safetensors", *OPTIONS, *flags, stdin=stdin.encode())
    assert re.search(message, said), said
