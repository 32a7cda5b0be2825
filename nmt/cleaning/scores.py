"""Scores pairs by how well two models, one in each direction, predict them."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from nmt import console
from nmt.checkpoint_file import read_codec
from nmt.cleaning.measures import length_ratio, measure
from nmt.config import JobConfig, RuntimeConfig
from nmt.data.corpora import in_chunks
from nmt.errors import NmtError, naming
from nmt.text.corpus import read_rows
from nmt.translate.formats import Pair, PairFormat, Rescored
from nmt.translate.job import JobOutput, placed, settings_of
from nmt.translate.rescoring import RescoringJob

# How much the surprise of an early end counts, and the logarithm of the ratio of the lengths. These weights were chosen
# on statutes with planted noise (docs/cleaning.md).
_WEIGHT_OF_END, _WEIGHT_OF_RATIO = 0.25, 4


@dataclass(frozen=True)
class _Entropies(PairFormat):
    """Writes what a model finds for a pair: -log P of a piece in the mean, and -log P of EOS."""

    def written(self, pair: Pair, found: Sequence[Rescored]) -> str:  # noqa: ARG002 (other formats use it)
        ((_, log_probs, _),) = found
        return f"{-sum(log_probs) / len(log_probs):.6f} {-log_probs[-1]:.6f}\n"


def check_models(models: Sequence[str], languages: Sequence[str]) -> None:
    """Checks that the first model translates the languages in this direction, and the second in the other one."""
    for model, wanted in zip(models, (tuple(languages), tuple(reversed(languages))), strict=True):
        text = read_codec(model).config
        found = text.source_lang, text.target_lang
        if found != wanted:
            raise NmtError(
                f"--score-with {model} translates {found[0]} to {found[1]}, but must translate {wanted[0]} to "
                f"{wanted[1]}; give a model of the forward direction and then one of the backward direction"
            )


def dual_scores(
    models: Sequence[str],
    sides: Sequence[str],
    languages: Sequence[str],
    folder: Path,
    runtime: RuntimeConfig,
    options: JobConfig,
    workers: int | None,
) -> np.ndarray:
    """Returns a score between 0 and 1 for each line of two files, float64.

    This is exp(−H − E / 4) / R⁴. H is the larger of the cross-entropies of the two models in nats a piece, E the larger
    −log P of EOS, and R the ratio of the lengths. The score is high if both models expect the pair and that it ends
    where it does, and if its sides are about equally long. In dual conditional cross-entropy (Junczys-Dowmunt 2018,
    arXiv:1809.00197), the difference of the two cross-entropies counts twice as much, and E and R do not count.

    Args:
        models: checkpoints of the forward and the backward direction.
        folder: what the models find is kept here, so that interrupted work resumes.
    """
    found, here = [], placed(runtime, options)
    # With another precision, for example, what the other direction found is not used.
    digest = sha256(json.dumps(settings_of(here), sort_keys=True).encode()).hexdigest()
    for name, model, files in zip(("forward", "backward"), models, (sides, [*reversed(sides)]), strict=True):
        output = folder / f"{name}-{digest[:16]}"
        if not output.exists():
            with console.Progress(f"Scoring {name}", None, "pair") as progress, naming(f"--score-with {model}"):
                JobOutput(
                    job=RescoringJob((model,), here, lines=_Entropies("files")),
                    segments=[files],
                    flags=["--source", "--target"],
                    output=str(output),
                    settings=settings_of(here),
                    options=replace(options, shard_lines=None),
                    workers=workers,
                    progress=progress,
                ).write()
        found.append(np.fromfile(output, sep=" ").reshape(-1, 2).T)
    (forward, forward_end), (backward, backward_end) = found
    entropy, end = np.maximum(forward, backward), np.maximum(forward_end, backward_end)
    return np.exp(-entropy - _WEIGHT_OF_END * end) / _ratios(sides, languages) ** _WEIGHT_OF_RATIO


def _ratios(sides: Sequence[str], languages: Sequence[str]) -> np.ndarray:
    """Returns the ratio of the lengths of each pair; [L]."""
    chunks = in_chunks(read_rows(*sides))
    return np.concatenate([length_ratio(*map(measure, zip(*rows, strict=True), languages)) for rows in chunks])


def threshold(scores: np.ndarray, keep: float) -> float:
    """Returns the largest score such that this share of the scores is at least as large."""
    kept = max(1, math.ceil(keep * len(scores)))
    return float(np.sort(scores)[::-1][kept - 1])
