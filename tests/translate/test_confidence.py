"""`nmt calibrate`, and the confidence of translations."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkpoints import FP32, generated, saved
from commands import LANGS, failed, run, train
from conftest import invented_pairs, write_pairs
from sacrebleu.metrics import CHRF
from servers import serving

from nmt.checkpoint import load_checkpoint
from nmt.checkpoint_format import read_digest
from nmt.text.words import lacks_numbers
from nmt.translate.translator import Translator

OPTIONS = ["--precision=fp32", "--device=cpu"]
PAIRS = invented_pairs(110, seed=3)
SOURCES = [source for source, _ in PAIRS]


# Lines whose translations have no doubts by their lengths.
SHORT = [line for line in SOURCES if len(line) < 60 and len(line.split()) > 2]


def calibrate(model: Path, folder: Path, *options: str | Path) -> str:
    write_pairs(folder / "text", PAIRS)
    files = ["--source", folder / "text.en", "--target", folder / "text.de"]
    return str(run("calibrate", model, *files, *OPTIONS, *options).stderr)


def confidences(model: Path, *options: str | Path, lines: list[str] = SOURCES) -> list[Any]:
    return [line["hypotheses"][0].get("confidence") for line in generated(model, lines, *OPTIONS, *options)]


@pytest.fixture(scope="module")
def model(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated copy of the trained model."""
    folder = tmp_path_factory.mktemp("calibrated")
    path = Path(shutil.copy(trained / "run" / "best.safetensors", folder / "model.safetensors"))
    assert "translations of en-de with pytorch have a confidence, fitted to 110 lines" in calibrate(path, folder)
    return path


def test_confidence_is_chrf_on_average(model: Path) -> None:
    lines = generated(model, SOURCES, *OPTIONS)
    outputs = [line["hypotheses"][0] for line in lines]
    pairs = zip(outputs, PAIRS, strict=True)
    scores = [CHRF().sentence_score(output["text"], [reference]).score / 100 for output, (_, reference) in pairs]
    values = [output["confidence"] for output in outputs]
    assert 0 <= min(values) < max(values) <= 1
    assert sum(values) / len(values) == pytest.approx(sum(scores) / len(scores), abs=0.01)
    translated = Translator.load(model, runtime=FP32).hypotheses(SOURCES[:9])
    assert [best.confidence for best, *_ in translated] == pytest.approx(values[:9], abs=1e-3)


def test_a_line_of_several_sentences_has_their_mean_confidence_and_what_is_copied_has_1(model: Path) -> None:
    first, second = confidences(model, lines=["Ba de ki.", "Lo mu na po ra."])
    assert confidences(model, "--split-sentences", lines=["Ba de ki. Lo mu na po ra.", "3.14", ""]) == [
        pytest.approx((first + second) / 2, abs=1e-3), 1, 1
    ]  # fmt: skip


def test_the_service_answers_with_the_same_confidence(model: Path) -> None:
    with serving(model, *OPTIONS) as server:
        for options in ({}, {"pieces": True}):
            translations = server.translate(SOURCES[:3], **options)["translations"]
            values = [text["sentences"][0]["hypotheses"][0]["confidence"] for text in translations]
            assert values == pytest.approx(confidences(model, lines=SOURCES[:3]), abs=1e-3)
        assert "confidence" not in str(server.translate(SOURCES[:3], beam=2))


def test_the_service_marks_doubtful_sentences_of_a_document_if_the_client_asks_for_it(model: Path) -> None:
    page = "<p>Ba de.</p>" + "".join(f"<p>{line}</p>" for line in SHORT[:3])
    with serving(model, *OPTIONS) as server:
        for marks, expected in (("", 0), ("&doubtful=0.000001", 1), ("&doubtful=1", 4)):  # two words are doubtful
            document_id = server.send("POST", f"/documents?name=a.html{marks}", page.encode()).json["id"]
            while server.get(f"/documents/{document_id}").json["state"] != "done":
                pass
            assert server.get(f"/documents/{document_id}/result").body.count(b'<mark class="doubtful">') == expected


@pytest.mark.parametrize("source, translation, expected", [
    ("bis 17:30 Uhr", "until 17.30", False), ("10,000 x", "10.000", False), ("3 Lampen", "three lamps", False),
    ("am 08.05.", "on 8 May", False), ("im Jahr 2019", "in a year", True), ("٣٠ x", "30", False),
    ("12, 13", "12", True),
])  # fmt: skip
def test_translations_that_lack_numbers(source: str, translation: str, expected: bool) -> None:
    assert lacks_numbers(source, translation) == expected


def test_lines_whose_translations_lack_numbers_have_doubts(model: Path) -> None:
    lines = ["Ba de ki.", "Lo 1984 na po ra.", "Ba de 77."]
    best = [line["hypotheses"][0] for line in generated(model, lines, *OPTIONS, "--no-protect")]
    lacking = [lacks_numbers(line, each["text"]) for line, each in zip(lines, best, strict=True)]
    assert [each.get("doubts") == ["missing numbers"] for each in best] == lacking and any(lacking)


def test_lines_whose_translations_are_much_shorter_have_doubts(model: Path) -> None:
    lines = [" ".join(SOURCES[i : i + 4]) for i in range(9)]
    shorter = []
    for line in generated(model, lines, *OPTIONS):
        best = line["hypotheses"][0]
        shorter.append(2 * len(best["text"]) < len(line["source"]) >= 60)
        assert ("much shorter" in best.get("doubts", [])) == shorter[-1]
    assert any(shorter)


def test_a_calibration_holds_for_its_search_and_model_alone(model: Path, trained: Path, tmp_path: Path) -> None:
    lines = SOURCES[:2]
    assert all(confidences(model, "--n-best=2", lines=lines))
    untouched = trained / "run" / "best.safetensors"
    assert confidences(model, "--beam=2", lines=lines) == confidences(untouched, lines=lines) == [None, None]
    path = Path(shutil.copy(model, tmp_path))
    calibrate(path, tmp_path, "--beam=2")
    assert all(confidences(path, "--beam=2", lines=lines)) and all(confidences(path, lines=lines))
    calibrate(path, tmp_path, "--beam=2")
    assert read_digest(path) == read_digest(model) == read_digest(untouched)  # --lora still finds its checkpoint
    stored = json.loads(run("info", path, "--json").stdout)["provenance"]["calibrations"]
    assert [each["search"] for each in stored] == [{}, {"beam": 2}]
    assert b"calibrated for en-de with pytorch" in run("info", path).stdout
    risk = "--n-best=2", "--mbr=chrf"
    calibrate(path, tmp_path, *risk)
    assert all(confidences(path, *risk, lines=lines)) and all(confidences(path, lines=lines))


def test_an_ensemble_is_calibrated_apart(model: Path, trained: Path, tmp_path: Path) -> None:
    other, lines = trained / "run" / "snapshot-00000020.safetensors", SOURCES[:20]
    assert confidences(model, other, lines=lines) == [None] * 20
    path = Path(shutil.copy(model, tmp_path / "first.safetensors"))
    calibrate(path, tmp_path, other)
    together = confidences(path, other, lines=lines)
    assert None not in together
    assert confidences(other, path, lines=lines) == [None] * 20
    assert confidences(path, lines=lines) == confidences(model, lines=lines) != together


def test_a_training_calibrates_what_it_writes_last(trained: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "valid", PAIRS)
    run("preprocess", *LANGS, f"--train={trained / 'train'}", f"--valid={tmp_path / 'valid'}", "--vocab-size=330",
        f"--dest={tmp_path / 'data'}")  # fmt: skip
    options = ["--valid-metric=nll", "--average-last=2", "--max-updates=4", "--save-updates=2"]
    said = train(tmp_path / "data", tmp_path / "run", *options)
    average = tmp_path / "run" / "average.safetensors"
    assert f"{average}: translations of en-de with pytorch have a confidence, fitted to 110 lines" in " ".join(
        said.split()
    )
    assert None not in confidences(average, lines=SOURCES[:2])
    content = average.read_bytes()
    train(tmp_path / "data", tmp_path / "run", *options)
    assert average.read_bytes() == content
    assert "confidence" not in (trained / "train.log").read_text()  # 20 lines are too few


def test_columns_begin_with_the_confidence(model: Path, trained: Path) -> None:
    lines = [SOURCES[0], "tab\there"]
    command = ["generate", *OPTIONS, "--output-format=tsv", "--n-best=2"]
    rows = [
        row.split("\t") for row in run(*command, model, stdin="\n".join(lines).encode()).stdout.decode().splitlines()
    ]
    assert [row[1] for row in rows] == [SOURCES[0]] * 2 + ["tab here"] * 2
    expected = [
        f"{h['confidence']:.4f}" for line in generated(model, lines, *OPTIONS, "--n-best=2") for h in line["hypotheses"]
    ]
    assert [row[0] for row in rows] == expected
    several = json.dumps({"source": "1\n2"}).encode()
    assert run(*command, model, "--input-format=jsonl", stdin=several).stdout == b"1.0000\t1 2\t1 2\n"
    assert run("generate", *OPTIONS, model, "--input-format=jsonl", stdin=several).stdout == b"1 2\n"
    untouched = trained / "run" / "best.safetensors"
    done = run(*command, untouched, stdin=lines[0].encode())
    assert done.stdout.startswith(b"\t")
    assert (
        f"no confidence: {untouched} is not calibrated for this direction, engine and search; nmt calibrate"
        in done.stderr
    )


def test_score_estimates_chrf_without_a_reference(model: Path, trained: Path, tmp_path: Path) -> None:
    files = ["--source", tmp_path / "source", "--hypothesis", tmp_path / "output"]

    def estimate(pairs: list[tuple[str, str]]) -> dict[str, float]:
        for name, lines in zip(("source", "output"), zip(*pairs, strict=True), strict=True):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        return dict(json.loads(run("score", "--model", model, *files, "--json").stdout))

    first, second, both = estimate(PAIRS[:1]), estimate(PAIRS[1:2]), estimate(PAIRS[:2])
    assert both["estimated_chrf"] == pytest.approx((first["estimated_chrf"] + second["estimated_chrf"]) / 2, abs=0.1)
    assert first["estimated_chrf"] != second["estimated_chrf"]
    assert (first["error"], both["lines"]) == (second["error"], 2) and 0 < both["error"] < first["error"]
    assert estimate([*PAIRS[:2], (" ", " "), ("42", "42")]) == both  # without lines that have nothing to translate
    assert b"estimated chrF" in run("score", "--model", model, *files).stdout
    assert "is not calibrated" in failed("score", "--model", trained / "run" / "best.safetensors", *files)
    assert "--reference is missing; give it, or --model and --source" in failed("score", *files)


def test_doubtful_sentences_of_a_document_are_listed_and_may_stay(model: Path, trained: Path, tmp_path: Path) -> None:
    values = dict(zip(SHORT[:9], confidences(model, lines=SHORT[:9]), strict=True))
    worst, second, third, *_ = sorted(values, key=values.__getitem__)
    threshold = (values[second] + values[third]) / 2
    page = tmp_path / "page.html"
    page.write_text("".join(f"<p>{line}</p>" for line in values))
    command = [
        "translate-file",
        page,
        *OPTIONS,
        f"--output={tmp_path / 'new.html'}",
        f"--doubtful={threshold}",
        "--model",
    ]
    *rows, caption = run(*command, model).stderr.split("confidence")[-1].splitlines()[1:]
    assert caption.strip() == "Read the others, too: a sentence may be wrong without a sign."
    assert [row.split()[0] for row in rows] == [f"{values[line]:.2f}" for line in (worst, second)]
    assert worst in rows[0] and second in rows[1]
    marked = (tmp_path / "new.html").read_text()
    assert marked.count('<mark class="doubtful">') == 2 and worst not in marked
    run(*command, model, "--doubtful-stays")
    left = (tmp_path / "new.html").read_text()
    assert f'<mark class="doubtful">{worst}</mark>' in left and third not in left
    assert "--doubtful needs the confidence of translations" in failed(*command, trained / "run" / "best.safetensors")


def test_a_calibration_of_another_direction_does_not_count(model: Path, tmp_path: Path) -> None:
    stored = load_checkpoint(str(model))
    (calibration,) = stored.provenance["calibrations"]
    other = stored.provenance | {"calibrations": [calibration | {"direction": "de-en"}]}
    path = saved(replace(stored, provenance=other), tmp_path / "model.safetensors")
    (tmp_path / "page.html").write_text(f"<p>{SOURCES[0]}</p>")
    page = ["translate-file", tmp_path / "page.html", *OPTIONS, "--doubtful=0.5", "--model", path]
    assert "--doubtful needs the confidence of translations" in failed(*page)
    done = run("generate", *OPTIONS, "--output-format=tsv", path, stdin=SOURCES[0].encode())
    assert "translations have no confidence" in done.stderr


def test_too_little_text_is_refused(trained: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "text", [*PAIRS[:99], ("Ba de.", "")])
    files = ["--source", tmp_path / "text.en", "--target", tmp_path / "text.de"]
    said = failed("calibrate", trained / "run" / "best.safetensors", *files, *OPTIONS)
    assert "the model translates 99 pairs, but a calibration needs 100; give more text" in said
