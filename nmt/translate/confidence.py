"""Confidence: an estimate of the chrF of a translation, from 0 to 1, from what search knows of it.

It is a linear regression on the `features` of a translation. `nmt train` and `nmt calibrate` fit it to translations of
text that has references. It holds for the same model or ensemble, direction, engine and options of search.

Shapes: N translations, F features.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nmt.checkpoint_format import CALIBRATIONS, read_provenance
from nmt.config import EngineConfig, SearchConfig
from nmt.console import counted
from nmt.translate.units import Translation

# Options of search on which the probabilities of a translation do not depend.
_IRRELEVANT = {
    "n_best",
    "batch_tokens",
    "max_length_offset",
    "max_source_length",
    "alignments",
    "seed",
    "glossary_fallback",
    "glossary_mode",
}
# Added to the diagonal of the normal equations of standardised features; and the parts of cross-validation.
_RIDGE, _FOLDS = 1.0, 10


class Calibration(NamedTuple):
    """How the confidence of a model is computed.

    Attributes:
        direction: the languages, such as en-de.
        engine, search: what it holds for, see `validity`.
        ensemble: what identifies the other models of an ensemble, in order; empty for a single model.
        weights: those of the features, by name, and `constant`.
        lines: how many translations it is fitted to.
        error: how far the mean chrF of ten equally large groups, from the least confident to the most, is from their
            mean confidence. The confidence of each translation is from a fit to the nine
            tenths of the lines that it is not among.
        deviation: the square root of the mean squared difference between chrF and this confidence.
        correlation: Spearman's rank correlation of chrF with this confidence.
    """

    direction: str
    engine: str
    search: dict[str, object]
    ensemble: list[str]
    weights: dict[str, float]
    lines: int
    error: float
    deviation: float
    correlation: float

    def __str__(self) -> str:
        lines = f"fitted to {counted(self.lines, 'line')}; on others, it is wrong by {self.error:.3f} on average"
        correlation = f"its rank correlation with chrF is {self.correlation:.3f}"
        return f"translations of {self.direction} with {self.engine} have a confidence, {lines}, and {correlation}"

    def confidence(self, source: str, translation: Translation) -> float:
        """Returns the confidence of a translation: 1 if no model has translated."""
        values = features(source, translation) if translation.log_probs else {}
        estimate = sum(self.weights[name] * value for name, value in values.items())
        return min(max(self.weights["constant"] + estimate, 0.0), 1.0) if values else 1.0


def features(source: str, translation: Translation) -> dict[str, float]:
    """Returns what confidence is computed from, by name. Pieces count EOS, and rare words have many pieces."""
    log_probs, characters = np.array(translation.log_probs), len(translation.text) + 1
    return {
        "mean log P": float(log_probs.mean()),
        "deviation of log P": float(log_probs.std()),
        "mean P": float(np.exp(log_probs).mean()),
        "log of pieces": math.log(len(log_probs)),
        "log of pieces per character": math.log(len(log_probs) / characters),
        "distance of lengths": abs(math.log(characters / (len(source) + 1))),
    }


def fitted(translations: Sequence[tuple[str, Translation]], scores_N: np.ndarray) -> dict[str, Any]:
    """Returns the attributes of a `Calibration` from `weights` on, by translations of sources and their chrF."""
    values = [features(*pair) for pair in translations]
    features_NF = np.array([list(each.values()) for each in values])
    part_N, held_out_N = np.arange(len(scores_N)) % _FOLDS, np.zeros(len(scores_N))
    for part in range(_FOLDS):
        is_held_out_N = part_N == part
        constant, weights_F = weights(features_NF[~is_held_out_N], scores_N[~is_held_out_N])
        held_out_N[is_held_out_N] = np.clip(constant + features_NF[is_held_out_N] @ weights_F, 0, 1)
    groups = np.array_split(held_out_N.argsort(kind="stable"), 10)
    ranks, score_ranks = (values_N.argsort().argsort() for values_N in (held_out_N, scores_N))
    constant, weights_F = weights(features_NF, scores_N)
    figures = {
        "error": np.mean([abs(held_out_N[group].mean() - scores_N[group].mean()) for group in groups]),
        "deviation": np.sqrt(np.mean((held_out_N - scores_N) ** 2)),
        "correlation": np.corrcoef(ranks, score_ranks)[0, 1],
    }
    named = {"constant": constant, **dict(zip(values[0], weights_F.tolist(), strict=True))}
    return {"weights": named, "lines": len(values)} | {name: round(float(x), 4) for name, x in figures.items()}


def weights(features_NF: np.ndarray, scores_N: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the constant and the weights of the features, by ridge regression."""
    means_F, deviations_F = features_NF.mean(0), features_NF.std(0) + 1e-9
    x_NF = (features_NF - means_F) / deviations_F
    normal_FF = x_NF.T @ x_NF + _RIDGE * np.eye(x_NF.shape[1])
    weights_F = np.linalg.solve(normal_FF, x_NF.T @ (scores_N - scores_N.mean())) / deviations_F
    return float(scores_N.mean() - weights_F @ means_F), weights_F


def validity(engine: EngineConfig, search: SearchConfig) -> tuple[str, dict[str, object]]:
    """Returns the engine and the options of search that a calibration for these holds for."""
    name = engine.engine if engine.vocabulary_map is None else f"{engine.engine} with a vocabulary map"
    return name, {option: value for option, value in search.variants().items() if option not in _IRRELEVANT}


def identities(provenances: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns what identifies models with these provenances, whether they are calibrated or not."""
    documents = [{k: v for k, v in each.items() if k != CALIBRATIONS} for each in provenances]
    return [hashlib.sha256(json.dumps(each, sort_keys=True).encode()).hexdigest()[:16] for each in documents]


def calibrations_of(provenances: Sequence[Mapping[str, Any]]) -> list[Calibration]:
    """Returns the calibrations that the first of these provenances has for the ensemble of all, or for its model."""
    stored = [Calibration(**values) for values in provenances[0].get(CALIBRATIONS, [])]
    return [calibration for calibration in stored if calibration.ensemble == identities(provenances[1:])]


def read_calibrations(models: Sequence[str]) -> list[Calibration]:
    """Returns the calibrations of a model, or of an ensemble."""
    return calibrations_of(list(map(read_provenance, models)))


def valid_for(
    engine: EngineConfig, search: SearchConfig, calibrations: Sequence[Calibration]
) -> dict[str, Calibration]:
    """Returns the calibration of each direction for an engine and a search."""
    return {each.direction: each for each in calibrations if (each.engine, each.search) == validity(engine, search)}


def how_to_calibrate(models: Sequence[str]) -> str:
    """Returns the part of a message that says what is missing, and how to get it."""
    names = " ".join(models)
    command = f"nmt calibrate {names} --source FILE --target FILE, with the same options, does so"
    return f"{names} is not calibrated for this direction, engine and search; {command}"
