"""What runs in the workers of a Ray cluster."""

import socket
import tempfile
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt import __version__, console, resources
from nmt.errors import NmtError
from nmt.jobs.local import do_window, records_of
from nmt.jobs.manifest import identity
from nmt.jobs.plan import Plan, Reader, Row, Shard
from nmt.jobs.results import Result, write_result
from nmt.jobs.work import Job, Processor
from nmt.text.windows import Window


class Shipped(NamedTuple):
    """What all workers get. `identity` is that of the folder on the driver's machine."""

    job: Job
    folder: Path
    identity: str
    plan: Plan


class Done(NamedTuple):
    """What a worker returns for a shard: the result, unless it has written it itself, and its warnings."""

    result: Result | None
    messages: str


class RayWorker:
    """A worker. The driver reports every NmtError of a method to the user."""

    _shipped: Shipped
    _processor: Processor
    _reader: Reader
    _messages: StringIO

    def greet(self) -> tuple[str, str]:
        """Returns the version of nmt and the name of this machine."""
        return __version__, socket.gethostname()

    def load(self, shipped: Shipped, *models: np.ndarray) -> bool:
        """Loads the model. Returns whether this machine has the same files of the input and the folder of the job.

        Args:
            models: the content of the model's files, as bytes.
        """
        resources.limit_spinning()
        self._shipped, self._reader, self._messages = shipped, Reader(shipped.plan.paths), StringIO()
        console.stderr.file = self._messages
        with tempfile.TemporaryDirectory(prefix="nmt-") as folder:
            # Models of an ensemble may have the same name in different folders.
            paths = [Path(folder) / f"{i}-{Path(path).name}" for i, path in enumerate(shipped.job.models)]
            for path, content in zip(paths, models, strict=True):
                content.tofile(path)
            try:
                self._processor = shipped.job.with_models(tuple(map(str, paths))).load(0)
            except (RuntimeError, MemoryError) as error:
                if isinstance(error, RuntimeError) and "memory" not in str(error):
                    raise
                raise NmtError(
                    f"the model does not fit into the memory of {socket.gethostname()} ({error}); use larger machines "
                    f"or more --worker-cores, so that fewer workers share a machine"
                ) from error
        self._processor.session().__enter__()  # until the process ends
        return identity(shipped.folder) == shipped.identity and shipped.plan.changed is None

    def do(self, shard: Shard, rows: list[Row] | None) -> Done:
        """Does a shard. Without `rows`, the files are those of the driver: it reads the rows and writes the result."""
        job = self._shipped.job
        file = self._shipped.plan.paths[shard.segment][0]
        records = records_of(job, shard, file, self._reader.read(shard) if rows is None else rows)
        result = job.result(list(do_window(job, self._processor, Window(shard.first, records))))
        if rows is None:
            write_result(self._shipped.folder, self._shipped.identity, shard.number, result)
        messages = self._messages.getvalue()
        self._messages.seek(0)
        self._messages.truncate()
        return Done(None if rows is None else result, messages)
