"""What the clients must get: the lines of `nmt generate`, and the document of `nmt translate-file`."""

import json
import sys
from pathlib import Path

SECRET = "secret"


def address() -> str:
    """Returns the address of the server."""
    return sys.argv[1]


def document() -> tuple[Path, bytes]:
    """Returns a document, and its translation."""
    folder = Path(sys.argv[2])
    return folder / "page.html", (folder / "page.expected.html").read_bytes()


def hypotheses(pair: str) -> dict[str, list[str]]:
    """Returns the translations of each source line, best first."""
    folder = Path(sys.argv[2])
    sources = (folder / f"{pair}.source").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in (folder / f"{pair}.jsonl").read_text(encoding="utf-8").splitlines()]
    return {
        source: [hypothesis["text"] for hypothesis in record["hypotheses"]]
        for source, record in zip(sources, records, strict=True)
    }
