"""Checkpoints are read completely or refused, are averaged correctly, and are safe to open."""

import errno
import os
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoints import CONFIG, TEXT_CONFIG, Trap, folder_with_states, refused, saved, small_checkpoint

from nmt.checkpoint import Checkpoint, average_checkpoints, build_model, load_checkpoint, save_checkpoint
from nmt.errors import NmtError
from nmt.text.codec import TextCodec
from nmt.text.subword import Subword
from nmt.training.run_folder import RunFolder, numbered


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = small_checkpoint(3)
    read = load_checkpoint(saved(written, tmp_path / "a.pt"))
    assert (read.model_config, read.provenance, read.training) == (CONFIG, {"update": 3}, {"counters": {"update": 3}})
    assert read.codec.to_dict() == written.codec.to_dict()
    model = build_model(read, "a.pt")
    assert model.state_dict().keys() == written.weights.keys()
    assert all(torch.equal(tensor, written.weights[name]) for name, tensor in model.state_dict().items())
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]


def test_opening_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    trap = Trap(tmp_path / "sprung")
    (tmp_path / "trap.pt").write_bytes(pickle.dumps(trap))
    torch.save({"format": "nmt checkpoint", "trap": trap}, tmp_path / "trap2.pt")
    for name in ("trap.pt", "trap2.pt"):
        assert f"{name} is not a checkpoint of nmt" in refused(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"\x00" * 1000, b"PK\x03\x04 not really a zip"])
def test_a_file_that_is_not_a_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    assert "x.pt is not a checkpoint of nmt" in refused(tmp_path / "x.pt")


def test_missing_files_folders_and_other_versions_are_refused(tmp_path: Path) -> None:
    assert "none.pt does not exist" in refused(tmp_path / "none.pt")
    assert "is a folder" in refused(tmp_path)
    torch.save({"state_dict": {}}, tmp_path / "other.pt")
    assert "a torch file, but not a checkpoint of nmt" in refused(tmp_path / "other.pt")
    torch.save({"format": "nmt checkpoint", "schema_version": 99}, tmp_path / "new.pt")
    assert "schema version 99, but this nmt reads 2 and 3" in refused(tmp_path / "new.pt")


def test_every_missing_unexpected_or_misshapen_tensor_is_named(tmp_path: Path) -> None:
    whole = small_checkpoint(1)
    weights = whole.weights | {"surprise": torch.zeros(1), "encoder.0.feed_forward.outer.bias": torch.zeros(3)}
    del weights["encoder.0.feed_forward.inner.bias"]
    message = refused(saved(replace(whole, weights=weights), tmp_path / "x.pt"))
    for part in ("inner.bias is missing", "'surprise' is unexpected", "outer.bias is (3,) instead of (8,)"):
        assert part in message


def test_an_average_has_the_mean_of_the_weights(tmp_path: Path) -> None:
    checkpoints = [small_checkpoint(seed) for seed in range(3)]
    paths = [saved(checkpoint, tmp_path / f"{i}.pt") for i, checkpoint in enumerate(checkpoints)]
    average = average_checkpoints(paths)
    for name, tensor in average.weights.items():
        expected = torch.stack([checkpoint.weights[name].double() for checkpoint in checkpoints]).mean(0)
        torch.testing.assert_close(tensor.double(), expected, rtol=0, atol=1e-7)
        assert tensor.dtype == checkpoints[0].weights[name].dtype
    assert average.provenance == {"averaged": [str(p) for p in paths], "last": {"update": 2}}


def test_checkpoints_of_different_models_are_not_averaged(tmp_path: Path) -> None:
    subword = Subword.train(["quite other words"] * 3, "bpe", 290)
    other_text = small_checkpoint(0, codec=TextCodec(TEXT_CONFIG, subword, subword))
    first = saved(small_checkpoint(0), tmp_path / "a.pt")
    wide = saved(small_checkpoint(0, replace(CONFIG, d_ff=16)), tmp_path / "wide.pt")
    with pytest.raises(NmtError, match=r"wide\.pt cannot be averaged with .*a\.pt: d_ff is 16 instead of 8"):
        average_checkpoints([first, wide])
    with pytest.raises(NmtError, match="the vocabulary or text processing differs"):
        average_checkpoints([first, saved(other_text, tmp_path / "other.pt")])


def test_old_checkpoints_and_training_states_are_removed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for update in (5, 10, 100, 1000):
        folder.save_snapshot(small_checkpoint(update), update, keep=3)
        folder.save_state(small_checkpoint(update), update)
    assert [p.name for p in numbered(tmp_path, "snapshot")] == [f"snapshot-{n:08d}.pt" for n in (10, 100, 1000)]
    assert [p.name for p in numbered(tmp_path, "state")] == [f"state-{n:08d}.pt" for n in (100, 1000)]
    assert load_checkpoint(tmp_path / "state-00001000.pt").training == {"counters": {"update": 1000}}


def is_refused(path: Path, written: Checkpoint) -> bool:
    """Returns whether a damaged file is refused. If it is not, checks that it is read as it was written."""
    try:
        found = load_checkpoint(path)
    except NmtError as error:
        assert str(path) in str(error)
        return True
    assert found.weights.keys() == written.weights.keys()
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in written.weights.items())
    assert (found.provenance, found.training) == (written.provenance, written.training)
    return False


@pytest.mark.parametrize("times", [20, pytest.param(2000, marks=pytest.mark.nightly)])
def test_damage_is_noticed_anywhere_in_the_file(tmp_path: Path, times: int) -> None:
    written = small_checkpoint(1)
    path = saved(written, tmp_path / "x.pt")
    whole, draw = path.read_bytes(), random.Random(0)
    for length in (1000, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(times))):
        path.write_bytes(whole[:length])
        assert "x.pt is not a checkpoint of nmt, or it is damaged or truncated" in refused(path)
    refusals = 0
    for _ in range(times):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        refusals += is_refused(path, written)
    assert refusals > times / 2


def test_a_changed_number_or_shape_in_a_valid_file_is_noticed(tmp_path: Path) -> None:
    path = saved(small_checkpoint(1), tmp_path / "x.pt")
    name, tensor = next(iter(small_checkpoint(1).weights.items()))
    for changed in (tensor + 1e-6, tensor.view(1, *tensor.shape)):
        content = torch.load(path, weights_only=True)
        content["content"]["weights"][name] = changed
        torch.save(content, path)
        assert "does not have the checksum in the file" in refused(path)


def test_training_resumes_from_the_earlier_state_if_the_newest_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert RunFolder(tmp_path).newest_state() is None
    folder = folder_with_states(tmp_path)
    newest = tmp_path / "state-00000002.pt"
    newest.write_bytes(newest.read_bytes()[:-1000])
    found = folder.newest_state()
    assert found is not None
    assert (found[0].name, found[1].training["counters"]["update"]) == ("state-00000001.pt", 1)
    assert "state-00000002.pt is not a checkpoint of nmt, or it is damaged" in capsys.readouterr().err
    found[0].write_bytes(b"")
    with pytest.raises(NmtError, match=r"no training state in .* is intact; remove state-00000001\.pt there"):
        folder.newest_state()


def test_a_state_that_may_be_intact_is_not_set_aside(tmp_path: Path) -> None:
    folder = folder_with_states(tmp_path)
    newest = tmp_path / "state-00000002.pt"
    content = torch.load(newest, weights_only=False)
    torch.save(content | {"schema_version": 99}, newest)
    with pytest.raises(NmtError, match=r"has checkpoint schema version 99, but this nmt reads 2 and 3; use"):
        folder.newest_state()
    assert newest.exists()


@pytest.mark.parametrize(("number", "kept"), [(errno.EIO, True), (errno.EINVAL, False)])
def test_a_disk_that_fails_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kept: bool
) -> None:
    """A wrong offset in a damaged file makes the system say EINVAL."""
    folder = folder_with_states(tmp_path)

    def seek(*_: Any) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as failing:
        failing.setattr("nmt.checkpoint_file.data_start", seek)
        with pytest.raises(NmtError, match="check the disk" if kept else "no training state in .* is intact"):
            folder.newest_state()
    assert folder.newest_state() is not None


def test_a_training_leaves_the_temporary_files_of_other_commands_alone(tmp_path: Path) -> None:
    (tmp_path / ".ct2.partial-1").mkdir()
    others = [".out.de.partial-1", ".report.html.partial-1", ".best-average.pt.partial-1", ".snapshot-av.pt.partial-1"]
    own = [".best.pt.partial-1", ".best-00000001.pt.partial-1", ".snapshot-00000001.pt.partial-1",
           ".state-00000001.pt.partial-1", ".metrics.jsonl.partial-1", ".config.toml.partial-1"]  # fmt: skip
    for name in (*others, *own):
        (tmp_path / name).touch()
    with RunFolder(tmp_path).locked():
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {*others, ".ct2.partial-1", ".lock"}


def test_two_trainings_cannot_use_one_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.training.run_folder._LOCK_SECONDS", 0.0)
    with RunFolder(tmp_path / "run").locked():
        with pytest.raises(NmtError, match="another training uses"), RunFolder(tmp_path / "run").locked():
            pass
        with RunFolder(tmp_path / "other").locked():
            pass
    assert not (tmp_path / "run").exists()  # it had nothing but the lock


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"x\.pt cannot be written \(No such file or directory\)"):
        save_checkpoint(small_checkpoint(1), tmp_path / "missing" / "x.pt")
