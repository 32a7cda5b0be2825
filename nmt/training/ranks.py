"""Connects several processes that train one model, exchanges values between them, and ends them together.

Each process is a *rank*. The *main* rank, rank 0, writes files and log lines. `nmt train --gpus N` starts N ranks
on this machine (see `launch`); torchrun can start ranks on several machines. Otherwise there is one rank and no
process group.
"""

import logging
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from types import FrameType
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore
from torch.distributed.rendezvous import rendezvous

from nmt import console
from nmt.config import TrainConfig
from nmt.errors import INTERRUPTED_EXIT_CODE, NmtError, StoppedError
from nmt.model.device import Runtime, set_up
from nmt.resources import threads_per_process
from nmt.signals import STOPPING, StopSignals, not_ignored

_T = TypeVar("_T")
# Grace period in which other ranks may report that they lost the same rank.
_GRACE_SECONDS = 2.0


@dataclass(frozen=True)
class World:
    """The group of all ranks, as one of them sees it.

    Attributes:
        rank: the number of this rank, from 0.
        size: the number of ranks.
        control: a process group on the CPU for small messages; None if there is only one rank.
        store: a key-value store that all ranks reach; None if there is only one rank.
    """

    rank: int = 0
    size: int = 1
    control: Any = field(default=None, repr=False)
    store: Any = field(default=None, repr=False)

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def copy_to_all(self, tensors: Iterable[Tensor]) -> None:
        """Gives the tensors of all ranks the values that they have on the main rank."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor, src=0)

    def add_up(self, tensor: Tensor, dtype: torch.dtype) -> None:
        """Replaces a tensor by its sum over the ranks, which exchange numbers of this type."""
        sent = tensor.to(dtype)
        dist.all_reduce(sent)
        if sent is not tensor:
            tensor.copy_(sent)

    def any(self, flag: bool) -> bool:
        """Returns whether the flag is set on any rank. All ranks must call this method at the same place."""
        if self.control is None:
            return flag
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags, group=self.control)
        return bool(flags)

    def end_together(self, stopped: bool) -> None:
        """Ends the work of all ranks at the same place. All ranks must call this method there.

        Raises:
            StoppedError: any rank was asked to stop.
        """
        if self.any(stopped):
            raise StoppedError

    def gather(self, value: _T) -> list[_T]:
        """Returns the values of all ranks, on every rank."""
        if self.control is None:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def broadcast(self, make: Callable[[], _T]) -> _T:
        """Returns, on every rank, what `make` returns on the main rank."""
        if self.control is None:
            return make()
        values: list[Any] = [make() if self.is_main else None]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def barrier(self) -> None:
        """Waits until all ranks call this method.

        A barrier is also a safe last operation before exit. After other collectives, gloo's threads release the
        tensors a little later, and Python aborts if it shuts down at that moment.
        """
        if self.control is not None:
            dist.barrier(self.control)

    def end(self) -> None:
        """Waits until the main rank has ended its work, however long that takes. Each rank calls it once."""
        self.follow_main("ended")
        if self.store is not None:
            self.barrier()

    def follow_main(self, place: str) -> None:
        """Waits until the main rank has reached a place, however long that takes. Each rank calls it once a place."""
        if self.store is not None and self.is_main:
            self.store.set(place, "")
        elif self.store is not None:
            self.store.wait([place], timedelta(days=365))

    def require_same(self, facts: Mapping[str, Any]) -> None:
        """Checks that all ranks have the same facts."""
        facts_by_rank = self.gather(dict(facts))
        for rank, theirs in enumerate(facts_by_rank):
            # A rank with another version of nmt may have other facts.
            names = {**facts_by_rank[0], **theirs}
            pairs = {name: (theirs.get(name), facts_by_rank[0].get(name)) for name in names}
            if different := [f"{name} ({a} instead of {b})" for name, (a, b) in pairs.items() if a != b]:
                raise NmtError(
                    f"rank {rank} differs from rank 0 in {', '.join(different)}; start all ranks with the same command "
                    f"on machines with the same software"
                )


def is_rank() -> bool:
    """Returns whether torchrun, or a program that sets the same variables, started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


# A variable that `launch` sets and torchrun does not.
_LAUNCHED = "NMT_LAUNCHED"


def is_launched() -> bool:
    """Returns whether `launch` started this process."""
    return _LAUNCHED in os.environ


class Rank(NamedTuple):
    """This process of a training: the group of all ranks, the device, and the signals that ask it to stop."""

    world: World
    runtime: Runtime
    stop: StopSignals


@contextmanager
def join_ranks(config: TrainConfig, *, saves: bool) -> Iterator[Rank]:
    """Joins the other ranks, and yields this one. If a rank fails, all ranks end, and the error is shown once.

    Args:
        saves: whether the state is saved before a signal ends the work.
    """
    stopping = "stopping as soon as the state is saved" if saves else "stopping; nothing is saved"
    signals = StopSignals(lambda: console.info(f"{stopping}; a second signal stops at once"))
    if not is_rank():
        if config.reduce_precision != "fp32" and config.gpus == 1:  # --hours measures in one process first
            console.warn("--reduce-precision has no effect with one process; leave it out")
        with signals as stop:
            yield Rank(World(), set_up(config), stop)
        return
    console.speak_as(int(os.environ["RANK"]))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    if config.gpus not in (1, local_size):
        raise NmtError(f"--gpus is {config.gpus}, but torchrun starts {local_size} processes here; leave out --gpus")
    runtime = set_up(config, int(os.environ.get("LOCAL_RANK", 0)))
    world = _connect(runtime, config.rank_timeout)
    with signals as stop:
        try:
            yield Rank(world, runtime, stop)
            world.end()
        except StoppedError:
            raise
        except BaseException as error:  # the group is not destroyed, because that could wait forever for other ranks
            _end_after_failure(world, error, stop, config.rank_timeout)
            raise
    dist.destroy_process_group()


def _connect(runtime: Runtime, timeout: float) -> World:
    """Returns the group of all ranks; each connection is given up after `timeout` seconds."""
    limit = timedelta(seconds=timeout)
    try:
        shared, rank, size = next(iter(rendezvous("env://", timeout=limit)))
        # Ranks that torchrun restarts may get the same store, which still holds the addresses of the earlier ranks.
        store = dist.PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", shared)
        # A timeout of the control group comes first, because its error says more.
        backend, longer = ("nccl", timedelta(seconds=60)) if runtime.device.type == "cuda" else ("gloo", timedelta())
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit + longer)
        control = dist.new_group(backend="gloo", timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise NmtError(
            f"rank {os.environ['RANK']} could not join the others within {timeout:g} s "
            f"({_first_line(error)}); check that all ranks are running and can reach each other, and name "
            f"the network interface in GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME (docs/distributed.md)"
        ) from error
    return World(rank, size, control, dist.PrefixStore("nmt", store))


def _first_line(error: BaseException) -> str:
    """Returns the first line of an error message, without the source location that gloo may put before it."""
    return re.sub(r"^\[\S+\] ", "", str(error).strip().split("\n")[0])


def _end_after_failure(world: World, error: BaseException, stop: StopSignals, timeout: float) -> None:
    """Exits without a message if another rank has shown its error; raises an NmtError if a rank was lost.

    The ranks tell each other through the store that they failed, and whether they lost a connection. Those that do
    not report a lost connection within the grace period are missing.
    """
    lost = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
    answers: queue.Queue[tuple[list[str], int]] = queue.Queue()

    def ask() -> None:
        with suppress(RuntimeError):
            if lost:
                world.store.set(f"waiting/{world.rank}", "")
                time.sleep(_GRACE_SECONDS)
            missing = [str(rank) for rank in range(world.size) if not world.store.check([f"waiting/{rank}"])]
            answers.put((missing, int(world.store.add("failed", 1))))

    threading.Thread(target=ask, daemon=True).start()  # a request to a dead machine could block forever
    try:
        ranks, failures = answers.get(timeout=2 * _GRACE_SECONDS)
        missing = f"rank {', '.join(ranks)}" if ranks else "the other ranks"
    except queue.Empty:
        missing, failures = "the machine that started the run", 1
    if (lost and stop.received) or failures > 1:
        raise SystemExit(1) from None
    if lost:
        raise NmtError(
            f"rank {world.rank} lost the connection to {missing} and waited up to {timeout:g} s for it "
            f"({_first_line(error)}); start the same command again to resume from the newest training state"
        ) from error


def launch(arguments: list[str], count: int, device: str) -> None:
    """Runs `nmt` with these arguments in `count` ranks on this machine. Passes signals on to them.

    Raises:
        StoppedError: the ranks were stopped after they had saved their state.
        SystemExit: a rank failed and has shown its error, or a signal ended it before it saved its state.
    """
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    if device != "cpu" and gpus < count:
        raise NmtError(f"--gpus is {count}, but torch sees {gpus} GPUs here; give a smaller --gpus, or --device cpu")
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGQUIT"  # the others are passed on here
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes

    for name in ("torch.distributed.elastic", "torch.distributed.elastic.multiprocessing.api"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # its messages repeat those of nmt
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    ranks, early = None, list[int]()  # signals before the ranks have started

    def pass_on(signum: int, _: FrameType | None) -> None:
        if ranks is None:
            early.append(signum)
            return
        for process in ranks.pids().values():
            with suppress(ProcessLookupError):
                os.kill(process, signum)

    for signum in not_ignored(STOPPING):
        signal.signal(signum, pass_on)
    # The variables that torchrun would set, and one that it would not set.
    common = {
        _LAUNCHED: "True",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is here, and no rank starts one
        "OMP_NUM_THREADS": threads_per_process(count),
    }
    ranks = start_processes(
        name="nmt",
        entrypoint=sys.executable,
        args=dict.fromkeys(range(count), ("-m", "nmt", *arguments)),
        envs={rank: {"RANK": str(rank), "LOCAL_RANK": str(rank), **common} for rank in range(count)},
        logs_specs=DefaultLogsSpecs(os.devnull),
    )
    for received in early:
        pass_on(received, None)
    ended = ranks.wait(period=0.2)  # seconds between two looks; when a rank fails, this ends the others
    if not ended or not ended.failures:
        return
    first = min(ended.failures.values(), key=lambda failure: failure.timestamp)
    if first.exitcode == INTERRUPTED_EXIT_CODE:
        raise StoppedError
    if first.exitcode > 0:
        raise SystemExit(first.exitcode)
    raise NmtError(  # the exit code is negative after a signal
        f"rank {first.local_rank} was killed by {signal.Signals(-first.exitcode).name}, perhaps because memory ran "
        f"out; start the same command again to resume from the newest training state"
    )
