"""The options of engines and of `nmt serve`, and numbers of other modules that help texts state."""

from dataclasses import dataclass
from typing import Literal

from nmt.config.options import MOST_PROCESSES, Config, option
from nmt.errors import NmtError

# The largest number of source or target pieces that a model for CTranslate2 accepts, unless it has learned positions.
LONGEST_EXPORTED = 2048
# The port that `nmt report --watch` tries first. TensorBoard has 6006.
REPORT_PORT = 6007
_SERVER, _LIMITS, _ACCESS = "Server", "Limits of a request", "Access"


@dataclass(frozen=True, kw_only=True)
class EngineConfig(Config):
    """Which engine computes translations."""

    engine: Literal["pytorch", "ctranslate2"] = option(
        "pytorch",
        help="Engine that computes. ctranslate2 needs its package, and answers single sentences sooner on CPUs.",
        panel="Hardware",
    )
    compute_type: Literal["auto", "float32", "float16", "bfloat16", "int16", "int8"] = option(
        "auto", help="Data type in which ctranslate2 computes; auto is float32.", panel="Hardware"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compute_type != "auto" and self.engine == "pytorch":
            raise NmtError(
                f"--compute-type is {self.compute_type}, but needs --engine ctranslate2; add it or use --precision"
            )


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config):
    """Where `nmt serve` listens, what a request may ask for, and who may send one."""

    host: str = option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 is every address of this machine.", panel=_SERVER
    )
    port: int = option(8000, help="Port to listen on; 0 takes a free one.", panel=_SERVER, at_least=0, at_most=65_535)
    workers: int = option(
        1,
        help="Number of processes that translate. Each has its own GPU or a share of the cores.",
        panel=_SERVER,
        at_least=1,
        at_most=MOST_PROCESSES,
    )
    batch_tokens: int = option(
        1024,
        help="Source tokens to translate at once. A larger number raises throughput; short texts then wait longer for "
        "the end of a batch.",
        panel=_SERVER,
        at_least=1,
    )
    max_waiting: int = option(
        1000,
        help="Sentences that may wait. A request that finds no room is answered with 503.",
        panel=_SERVER,
        at_least=1,
        at_most=1_000_000,
    )
    log_text: bool = option(
        False, help="Print the text of every request and of its answer. By default, no text is printed.", panel=_SERVER
    )

    max_characters: int = option(
        10_000, help="Characters of text in a request.", panel=_LIMITS, at_least=1, at_most=10_000_000
    )
    max_beam: int = option(
        16, help="Largest beam, and largest number of samples.", panel=_LIMITS, at_least=1, at_most=10_000
    )
    max_seconds: float = option(
        60.0,
        help="Seconds until a request that has no answer yet is given up with 503.",
        panel=_LIMITS,
        above=0,
        at_most=1_000_000,
    )

    token_file: str | None = option(
        None,
        help="File with a secret. Requests then need the header Authorization: Bearer SECRET.",
        panel=_ACCESS,
    )
    allow_host: tuple[str, ...] = option(
        (), help="Name of this server that clients may use; repeatable. Its addresses are allowed.", panel=_ACCESS
    )
    allow_origin: tuple[str, ...] = option(
        (),
        help="Origin whose web pages may send cross-origin requests, such as https://example.org; repeatable.",
        panel=_ACCESS,
    )
