"""`nmt train --gpus N`: starts the ranks on this machine with torchrun's launcher, and reports how they ended."""

import logging
import os
import signal
import sys
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from nmt.errors import INTERRUPTED_EXIT_CODE, Interrupted, NmtError
from nmt.processes.parents import started_by_this
from nmt.resources import share_cores
from nmt.signals import STOPPING, not_ignored
from nmt.training.distributed import UNSAVED_MARKER

# How long ranks may take to save their state before they are killed.
_SAVING_SECONDS = 600


def launch(arguments: list[str], processes: int, device: str) -> None:
    """Runs `nmt` with these arguments in `processes` ranks on this machine.

    Raises:
        NmtError: there are fewer GPUs than processes, or a rank was killed.
        Interrupted: a signal stopped the ranks after they had saved their state.
        SystemExit: a rank failed and has shown its error, or a signal ended the ranks before they saved their state.
    """
    gpus = 0 if device == "cpu" else torch.cuda.device_count()
    if device != "cpu" and gpus < processes:
        raise NmtError(
            f"--gpus is {processes}, but torch sees {gpus} GPUs here; give a smaller --gpus, or --device cpu"
        )
    share_cores(processes)
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import elastic_launch

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):  # its messages repeat those of nmt
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_SAVING_SECONDS))
    with TemporaryDirectory() as folder:
        unsaved = Path(folder) / "unsaved"
        for_ranks = {UNSAVED_MARKER: str(unsaved)} | started_by_this()
        os.environ |= for_ranks
        try:
            elastic_launch(_launch_config(processes), sys.executable)("-m", "nmt", *arguments)
        except SignalException as stopped:
            raise (SystemExit(128 + stopped.sigval) if unsaved.exists() else Interrupted()) from stopped
        except ChildFailedError as failed:
            rank, failure = failed.get_first_failure()
            raise _failure(rank, failure.exitcode) from failed
        finally:
            for name in for_ranks:
                del os.environ[name]


def _launch_config(processes: int) -> Any:
    from torch.distributed.launcher.api import LaunchConfig

    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        signals_to_handle=",".join(number.name for number in not_ignored(STOPPING)),
    )


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
