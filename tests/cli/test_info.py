"""`nmt info` says what a file or a folder is, without torch and without reading its numbers."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import TEXT_CONFIG, WORDS, edit, saved, small_checkpoint
from commands import failed, records, run

from nmt.checkpoint import load_checkpoint
from nmt.checkpoint_format import read_header
from nmt.text.codec import TextCodec
from nmt.text.subword import Subword


def separate_codec() -> TextCodec:
    """Returns a codec whose sides have vocabularies of different sizes."""
    sides = [Subword.train([WORDS] * 5, "bpe", size) for size in (300, 305)]
    return TextCodec(replace(TEXT_CONFIG, joint_vocab=False), *sides)


def info(path: Path, *options: str) -> dict[str, Any]:
    return dict(json.loads(run("info", path, "--json", *options).stdout))


def test_a_checkpoint_a_state_and_an_average_are_described(trained: Path, tmp_path: Path) -> None:
    best, state = trained / "run" / "best.safetensors", trained / "run" / "state-00000040.safetensors"
    facts, checkpoint = info(best, "--verify"), load_checkpoint(best)
    assert (facts["kind"], facts["verified"], facts["bytes"]) == ("checkpoint", True, best.stat().st_size)
    assert facts["model"] == checkpoint.model_config.to_dict()
    assert facts["parameters"] == sum(tensor.numel() for tensor in checkpoint.weights.values())
    assert facts["vocabulary"] == {"source": 330, "target": 330}
    assert facts["provenance"] == checkpoint.provenance
    valid = next(r for r in records(trained / "run", "valid") if r["update"] == facts["validation"]["update"])
    assert facts["validation"]["nll"] == valid["nll"]
    assert info(state)["kind"] == "training state"
    average = tmp_path / "average.safetensors"
    run("average-checkpoints", trained / "run", "--last=2", "--output", average)
    said = run("info", average).stdout.decode()
    assert "provenance      average of snapshot-00000030.safetensors, snapshot-00000040.safetensors; update 40" in said
    assert "languages       en -> de\n" in said
    assert re.search(r"model +N 1\+1, d_model 32, d_ff 64, h 2, d_k 16, d_v 16, P_drop 0\.1\n", said)


def test_a_file_with_what_has_learned_has_the_vocabulary_of_its_base(tmp_path: Path) -> None:
    shared, separate = small_checkpoint(1), small_checkpoint(1, codec=separate_codec())
    for index, checkpoint in enumerate((shared, separate)):
        weights = {"encoder.0.feed_forward.inner.up": torch.zeros(8, 3)}
        provenance = {"learned_from": {"path": "/a/base.safetensors", "sha256": "0" * 64, "lora": 3}}
        snapshot = replace(checkpoint, weights=weights, provenance=provenance)
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "metrics.jsonl").touch()
        path = saved(snapshot, tmp_path / "run" / f"snapshot-{index}.safetensors")
        sizes = [len(checkpoint.codec.source), len(checkpoint.codec.target)]
        for described in (path, tmp_path / "run"):
            assert list(info(described)["vocabulary"].values()) == sizes
            said = run("info", described).stdout.decode()
            assert f"vocabulary      {' and '.join(map(str, dict.fromkeys(sizes)))} bpe pieces" in said
            assert "parameters      24, which have learnt since base.safetensors\n" in said


def test_a_checkpoint_without_a_newer_option_is_described(tmp_path: Path) -> None:
    model = saved(small_checkpoint(1), tmp_path / "model.safetensors")
    edit(model, lambda document, _: document["text"].pop("lower_capitals"))
    assert "tokenisers none and none\n" in run("info", model).stdout.decode()


def test_a_data_folder_and_a_run_folder_are_described(trained: Path) -> None:
    data = info(trained / "data", "--verify")
    meta = json.loads((trained / "data" / "meta.json").read_text())
    assert (data["kind"], data["verified"], data["text"]) == ("data folder", True, meta["text"])
    assert data["splits"]["train"]["pairs"] == meta["splits"]["train"]["pairs"]
    folder = info(trained / "run", "--verify")
    assert (folder["kind"], folder["update"], folder["outcome"]) == ("run folder", 40, "finished")
    assert folder["validation"]["update"] == 40
    said = run("info", trained / "run").stdout.decode()
    assert "training        at update 40, finished\n" in said
    assert "best.safetensors, 4 snapshot-*, 2 state-*" in said


def test_a_checkpoint_that_the_running_training_removes_is_not_verified(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(trained / "run", tmp_path / "run"))

    def read(path: Path, *, verify: bool = False) -> Any:
        (folder / "snapshot-00000010.safetensors").unlink(missing_ok=True)
        return read_header(path, verify=verify)

    removed, *others = [name for name in info(folder)["checkpoints"] if name.startswith("snapshot")]
    monkeypatch.setattr("nmt.info.read_header", read)
    assert removed == "snapshot-00000010.safetensors"
    assert [name for name in info(folder, "--verify")["checkpoints"] if name.startswith("snapshot")] == others


@pytest.mark.parametrize("form", ["ctranslate2", "huggingface", "onnx", "web"])
def test_an_exported_model_is_described(tmp_path: Path, form: str) -> None:
    checkpoint = saved(small_checkpoint(1), tmp_path / "small.safetensors")
    run("export", form, checkpoint, f"--output={tmp_path}/model")
    facts = info(tmp_path / "model")
    assert facts["kind"].casefold() == f"exported model ({form})".replace("huggingface", "hugging face")
    assert facts["bytes"] == sum(file.stat().st_size for file in (tmp_path / "model").rglob("*") if file.is_file())
    assert facts["text"] == load_checkpoint(checkpoint).codec.config.to_dict() | {
        name: [] for name in ("tags", "languages", "language_pieces", "directions", "term_pieces", "endings")
    }
    assert "leave out --verify" in failed("info", tmp_path / "model", "--verify")
    assert "is neither a data folder, nor a run folder" in failed("info", tmp_path)


def test_damage_is_found_in_larger_files_with_verify(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(trained / "run" / "best.safetensors", tmp_path))
    content = bytearray(path.read_bytes())
    content[8 + int.from_bytes(content[:8], "little")] ^= 1  # of the first number
    path.write_bytes(content)
    assert "best.safetensors is damaged: its content does not have its SHA-256" in failed("info", path)
    monkeypatch.setattr("nmt.checkpoint_format.HASHED_BYTES", len(content) - 1)
    info(path)
    assert "best.safetensors is damaged: its content does not have its SHA-256" in failed("info", path, "--verify")
    (tmp_path / "metrics.jsonl").touch()
    assert "best.safetensors is damaged" in failed("info", tmp_path, "--verify")


def test_other_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert "is neither a data folder, nor a run folder" in failed("info", tmp_path)
    assert "nothing does not exist" in failed("info", tmp_path / "nothing")
    (tmp_path / "marian").mkdir()
    (tmp_path / "marian" / "config.yml").write_text("models: []")
    assert "is a model of Marian; its README.md describes it" in failed("info", tmp_path / "marian")
    (tmp_path / "config.json").write_text("[]")
    assert "config.json cannot be used" in failed("info", tmp_path)
    for config in ({"text": "abc"}, {"nmt": {"text": {}, "model": 3}}, {"model_type": "bert"}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert "config.json is not of a model that nmt exported; name another folder" in failed("info", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"nmt": {"text": {"source_lang": "en"}}}))
    done = run("info", tmp_path, code=1)
    assert f"{tmp_path} was written by another version of nmt" in done.stderr
    assert not done.stdout
    (tmp_path / "metrics.jsonl").write_text('{"kind": "end", "update": 3}\n')
    assert "at update 3, not ended" in run("info", tmp_path).stdout.decode()
    path = saved(small_checkpoint(1), tmp_path / "odd.safetensors")
    edit(path, lambda document, _: document["model"].update(heads="x"))
    assert "--heads must be" in failed("info", path)


def test_torch_is_not_imported(trained: Path) -> None:
    program = "import sys; from nmt.__main__ import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    for path in (trained / "data", trained / "run", trained / "run" / "best.safetensors"):
        done = subprocess.run([sys.executable, "-c", program, "info", path], capture_output=True, text=True)
        assert done.stdout.endswith("\nFalse\n"), done
