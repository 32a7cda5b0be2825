"""Runs the service: loads models, listens, and ends after what is in flight."""

import asyncio
import ipaddress
import math
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import uvicorn
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from nmt import console
from nmt.config import EngineConfig, RuntimeConfig, ServeConfig
from nmt.errors import NmtError
from nmt.serving.app import create_app
from nmt.serving.guard import Access, Guard, Metrics
from nmt.serving.scheduler import Scheduler, Submit
from nmt.serving.service import ServedModel, Service, load_models
from nmt.serving.workers import ModelFile, Workers

# A process may have 1,024 open files by default, and each connection is one.
_MOST_CONNECTIONS = 900
_MOST_HEAD_BYTES = 65_536
# How long the server waits at its end for clients that have not read their answers.
_READING_SECONDS = 30
# A character takes at most 12 bytes of JSON, as two escaped surrogates. The rest is for options.
_BYTES_OF_CHARACTER, _BYTES_OF_OPTIONS = 12, 16_384


def serve(
    checkpoints: Sequence[str], named: Sequence[str], config: ServeConfig, engine: EngineConfig, runtime: RuntimeConfig
) -> None:
    """Serves models until SIGINT or SIGTERM, and then answers what is in flight."""
    access = Access.of(config)
    found = load_models(checkpoints, named)
    files = tuple(ModelFile.of(name, path) for name, (path, _) in found.items())
    models = {name: model for name, (_, model) in found.items()}
    with _listening(config) as listener, Workers(files, engine, runtime).started(config.workers) as submit:
        asyncio.run(_serve(models, submit, listener, config, engine, access))


async def _serve(
    models: dict[str, ServedModel],
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

    server = _Server(_uvicorn_config(_guarded(app, access, metrics, config), config))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.handle_exit, number, None)
    _announce(models, listener, access)
    await server.serve([listener])


def _guarded(app: FastAPI, access: Access, metrics: Metrics, config: ServeConfig) -> ASGIApp:
    most_bytes = _BYTES_OF_CHARACTER * config.max_characters + _BYTES_OF_OPTIONS
    guard = Guard(app, access, metrics, most_bytes, set(app.openapi()["paths"]))
    if not config.allow_origin:
        return guard
    headers = ["Authorization", "Content-Type"]
    return CORSMiddleware(
        guard, allow_origins=config.allow_origin, allow_methods=["GET", "POST"], allow_headers=headers
    )


def _uvicorn_config(app: ASGIApp, config: ServeConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",  # which limits the head of a request
        h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(config.max_seconds) + _READING_SECONDS,
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


def _announce(models: dict[str, ServedModel], listener: socket.socket, access: Access) -> None:
    host, port = listener.getsockname()[:2]
    if access.token is None and not _is_loopback(host):
        console.warn(f"everyone who can reach {host} can use this server; set --token-file")
    shown = f"[{host}]" if ":" in host else host
    console.info(f"serving {', '.join(models)} on http://{shown}:{port}; Ctrl-C ends it")


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False
