"""Pages in a browser, and logs of runs for them."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmt.config import TrainConfig
from nmt.model.architectures import ARCHITECTURES


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
    assert not [problem for problem in problems if "status of 400" not in problem], problems


def start_record(**changed: Any) -> dict[str, Any]:
    """Returns the record of the start of a training; `changed` are other options of the training."""
    return {
        "kind": "start", "update": 0, "time": 0.0, "train_seconds": 0.0, "parameters": 1000, "pairs": 100, "ranks": 1,
        "model": ARCHITECTURES["transformer_tiny"].to_dict(),
        "text": {"source_lang": "en", "target_lang": "de", "subword": "bpe"},
        "vocab_sizes": {"source": 10, "target": 10},
        "options": TrainConfig(save_dir="run", arch="transformer_tiny").to_dict() | changed,
        **dict.fromkeys(("device", "precision", "nmt", "torch", "python", "data", "written"), "x"),
    }  # fmt: skip


def train_record(update: int, nll: float | None) -> dict[str, Any]:
    """Returns the record of an interval; each metric has another value, which follows from `nll`."""
    return {
        "kind": "train", "update": update, "train_seconds": update * 0.5, "flops": update * 1e9, "lr": 1e-4 * update,
        "nll": nll, "loss": None if nll is None else nll + 0.25, "ppl": None if nll is None else math.exp(nll),
        "gradient_norm": 0.5, "target_tokens_per_second": 5000 + update % 7,
    }  # fmt: skip


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
