"""Confidence: an estimate of the chrF of a translation, from 0 to 1, from what search knows of it.

It is a linear regression on the `features` of a translation. `nmt calibrate` fits it to translations of text that has
references. It holds for the same model, direction, engine and options of search.

Shapes: N translations, F features.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nmt.checkpoint_format import read_provenance
from nmt.config import EngineConfig, SearchConfig
from nmt.translate.units import Translation

PROVENANCE_KEY = "calibrations"
# Options of search on which the probabilities of a translation do not depend.
_IRRELEVANT = {"n_best", "batch_tokens", "max_length_offset", "max_source_length", "alignments", "seed"}
# Added to the diagonal of the normal equations of standardised features; and the parts of cross-validation.
_RIDGE, _FOLDS = 1.0, 10


class Calibration(NamedTuple):
    """How the confidence of a model is computed.

    Attributes:
        direction: the languages, such as en-de.
        engine, search: what it holds for, see `validity`.
        weights: the constant, and the weight of each feature.
        lines: how many translations it is fitted to.
        error: how far the mean chrF of ten equally large groups, from the least confident to the most, is from their
            mean confidence. The confidence of each translation is from a fit to nine tenths of the others.
        correlation: Spearman's rank correlation of chrF with this confidence.
    """

    direction: str
    engine: str
    search: dict[str, object]
    weights: list[float]
    lines: int
    error: float
    correlation: float


def with_confidence(translation: Translation, source: str, calibration: Calibration | None) -> Translation:
    """Returns a translation with its confidence if there is a calibration: 1 if no model has translated."""
    if calibration is None:
        return translation
    is_known = not translation.log_probs
    estimate = 1 if is_known else _predicted(np.array([features(source, translation)]), calibration.weights)[0]
    return translation._replace(confidence=float(estimate))


def features(source: str, translation: Translation) -> list[float]:
    """Returns what confidence is computed from.

    These are mean, minimum and standard deviation of log P over the pieces and EOS, their mean probability, the
    logarithm of their number, and that of the ratio of the lengths in characters.
    """
    log_probs = np.array(translation.log_probs)
    ratio = math.log((len(translation.text) + 1) / (len(source) + 1))
    spread = [float(log_probs.mean()), float(log_probs.min()), float(log_probs.std())]
    return [*spread, float(np.exp(log_probs).mean()), math.log(len(log_probs)), ratio]


def fitted(
    direction: str, valid: tuple[str, dict[str, object]], features_NF: np.ndarray, scores_N: np.ndarray
) -> Calibration:
    """Returns the calibration by translations with these features and this chrF, from 0 to 1; see `validity`."""
    part_N, held_out_N = np.arange(len(scores_N)) % _FOLDS, np.zeros(len(scores_N))
    for part in range(_FOLDS):
        is_held_out_N = part_N == part
        weights = _weights(features_NF[~is_held_out_N], scores_N[~is_held_out_N])
        held_out_N[is_held_out_N] = _predicted(features_NF[is_held_out_N], weights)
    groups = np.array_split(held_out_N.argsort(kind="stable"), 10)
    error = float(np.mean([abs(held_out_N[group].mean() - scores_N[group].mean()) for group in groups]))
    ranks = [values_N.argsort().argsort() for values_N in (held_out_N, scores_N)]
    correlation = float(np.corrcoef(*ranks)[0, 1])
    weights = _weights(features_NF, scores_N)
    return Calibration(direction, *valid, weights, len(scores_N), round(error, 4), round(correlation, 4))


def _weights(features_NF: np.ndarray, scores_N: np.ndarray) -> list[float]:
    means_F, deviations_F = features_NF.mean(0), features_NF.std(0) + 1e-9
    x_NF = (features_NF - means_F) / deviations_F
    normal_FF = x_NF.T @ x_NF + _RIDGE * np.eye(x_NF.shape[1])
    weights_F = np.linalg.solve(normal_FF, x_NF.T @ (scores_N - scores_N.mean())) / deviations_F
    return [float(scores_N.mean() - weights_F @ means_F), *weights_F.tolist()]


def _predicted(features_NF: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    return np.clip(weights[0] + features_NF @ np.array(weights[1:]), 0, 1)


def validity(engine: EngineConfig, search: SearchConfig) -> tuple[str, dict[str, object]]:
    """Returns the engine and the options of search that a calibration for these holds for."""
    name = engine.engine if engine.vocabulary_map is None else f"{engine.engine} with a vocabulary map"
    return name, {option: value for option, value in search.variants().items() if option not in _IRRELEVANT}


def read_calibrations(models: Sequence[str]) -> list[Calibration]:
    """Returns the calibrations in a checkpoint; none for an ensemble."""
    stored = read_provenance(models[0]).get(PROVENANCE_KEY, []) if len(models) == 1 else []
    return [Calibration(**values) for values in stored]


def valid_for(
    engine: EngineConfig, search: SearchConfig, calibrations: Sequence[Calibration]
) -> dict[str, Calibration]:
    """Returns the calibration of each direction for an engine and a search."""
    return {each.direction: each for each in calibrations if (each.engine, each.search) == validity(engine, search)}
