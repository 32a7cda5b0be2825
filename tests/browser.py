"""A headless Chromium for tests of pages, and logs of runs for it."""

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt.config import TrainConfig
from nmt.model.architectures import ARCHITECTURES


@contextmanager
def chromium() -> Iterator[Any]:
    """Yields a browser of playwright."""
    from playwright.sync_api import sync_playwright  # the gate does not need it

    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    assert program, "Chromium was not found; install it (apt-get install chromium on Debian, Ubuntu)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, address: str, width: int = 1280, **options: Any) -> Iterator[Any]:
    """Yields an opened page, which must load nothing else and cause no error other than an answer with status 400."""
    page = browser.new_page(viewport={"width": width, "height": 1000}, **options)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith(address) else None)
    page.goto(address)
    yield page
    page.close()
    assert not [problem for problem in problems if "status of 400" not in problem]


def start_record(**changed: Any) -> dict[str, Any]:
    """Returns the record of the start of a training; `changed` are other options of the training."""
    return {
        "kind": "start",
        "update": 0,
        "time": 0.0,
        "train_seconds": 0.0,
        "model": ARCHITECTURES["transformer_tiny"].to_dict(),
        "parameters": 1000,
        "text": {"source_lang": "en", "target_lang": "de", "subword": "bpe"},
        "vocab_sizes": {"source": 10, "target": 10},
        "pairs": 100,
        "options": TrainConfig(save_dir="run", arch="transformer_tiny").to_dict() | changed,
        **dict.fromkeys(("device", "precision", "nmt", "torch", "python", "data", "written"), "x"),
        "ranks": 1,
    }


def train_record(update: int, nll: float | None) -> dict[str, Any]:
    """Returns the record of an interval; each metric has another value, which follows from `nll`."""
    return {
        "kind": "train",
        "update": update,
        "train_seconds": update * 0.5,
        "flops": update * 1e9,
        "nll": nll,
        "loss": None if nll is None else nll + 0.25,
        "ppl": None if nll is None else math.exp(nll),
        "lr": 1e-4 * update,
        "gradient_norm": 0.5,
        "target_tokens_per_second": 5000 + update % 7,
    }


def valid_record(update: int, nll: float, bleu: float, output: str = "eins") -> dict[str, Any]:
    """Returns the record of a validation with one sample."""
    samples = [{"source": "one <i>", "reference": "<b>eins</b>", "output": output}]
    scores = {"nll": nll, "ppl": math.exp(nll), "bleu": bleu, "chrf": None, "bleu_signature": "tok:13a"}
    return {"kind": "valid", "update": update, "train_seconds": update * 0.5, **scores, "samples": samples}


def write_run(folder: Path, records: list[dict[str, Any]]) -> Path:
    """Writes metrics.jsonl of a run folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return folder
