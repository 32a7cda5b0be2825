"""`nmt calibrate`, and the confidence of translations."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoints import FP32, generated
from commands import failed, run
from conftest import invented_pairs, write_pairs
from sacrebleu.metrics import CHRF
from servers import serving

from nmt.translate.translator import Translator

OPTIONS = ["--precision=fp32", "--device=cpu"]
PAIRS = invented_pairs(110, seed=3)
SOURCES = [source for source, _ in PAIRS]


def calibrate(model: Path, folder: Path, *options: str) -> str:
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
    assert "confidence of en-de with pytorch, fitted to 110 lines" in calibrate(path, folder)
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
    assert confidences(model, "--split-sentences", lines=["Ba de ki. Lo mu na po ra.", "3.14"]) == [
        pytest.approx((first + second) / 2, abs=1e-3), 1
    ]  # fmt: skip


def test_the_service_answers_with_the_same_confidence(model: Path) -> None:
    with serving(model, *OPTIONS) as server:
        for options in ({}, {"pieces": True}):
            found = server.translate(SOURCES[:3], **options)["translations"]
            values = [text["sentences"][0]["hypotheses"][0]["confidence"] for text in found]
            assert values == pytest.approx(confidences(model, lines=SOURCES[:3]), abs=1e-3)
        assert "confidence" not in str(server.translate(SOURCES[:3], beam=2))


def test_a_calibration_holds_for_its_search_and_model_alone(model: Path, trained: Path, tmp_path: Path) -> None:
    lines = SOURCES[:2]
    assert all(confidences(model, "--n-best=2", lines=lines))
    untouched = trained / "run" / "best.safetensors"
    assert confidences(model, "--beam=2", lines=lines) == confidences(untouched, lines=lines) == [None, None]
    assert confidences(model, untouched, lines=lines) == [None, None]  # an ensemble
    path = Path(shutil.copy(model, tmp_path))
    calibrate(path, tmp_path, "--beam=2")
    assert all(confidences(path, "--beam=2", lines=lines)) and all(confidences(path, lines=lines))
    calibrate(path, tmp_path, "--beam=2")
    stored = json.loads(run("info", path, "--json").stdout)["provenance"]["calibrations"]
    assert [each["search"] for each in stored] == [{}, {"beam": 2}]


def test_too_little_text_is_refused(trained: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "text", [*PAIRS[:99], ("Ba de.", "")])
    files = ["--source", tmp_path / "text.en", "--target", tmp_path / "text.de"]
    said = failed("calibrate", trained / "run" / "best.safetensors", *files, *OPTIONS)
    assert "have 99 pairs that the model translates, but a calibration needs 100; give more text" in said
