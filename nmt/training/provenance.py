"""Where a model comes from: what checkpoints and the log say about data, options and machine."""

import platform
import time
from dataclasses import asdict
from typing import Any

import torch

import nmt
from nmt.data.batching import PLAN_VERSION
from nmt.training.setup import Setup
from nmt.training.state import TrainState


def provenance_of(setup: Setup, state: TrainState) -> dict[str, Any]:
    """Returns the provenance of a checkpoint of this state."""
    update = state.counters.update
    last = state.validations[-1] if state.validations else None
    return {
        "nmt": nmt.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "data": setup.data.meta.fingerprint,
        "options": setup.config.to_dict(),
        "precision": setup.runtime.precision,
        "ranks": setup.world.size,
        "plan": PLAN_VERSION,
        "update": update,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **({"validation": asdict(last)} if last and last.update == update else {}),
    }


def start_record(setup: Setup, state: TrainState) -> dict[str, Any]:
    """Returns the start record of metrics.jsonl, except for the command."""
    codec = setup.data.codec
    return {
        "train_seconds": state.counters.seconds,
        "model": setup.model_config.to_dict(),
        "parameters": state.parameters,
        "text": codec.config.to_dict(),
        "vocab_sizes": {"source": len(codec.source), "target": len(codec.target)},
        "pairs": len(setup.data.split("train")),
        "device": setup.runtime.name,
        **provenance_of(setup, state),
    }
