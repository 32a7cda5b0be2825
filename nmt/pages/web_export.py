"""Exports a checkpoint as a web page that translates in the browser, with transformers.js."""

import json
import re
import shutil
from pathlib import Path

from nmt.checkpoint import Checkpoint
from nmt.config import Facts
from nmt.errors import NmtError
from nmt.files import new_folder
from nmt.interop.model_card import model_card
from nmt.interop.onnx import ENCODER, GRAPHS, MERGED, QUANTIZED, check_exportable, write_model
from nmt.pages.page import STYLE
from nmt.text.protected_kinds import KINDS

_FOLDER = Path(__file__).parent
# What transformers.js loads. The graphs in 32 bits, and files for Python only, are left out.
_MODEL = "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"
_GRAPHS = f"{ENCODER}{QUANTIZED}.onnx", f"{MERGED}{QUANTIZED}.onnx"
# WebAssembly has 4 GiB, and weights take about twice their size while they load.
_MOST_BYTES = 2_000_000_000
_USE = """The page needs an engine, which npm downloads:

```
npm run engine
```

After that, any web server can serve the folder, for example `python -m http.server`. The page needs no other server and
no network. Browsers open it at https:// addresses and at http://localhost. After the second visit, it also opens
without the server.

The engine is [transformers.js](https://github.com/huggingface/transformers.js) (Apache License 2.0) with ONNX Runtime
(MIT License)."""


def export_web(checkpoint: Checkpoint, origin: str, output: str, facts: Facts) -> None:
    """Writes the folder `output`, which any web server can serve after `npm run engine` in it."""
    check_exportable(checkpoint, origin, "nmt export web")
    text = checkpoint.codec.config
    if (text.source_tokenizer, text.target_tokenizer, text.lowercase) != ("none", "none", False):
        problem = f"nmt export web translates raw text, but {origin} was trained with Moses or --lowercase"
        raise NmtError(f"{problem}; train with nmt preprocess --tokenizer none")
    if tags := text.tags + text.language_pieces:
        problem = f"{origin} has the tags {' '.join(tags):.80}, which a page cannot put before a sentence"
        raise NmtError(f"{problem}; translate with nmt serve")
    weights = checkpoint.weights  # encoder and decoder each have a copy of the embedding
    size = sum(weight.numel() for weight in [*weights.values(), weights["target_embedding.weight"]])
    if size > _MOST_BYTES:
        limit = f"a page in a browser can hold {_MOST_BYTES / 1e9:,.1f} GB"
        problem = f"{origin} has {size / 1e9:,.1f} GB of weights in 8 bits, but {limit}"
        raise NmtError(f"{problem}; train a smaller model, or translate with nmt serve")
    with new_folder(output, "--output") as folder:
        for file in (*(_FOLDER / "web").iterdir(), STYLE, _FOLDER / "service" / "page.css"):
            shutil.copyfile(file, folder / file.name)
        (folder / "protected.json").write_text(json.dumps(javascript_patterns(), ensure_ascii=False), encoding="utf-8")
        model = folder / "model"
        model.mkdir()
        write_model(checkpoint, origin, model, [MERGED])
        kept = [model / name for name in _MODEL] + [model / GRAPHS / name for name in _GRAPHS]
        for file in [path for path in model.rglob("*") if path.is_file() and path not in kept]:
            file.unlink()
        written = sum(file.stat().st_size for file in kept)
        (folder / "README.md").write_text(model_card(checkpoint, origin, _USE, facts, written), encoding="utf-8")


def javascript_patterns() -> list[str]:
    """Returns the patterns of protected words for JavaScript, which has no verbose form and possessive repetition.

    They are for the flags s and u.
    """
    compact = (re.sub(r"\s+(?:# .*)?", "", kind.pattern) for kind in KINDS)
    return [re.sub(r"(?<=[*+}])\+", "", pattern) for pattern in compact]
