"""Several processes train one model, and nothing is lost when they are stopped."""

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import forks
import pytest
import torch
from commands import needs_linux, records, run, same_weights, valid_losses, weights
from two_ranks import LAST, command

import nmt
from nmt.training import loop, state
from nmt.training import ranks as ranks_module
from nmt.training import train as train_module

pytestmark = pytest.mark.xdist_group("distributed")  # so that the uninterrupted training runs once
UPDATE = "nmt.training.loop.train_update"


def test_two_ranks_train_the_same_model_as_one(data: Path, tmp_path: Path) -> None:
    """The snapshots have the average of --ema, and the states have the weights."""
    metrics = ["--valid-metric=bleu", "--valid-metric=chrf"]
    options = ["--max-updates=10", "--dropout=0", "--warmup-updates=400", "--ema=0.3", *metrics]
    log = forks.run_ranks(*command(data, tmp_path / "two", *options))
    assert "2 processes" in log
    assert log.count("parameters") == 1
    run(*command(data, tmp_path / "one", *options))
    for kind in ("snapshot", "state"):
        single_weights, joint_weights = (
            weights(tmp_path / name / f"{kind}-00000010.safetensors") for name in ("one", "two")
        )
        # Sums over ranks round differently, and Adam amplifies the difference by a factor that depends on the CPU.
        assert max(float((single_weights[name] - joint_weights[name]).abs().max()) for name in single_weights) < 5e-5
    for kind, keys in (("train", ("loss", "nll", "gradient_norm")), ("valid", ("nll", "bleu", "chrf"))):
        for first, second in zip(*(records(tmp_path / name, kind) for name in ("one", "two")), strict=True):
            assert [first[key] for key in keys] == pytest.approx([second[key] for key in keys], rel=1e-4)


@pytest.mark.parametrize(("ranks", "options"), [
    (3, ["--optimizer=muon", "--device-tokens=300"]),  # several micro-batches, and ranks without a sentence
    (2, ["--freeze=decoder", "--clip-norm=0.1"]),
    (4, ["--batch-tokens=60", "--batch-groups=1"]),
])  # fmt: skip
def test_any_number_of_ranks_adds_up_the_gradient_of_one(
    ranks: int, options: list[str], data: Path, tmp_path: Path
) -> None:
    options = [*options, "--max-updates=4", "--log-updates=1", "--dropout=0", "--warmup-updates=400"]
    forks.run_ranks(*command(data, tmp_path / "several", *options), codes=[0] * ranks)
    run(*command(data, tmp_path / "one", *options))
    joint_records, single_records = (records(tmp_path / name, "train") for name in ("several", "one"))
    for key in ("loss", "nll", "gradient_norm"):
        assert [record[key] for record in joint_records] == pytest.approx(
            [record[key] for record in single_records], rel=1e-4
        )


def test_gradients_that_are_exchanged_in_bf16_are_rounded(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    forks.run_ranks(*command(data, tmp_path, "--reduce-precision=bf16"))
    rounded, exact = ([record["nll"] for record in records(run, "train")] for run in (tmp_path, uninterrupted))
    assert rounded == pytest.approx(exact, rel=0.01)
    assert rounded != exact


def draw_other_weights() -> None:
    torch.manual_seed = lambda seed, manual_seed=torch.manual_seed: manual_seed(seed + 1)  # type: ignore
    forks.At("nmt.training.state.Optimizer", do=draw_as_usual)()


def draw_as_usual() -> None:
    torch.manual_seed = torch.random.manual_seed


def test_ranks_that_draw_other_first_weights_take_those_of_the_main_rank(
    data: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    """Another processor may draw other numbers from the same seed."""
    forks.run_ranks(*command(data, tmp_path), before=(None, draw_other_weights))
    assert same_weights(uninterrupted / LAST, tmp_path / LAST)


def test_a_signal_stops_all_ranks_and_nothing_is_lost(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    train = command(data, tmp_path / "run")
    term = forks.At(UPDATE, 8, forks.Interrupt(signal.SIGTERM))
    usr1 = forks.At(UPDATE, 6, forks.Interrupt(signal.SIGUSR1))
    for interrupts, update in (((None, term), 7), ((usr1, usr1), 12)):
        log = forks.run_ranks(*train, codes=(75, 75), before=interrupts)
        assert log.count(f"stopped after update {update} with its state saved in {tmp_path}/run") == 1
        assert log.count("start the same command again to resume") == 1
        assert "Traceback" not in log
    assert "resumed from" in forks.run_ranks(*train)
    assert same_weights(uninterrupted / LAST, tmp_path / "run" / LAST)
    assert valid_losses(tmp_path / "run") == valid_losses(uninterrupted)
    assert [r["update"] for r in records(tmp_path / "run", "train")] == [5, 10, 15, 20]


def answer_at_once() -> None:
    """Makes a rank that lost a connection not wait until other ranks may have lost it too."""
    ranks_module.time = SimpleNamespace(sleep=lambda _: None)  # type: ignore[attr-defined]
    ranks_module._GRACE_SECONDS = 1e6  # also limits how long the answer may take


def answer_at_once_and_be_asked_to_stop() -> None:
    answer_at_once()
    forks.At("nmt.training.ranks._end_after_failure", do=forks.Interrupt(signal.SIGTERM))()


def test_a_killed_rank_ends_the_run_and_nothing_is_lost(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    train, killed = command(data, tmp_path / "run"), forks.At(UPDATE, 8)
    log = forks.run_ranks(*train, codes=(1, -signal.SIGKILL), before=(answer_at_once, killed))
    assert log.count("error: ") == 1, log
    assert "error: rank 0 lost the connection to rank 1 and waited up to " in log
    # A launcher asks the other ranks to stop when it reports the death.
    asked = answer_at_once_and_be_asked_to_stop
    log = forks.run_ranks(*train, codes=(1, -signal.SIGKILL), before=(asked, killed))
    assert "error: " not in log
    forks.run_ranks(*train)
    assert same_weights(uninterrupted / LAST, tmp_path / "run" / LAST)


def cannot_pack(obstacle: str | None) -> None:
    state.obstacle_to_packing = lambda *_: obstacle  # type: ignore[attr-defined]
    state.obstacle_to_kernel = lambda *_: None  # type: ignore[attr-defined]


def both(differs: Callable[[], None]) -> None:
    answer_at_once()
    differs()


def is_version(version: str) -> None:
    nmt.__version__ = version


def plans_as(version: int) -> None:
    train_module.PLAN_VERSION = version  # type: ignore[attr-defined]


def computes_on(device: str) -> None:
    set_up = ranks_module.set_up
    ranks_module.set_up = lambda *given: replace(set_up(*given), device=torch.device(device))  # type: ignore


@pytest.mark.parametrize(("differs", "difference"), [
    (partial(cannot_pack, None), "packing (works instead of does not work)"),
    (partial(is_version, "0.0"), "the version of nmt (0.0 instead of "),
    (partial(plans_as, 0), "the plan of updates (0 instead of "),
    (partial(computes_on, "meta"), "device (meta instead of cpu)"),
])  # fmt: skip
def test_ranks_that_would_cut_updates_differently_do_not_train(
    data: Path, tmp_path: Path, differs: Callable[[], None], difference: str
) -> None:
    log = forks.run_ranks(*command(data, tmp_path), codes=(1, 1), before=(answer_at_once, partial(both, differs)))
    assert log.count("error: ") == 1
    assert f"rank 1 differs from rank 0 in {difference}" in log
    assert "start all ranks with the same command on machines with the same software" in log


@pytest.mark.nightly
def test_a_rank_that_hangs_is_named_and_ends_the_run(data: Path, tmp_path: Path) -> None:
    stopped = forks.At(UPDATE, 8, signal.SIGSTOP)
    ranks = forks.start_ranks(2, *command(data, tmp_path, "--rank-timeout=3"), before=(None, stopped))
    ranks[0].wait(1)
    assert "error: rank 0 lost the connection to rank 1 and waited up to 3 s for it" in ranks[0].errors
    ranks[1].send(signal.SIGKILL)
    ranks[1].wait(-signal.SIGKILL)


@pytest.mark.parametrize("connects", [
    "torch.distributed.init_process_group", "torch.distributed.new_group", "nmt.training.ranks.rendezvous",
])  # fmt: skip
def test_each_connection_has_the_limit_of_rank_timeout(data: Path, tmp_path: Path, connects: str) -> None:
    limited = forks.At(connects, matching="0:01:17")
    (rank,) = forks.start_ranks(1, *command(data, tmp_path, "--rank-timeout=77"), before=[limited])
    rank.wait(-signal.SIGKILL)


def run_below_a_launcher() -> None:
    """Continues in a child of this process. The child kills its parent before the eighth update."""
    if child := os.fork():
        os.waitpid(child, 0)
        os._exit(0)
    forks.At(UPDATE, 8, partial(os.kill, os.getppid(), signal.SIGKILL))()


@needs_linux
def test_a_rank_ends_with_the_process_that_started_it(data: Path, tmp_path: Path) -> None:
    train = command(data, tmp_path / "run", "--max-updates=1000", "--save-updates=1000")
    (launcher,) = forks.start_ranks(1, *train, before=[run_below_a_launcher], stderr=subprocess.PIPE)
    log = launcher.stderr.read().decode()  # until the training ends
    launcher.wait(-signal.SIGKILL)
    # A validation before it notices the end saves another state.
    update = max(int(state.stem.removeprefix("state-")) for state in (tmp_path / "run").glob("state-*.safetensors"))
    assert update >= 7
    assert f"stopped after update {update} with its state saved in {tmp_path}/run" in log


def test_an_error_is_shown_once_and_ends_all_ranks(data: Path, tmp_path: Path) -> None:
    """Only one rank notices damaged data."""
    damaged = Path(shutil.copytree(data, tmp_path / "data"))
    content = (damaged / "train.de.tokens").read_bytes()
    (damaged / "train.de.tokens").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    too_small = "error: --device-tokens 5 is too small for the longest training sentence, which needs"
    for train, said in (
        (command(data, tmp_path / "run", "--device-tokens=5"), too_small),
        (command(damaged, tmp_path / "run"), "train.de.tokens is damaged"),
    ):
        log = forks.run_ranks(*train, codes=(1, 1), before=(answer_at_once,) * 2)
        assert log.count("error: ") == log.count(said) == 1
        assert "Traceback" not in log


def fill_the_disk_at_update_8() -> None:
    """Files are written at once, so that the state of update 5 is on disk by then."""
    loop.has_room_for_copies = lambda _: False  # type: ignore[attr-defined]
    forks.At(UPDATE, 8, partial(resource.setrlimit, resource.RLIMIT_FSIZE, (50_000, 50_000)))()


def test_a_full_disk_ends_the_run_and_keeps_its_last_state(data: Path, uninterrupted: Path, tmp_path: Path) -> None:
    """Like a full disk, a limit on the size of files makes a write fail when a part has been written."""
    train = command(data, tmp_path)
    log = forks.run(*train, code=1, before=fill_the_disk_at_update_8).errors
    assert log.count("error: ") == 1
    assert "cannot be written (File too large); free some space" in log
    assert not list(tmp_path.glob(".*.partial-*"))
    assert "after update 5" in forks.run_ranks(*train)
    # One rank began and two ranks finished, so dropout differs from the other run, but the updates are the same.
    assert [r["update"] for r in records(tmp_path, "train")] == [r["update"] for r in records(uninterrupted, "train")]
