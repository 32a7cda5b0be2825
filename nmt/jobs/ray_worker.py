"""What runs in the workers of a Ray cluster."""

import socket
import tempfile
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt import __version__, console, resources
from nmt.errors import NmtError
from nmt.jobs.local import do_window, records_of
from nmt.jobs.plan import Row, Shard
from nmt.jobs.results import Result
from nmt.jobs.work import Job, Processor
from nmt.text.corpus import Window


class Done(NamedTuple):
    """What a call of a worker returns: its warnings, the id of its machine, and the result if it did a shard."""

    messages: str
    machine: str
    result: Result | None = None


class RayWorker:
    """A worker. If its process dies, Ray starts another one and repeats the calls that were in flight.

    The model is loaded by the first call, because Ray limits how often it repeats a call that kills its process, but
    not how often it repeats a constructor. The driver reports every NmtError of a method to the user.
    """

    def __init__(self, version: str, job: Sequence[Any], models: Sequence[Any]) -> None:
        """Notes what to load.

        Args:
            version: that of the driver.
            job: Ray's reference to the job.
            models: Ray's references to the contents of the job's files.
        """
        self._version, self._references = version, (job, models)
        self._loaded: tuple[Job, Processor] | None = None
        self._messages = StringIO()

    def load(self) -> Done:
        """Loads the model."""
        self._loaded = self._load()
        return self._done()

    def do(self, shard: Shard, file: str, rows: Sequence[Row]) -> Done:
        """Does a shard.

        Args:
            file: what messages call the file that the rows are from.
        """
        self._loaded = self._loaded or self._load()  # Ray may have started this process in place of one that died
        job, processor = self._loaded
        window = Window(shard.first, records_of(job, shard, file, rows))
        return self._done(job.result(list(do_window(job, processor, window))))

    def _load(self) -> tuple[Job, Processor]:
        import ray

        if self._version != __version__:
            raise NmtError(
                f"{socket.gethostname()} has version {__version__} of nmt, but the machine of the command has "
                f"{self._version}; install the same version on all machines"
            )
        resources.limit_spinning()
        console.stderr.file = self._messages
        (job,), models = map(ray.get, self._references)
        processor = _processor(job, models)
        processor.session().__enter__()  # until the process ends
        return job, processor

    def _done(self, result: Result | None = None) -> Done:
        import ray

        messages = self._messages.getvalue()
        self._messages.seek(0)
        self._messages.truncate()
        return Done(messages, ray.get_runtime_context().get_node_id(), result)


def _processor(job: Job, models: Sequence[np.ndarray]) -> Processor:
    """Returns the processor of a job whose files have these contents."""
    with tempfile.TemporaryDirectory(prefix="nmt-") as folder:
        # Models of an ensemble may have the same name in different folders.
        paths = [Path(folder) / f"{i}-{Path(path).name}" for i, path in enumerate(job.models)]
        for path, content in zip(paths, models, strict=True):
            content.tofile(path)
        try:
            return job.with_models(tuple(map(str, paths))).load(0)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and "memory" not in str(error):
                raise
            raise NmtError(
                f"the model does not fit into the memory of {socket.gethostname()} ({error}); use larger machines or "
                f"more --worker-cores, so that fewer workers share a machine"
            ) from error
