"""Runs the service: loads models, listens, limits connections, and ends after what is in flight."""

import asyncio
import ipaddress
import signal
import socket
from asyncio import BaseTransport, TimerHandle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import uvicorn
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from nmt import console
from nmt.config import EngineConfig, RuntimeConfig, ServeConfig
from nmt.errors import NmtError
from nmt.serving.app import create_app
from nmt.serving.guard import Access, Gate, Metrics
from nmt.serving.scheduler import Scheduler, Submit
from nmt.serving.service import Model, Service, load_models
from nmt.serving.workers import ModelFile, Workers

HEAD_SECONDS = 10.0
# How long a client may take to read what is sent before it is cut off. Until then it would keep the server from ending.
_READING_SECONDS = 300.0
_MOST_HEAD_BYTES = 65_536


class Connection(HttpToolsProtocol):
    """A connection that is closed if the head of a request is too large, or if the client sends or reads too slowly."""

    _timer: TimerHandle | None = None
    _reading: TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: BaseTransport) -> None:
        """Waits for the first head."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops waiting."""
        self._stop_timer()
        self._stop_reading_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Waits until the client has read what was sent."""
        super().pause_writing()
        self._stop_reading_timer()
        self._reading = self.loop.call_later(_READING_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stops waiting for the client."""
        self._stop_reading_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Reads a part of a request."""
        super().data_received(data)
        if self._timer is not None and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Waits for the rest of the head."""
        self._expect_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Stops waiting."""
        self._stop_timer()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Waits for the next head unless it has come. Uvicorn stops waiting at any byte, even in an empty line."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self._expect_head()

    def _expect_head(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self.transport is not None:
            self.transport.close()

    def _stop_timer(self) -> None:
        self._head_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


# A character takes at most 12 bytes of JSON, as two escaped surrogates. The rest is for options.
_BYTES_OF_CHARACTER, _BYTES_OF_OPTIONS = 12, 16_384


def serve(
    checkpoints: Sequence[str], named: Sequence[str], config: ServeConfig, engine: EngineConfig, runtime: RuntimeConfig
) -> None:
    """Serves models until SIGINT or SIGTERM, and then answers what is in flight.

    Args:
        named: checkpoints with the names of their models; see `load_models`.
    """
    access = Access.of(config)
    found = load_models(checkpoints, named)
    files = tuple(ModelFile.of(name, path) for name, (path, _) in found.items())
    models = {name: model for name, (_, model) in found.items()}
    with _listening(config) as listener, Workers(files, engine, runtime).started(config.workers) as submit:
        asyncio.run(_serve(models, submit, listener, config, engine, access))


async def _serve(
    models: dict[str, Model],
    submit: Submit,
    listener: socket.socket,
    config: ServeConfig,
    engine: EngineConfig,
    access: Access,
) -> None:
    metrics = Metrics()
    scheduler = Scheduler(
        submit,
        workers=config.workers,
        batch_tokens=config.batch_tokens,
        most_waiting=config.max_waiting,
        batch_started=metrics.batch_started,
    )
    metrics.watch_queue(lambda: scheduler.waiting)
    app = create_app(Service(models, scheduler, config), metrics, engine.engine)

    def connections() -> int:
        return len(server.server_state.connections)

    server = _Server(_uvicorn_config(_guarded(app, access, metrics, config, connections)))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)
    _announce(models, listener, access)
    await server.serve([listener])


def _guarded(
    app: FastAPI, access: Access, metrics: Metrics, config: ServeConfig, connections: Callable[[], int]
) -> ASGIApp:
    most_bytes = _BYTES_OF_CHARACTER * config.max_characters + _BYTES_OF_OPTIONS
    gate = Gate(app, access, metrics, connections, most_bytes, set(app.openapi()["paths"]))
    if not config.allow_origin:
        return gate
    headers = ["Authorization", "Content-Type"]
    return CORSMiddleware(gate, allow_origins=config.allow_origin, allow_methods=["GET", "POST"], allow_headers=headers)


def _uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to `_serve`. Uvicorn's own handlers would end the process with the signal."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Installs no handlers."""
        yield


@contextmanager
def _listening(config: ServeConfig) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        raise NmtError(
            f"--host {config.host} --port {config.port} cannot be used ({error.strerror or error}); choose others"
        ) from error
    with listener:
        yield listener


def _announce(models: dict[str, Model], listener: socket.socket, access: Access) -> None:
    host, port = listener.getsockname()[:2]
    if access.token is None and not _is_loopback(host):
        console.warn(f"everyone who can reach {host} can use this server; set --token-file")
    shown = f"[{host}]" if ":" in host else host
    console.info(f"serving {', '.join(models)} on http://{shown}:{port}; Ctrl-C ends it")


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
