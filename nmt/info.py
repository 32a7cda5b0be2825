"""Describes checkpoints and folders without torch: what they are, and what made them."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nmt.checkpoint_format import CALIBRATIONS, SUFFIX, read_codec, read_header
from nmt.config import ModelConfig
from nmt.config.options import flag_name
from nmt.console import listed
from nmt.data.folder import META, DataFolder
from nmt.errors import NmtError
from nmt.text.directions import Direction
from nmt.text.text_config import TextConfig
from nmt.training.records import METRICS, TRANSLATION_SCORES, MetricsFile

# The most directions on a line; the JSON has all.
_DIRECTIONS = 40
# What a description is made of. It is printed as JSON.
Description = dict[str, Any]


def describe(path: Path, *, verify: bool) -> Description:
    """Returns a description of a checkpoint, training state, data folder, run folder or exported model."""
    if not path.is_dir():
        return _checkpoint(path, verify)
    if (path / META).exists():
        return _data_folder(path, verify)
    if (path / METRICS).exists():
        return _run_folder(path, verify)
    # A page for browsers has its model in a folder.
    folder = path / "model" if (path / "index.html").exists() else path
    if (folder / "config.json").exists():
        return _exported(path, folder, verify)
    if (path / "config.yml").exists():
        raise NmtError(f"{path} is a model of Marian; its README.md describes it, and nmt import marian reads it")
    raise NmtError(
        f"{path} is neither a data folder, nor a run folder, nor an exported model; give one of them, or a checkpoint"
    )


def _checkpoint(path: Path, verify: bool) -> Description:
    document, shapes = read_header(path, verify=verify)
    provenance, codec = document["provenance"], read_codec(path)
    return {
        "kind": "training state" if document["training"] else "checkpoint",
        "path": str(path),
        "bytes": path.stat().st_size,
        "verified": verify,
        "model": document["model"],
        "parameters": sum(map(math.prod, shapes.values())),
        "text": document["text"],
        "vocabulary": {"source": len(codec.source), "target": len(codec.target)},
        "validation": provenance.get("validation"),
        "provenance": provenance,
    }


def _data_folder(path: Path, verify: bool) -> Description:
    data = DataFolder.open(path)
    if verify:
        data.verify()
    meta, splits = data.meta, {}
    for name, split in meta.splits.items():
        counts = {"pairs": split.pairs, "source_tokens": split.source_tokens, "target_tokens": split.target_tokens}
        if split.directions:
            counts |= {"directions": len({each for each in split.directions if len(set(each.split())) == 2})}
        encodings = {"source_encodings": split.source_encodings, "target_encodings": split.target_encodings}
        splits[name] = counts | {side: count for side, count in encodings.items() if count > 1}
    return {
        "kind": "data folder",
        "path": str(path),
        "bytes": sum(file.bytes for file in meta.files.values()),
        "verified": verify,
        "text": meta.text,
        "vocabulary": {"source": len(data.codec.source), "target": len(data.codec.target)},
        "splits": splits,
        "dropped": meta.splits["train"].dropped if "train" in splits else {},
        "provenance": {"nmt": meta.nmt_version, "fingerprint": meta.fingerprint, "options": meta.options},
    }


def _run_folder(path: Path, verify: bool) -> Description:
    records = MetricsFile(path / METRICS).records()
    last = {record["kind"]: record for record in records}
    stats = dict[Path, os.stat_result]()
    for file in sorted(path.glob(f"*{SUFFIX}")):
        try:
            if verify:
                read_header(file, verify=True)
            stats[file] = file.stat()
        except (NmtError, FileNotFoundError):
            if file.exists():  # otherwise, a running training has removed it
                raise
    newest = max(stats, key=lambda file: stats[file].st_mtime, default=None)
    checkpoint = _checkpoint(newest, False) if newest else {}
    valid = last.get("valid", {})
    return {
        **{name: checkpoint.get(name) for name in ("model", "parameters", "text", "vocabulary", "provenance")},
        "kind": "run folder",
        "path": str(path),
        "bytes": sum(stat.st_size for stat in stats.values()),
        "verified": verify,
        "update": max((record["update"] for record in records), default=0),
        "outcome": records[-1].get("outcome", "not ended") if records else "not ended",
        "checkpoints": [file.name for file in stats],
        "validation": {name: valid[name] for name in ("update", "nll", *TRANSLATION_SCORES) if name in valid} or None,
    }


def _exported(path: Path, folder: Path, verify: bool) -> Description:
    if verify:
        raise NmtError(f"{path} is an exported model, which has no SHA-256; leave out --verify")
    file = folder / "config.json"
    try:
        config = json.loads(file.read_bytes())
        record = config.get("nmt", {})
        text, model = record.get("text", config.get("text")), record.get("model")
    except (OSError, ValueError, AttributeError) as error:
        raise NmtError(f"{file} cannot be used ({error!r:.80}); export the model again") from error
    if not isinstance(text, dict) or not isinstance(model, dict | None):
        raise NmtError(f"{file} is not of a model that nmt exported; name another folder")
    kind = "CTranslate2" if (path / "model.bin").exists() else "Hugging Face"
    if folder != path:
        kind = "web"
    elif (path / "onnx").is_dir():
        kind = "ONNX"
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return {"kind": f"exported model ({kind})", "path": str(path), "bytes": size, "text": text, "model": model}


def lines_of(description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the names and values of the lines that show a description on a terminal."""
    size, verified = description["bytes"] / 2**20, ", verified" if description.get("verified") else ""
    yield description["kind"], f"{description['path']}, {size:,.1f} MiB{verified}"
    if model := description.get("model"):
        yield "model", ModelConfig.from_dict(model, description["path"]).in_words()
    if count := description.get("parameters"):
        base = (description.get("provenance") or {}).get("learned_from")
        yield "parameters", f"{count:,}" + (f", which have learnt since {Path(base['path']).name}" if base else "")
    if description.get("text"):
        text = TextConfig.from_dict(description["text"], description["path"])
        yield "languages", text.in_words
        if text.directions:
            shown = [str(Direction.parsed(stored)) for stored in text.directions]
            yield "directions", ", ".join(shown[:_DIRECTIONS]) + (", …" if len(shown) > _DIRECTIONS else "")
        tokenizers = f"tokenisers {text.source_tokenizer} and {text.target_tokenizer}"
        normalized = f", normalised punctuation: {text.normalize_punctuation}" if text.has_moses else ""
        lowercase = ", lowercase" if text.lowercase else ", capitals in lower case" if text.lower_capitals else ""
        tags = f", tags {' '.join(text.tags)}" if text.tags else ""
        terms = ", terms of glossaries" if text.term_pieces else ""
        context = f", up to {text.context} earlier lines as context" if text.context else ""
        similar = ", similar sentences of memories" if text.similar_piece else ""
        yield "text", f"{tokenizers}{normalized}{lowercase}{tags}{terms}{context}{similar}"
        if vocabulary := description.get("vocabulary"):
            sizes = f"{vocabulary['source']:,}" + ("" if text.joint_vocab else f" and {vocabulary['target']:,}")
            yield "vocabulary", f"{sizes} {text.subword} pieces{', joint' if text.joint_vocab else ''}"
    for name, split in description.get("splits", {}).items():
        yield name, ", ".join(f"{value:,} {kind.replace('_', ' ')}" for kind, value in split.items())
    if dropped := description.get("dropped"):
        yield "dropped", ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in dropped.items())
    if "checkpoints" in description:
        yield "training", f"at update {description['update']:,}, {description['outcome']}"
        kinds = Counter(name.rpartition("-")[0] or name for name in description["checkpoints"])
        yield "checkpoints", ", ".join(f"{n} {kind}-*" if n > 1 else kind for kind, n in kinds.items()) or "none"
    if validation := description.get("validation"):
        scores = {name: value for name, value in validation.items() if name != "update" and value is not None}
        yield "validation", f"update {validation['update']:,}: " + ", ".join(f"{n} {v:.4g}" for n, v in scores.items())
    if provenance := description.get("provenance"):
        yield "provenance", _provenance_in_words(provenance)
        if calibrations := provenance.get(CALIBRATIONS):
            holds_for = dict.fromkeys(map(_calibration_in_words, calibrations))
            yield "confidence", f"calibrated for {listed(list(holds_for), _DIRECTIONS)}"


def _calibration_in_words(calibration: Mapping[str, Any]) -> str:
    """Returns what a calibration holds for: a direction, an engine, options of search, and an ensemble."""
    options = "".join(f" {flag_name(name)} {value}" for name, value in calibration["search"].items())
    others = ", as the first of an ensemble" if calibration["ensemble"] else ""
    return f"{calibration['direction']} with {calibration['engine']}{options}{others}"


def _provenance_in_words(provenance: Mapping[str, Any]) -> str:
    """Returns the parts of a provenance that fit on a line; the others are in the JSON."""
    if "averaged" in provenance:
        names = ", ".join(Path(path).name for path in provenance["averaged"])
        return f"average of {names}; {_provenance_in_words(provenance['last'])}"
    if "imported" in provenance:
        return f"imported from {provenance['imported']['format']}"
    shown = ("update", "written", "nmt", "torch", "precision", "ranks")
    values = [f"{name} {provenance[name]}" for name in shown if name in provenance]
    if data := provenance.get("data", provenance.get("fingerprint")):
        values.append(f"data {data[:12]}")
    return ", ".join(values)
