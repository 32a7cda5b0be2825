"""`nmt serve` translates over HTTP and on a page."""

from typing import Annotated

from typer import Argument, Option

from nmt.cli.flags import flags
from nmt.config import EngineConfig, RuntimeConfig, ServeConfig
from nmt.errors import importing


@flags()
def serve(
    serving: ServeConfig,
    engine: EngineConfig,
    runtime: RuntimeConfig,
    checkpoints: Annotated[
        list[str] | None,
        Argument(
            metavar="CHECKPOINT",
            help="Checkpoint files, or names of published models; each is named after its languages.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=CHECKPOINT",
            help="Name that requests use, and its checkpoint file or published model. May be given several times.",
        ),
    ] = None,
) -> None:
    """Serve models over HTTP, with a page for people at / and a description of the API at /docs.

    The server translates sentences of different requests together. Ctrl-C or SIGTERM ends it when it has answered
    the requests that it has accepted.

    This command needs the extra serve: pip install '.\\[serve]' -c constraints.txt in the clone of nmt.
    """
    with importing("fastapi", "nmt serve", extra="serve"):
        from nmt.serving.server import serve as run
    run(checkpoints or [], model or [], serving, engine, runtime)
