"""Several processes that train one model: how they start, agree, and end together.

A *rank* is one of them; the *main* rank, rank 0, writes files and speaks. `nmt train --gpus N` has torchrun's launcher
start N ranks here; torchrun itself may start them on several machines. Without either there is one rank and no group.
"""

import logging
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from nmt import console
from nmt.config import TrainConfig
from nmt.data.pool import share_cores
from nmt.errors import INTERRUPTED_EXIT_CODE, Interrupted, NmtError
from nmt.model.runtime import Runtime, resolve
from nmt.training.interrupts import StopSignals

_T = TypeVar("_T")
# After a rank lost the others it waits so long for them to say that they did too.
_GRACE_SECONDS = 2.0
# NCCL's timeout is later than that of the control group, whose error says more.
_NCCL_GRACE_SECONDS = 60.0


@dataclass(frozen=True)
class World:
    """All ranks, as one of them sees them.

    Attributes:
        rank, size: which rank this is, and how many there are.
        control: the group in which the ranks agree, on the CPU; None if there is but one.
        store: key-value store that all ranks reach; None likewise.
    """

    rank: int = 0
    size: int = 1
    control: Any = field(default=None, repr=False)
    store: Any = field(default=None, repr=False)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """The module with its gradients averaged over the ranks in every backward pass."""
        if self.control is None:
            return module
        return DistributedDataParallel(module, gradient_as_bucket_view=True, broadcast_buffers=False)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        if self.control is None:
            return flag
        found = torch.tensor(int(flag))
        dist.all_reduce(found, dist.ReduceOp.MAX, group=self.control)
        return bool(found)

    def sum(self, *numbers: float) -> list[float]:
        """The sums of every number over the ranks."""
        total = torch.tensor(numbers, dtype=torch.float64)
        if self.control is not None:
            dist.all_reduce(total, group=self.control)
        return total.tolist()

    def gather(self, value: _T) -> list[_T]:
        """Every rank's value, on every rank."""
        if self.control is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def wait(self) -> None:
        """Waits for all ranks to come here."""
        self.gather(None)

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """
        Raises:
            NmtError: a fact is another one on another rank; names both.
        """
        for rank, theirs in enumerate(all_facts := self.gather(dict(facts))):
            different = [name for name in facts if theirs[name] != all_facts[0][name]]
            if different:
                raise NmtError(
                    f"rank {rank} differs from rank 0 in {', '.join(different)}; start all with the same command"
                )


def is_rank() -> bool:
    """Whether torchrun, or something that sets the same variables, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


@contextmanager
def joined(config: TrainConfig, stop: StopSignals) -> Iterator[tuple[World, Runtime]]:
    """This rank's world, and where it computes. Should one rank fail, all end, and its error is shown once.

    Raises:
        NmtError: another rank cannot be reached or does not come; says which.
    """
    if not is_rank():
        yield World(), resolve(config)
        return
    _end_with_launcher()
    local_rank, local_size = int(os.environ.get("LOCAL_RANK", 0)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    console.speak_as(int(os.environ["RANK"]))
    if config.gpus not in (1, local_size):
        raise NmtError(f"--gpus is {config.gpus}, but torchrun starts {local_size} processes here; leave --gpus out")
    runtime = resolve(config, local_rank)
    world = _connect(runtime, config.rank_timeout)
    try:
        yield world, runtime
        world.wait()
    except BaseException as error:
        _end_together(world, error, stop, config.rank_timeout)
        raise
    finally:
        with suppress(Exception):  # after a failure the group may be beyond use
            dist.destroy_process_group()


def _end_with_launcher() -> None:
    """Has Linux tell this rank to stop when the launcher is gone, killed perhaps, so that it does not run on alone."""
    with suppress(ImportError, AttributeError):
        from torch.multiprocessing import _prctl_pr_set_pdeathsig  # type: ignore[attr-defined]

        _prctl_pr_set_pdeathsig(signal.SIGTERM)


def _connect(runtime: Runtime, timeout: float) -> World:
    patience = timedelta(seconds=timeout)
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=patience)))
        if runtime.device.type == "cuda":
            late = timedelta(seconds=timeout + _NCCL_GRACE_SECONDS)
            dist.init_process_group("nccl", store=store, rank=rank, world_size=size, timeout=late)
        else:
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=patience)
        control = dist.new_group(backend="gloo", timeout=patience)
    except (RuntimeError, ValueError) as error:
        raise NmtError(
            f"rank {os.environ['RANK']} could not join the others within {timeout:g} s "
            f"({_first_line(error)}); see that all were started and reach each other"
        ) from error
    return World(rank, size, control, dist.PrefixStore("nmt", store))


def _first_line(error: BaseException) -> str:
    """The first line of a message, without the place in gloo's sources that may precede it."""
    return re.sub(r"^\[\S+\] ", "", str(error).strip().split("\n")[0])


def _end_together(world: World, error: BaseException, stop: StopSignals, timeout: float) -> None:
    """Leaves quietly if another rank has shown its error already; raises a clear one if a rank was lost."""
    if isinstance(error, (Interrupted, SystemExit)):
        return
    lost = _is_lost_connection(error)
    if lost:
        missing = _missing_ranks(world)
    if stop.received or not _is_first_to_fail(world):
        raise SystemExit(1) from None
    if lost:
        raise NmtError(
            f"rank {world.rank} lost {missing}, having waited at most {timeout:g} s ({_first_line(error)}); "
            f"start the same command again to resume from the newest state"
        ) from error


def _is_lost_connection(error: BaseException) -> bool:
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _missing_ranks(world: World) -> str:
    """The ranks that do not say within a moment that they are waiting too, in words."""
    try:
        world.store.set_timeout(timedelta(seconds=_GRACE_SECONDS))
        world.store.set(f"waiting/{world.rank}", "")
        time.sleep(_GRACE_SECONDS)
        missing = [str(r) for r in range(world.size) if not world.store.check([f"waiting/{r}"])]
    except RuntimeError:
        return "the machine that the run was started on"
    return f"rank {', '.join(missing)}" if missing else "touch with the other ranks"


def _is_first_to_fail(world: World) -> bool:
    try:
        return int(world.store.add("failed", 1)) == 1
    except RuntimeError:
        return True


# Starting ranks


def launch(arguments: list[str], processes: int, device: str) -> None:
    """Runs `nmt` with these arguments as `processes` ranks on this machine, by torchrun's launcher.

    Raises:
        NmtError: there are fewer GPUs, or a rank was killed.
        Interrupted: a signal stopped the ranks, which have saved their state.
        SystemExit: a rank failed and has said why.
    """
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    if (device == "cuda" or gpus) and gpus < processes:
        raise NmtError(f"--gpus is {processes}, but torch sees {gpus} here; ask for at most that many")
    share_cores(processes)
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    def on_warning(number: int, _: Any) -> None:
        raise SignalException("warned", signal.Signals(number))

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):  # whose messages say what ours say
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    signal.signal(signal.SIGUSR1, on_warning)  # the others torchrun handles itself
    launch_config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(launch_config, sys.executable)("-m", "nmt", *arguments)
    except SignalException as stopped:
        raise Interrupted from stopped
    except ChildFailedError as failed:
        rank, failure = failed.get_first_failure()
        raise _ended(rank, failure.exitcode) from failed


def _ended(rank: int, exit_code: int) -> BaseException:
    if exit_code == INTERRUPTED_EXIT_CODE:
        return Interrupted()
    if exit_code > 0:
        return SystemExit(exit_code)
    return NmtError(
        f"rank {rank} was killed by {signal.Signals(-exit_code).name}, perhaps for want of memory; "
        f"start the same command again to resume from the newest state"
    )
