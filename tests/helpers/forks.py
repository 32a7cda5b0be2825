"""Starts commands as processes that are forked from one process, which has imported torch and nmt and computed nothing.

A forked command is a process of its own: it has its own session, signals, standard streams and exit code. It starts in
milliseconds, while a new interpreter needs seconds to import torch. The parent of all commands is this file, run as a
program; see `_serve`.
"""

import atexit
import gc
import os
import pickle
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from multiprocessing import Pipe, forkserver, reduction, resource_tracker, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import typer
from torch.distributed import TCPStore

from nmt import console
from nmt.cli.app import app
from nmt.errors import NmtError
from nmt.signals import held

ROOT = Path(__file__).parents[2]
_LIMIT_SECONDS = 600  # a command that takes longer hangs


@dataclass(frozen=True)
class At:
    """Makes a process do something at the n-th call of a function; give it to `start` as `before`.

    Attributes:
        target: the function, for example `os.replace` or `nmt.training.run_folder.RunFolder.save`.
        call: the number of the call, from 1.
        do: a signal that the process sends to itself, or a picklable function to call.
        matching: only calls with an argument whose text contains this string are counted.
        after: whether it happens after the call instead of before it.
    """

    target: str
    call: int = 1
    do: signal.Signals | Callable[[], object] = signal.SIGKILL
    matching: str = ""
    after: bool = False

    def __call__(self) -> None:
        """Patches the function."""
        owner_name, name = self.target.rsplit(".", 1)
        owner = pkgutil.resolve_name(owner_name)
        function, calls = getattr(owner, name), 0
        do = (lambda: os.kill(os.getpid(), self.do)) if isinstance(self.do, signal.Signals) else self.do

        def patched(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            is_counted = any(self.matching in str(value) for value in ("", *args, *kwargs.values()))
            calls += is_counted
            is_now = is_counted and calls == self.call
            if is_now and not self.after:
                do()
            answer = function(*args, **kwargs)
            if is_now and self.after:
                do()
            return answer

        setattr(owner, name, patched)


@dataclass(frozen=True)
class Interrupt:
    """Sends a signal to this process, which is a training, and waits until it has noticed it."""

    number: signal.Signals

    def __call__(self) -> None:
        """Sends the signal. A training prints a message when it has noticed it, though only rank 0 shows it."""
        noticed, info = threading.Event(), console.info

        def note(message: str) -> None:
            info(message)
            noticed.set()

        console.info = note
        os.kill(os.getpid(), self.number)
        assert noticed.wait(_LIMIT_SECONDS), "training has not noticed the signal"
        console.info = info


class Command:
    """A running command.

    Attributes:
        pid: the id of the process, which is also that of its session and process group.
        stdin, stdout, stderr: the other ends of its pipes, if `start` was asked for pipes.
        store: what the ranks of `start_ranks` find each other through.
    """

    def __init__(self, pid: int, pipes: dict[str, Any], files: dict[str, Any]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = (pipes.get(name) for name in ("stdin", "stdout", "stderr"))
        self.store: TCPStore | None = None
        self._files = files

    def send(self, signum: signal.Signals) -> None:
        """Sends a signal to the process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signum)

    def wait(self, code: int | None = None) -> int:
        """Waits for the end; returns the exit code, or minus the number of the signal that killed the process.

        Args:
            code: the exit code that is expected, if any.
        """
        exit_code = _server().wait(self.pid)
        assert code in (None, exit_code), f"exit code {exit_code}: {self.errors}"
        return exit_code

    @property
    def errors(self) -> str:
        """What the process has written to standard error so far, if that is a file."""
        return self._text("stderr")

    @property
    def output(self) -> str:
        """What the process has written to standard output so far, if that is a file."""
        return self._text("stdout")

    def _text(self, name: str) -> str:
        if name not in self._files:
            return ""
        descriptor = self._files[name].fileno()  # the process writes at the position that `seek` would change
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()


def start(
    *arguments: str | Path,
    stdin: int | bytes = b"",
    stdout: int | None = None,
    stderr: int | None = None,
    cwd: Path | str | None = None,
    env: dict[str, str] | None = None,
    before: Callable[[], object] | None = None,
    instead: Callable[[], object] | None = None,
) -> Command:
    """Starts `nmt` with these arguments.

    Args:
        stdin: its standard input: bytes, subprocess.PIPE, or a file descriptor.
        stdout, stderr: None for a file, which the attributes `output` and `errors` read; subprocess.PIPE; or a file
            descriptor.
        env: environment variables that are added to those of this process.
        before: a picklable function that the new process calls first, for example an `At`.
        instead: a picklable function that the new process calls instead of `nmt`.
    """
    pipes: dict[str, Any] = {}
    files: dict[str, Any] = {}
    theirs: list[int] = []
    with ExitStack() as started:
        for name, wanted in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            if wanted == subprocess.PIPE:
                read, write = os.pipe()
                pipes[name] = os.fdopen(write, "wb", 0) if name == "stdin" else os.fdopen(read, "rb")
                theirs.append(read if name == "stdin" else write)
                started.callback(os.close, theirs[-1])
            elif isinstance(wanted, int):
                theirs.append(wanted)
            else:
                files[name] = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the Command)
                files[name].write(wanted or b"")
                files[name].seek(0)
                theirs.append(files[name].fileno())
        request = {
            "argv": ["nmt", *map(str, arguments)],
            "cwd": str(cwd or os.getcwd()),
            "env": {**os.environ, **(env or {})},
            "path": sys.path,
            "calls": pickle.dumps((before, instead)),
        }
        return Command(_server().start(request, theirs), pipes, files)


def run(*arguments: str | Path, code: int = 0, **options: Any) -> Command:
    """Runs `nmt` as a forked process until it ends with this exit code; `options` are those of `start`."""
    command = start(*arguments, **options)
    command.wait(code)
    return command


def start_ranks(
    size: int, *arguments: str | Path, before: Sequence[Callable[[], object] | None] = (), **options: Any
) -> list[Command]:
    """Starts `nmt` as ranks 0 to `size` - 1 of one training, without torchrun; `options` are those of `start`.

    Args:
        before: for each rank, what it calls first.
    """
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    env = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "localhost"}
    env |= {"MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = [
        start(*arguments, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}, before=first, **options)
        for rank, first in zip(range(size), before or [None] * size, strict=True)
    ]
    for rank in ranks:
        rank.store = store  # it lives as long as the ranks
    return ranks


def run_ranks(
    *arguments: str | Path, codes: Sequence[int] = (0, 0), before: Sequence[Callable[[], object] | None] = ()
) -> str:
    """Runs `nmt` as ranks of one training until they end with these exit codes; returns what they print."""
    ranks = start_ranks(len(codes), *arguments, before=before)
    for rank, code in zip(ranks, codes, strict=True):
        rank.wait(code)
    return "".join(rank.errors for rank in ranks)


class _Server:
    """The parent of the commands, as the tests see it."""

    def __init__(self) -> None:
        self._channel, theirs = Pipe()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        program = [sys.executable, __file__, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                program, pass_fds=[theirs.fileno()], env=environment, cwd=ROOT, start_new_session=True
            )
        self._codes: dict[int, int] = {}
        self._started: list[int] = []

    def start(self, request: dict[str, Any], descriptors: list[int]) -> int:
        self._channel.send(request)
        for descriptor in descriptors:
            reduction.send_handle(self._channel, descriptor, self._process.pid)
        while not self._started:
            self._read()
        pid = self._started.pop()
        self._codes.pop(pid, None)  # of an earlier process with the same id
        return pid

    def wait(self, pid: int) -> int:
        while pid not in self._codes:
            self._read()
        return self._codes[pid]

    def end(self) -> None:
        self._channel.close()
        self._process.wait()

    def _read(self) -> None:
        assert self._channel.poll(_LIMIT_SECONDS), f"no answer within {_LIMIT_SECONDS} seconds"
        pid, code = self._channel.recv()
        if code is None:
            self._started.append(pid)
        else:
            self._codes[pid] = code


_server = cache(_Server)


def end() -> None:
    """Ends the parent of the commands, and all commands that still run."""
    if _server.cache_info().currsize:
        _server().end()


# The parent of the commands


def _preload() -> None:
    # The first optimizer that a process makes would import torch._dynamo, which takes a second.
    for name in ("pytest", "hypothesis", "sacrebleu", "sacremoses", "torch._dynamo", "torch.distributed"):
        import_module(name)
    for module in pkgutil.walk_packages([str(ROOT / "nmt")], "nmt."):
        if module.name != "nmt.__main__":
            with suppress(ImportError, NmtError):  # an optional package is missing
                import_module(module.name)
    typer.main.get_command = cache(typer.main.get_command)  # so that not every command reads the flags of all commands
    typer.main.get_command(app)
    os.fsync = lambda _: None  # no test needs files that survive a power failure
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False  # torch has hundreds of these, which would run at the end of every command
    gc.collect()
    gc.freeze()  # so that collections in the forked processes do not copy the memory of all objects
    threads = Path("/proc/self/task")
    assert not threads.exists() or len(list(threads.iterdir())) == 1, "only a process with one thread may be forked"


def _serve(channel: Connection) -> Callable[[], object]:
    """Forks a process for each request, and tells how each ends. Returns only in the new processes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    running: set[int] = set()
    while True:
        ready = select.select([channel, reader], [], [])[0]
        if reader in ready:
            with suppress(BlockingIOError):
                os.read(reader, 4096)
            for pid, code in _ended():
                running.discard(pid)
                channel.send((pid, code))
        if channel in ready:
            try:
                request = channel.recv()
            except EOFError:  # the tests have ended
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                sys.exit()
            descriptors = [reduction.recv_handle(channel) for _ in range(3)]
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                channel.close()
                for descriptor in (reader, writer):
                    os.close(descriptor)
                return _become(request, descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            running.add(pid)
            channel.send((pid, None))


def _ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            yield child[0], os.waitstatus_to_exitcode(child[1])


def _become(request: dict[str, Any], descriptors: list[int]) -> Callable[[], object]:
    """Makes this process look as if it had just been started; returns what it is to do."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[:] = request["path"]
    sys.argv = request["argv"]
    program = import_module("nmt.__main__")
    sys.modules["__main__"] = program  # so that processes which this one spawns import it, and not this file
    preparation, replacement = pickle.loads(request["calls"])
    if not replacement and {"serve", "clean", "--workers=2"} & {*sys.argv}:
        _fork_the_fork_server()
    if preparation:
        preparation()
    return replacement or program.main


def _fork_the_fork_server() -> None:
    """Starts multiprocessing's fork server, which starts workers, as a fork of this process.

    It is otherwise a new interpreter, which would need seconds to import torch.
    """

    def fork(_: bytes, arguments: list[Any], passed: Sequence[int]) -> int:
        if pid := os.fork():
            return pid
        for low, high in pairwise([*sorted({0, 1, 2, *map(int, passed)}), 1 << 16]):
            os.closerange(low + 1, high)
        forkserver._forkserver.__init__()  # type: ignore[misc]
        try:
            exec(arguments[-1])
        finally:
            os._exit(0)

    resource_tracker.ensure_running()  # its first start would let signals through to the fork server
    spawn, util.spawnv_passfds = util.spawnv_passfds, fork
    with held([signal.SIGINT]):  # workers never receive Ctrl-C
        forkserver.ensure_running()
    util.spawnv_passfds = spawn


def _end(code: int) -> None:
    """Ends this process as the interpreter does, but frees no memory, which would take a third of a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # the interpreter reports a stream that cannot be written
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _preload()
    work = _serve(Connection(int(sys.argv[1])))
    try:
        work()
        _end(0)
    except SystemExit as ended:
        if isinstance(ended.code, int):
            _end(ended.code)
        raise
