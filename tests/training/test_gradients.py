"""Memory that runs out costs no update, and a loss that is not finite is noticed by all ranks."""

from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import forks
import numpy as np
import pytest
import torch
import torch.distributed as dist
from commands import LANGS, SMALL, TRAIN, records, run, same_weights, weights
from torch import Tensor

from nmt.checkpoint import load_checkpoint
from nmt.config import ModelConfig, TrainConfig
from nmt.data.batching import Epoch, UpdatePlan
from nmt.data.folder import DataFolder
from nmt.data.loader import MicroBatch, make_micro_batch
from nmt.errors import NmtError
from nmt.model.device import Runtime
from nmt.signals import StopSignals
from nmt.training import train as train_module
from nmt.training import update as update_module
from nmt.training.ranks import World
from nmt.training.state import Training
from nmt.training.update import add_gradient, fit_memory

MODEL = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=16, d_ff=32, heads=2, d_k=8, d_v=8, dropout=0.0)
RUNTIME = Runtime(torch.device("cpu"), torch.float32)
LAST = "snapshot-00000020.safetensors"


def beginning(data: DataFolder, world: World) -> Training:
    return Training(data, MODEL, TrainConfig(save_dir="run"), (world, RUNTIME, StopSignals(lambda: None)))


def fail() -> NoReturn:
    raise torch.OutOfMemoryError("CUDA out of memory (not really)")


def fail_for_a_sentence() -> NoReturn:
    raise NmtError("a sentence is too long") from torch.OutOfMemoryError("CUDA out of memory (not really)")


def out_of_memory(update: int) -> forks.At:
    """Makes memory run out when the gradient of an update with one micro-batch has been computed."""
    return forks.At(
        "nmt.training.loop.train_update", update, forks.At("nmt.training.update.add_gradient", 1, fail, after=True)
    )


def command(trained: Path, folder: Path, *options: str) -> list[str]:
    options = ("--valid-metric=nll", "--save-updates=100", "--max-updates=20", "--device-tokens=1200", *options)
    return ["train", str(trained / "data"), f"--save-dir={folder}", *TRAIN, *SMALL, *options]


def test_if_memory_runs_out_the_update_is_repeated_with_half_the_device_tokens(trained: Path, tmp_path: Path) -> None:
    exact = ["--dropout=0", "--batch-tokens=600"]
    ended = forks.run(*command(trained, tmp_path / "lower", *exact), before=out_of_memory(8))
    assert ended.errors.count("memory ran out in update 8; training continues with --device-tokens 600") == 1
    run(*command(trained, tmp_path / "whole", *exact))
    lower, whole = (weights(tmp_path / name / LAST) for name in ("lower", "whole"))
    for name, tensor in whole.items():
        torch.testing.assert_close(lower[name], tensor, rtol=1e-3, atol=1e-4)


def test_if_memory_runs_out_an_update_is_first_repeated_without_graphs(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs need a GPU, so the test pretends that there are some."""
    run(*command(trained, tmp_path / "whole"))

    class Graphs:
        used = True

        def __call__(self, computation: Any, batch: MicroBatch, factor: float) -> Any:
            if factor:  # not the check of memory, whose weight is 0
                fail()
            return computation(batch, factor)

    def with_graphs(*arguments: Any) -> Training:
        training = Training(*arguments)
        training.graphs = Graphs()  # type: ignore[assignment]
        return training

    monkeypatch.setattr(train_module, "Training", with_graphs)
    log = run(*command(trained, tmp_path / "repeated")).stderr
    assert log.count("memory ran out in update 1; training continues without CUDA graphs") == 1
    assert same_weights(tmp_path / "whole" / LAST, tmp_path / "repeated" / LAST)


class Graphs:
    """Computes without graphs. Memory runs out at the second micro-batch whose weight is not 0, if it `fails`."""

    def __init__(self, fails: bool) -> None:
        self.used, self.calls = fails, 0 if fails else 10

    def __call__(self, computation: Any, batch: MicroBatch, factor: float) -> Any:
        self.calls += factor > 0
        losses = computation(batch, factor)
        return fail() if self.calls == 2 else losses


def train_with_graphs(fails: bool) -> None:
    def with_graphs(*arguments: Any) -> Training:
        training = Training(*arguments)
        training.graphs = Graphs(fails)  # type: ignore[assignment]
        return training

    train_module.Training = with_graphs  # type: ignore[attr-defined]


@pytest.mark.parametrize("failing", [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("tokens", ["--batch-tokens=1600", "--batch-tokens=400"])  # with one micro-batch, with several
def test_if_memory_runs_out_on_one_rank_all_ranks_repeat_the_update_without_graphs(
    failing: tuple[bool, bool], tokens: str, trained: Path, tmp_path: Path
) -> None:
    train = [*command(trained, tmp_path / "graphs", tokens, "--max-updates=6"), "--device-tokens=450"]
    log = forks.run_ranks(*train, before=[partial(train_with_graphs, fails) for fails in failing])
    assert log.count("training continues without CUDA graphs") == 1
    forks.run_ranks(*[word.replace("graphs", "none") for word in train])
    last = "snapshot-00000006.safetensors"
    assert same_weights(tmp_path / "graphs" / last, tmp_path / "none" / last)


def test_the_default_of_device_tokens_is_lowered_until_batches_fit_but_not_a_given_value(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_module, "_fits", lambda *arguments: arguments[-1] <= 5000)
    given = command(trained, tmp_path / "given", "--device-tokens=16384")
    message = "error: micro-batches of --device-tokens 16384 do not fit into memory; give --device-tokens 4096\n"
    assert message in run(*given, code=1).stderr
    default = [option for option in given if not option.startswith("--device-tokens")]
    # 2^20 / d_model is 32,768.
    log = run(*default).stderr
    assert "micro-batches of --device-tokens 32768 do not fit into memory, so training uses 4096" in log
    state = load_checkpoint(tmp_path / "given" / "state-00000020.safetensors")
    assert state.training["counters"]["device_tokens"] == 4096
    monkeypatch.setattr(update_module, "_fits", lambda *_: False)
    assert "do not fit into memory; train a smaller model" in run(*default, "--max-updates=30", code=1).stderr


def test_a_resumed_training_keeps_the_lower_device_tokens(trained: Path, tmp_path: Path) -> None:
    for folder, updates in (("whole", 20), ("resumed", 12)):
        options = ["--batch-tokens=600", f"--max-updates={updates}"]
        forks.run(*command(trained, tmp_path / folder, *options), before=out_of_memory(8))
    resume = command(trained, tmp_path / "resumed", "--batch-tokens=600")
    run(*resume)
    assert same_weights(tmp_path / "whole" / LAST, tmp_path / "resumed" / LAST)
    state = tmp_path / "resumed" / "state-00000020.safetensors"
    assert load_checkpoint(state).training["counters"]["device_tokens"] == 600
    run(*resume, "--device-tokens=500", "--max-updates=22")
    state = tmp_path / "resumed" / "state-00000022.safetensors"
    assert load_checkpoint(state).training["counters"]["device_tokens"] is None


def test_a_single_sentence_pair_that_does_not_fit_ends_training(trained: Path, tmp_path: Path) -> None:
    ended = forks.run(
        *command(trained, tmp_path / "run", "--batch-tokens=1", "--batch-groups=1"), code=1, before=out_of_memory(8)
    )
    assert (
        "error: memory ran out on a single sentence pair in update 8; training stopped after update 7" in ended.errors
    )
    assert "; train a smaller model, drop long pairs" in ended.errors
    assert (tmp_path / "run" / "state-00000007.safetensors").exists()


def test_memory_that_runs_out_on_one_of_two_ranks_ends_training_with_its_state_saved(
    trained: Path, tmp_path: Path
) -> None:
    train = command(trained, tmp_path / "run", "--batch-tokens=800")
    log = forks.run_ranks(*train, codes=(1, 1), before=[None, out_of_memory(8)])
    assert log.count("error: ") == 1
    assert (
        f"rank 1 ran out of memory in update 8; training stopped after update 7 with its state saved in "
        f"{tmp_path}/run; start the same command again with a smaller --device-tokens, such as 600"
    ) in log
    assert "after update 7" in run(*train, "--max-updates=8").stderr


@pytest.mark.parametrize("target, way_out", [
    ("loop.validate", "a smaller --device-tokens, such as 600"),
    ("validation.Translator.hypotheses", "--valid-metric nll"),  # which --device-tokens would not make smaller
])  # fmt: skip
def test_memory_that_runs_out_in_a_validation_ends_training_with_its_state_saved(
    trained: Path, tmp_path: Path, target: str, way_out: str
) -> None:
    train = command(trained, tmp_path / "run", "--max-updates=3", "--valid-updates=2", "--valid-metric=bleu")
    do = fail if target == "loop.validate" else fail_for_a_sentence
    log = forks.run(*train, code=1, before=forks.At(f"nmt.training.{target}", 1, do)).errors
    assert (
        f"error: memory ran out in the validation at update 2; training stopped after update 2 with its state saved in "
        f"{tmp_path}/run; start the same command again with {way_out}"
    ) in log
    resumed = ["--device-tokens=600"] if target == "loop.validate" else ["--valid-metric=nll"]
    assert "validation at update 2" in run(*train, *resumed).stderr


def test_the_largest_micro_batches_are_tried_first(trained: Path) -> None:
    training = beginning(DataFolder.open(trained / "data"), World())
    epoch = Epoch(np.arange(2), np.array([0, 2]), np.array([0]), ((13, 17), (15, 15)))
    plan = UpdatePlan((np.array([13, 15]), np.array([17, 15])), epoch, 1)
    training.counters.device_tokens = 2048
    fit_memory(training, plan)
    assert training.counters.device_tokens == 2048
    assert all(p.grad is None or not p.grad.any() for p in training.loss.parameters())
    sizes: list[int] = []
    training.loss.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].positions))

    def watch(_: Any, __: Any, output: Tensor) -> None:
        output.register_hook(lambda _: fail() if sizes[-1] > 1300 else None)

    training.loss.model.encoder[1].register_forward_hook(watch)
    fit_memory(training, plan)
    assert training.counters.device_tokens == 512
    assert len(sizes) == 4  # with 2048, 1024 and, for both pairs, 512


def _rank(rank: int, data: Path, results: Path) -> None:
    """Saves this rank's gradient of an update whose loss is not finite on rank 1."""
    dist.init_process_group("gloo", store=dist.FileStore(str(results / "store"), 2), rank=rank, world_size=2)
    folder = DataFolder.open(data)
    training = beginning(folder, World(rank, 2, dist.group.WORLD))
    batch = make_micro_batch(folder.split("train"), [np.arange(9)])
    add_gradient(training, batch, torch.nan if rank == 1 else 1.0)
    assert training.optimizer.flat_gradient is not None
    training.world.add_up(training.optimizer.flat_gradient, torch.float32)
    torch.save([p.grad for p in training.loss.parameters()], results / f"{rank}.pt")
    training.world.barrier()
    dist.destroy_process_group()


def test_a_loss_that_is_not_finite_on_one_rank_makes_the_gradient_nan_on_all(trained: Path, tmp_path: Path) -> None:
    ranks = [forks.start(instead=partial(_rank, rank, trained / "data", tmp_path)) for rank in (0, 1)]
    for rank in ranks:
        rank.wait(0)
    assert all(gradient.isnan().all() for rank in (0, 1) for gradient in torch.load(tmp_path / f"{rank}.pt"))


def test_every_update_draws_its_own_dropout(trained: Path, tmp_path: Path) -> None:
    """All pairs are the same, and the weights do not change."""
    for lang, line in (("en", "Ba de ki.\n"), ("de", "Um ol.\n")):
        (tmp_path / f"same.{lang}").write_text(20 * line)
    same = tmp_path / "same"
    model = f"--subword-model={trained}/data/subword.model"
    run("preprocess", *LANGS, f"--train={same}", f"--valid={same}", model, "--workers=1", f"--dest={tmp_path}/data")
    for dropout, differs in ((0.1, True), (0, False)):
        folder = tmp_path / str(dropout)
        options = ["--lr-scale=1e-30", f"--dropout={dropout}", "--max-updates=2", "--log-updates=1"]
        run(*command(tmp_path, folder, *options))
        first, second = (record["loss"] for record in records(folder, "train"))
        assert (abs(first - second) > 1e-4) == differs
