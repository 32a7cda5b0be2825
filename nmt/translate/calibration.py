"""Calibration: fits the confidence of a model to its translations of text that has references."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nmt.checkpoint import load_checkpoint, save_checkpoint
from nmt.checkpoint_format import CALIBRATIONS
from nmt.config import ScoreConfig
from nmt.errors import NmtError
from nmt.scoring import sentence_scores
from nmt.translate.confidence import Calibration, fitted, identities
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
