"""Calibration: fits the confidence of a model to its translations of text that has references."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nmt.checkpoint import load_checkpoint, save_checkpoint
from nmt.config import ScoreConfig
from nmt.errors import NmtError
from nmt.scoring import sentence_scores
from nmt.translate.confidence import PROVENANCE_KEY, Calibration, fitted, identities
from nmt.translate.units import Translation

# A fit to fewer translations would be worth little.
LEAST_LINES = 100


class TranslatedLine(NamedTuple):
    """A line with its translation, which has log P of its pieces, and its reference."""

    direction: str
    source: str
    translation: Translation
    reference: str


def calibrate(
    models: Sequence[str], valid: tuple[str, dict[str, object]], lines: Iterable[TranslatedLine]
) -> list[Calibration]:
    """Fits the confidence of each direction that has enough lines, and stores it in the first checkpoint.

    Args:
        models: the checkpoint that has translated, or those of an ensemble.
        valid: what the calibration holds for, see `validity`.

    Raises:
        NmtError: no direction has enough lines, or the checkpoint cannot be written.
    """
    translated = defaultdict[str, list[TranslatedLine]](list)
    for line in lines:
        if line.translation.log_probs and line.reference.strip():  # otherwise, there is nothing to translate
            translated[line.direction].append(line)
    most = max(map(len, translated.values()), default=0)
    if most < LEAST_LINES:
        raise NmtError(
            f"the model translates {most} of the pairs, but a calibration needs {LEAST_LINES}; give nmt calibrate more "
            f"text"
        )
    stored, *others = map(load_checkpoint, models)
    ensemble = identities([other.provenance for other in others])
    calibrations = []
    for direction, own in translated.items():
        if len(own) >= LEAST_LINES:
            texts, references = [line.translation.text for line in own], [line.reference for line in own]
            scores_N = np.array(
                [score.score / 100 for score in sentence_scores(texts, [references], "chrf", ScoreConfig())]
            )
            fit = fitted([(line.source, line.translation) for line in own], scores_N)
            calibrations.append(Calibration(direction, *valid, ensemble, **fit))
    replaced = [each[:4] for each in calibrations]  # direction, engine, search and ensemble
    earlier = [Calibration(**values) for values in stored.provenance.get(PROVENANCE_KEY, ())]
    kept = [each for each in earlier if each[:4] not in replaced]
    provenance = stored.provenance | {PROVENANCE_KEY: [each._asdict() for each in [*kept, *calibrations]]}
    save_checkpoint(replace(stored, provenance=provenance), Path(models[0]))
    return calibrations
