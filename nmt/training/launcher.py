"""`nmt train --gpus N`: starts the ranks on this machine as torchrun does, and ends as they do."""

import logging
import os
import signal
import sys
from contextlib import suppress
from types import FrameType

import torch
from torch.distributed import TCPStore

from nmt.errors import INTERRUPTED_EXIT_CODE, Interrupted, NmtError
from nmt.resources import share_cores
from nmt.signals import STOPPING, not_ignored

# How often the launcher looks whether a rank has ended, in seconds.
_PERIOD = 0.2


def launch(arguments: list[str], processes: int, device: str) -> None:
    """Runs `nmt` with these arguments in `processes` ranks on this machine. Passes signals on to them.

    Raises:
        NmtError: there are fewer GPUs than processes, or a rank was killed.
        Interrupted: the ranks were stopped after they had saved their state.
        SystemExit: a rank failed and has shown its error, or a signal ended it before it saved its state.
    """
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    if device != "cpu" and gpus < processes:
        raise NmtError(
            f"--gpus is {processes}, but torch sees {gpus} GPUs here; give a smaller --gpus, or --device cpu"
        )
    share_cores(processes)
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGQUIT"  # the others are passed on here
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL + 1)  # its messages repeat those of nmt
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL + 1)
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    ranks = start_processes(
        name="nmt",
        entrypoint=sys.executable,
        args=dict.fromkeys(range(processes), ("-m", "nmt", *arguments)),
        envs={rank: _variables(rank, processes, store.port) for rank in range(processes)},
        logs_specs=DefaultLogsSpecs(os.devnull),
    )

    def pass_on(number: int, _: FrameType | None) -> None:
        for process in ranks.pids().values():
            with suppress(ProcessLookupError):
                os.kill(process, number)

    for number in not_ignored(STOPPING):
        signal.signal(number, pass_on)
    ended = ranks.wait(period=_PERIOD)  # when a rank fails, this ends the others
    if ended and ended.failures:
        first = min(ended.failures.values(), key=lambda failure: failure.timestamp)
        raise _failure(first.local_rank, first.exitcode)


def _variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Returns the environment variables that torchrun would set for a rank."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the store is here, and no rank starts one
    }


def _failure(rank: int, exit_code: int) -> BaseException:
    """Returns the exception for a rank that ended with this exit code, which is negative after a signal."""
    if exit_code == INTERRUPTED_EXIT_CODE:
        return Interrupted()
    if exit_code > 0:
        return SystemExit(exit_code)
    return NmtError(
        f"rank {rank} was killed by {signal.Signals(-exit_code).name}, perhaps because memory ran out; "
        f"start the same command again to resume from the newest training state"
    )
