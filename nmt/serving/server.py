"""Runs the service: loads models, listens, and ends after what is in flight."""

import asyncio
import ipaddress
import math
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from nmt import console
from nmt.config import EngineConfig, RuntimeConfig, ServeConfig
from nmt.errors import NmtError
from nmt.files import digest_of
from nmt.serving.app import create_app
from nmt.serving.catalog import load_models
from nmt.serving.guard import Guard, token_in
from nmt.serving.metrics import WAITING
from nmt.serving.scheduler import Scheduler
from nmt.serving.service import Service
from nmt.serving.workers import started

# A process may have 1,024 open files by default, and each connection is one.
_MOST_CONNECTIONS = 900


def serve(
    checkpoints: Sequence[str], named: Sequence[str], config: ServeConfig, engine: EngineConfig, runtime: RuntimeConfig
) -> None:
    """Serves models until SIGINT or SIGTERM, and then answers what is in flight."""
    token = token_in(config.token_file)
    models = load_models(checkpoints, named)
    files = {name: (model.path, digest_of(model.path)) for name, model in models.items()}
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        address = f"--host {config.host} --port {config.port}"
        raise NmtError(f"{address} cannot be used ({error.strerror or error}); choose others") from error
    with listener, started(files, engine, runtime, config.workers) as submits:
        scheduler = Scheduler(submits, config)
        WAITING.set_function(lambda: scheduler.waiting)
        app: ASGIApp = Guard(create_app(Service(models, scheduler, config, engine)), config, token)
        if config.allow_origin:
            methods, headers = ["GET", "POST", "DELETE"], ["Authorization", "Content-Type"]
            app = CORSMiddleware(app, config.allow_origin, allow_methods=methods, allow_headers=headers)
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn handles the signal first, and raises it again when it has shut down.
            signal.signal(signal_number, lambda *_: sys.exit())
        host, port = listener.getsockname()[:2]
        if token is None and not ipaddress.ip_address(host).is_loopback:
            console.warn("everyone in the network can use this server; set --token-file")
        host = _address_for_others(host, family) if ipaddress.ip_address(host).is_unspecified else host
        shown = f"[{host}]" if ":" in host else host
        console.info(f"serving {', '.join(models)} on http://{shown}:{port}; Ctrl-C ends it")
        options = uvicorn.Config(
            app,
            http="h11",  # which limits the head of a request
            h11_max_incomplete_event_size=65_536,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=math.ceil(config.max_seconds) + 30,  # for clients that read their answers slowly
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
        asyncio.run(uvicorn.Server(options).serve([listener]))


def _address_for_others(host: str, family: socket.AddressFamily) -> str:
    """Returns the address at which other machines reach this one, or the given one if it is in no network."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as route:
        # Nothing is sent: this only chooses the address from which this machine would reach others.
        route.connect(("192.0.2.1" if family == socket.AF_INET else "2001:db8::1", 9))
        return str(route.getsockname()[0])
    return host
