"""Tuning with --lora and --freeze embeddings: what learns, what stays, and what the files have."""

import shutil
from dataclasses import replace
from pathlib import Path

import forks
import pytest
import torch
from commands import LANGS, TRAIN, failed, run, same_weights, valid_losses, weights
from conftest import invented_pairs, write_pairs
from torch import Tensor

import nmt
from nmt.checkpoint import load_checkpoint, save_checkpoint
from nmt.model.cpu_kernels import Linear
from nmt.model.lora import LowRankLinear, update_of

TUNE = [*TRAIN[1:], "--warmup-updates=5", "--lr-schedule=constant", "--lr=0.01", "--valid-metric=nll"]
TABLE = "target_embedding.weight"


@pytest.fixture(scope="module")
def tuned(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with old.safetensors, data/ in its vocabulary, and more/ with pieces that it lacks."""
    folder = tmp_path_factory.mktemp("tuned")
    write_pairs(folder / "new", invented_pairs(100, seed=7))
    shutil.copy(trained / "run" / "snapshot-00000040.safetensors", folder / "old.safetensors")
    text = f"--train={folder}/new", f"--valid={trained}/valid"
    run("preprocess", *LANGS, *text, f"--dest={folder}/data", f"--like={folder}/old.safetensors")
    run("preprocess", *LANGS, *text, f"--dest={folder}/more", "--vocab-size=350")
    return folder


def tune(tuned: Path, folder: Path, *options: str, data: str = "data") -> str:
    start = f"{tuned}/{data}", f"--init-from={tuned}/old.safetensors", f"--save-dir={folder}"
    return run("train", *start, *TUNE, *options).stderr


def learned(path: Path) -> dict[str, Tensor]:
    return load_checkpoint(path, whole=False).weights


def merged(base: dict[str, Tensor], learned: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns W + B A of each matrix; projections that are stored as one weight have equal numbers of rows here."""
    whole = dict(base)
    for name in learned:
        if name.endswith(".up"):
            layer = name.removesuffix(".up")
            up, down = learned[name], learned[f"{layer}.down"]
            factors = zip(up.chunk(len(down) // up.shape[1]), down.split(up.shape[1]), strict=True)
            whole[f"{layer}.weight"] = base[f"{layer}.weight"] + torch.cat([b @ a for b, a in factors])
    return whole


def test_gradients_are_those_of_the_whole_matrix() -> None:
    """Those of A and B are Bᵀ dW and dW Aᵀ."""
    layer = LowRankLinear(Linear(12, 8, 8, 6).double(), 3).double()
    torch.nn.init.normal_(layer.up)
    weight = (layer.weight + update_of(layer.down, layer.up, layer.rows)).detach().requires_grad_()
    x, own_x = (torch.ones(5, 12, dtype=torch.float64).cumsum(1).sin().requires_grad_() for _ in range(2))
    expected, output = torch.nn.functional.linear(x, weight, layer.bias), layer(own_x)
    torch.testing.assert_close(output, expected)
    output.square().sum().backward()
    expected.square().sum().backward()
    assert weight.grad is not None
    factors = zip(layer.up.split(layer.rows), layer.down.split(3), weight.grad.split(layer.rows), strict=True)
    grad_down, grad_up = zip(*((b.T @ gradient, gradient @ a.T) for b, a, gradient in factors), strict=True)
    gradients = [own_x.grad, layer.down.grad, layer.up.grad]
    torch.testing.assert_close(gradients, [x.grad, torch.cat(grad_down), torch.cat(grad_up)])


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_the_best_model_is_the_base_with_its_updates(tuned: Path, tmp_path: Path, optimizer: str) -> None:
    log = tune(tuned, tmp_path, "--lora=4", "--max-updates=10", "--valid-updates=10", f"--optimizer={optimizer}")
    assert "of them learn with --lora 4" in log
    losses = valid_losses(tmp_path)
    assert losses[10] < losses[0]
    base, best, updates = (weights(tuned / "old.safetensors"), weights(tmp_path / "best.safetensors"),
                           learned(tmp_path / "snapshot-00000010.safetensors"))  # fmt: skip
    assert {name.rpartition(".")[2] for name in updates} == {"down", "up"}
    expected = merged(base, updates)
    assert best.keys() == base.keys()
    changed = {f"{name.rpartition('.')[0]}.weight" for name in updates}
    for name, weight in best.items():
        torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=0)
        assert torch.equal(weight, base[name]) == (name not in changed)
    state = load_checkpoint(tmp_path / "state-00000010.safetensors", whole=False)
    moments = {name for name in state.training_tensors if name.endswith(("exp_avg", "muon"))}
    assert state.weights.keys() == updates.keys() and len(moments) <= len(updates)
    assert state.provenance["learned_from"]["path"] == str(tuned / "old.safetensors")


def test_averages_of_snapshots_are_whole_models(tuned: Path, tmp_path: Path) -> None:
    tune(tuned, tmp_path, "--lora=2", "--max-updates=4", "--save-updates=2", "--average-last=2")
    snapshots = [tmp_path / f"snapshot-0000000{update}.safetensors" for update in (2, 4)]
    models = [merged(weights(tuned / "old.safetensors"), learned(path)) for path in snapshots]
    for name, weight in weights(tmp_path / "average.safetensors").items():
        torch.testing.assert_close(weight, (models[0][name] + models[1][name]) / 2, atol=1e-6, rtol=0)
    said = failed("average-checkpoints", snapshots[0], tuned / "old.safetensors", f"--output={tmp_path}/x.safetensors")
    assert "snapshot-00000002.safetensors: --lora is None instead of 2; the SHA-256 of the checkpoint that it" in said
    said = failed("generate", snapshots[0], "--device=cpu")
    assert f"{snapshots[0]} has only the weights that have learnt since {tuned}/old.safetensors; take best.s" in said
    run("generate", tmp_path / "best.safetensors", "--device=cpu", stdin=b"a b\n")


@pytest.mark.parametrize("options, data", [
    (["--lora=2"], "data"), (["--lora=2", "--optimizer=muon", "--ema=0.9"], "more"), (["--freeze=embeddings"], "more"),
])  # fmt: skip
def test_a_resumed_training_ends_with_the_same_weights(
    tuned: Path, tmp_path: Path, options: list[str], data: str
) -> None:
    for folder, stop in (("whole", 6), ("resumed", 2), ("resumed", 6)):
        tune(tuned, tmp_path / folder, *options, f"--max-updates={stop}", data=data)
    states = [learned(tmp_path / run / "state-00000006.safetensors") for run in ("whole", "resumed")]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(weight, states[1][name]) for name, weight in states[0].items())
    assert same_weights(*(tmp_path / run / "best.safetensors" for run in ("whole", "resumed")))


@pytest.mark.parametrize("option", ["--lora=2", "--freeze=embeddings"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_rows_that_the_checkpoint_lacks_learn(
    tuned: Path, tmp_path: Path, option: str, dtype: torch.dtype
) -> None:
    """They begin at random in fp32, and all other rows stay as they are, also in a checkpoint of 16 bits."""
    old = load_checkpoint(tuned / "old.safetensors")
    narrow = replace(old, weights={name: weight.to(dtype) for name, weight in old.weights.items()})
    save_checkpoint(narrow, tmp_path / "old.safetensors")
    shutil.copytree(tuned / "more", tmp_path / "more")
    said = tune(tmp_path, tmp_path / "run", option, "--max-updates=6", "--valid-updates=3", data="more")
    best = nmt.load_checkpoint(tmp_path / "run" / "best.safetensors")
    pieces, known = best.codec.target.vocabulary, old.codec.target.vocabulary
    new = [row for row, piece in enumerate(pieces) if piece not in known]
    assert f"{len(new)} of {len(pieces)} target pieces learn their embeddings" in said
    assert best.weights[TABLE].dtype == dtype
    expected = dict(zip(known, narrow.weights[TABLE], strict=True))
    assert all(torch.equal(best.weights[TABLE][i], expected[p]) for i, p in enumerate(pieces) if p in expected)
    states = [learned(tmp_path / "run" / f"state-0000000{update}.safetensors") for update in (3, 6)]
    rows = [state["target_embedding.added"] for state in states]
    assert rows[0].dtype == torch.float32 and (rows[0] != rows[1]).any(1).all()
    losses = valid_losses(tmp_path / "run")
    assert losses[6] < losses[0]
    torch.testing.assert_close(best.weights[TABLE][torch.tensor(new)], rows[1].to(dtype))


def test_added_rows_learn_as_they_do_in_a_whole_model(tuned: Path, tmp_path: Path) -> None:
    """Their first step is that of a training of the whole model, which goes in the direction of the gradient."""
    options = "--max-updates=1", "--label-smoothing=0.1", "--dropout=0", "--warmup-updates=1", "--clip-norm=1000"
    shutil.copy(tuned / "old.safetensors", tmp_path)
    checkpoint = load_checkpoint(tuned / "old.safetensors")
    pieces = checkpoint.codec.target.vocabulary
    added = replace(checkpoint, provenance={"added_pieces": pieces[20:25]})
    save_checkpoint(added, tmp_path / "old.safetensors")
    shutil.copytree(tuned / "data", tmp_path / "data")
    for name, option in (("whole", "--freeze=encoder"), ("rows", "--freeze=embeddings")):
        tune(tmp_path, tmp_path / name, option, *options)
    moments = load_checkpoint(tmp_path / "rows" / "state-00000001.safetensors", whole=False).training_tensors
    whole = load_checkpoint(tmp_path / "whole" / "state-00000001.safetensors").training_tensors
    row_moments = next(t for n, t in moments.items() if n.endswith("exp_avg") and t.shape == (5, 32))
    table_moments = next(t for n, t in whole.items() if n.endswith("exp_avg") and t.shape == (len(pieces), 32))
    torch.testing.assert_close(row_moments, table_moments[20:25], atol=1e-8, rtol=1e-4)


@pytest.mark.parametrize("option", ["--lora=2", "--freeze=embeddings"])
def test_the_output_bias_learns_for_new_pieces_only(tuned: Path, tmp_path: Path, option: str) -> None:
    old = load_checkpoint(tuned / "old.safetensors")
    pieces = old.codec.target.vocabulary
    bias = {"output_bias": torch.arange(len(pieces)).bfloat16() / 100}
    config = replace(old.model_config, output_bias=True)
    for name, added in (("old", []), ("added", pieces[20:25])):
        shutil.copytree(tuned / "data", tmp_path / name / "data")
        provenance = {"added_pieces": added}
        changed = replace(old, model_config=config, weights=old.weights | bias, provenance=provenance)
        save_checkpoint(changed, tmp_path / name / "old.safetensors")
        tune(tmp_path / name, tmp_path / name / "run", option, "--max-updates=2", "--valid-updates=2")
        tuned_once = load_checkpoint(tmp_path / name / "run" / "best.safetensors")
        assert tuned_once.provenance.get("added_pieces", []) == added  # for the next tuning
        best = tuned_once.weights["output_bias"]
        assert (best != bias["output_bias"]).nonzero().flatten().tolist() == [pieces.index(piece) for piece in added]


@pytest.mark.parametrize("option", ["--lora=2", "--freeze=embeddings"])
def test_models_whose_bos_is_eos_are_tuned(tuned: Path, tmp_path: Path, option: str) -> None:
    old = load_checkpoint(tuned / "old.safetensors")
    shutil.copytree(tuned / "data", tmp_path / "data")
    config = replace(old.model_config, bos_is_eos=True)
    save_checkpoint(replace(old, model_config=config), tmp_path / "old.safetensors")
    tune(tmp_path, tmp_path / "run", option, "--max-updates=2", "--valid-updates=2")
    assert load_checkpoint(tmp_path / "run" / "best.safetensors").model_config.bos_is_eos


def test_two_ranks_learn_the_same(tuned: Path, tmp_path: Path) -> None:
    start = f"{tuned}/data", f"--init-from={tuned}/old.safetensors", f"--save-dir={tmp_path}/two"
    forks.run_ranks("train", *start, *TUNE, "--lora=2", "--max-updates=2", "--dropout=0")
    tune(tuned, tmp_path / "one", "--lora=2", "--max-updates=2", "--dropout=0")
    single_weights, joint_weights = (
        learned(tmp_path / name / "snapshot-00000002.safetensors") for name in ("one", "two")
    )
    for name, weight in single_weights.items():
        torch.testing.assert_close(weight, joint_weights[name], atol=1e-4, rtol=0)


def test_a_base_that_has_changed_is_refused(tuned: Path, tmp_path: Path) -> None:
    for name in ("old.safetensors", "data"):
        (shutil.copytree if name == "data" else shutil.copy)(tuned / name, tmp_path / name)
    tune(tmp_path, tmp_path / "run", "--lora=2", "--max-updates=1")
    base = load_checkpoint(tmp_path / "old.safetensors")
    changed_base = replace(base, weights={name: weight * 2 for name, weight in base.weights.items()})
    save_checkpoint(changed_base, tmp_path / "other.safetensors")
    shutil.move(tmp_path / "other.safetensors", tmp_path / "old.safetensors")
    command = "train", tmp_path / "data", f"--init-from={tmp_path}/old.safetensors", f"--save-dir={tmp_path}/run", *TUNE
    message = f"{tmp_path}/old.safetensors is not the checkpoint that {tmp_path}/run/"
    assert f"{message}state-00000001.safetensors has learnt from" in failed(*command, "--lora=2", "--max-updates=2")
    said = failed("average-checkpoints", tmp_path / "run", "--last=1", f"--output={tmp_path}/x.safetensors")
    assert f"{message}snapshot-00000001.safetensors has learnt from" in said
    said = failed(*command, "--lora=3", "--max-updates=2")
    assert "--lora was 2 and is now 3" in said and "state of the optimiser does not fit" in said


@pytest.mark.parametrize("options, message", [
    (["--lora=33"], "--lora 33 is more than 32, the rank of "),
    (["--lora=2", "--freeze=encoder"], "--lora 2 does not work with --freeze encoder; leave out one"),
])  # fmt: skip
def test_odd_options_end_in_one_sentence(tuned: Path, tmp_path: Path, options: list[str], message: str) -> None:
    start = f"{tuned}/data", f"--init-from={tuned}/old.safetensors", f"--save-dir={tmp_path}/run"
    assert message in failed("train", *start, *TUNE, "--max-updates=1", *options)
    assert not (tmp_path / "run").exists()


def test_low_rank_updates_need_a_base(tuned: Path, tmp_path: Path) -> None:
    said = failed("train", tuned / "data", f"--save-dir={tmp_path}/run", *TRAIN, "--lora=2", "--max-updates=1")
    assert "--lora 2 needs --init-from; add it" in said


def test_the_dry_run_states_the_memory_of_all_ways(tuned: Path, tmp_path: Path) -> None:
    said = tune(tuned, tmp_path / "run", "--lora=2", "--dry-run")
    memory = " ".join(said.split()).partition(" memory ")[2]
    assert "per process" in memory and all(way in memory for way in ("whole", "--freeze embeddings", "--lora 2"))
