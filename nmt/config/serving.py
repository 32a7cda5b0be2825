"""The options of `nmt serve`."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Literal

from nmt.config.options import Config, Count, Natural, Positive, Processes, option
from nmt.errors import NmtError

limits_option = partial(option, panel="Limits of a request")
access_option = partial(option, panel="Access")


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config, panel="Server"):
    """Where `nmt serve` listens, what a request may ask for, and who may send one."""

    host: str = option("127.0.0.1", "Address to listen on; 0.0.0.0 is every address of this machine.")
    port: Natural = option(8000, "Port to listen on; 0 takes a free one.", at_most=65_535)
    workers: Processes = option(
        1, "Number of processes. Several can share a GPU, and on a CPU, each has a share of the cores."
    )
    batch_tokens: Count = option(
        1024,
        "Source tokens to translate at once. Larger numbers raise throughput but delay short texts.",
        at_most=1_000_000,
    )
    max_waiting: Count = option(
        1000,
        "Sentences that may wait for the model. A request beyond that is answered with the status 503.",
        at_most=1_000_000,
    )
    pivot: bool = option(True, "Translate between languages that no model serves through a third one, with two models.")
    api: tuple[Literal["libretranslate", "deepl"], ...] = option(
        (), "Also answer the requests of this protocol. May be given several times."
    )
    glossary: tuple[str, ...] = option(
        (),
        "A file of terms, as for nmt generate, or NAME=FILE with the name for requests. Without NAME, the name "
        "is that of the file without its ending. May be given several times.",
    )
    corrections: str | None = option(
        None, "File for translations that people have corrected, as JSON lines. Without it, none is stored."
    )
    memory: tuple[str, ...] = option(
        (),
        "A file of earlier translations, as for nmt generate, or NAME=FILE with the name for requests, or "
        "NAME:en:de=FILE if the server translates several pairs of languages. May be given several times, also with "
        "the same name.",
    )
    log_text: bool = option(
        False, "Print the text of every request that succeeds, and of its answer, except for documents."
    )
    max_characters: Count = limits_option(10_000, "Characters of text in a request.", at_most=10_000_000)
    max_beam: Count = limits_option(16, "Largest beam, and largest number of samples.", at_most=10_000)
    max_document_mib: Natural = limits_option(10, "Mebibytes of a document; 0 turns documents off.", at_most=1000)
    max_seconds: Positive = limits_option(
        60.0, "Seconds after which a request without an answer is answered with the status 503.", at_most=1_000_000
    )
    token_file: str | None = access_option(
        None,
        "File with a secret. Requests then need the header Authorization: Bearer SECRET; clients of --api send it in "
        "their own way.",
    )
    allow_host: tuple[str, ...] = access_option(
        (), "Name of this server that clients may use, besides its addresses. May be given several times."
    )
    allow_origin: tuple[str, ...] = access_option(
        (),
        "Origin whose web pages may send cross-origin requests, such as https://example.org. May be given "
        "several times.",
    )

    def _check(self) -> None:
        for origin in self.allow_origin:
            if not re.fullmatch(r"[a-z-]+://[^/*\s]+", origin):
                form = "a scheme and a host, such as https://example.org"
                raise NmtError(f"--allow-origin must be {form}, but is {origin!r:.80}")
