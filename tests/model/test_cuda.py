"""Computations on a GPU are compared with the same computations on the CPU. Skipped on machines without a GPU."""

from functools import partial
from pathlib import Path

import forks
import pytest
import torch
from commands import SMALL, TRAIN, records, run, train, weights

import nmt
from nmt.checkpoint import build_model
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.batching import make_plan
from nmt.data.folder import DataFolder
from nmt.data.loader import MicroBatch, make_update
from nmt.model.device import Runtime, moved, set_up
from nmt.model.packing import compile_layers, obstacle_to_kernel, obstacle_to_packing
from nmt.training import ranks
from nmt.training.loss import TrainingLoss

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
GPU = ["--device=cuda"]


def test_training_on_a_gpu_gives_the_same_weights_as_on_a_cpu(trained: Path, tmp_path: Path) -> None:
    options = ["--max-updates=5", "--dropout=0", "--valid-metric=nll"]
    train(trained / "data", tmp_path / "cpu", *options)
    train(trained / "data", tmp_path / "gpu", *options, *GPU)
    cpu, gpu = (nmt.load_checkpoint(tmp_path / n / "snapshot-00000005.safetensors").weights for n in ("cpu", "gpu"))
    for name, expected in cpu.items():
        torch.testing.assert_close(gpu[name], expected, rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_training_in_16_bits_resumes(trained: Path, tmp_path: Path, precision: str) -> None:
    options = [*TRAIN, *SMALL, *GPU, f"--precision={precision}", "--valid-metric=nll"]
    run("train", trained / "data", "--save-dir", tmp_path, *options, "--max-updates=10")
    log = run("train", trained / "data", "--save-dir", tmp_path, *options, "--max-updates=20").stderr
    assert "resumed from" in log


def test_translations_are_the_same_on_a_gpu_and_on_a_cpu(trained: Path) -> None:
    lines = (trained / "valid.en").read_text().splitlines()
    cpu, gpu = (
        nmt.Translator.load(
            trained / "run" / "average.safetensors", runtime=RuntimeConfig(device=device, precision="fp32")
        )
        for device in ("cpu", "cuda")
    )
    assert gpu.translate(lines, SearchConfig()) == cpu.translate(lines, SearchConfig())


def first_batch(trained: Path, *, packs: bool) -> MicroBatch:
    split = DataFolder.open(trained / "data").split("train")
    plan = make_plan((split.source.lengths, split.target.lengths), batch_tokens=800, groups=2, seed=1, epoch=0)
    return make_update(split, plan, 0, 800, 0, 1, packs=packs).batches[0]


def make_loss(trained: Path) -> TrainingLoss:
    path = trained / "run" / "average.safetensors"
    return TrainingLoss(build_model(nmt.load_checkpoint(path), path).cuda().eval(), 0.1)


@pytest.mark.parametrize("compiled", [False, True])
def test_packed_batches_give_the_same_loss_and_gradient_as_padded_batches(trained: Path, compiled: bool) -> None:
    passes = []
    for packs in (False, True):
        module = make_loss(trained)
        if packs and compiled:
            compile_layers(module.model)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss, _ = module(moved(first_batch(trained, packs=packs), torch.device("cuda")))
        passes.append((loss.detach(), torch.autograd.grad(loss, module.model.target_embedding.weight)[0]))
    (padded_loss, padded_gradient), (loss, gradient) = passes
    torch.testing.assert_close(loss, padded_loss, rtol=0.01, atol=0)
    assert (gradient - padded_gradient).norm() < 0.05 * padded_gradient.norm()


def test_training_in_bf16_packs_batches(trained: Path) -> None:
    model = nmt.load_checkpoint(trained / "run" / "average.safetensors").model_config
    gpu = torch.device("cuda")
    assert obstacle_to_packing(model, Runtime(gpu, torch.bfloat16)) is None
    for dtype in (torch.float32, torch.float16):
        assert obstacle_to_packing(model, Runtime(gpu, dtype)) == "it needs a GPU and bf16"


@pytest.mark.parametrize("d_k", [8, 16, 32, 48, 64, 128])
def test_the_kernel_works_with_many_sizes(d_k: int) -> None:
    assert obstacle_to_kernel(4, d_k, torch.device("cuda")) is None


def test_graphs_compute_what_is_computed_without_them(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed, replay = [], torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (replayed.append(graph), replay(graph)))
    options = ["--max-updates=20", "--precision=bf16", "--valid-metric=nll", "--attention-dropout=0.1", *GPU]
    train(trained / "data", tmp_path / "graphs", *options)
    assert len(replayed) > 5
    monkeypatch.setattr("nmt.training.graphs._MOST_GRAPHS", 0)
    count = len(replayed)
    train(trained / "data", tmp_path / "none", *options)
    assert len(replayed) == count
    graphs, none = (weights(tmp_path / name / "snapshot-00000020.safetensors") for name in ("graphs", "none"))
    torch.testing.assert_close(graphs, none, rtol=0, atol=1e-4)


def share_the_gpu() -> None:
    """Lets several ranks compute on one GPU. NCCL refuses that, so gloo sums their gradients."""
    connect = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda _, **options: connect("gloo", **options)
    ranks.set_up = partial(set_up, shares_gpus=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize("options", [[], ["--device-tokens=400"], ["--precision=bf16"], ["--reduce-precision=bf16"]])
def test_two_ranks_that_share_a_gpu_give_the_losses_of_one(trained: Path, tmp_path: Path, options: list[str]) -> None:
    """In bf16, they replay graphs."""
    options = ["--max-updates=20", "--log-updates=1", "--dropout=0", "--valid-metric=nll", *GPU, *options]
    train(trained / "data", tmp_path / "one", *options)
    command = ["train", trained / "data", "--save-dir", tmp_path / "two", *TRAIN, *SMALL, *options]
    forks.run_ranks(*command, before=(share_the_gpu,) * 2)
    single_losses, shared_losses = (
        [record["nll"] for record in records(tmp_path / name, "train")] for name in ("one", "two")
    )
    assert shared_losses == pytest.approx(single_losses, rel=0.01 if "bf16" in str(options) else 1e-4)


def test_compiled_training_reaches_the_same_loss(trained: Path, tmp_path: Path) -> None:
    options = ["--max-updates=20", "--precision=bf16", "--valid-metric=nll", "--attention-dropout=0.1", *GPU]
    train(trained / "data", tmp_path / "plain", *options)
    assert "compiled layers" in train(trained / "data", tmp_path / "compiled", *options, "--compile")
    plain, compiled = (records(tmp_path / name, "train")[-1]["nll"] for name in ("plain", "compiled"))
    assert compiled == pytest.approx(plain, rel=0.05)


@pytest.mark.parametrize("packs", [False, True])
def test_an_update_does_not_wait_for_the_gpu(trained: Path, packs: bool) -> None:
    """Copying the batch, the forward pass and the backward pass take no synchronisation."""
    batch = first_batch(trained, packs=packs)
    model = make_loss(trained).train()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=packs):
            loss, _ = model(moved(batch, torch.device("cuda")))
        loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
