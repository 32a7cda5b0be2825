"""Checkpoints are read completely or refused, are averaged correctly, and are safe to open."""

import errno
import io
import os
import pickle
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import (
    CONFIG,
    FP32,
    Trap,
    change,
    chinese_codec,
    edit,
    multilingual_codec,
    refused,
    saved,
    small_checkpoint,
)
from commands import SMALL, TRAIN, failed, run
from safetensors.torch import load_file, save_file

from nmt.checkpoint import build_model, load_checkpoint, write_checkpoint
from nmt.checkpoint_format import read_codec, read_digest, read_header, read_model_config
from nmt.errors import NmtError
from nmt.files import Output
from nmt.model.device import is_out_of_memory
from nmt.training.averaging import average_checkpoints
from nmt.training.run_folder import RunFolder
from nmt.translate.translator import Translator

os.umask(UMASK := os.umask(0))
FIRST, NEWEST = "target_embedding.weight", "state-00000002.safetensors"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return saved(small_checkpoint(1), tmp_path / "x.safetensors")


def test_a_checkpoint_is_read_as_it_was_written(path: Path) -> None:
    written, read = small_checkpoint(1), load_checkpoint(path)
    assert (read.model_config, read.provenance, read.training) == (CONFIG, {"update": 1}, {"counters": {"update": 1}})
    assert read.codec.to_dict() == written.codec.to_dict()
    assert [*path.parent.iterdir()] == [path]
    assert path.stat().st_mode & 0o777 == 0o666 & ~UMASK
    tensors = load_file(path)  # the library can read it, too
    assert tensors.pop("text.source_model").numpy().tobytes() == written.codec.source.to_bytes()
    model = build_model(read, path)
    for weights in (tensors, model.state_dict()):
        assert weights.keys() == written.weights.keys()
        assert all(torch.equal(tensor, written.weights[name]) for name, tensor in weights.items())
    assert not model.training
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in model.parameters())
    assert all(tensor.device.type == "cpu" for tensor in [*model.parameters(), *model.buffers()])
    expected = dict(build_model(written, "memory").named_buffers())
    for name, buffer in model.named_buffers():
        assert torch.equal(expected.pop(name), buffer)
        assert buffer.abs().sum() > 0
    assert not expected


def test_a_pipe_gets_the_bytes_of_a_file(tmp_path: Path) -> None:
    """The SHA-256 of a file is computed while it is written, and that of a pipe before."""
    checkpoint, pipe = small_checkpoint(0), io.BytesIO()
    write_checkpoint(checkpoint, Output(pipe, "pipe", ""))
    assert saved(checkpoint, tmp_path / "x.safetensors").read_bytes() == pipe.getvalue()


def test_opening_a_checkpoint_runs_no_code(path: Path) -> None:
    trap = Trap(path.with_name("sprung"))
    for write in (torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))):
        write({"trap": trap}, path)
        assert f"{path} is not a checkpoint of nmt" in refused(path)
    assert not trap.path.exists()


def test_missing_files_folders_and_other_files_of_safetensors_are_refused(tmp_path: Path) -> None:
    assert "none.safetensors does not exist" in refused(tmp_path / "none.safetensors")
    assert "is a folder" in refused(tmp_path)
    assert "File name too long" in refused(tmp_path / ("x" * 300))
    assert "Not a directory" in refused(Path(__file__) / "x.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    assert "a file of safetensors, but not a checkpoint of nmt; nmt import" in refused(tmp_path / "other.safetensors")


def test_an_average_has_the_mean_of_the_weights(tmp_path: Path) -> None:
    checkpoints = [small_checkpoint(seed) for seed in range(3)]
    paths = [saved(checkpoint, tmp_path / f"{i}.safetensors") for i, checkpoint in enumerate(checkpoints)]
    average = average_checkpoints(paths)
    for name, tensor in average.weights.items():
        expected = torch.stack([checkpoint.weights[name].double() for checkpoint in checkpoints]).mean(0)
        torch.testing.assert_close(tensor.double(), expected, rtol=0, atol=1e-7)
        assert tensor.dtype == checkpoints[0].weights[name].dtype
    assert average.provenance == {"averaged": [str(p) for p in paths], "last": {"update": 2}}


def test_checkpoints_of_different_models_are_not_averaged(tmp_path: Path) -> None:
    first = saved(small_checkpoint(0), tmp_path / "a.safetensors")
    wide = saved(small_checkpoint(0, replace(CONFIG, d_ff=16)), tmp_path / "wide.safetensors")
    message = r"wide\.safetensors cannot be averaged with .*a\.safetensors: d_ff is 16 instead of 8"
    with pytest.raises(NmtError, match=message):
        average_checkpoints([first, wide])
    other = saved(small_checkpoint(0, codec=chinese_codec()), tmp_path / "other.safetensors")
    with pytest.raises(NmtError, match="the vocabulary or text processing differs"):
        average_checkpoints([first, other])


# The directions of two models, and those of both; none if those of one are not known
DIRECTIONS: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = [
    (("en de",), ("en de", "en fr"), ("en de", "en fr")),
    (("en de", "de en"), ("de en", "en de"), ("en de", "de en")),
    (("en de",), ("fr en",), ("en de", "fr en")),
    (("en de",), (), ()),
    ((), ("en de",), ()),
]


@pytest.mark.parametrize(("first", "second", "both"), DIRECTIONS)
def test_models_may_have_learned_other_directions(
    first: tuple[str, ...], second: tuple[str, ...], both: tuple[str, ...], tmp_path: Path
) -> None:
    paths, outputs = (
        [tmp_path / f"{i}.safetensors" for i in range(2)],
        [tmp_path / f"mean{i}.safetensors" for i in range(2)],
    )
    for i, directions in enumerate((first, second)):
        saved(small_checkpoint(i, codec=multilingual_codec("both_sides", directions)), paths[i])
    run("average-checkpoints", *paths, "--output", outputs[0])
    assert load_checkpoint(outputs[0]).codec.config.directions == both
    assert Translator.load(*paths, runtime=FP32).codec.config.directions == both
    # snapshots of --lora
    base = saved(small_checkpoint(2, codec=multilingual_codec("both_sides")), tmp_path / "base.safetensors")
    for path in paths:
        learned = {"path": str(base), "sha256": read_digest(base), "lora": 1}
        snapshot = load_checkpoint(path)
        saved(replace(snapshot, weights={}, provenance={"learned_from": learned}), path)
    run("average-checkpoints", *paths, "--output", outputs[1])
    whole = load_checkpoint(outputs[1])
    assert sorted(whole.codec.config.directions) == sorted(both)
    assert all(torch.equal(weight, whole.weights[name]) for name, weight in load_checkpoint(base).weights.items())


def test_a_training_with_a_new_direction_is_resumed_and_averaged(tmp_path: Path) -> None:
    for language, words in {"en": "some words", "de": "einige Worte", "fr": "quelques mots"}.items():
        (tmp_path / f"text.{language}").write_text(f"{words}\n{words} {words}\n" * 10)
    corpora = ["--train", tmp_path / "text", "--valid", tmp_path / "text", "--languages=en,de,fr"]
    run("preprocess", *corpora, "--directions=en-de", "--dest", tmp_path / "old", "--vocab-size=290")
    options = [*TRAIN, *SMALL, "--valid-metric=nll", "--save-dir", tmp_path / "run"]
    run("train", tmp_path / "old", *options, "--max-updates=1")
    best = tmp_path / "run" / "best.safetensors"
    run("preprocess", *corpora[:4], "--languages=en,fr", "--like", best, "--dest", tmp_path / "new")
    assert "it was trained on another data folder" in failed("train", tmp_path / "new", *options, "--max-updates=2")
    before = shutil.copy(best, tmp_path / "before.safetensors")
    run("train", tmp_path / "new", *options, "--max-updates=2", "--resume-changed")
    newest = tmp_path / "run" / "snapshot-00000002.safetensors"
    run("average-checkpoints", before, newest, "--output", tmp_path / "mean.safetensors")
    assert load_checkpoint(tmp_path / "mean.safetensors").codec.config.directions == ("en de", "en fr")


@pytest.mark.parametrize("times", [20, pytest.param(2000, marks=pytest.mark.nightly)])
def test_damage_is_noticed_anywhere_in_the_file(path: Path, times: int) -> None:
    whole, draw = path.read_bytes(), random.Random(0)
    for length in (0, 5, 1000, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(times))):
        path.write_bytes(whole[:length])
        assert "x.safetensors is not a checkpoint of nmt, or it is damaged" in refused(path)
    for _ in range(times):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        refused(path)
        for read in (read_header, read_codec, read_model_config):
            with pytest.raises(NmtError, match=r"x\.safetensors "):
                read(path)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Returns a run folder with training states of updates 1 and 2."""
    folder = RunFolder(tmp_path)
    for update in (1, 2):
        folder.save(small_checkpoint(update), "state", update, 2)
    return folder


def test_large_files_are_verified_when_it_matters(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = folder.path / NEWEST
    content = bytearray(newest.read_bytes())
    content[8 + int.from_bytes(content[:8], "little")] ^= 1  # of the first number
    newest.write_bytes(content)
    assert "does not have its SHA-256" in refused(newest)
    monkeypatch.setattr("nmt.checkpoint_format.HASHED_BYTES", len(content) - 1)
    load_checkpoint(newest)
    with pytest.raises(NmtError, match="does not have its SHA-256"):
        average_checkpoints([newest])
    assert folder.newest_state()[0].name == "state-00000001.safetensors"


@pytest.mark.usefixtures("printing")
def test_training_resumes_from_an_intact_state(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert RunFolder(folder.path / "new").newest_state() is None
    newest = folder.path / NEWEST
    newest.write_bytes(newest.read_bytes()[:-1000])
    intact, checkpoint = folder.newest_state()
    assert (intact.name, checkpoint.training["counters"]["update"]) == ("state-00000001.safetensors", 1)
    assert f"{NEWEST} is not a checkpoint of nmt, or it is damaged" in capsys.readouterr().err
    intact.write_bytes(b"")
    with pytest.raises(NmtError, match=r"no training state in .* is intact; remove state-00000001\.safetensors there"):
        folder.newest_state()


def test_a_state_that_may_be_intact_is_not_set_aside(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr("nmt.checkpoint_format._verify", fail)
        with pytest.raises(NmtError, match=r"state-00000002\.safetensors cannot be read"):
            folder.newest_state()
    edit(folder.path / NEWEST, lambda document, _: (document.update(schema_version=99), document.pop("model")))
    with pytest.raises(NmtError, match=r"has checkpoint schema version 99, but this nmt reads 4; use"):
        folder.newest_state()


def test_a_training_leaves_the_temporary_files_of_other_commands_alone(tmp_path: Path) -> None:
    others = ["out.de", "report.html", "best-average.safetensors", "snapshot-av.safetensors"]
    own = [f"{kind}-00000001.safetensors" for kind in ("best", "snapshot", "state")]
    for name in (*others, *own, "best.safetensors", "metrics.jsonl", "config.toml"):
        (tmp_path / f".{name}.partial-1").touch()
    (tmp_path / ".ct2.partial-1").mkdir()
    with RunFolder(tmp_path).locked():
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {".lock", *(f".{name}.partial-1" for name in ("ct2", *others))}


def test_two_trainings_cannot_use_one_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.training.run_folder._LOCK_SECONDS", 0.0)
    with RunFolder(tmp_path / "run").locked():
        with pytest.raises(NmtError, match="another training uses"), RunFolder(tmp_path / "run").locked():
            pass
        with RunFolder(tmp_path / "other").locked():
            pass
    assert not (tmp_path / "run").exists()  # it had nothing but the lock


# Files whose SHA-256 is right, but whose content is wrong


ODD_VALUES = [None, 3, "x", [], [1], True, 2**200, -1, 1e300, float("inf"), "\0", "\ud800", [[[]]], {"a": {}}]


@pytest.mark.parametrize("part", ["model", "text", "provenance", "training"])
def test_a_part_that_is_missing_or_of_another_type_is_refused(part: str, path: Path) -> None:
    whole = path.read_bytes()
    for value in (..., None, 3, "x", [1]):
        path.write_bytes(whole)
        edit(path, lambda document, _, value=value: change(document, part, value))  # type: ignore[misc]
        assert "is damaged (" in refused(path)


@pytest.mark.parametrize(("part", "value", "message"), [
    ("model/d_model", 2**31 - 2, "--d-model must be at least 2 and at most 50000"),
    ("model/d_ff", 50_000, "encoder.0.feed_forward.inner.weight is (8, 8) instead of (50000, 8)"),
    ("model/encoder_layers", 100, "and 890 more"),
    ("model/d_model", "8", "--d-model must be a whole number, but is '8'"),
    ("model/heads", True, "--heads must be a whole number, but is True"),
    ("model/dropout", None, "--dropout must be a number, but is None"),
    ("model/dropout", float("nan"), "--dropout must be a finite number"),
    ("model/norm", ["post"], "--norm must be one of post, pre"),
    ("model/surprise", 1, "unexpected keyword argument 'surprise'"),
    ("text/source_lang", "../../etc", "source_lang"),
    ("text/target_lang", "a\nb", "target_lang"),
    ("tensors/text.source_model", np.zeros(1000, np.uint8), "not a sentencepiece model"),
    ("tensors/text.source_model", ..., "(text processing: source_model)"),
    ("tensors/text.target_model", np.zeros(1, np.uint8), "joint_vocab contradicts target_model"),
    ("tensors/" + "x\n" * 10**5, np.zeros(1, np.float32), "is unexpected"),
    (f"tensors/{FIRST}", ..., f"{FIRST} is missing"),
    (f"tensors/{FIRST}", np.zeros(3, np.float32), f"{FIRST} is (3,) instead of"),
    (f"tensors/{FIRST}", np.zeros((300, 8), np.uint8), f"{FIRST} is of torch.uint8"),
])  # fmt: skip
def test_wrong_values_are_named(part: str, value: Any, message: str, path: Path) -> None:
    edit(path, lambda document, tensors: change({**document, "tensors": tensors}, part, value))
    assert message in refused(path)


@pytest.mark.parametrize("times", [30, pytest.param(2000, marks=pytest.mark.nightly)])
def test_an_edited_checkpoint_is_refused_in_one_sentence_or_gives_a_model(path: Path, times: int) -> None:
    draw, whole, refusals = random.Random(0), path.read_bytes(), 0

    def spoil(document: dict[str, Any], _: Any) -> None:
        content = document
        while draw.random() < 0.7 and (inner := [v for v in content.values() if isinstance(v, dict) and v]):
            content = draw.choice(inner)
        key = draw.choice(list(content))
        content[draw.choice([key, key, "x", ""])] = draw.choice(ODD_VALUES)
        if draw.random() < 0.2:
            content.pop(key, None)

    for _ in range(times):
        path.write_bytes(whole)
        edit(path, spoil)
        try:
            build_model(load_checkpoint(path), path)
        except NmtError as error:
            refusals += 1
            assert str(path) in str(error)
    assert refusals > times / 3


# Models and training states


@pytest.mark.parametrize(("error", "expected"), [
    (MemoryError(), True),
    (RuntimeError("std::bad_alloc"), True),
    (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    (ValueError("can't allocate memory"), False),
])  # fmt: skip
def test_errors_that_mean_out_of_memory_are_recognised(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


@pytest.mark.parametrize(("part", "value"), [
    ("training/counters", ...),
    ("training/counters/x", 1),
    ("training/validations", None),
    ("training/validations", [{"update": 1}]),
    ("tensors/training.optimizer.99.step", np.zeros((), np.float32)),
    ("provenance/options", ...),
    ("provenance/data", ...),
])  # fmt: skip
def test_a_flawed_training_state_is_refused_and_kept(part: str, value: Any, trained: Path) -> None:
    """Its SHA-256 is right, so it is no accident: another version of nmt may have written it."""
    newest = trained / "run" / "state-00000040.safetensors"
    whole = newest.read_bytes()
    edit(newest, lambda document, tensors: change({**document, "tensors": tensors}, part, value))
    said = failed("train", trained / "data", "--save-dir", trained / "run", *TRAIN, *SMALL, "--max-updates=41")
    assert "state-00000040.safetensors is not a training state that this version of nmt can resume" in said
    assert newest.exists()
    newest.write_bytes(whole)
