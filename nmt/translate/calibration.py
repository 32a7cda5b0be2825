"""Calibration: fits the confidence of a model to its translations of text that has references.

A calibrated model estimates the chrF of translations that have none.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.checkpoint import load_checkpoint, save_checkpoint
from nmt.checkpoint_format import CALIBRATIONS
from nmt.config import EngineConfig, ScoreConfig, SearchConfig
from nmt.console import counted
from nmt.errors import NmtError
from nmt.scoring import sentence_scores
from nmt.text.directions import Direction
from nmt.translate.alignment import PADDED_TOKENS
from nmt.translate.confidence import Calibration, fitted, how_to_calibrate, identities, read_calibrations, valid_for
from nmt.translate.encoding import in_batches
from nmt.translate.pairs import Pair, Target, encode_pairs
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.units import Translation, Unit

# A fit to fewer translations would be worth little.
LEAST_LINES = 100


def calibrate(
    models: Sequence[str], valid: tuple[str, dict[str, object]], lines: Iterable[tuple[Unit, Translation, str]]
) -> list[Calibration]:
    """Fits the confidence of each direction that has enough lines, and stores it in the first checkpoint.

    Args:
        valid: what it holds for, see `validity`.
        lines: with translations, which have log P of their pieces, and references.

    Raises:
        NmtError: no direction has enough lines, or the checkpoint cannot be written.
    """
    translated = defaultdict[str, list[tuple[Unit, Translation, str]]](list)
    for unit, translation, reference in lines:
        if translation.log_probs and reference.strip():  # otherwise, there is nothing to translate
            translated[str(unit.direction)].append((unit, translation, reference))
    if (most := max(map(len, translated.values()), default=0)) < LEAST_LINES:
        raise NmtError(f"the model translates {most} pairs, but a calibration needs {LEAST_LINES}; give more text")
    stored, *others = map(load_checkpoint, models)
    ensemble = identities([other.provenance for other in others])
    calibrations = []
    for direction, own in translated.items():
        if len(own) >= LEAST_LINES:
            texts, references = [best.text for _, best, _ in own], [reference for *_, reference in own]
            scores = sentence_scores(texts, [references], "chrf", ScoreConfig())
            scores_N = np.array([score.score / 100 for score in scores])
            fit = fitted([(unit.source, best) for unit, best, _ in own], scores_N)
            calibrations.append(Calibration(direction, *valid, ensemble, **fit))
    replaced = [each[:4] for each in calibrations]  # direction, engine, search and ensemble
    earlier = [Calibration(**values) for values in stored.provenance.get(CALIBRATIONS, ())]
    kept = [each for each in earlier if each[:4] not in replaced]
    provenance = stored.provenance | {CALIBRATIONS: [each._asdict() for each in [*kept, *calibrations]]}
    save_checkpoint(replace(stored, provenance=provenance), Path(models[0]).resolve())
    return calibrations


class Estimate(NamedTuple):
    """The mean chrF that a model expects of translations, from 0 to 100, and half of its 95 % interval."""

    estimated_chrf: float
    error: float
    lines: int

    def __str__(self) -> str:
        mean = f"mean of {counted(self.lines, 'sentence')}"
        return f"estimated chrF {self.estimated_chrf:.2f} ± {self.error:.2f} ({mean})"


def estimated_chrf(models: Sequence[str], lines: Sequence[tuple[str, str]], direction: Direction) -> Estimate:
    """Estimates the mean chrF of translations without references.

    Args:
        models: those that translated, calibrated for the usual options of search.
        lines: of the raw source with their translations, at least one.

    Raises:
        NmtError: the models have no such calibration.
    """
    engine = PyTorchEngine.load(*models)
    direction = engine.codec.config.resolved(direction)
    calibrations = valid_for(EngineConfig(), SearchConfig(), read_calibrations(models))
    if (calibration := calibrations.get(str(direction))) is None:
        raise NmtError(how_to_calibrate(models))
    pairs = encode_pairs(engine.codec, [Pair(old, (Target(new),), direction) for old, new in lines])
    score = partial(engine.score, alignments=False)
    scores = in_batches(score, pairs, [pair.tokens for pair in pairs], PADDED_TOKENS[engine.device])
    translations = [
        Translation(new, 0.0, [], score.log_probs) for (_, new), (score,) in zip(lines, scores, strict=True)
    ]
    values = [calibration.confidence(old, each) for (old, _), each in zip(lines, translations, strict=True)]
    # Both the lines here and those of the calibration are a sample.
    error = 1.96 * calibration.deviation * math.sqrt(1 / len(values) + 1 / calibration.lines)
    return Estimate(100 * sum(values) / len(values), 100 * error, len(values))
