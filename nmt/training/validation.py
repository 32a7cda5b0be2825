"""Computes loss and metrics of each direction on the validation set; the ranks share the work. Also calibrates."""

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import torch

from nmt import console
from nmt.checkpoint import build_model, load_checkpoint
from nmt.config import EngineConfig, ScoreConfig, SearchConfig
from nmt.data.batching import make_plan
from nmt.data.loader import updates
from nmt.errors import NmtError, StoppedError
from nmt.model.device import moved
from nmt.model.transformer import Transformer
from nmt.scoring import corpus_scores
from nmt.text.directions import Direction
from nmt.training.records import Scores, Validation, field_of
from nmt.training.state import Training
from nmt.translate.calibration import LEAST_LINES, calibrate
from nmt.translate.confidence import validity
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit

# Lines of each direction of a model of several languages that are translated by default, and the samples of all.
_LINES, _SAMPLES = 100, 8
# By how many lines a checkpoint is calibrated at most: of one direction, and of each of several. A training by the
# clock has so many updates for each of them, so that it does not end much later.
_CALIBRATION_LINES, _CALIBRATION_LINES_EACH, _UPDATES_PER_LINE = 1000, 150, 5


@torch.no_grad()
def validate(training: Training) -> Validation:
    """Returns the result of a validation on all ranks; leaves the model in training mode.

    Raises:
        StoppedError: on all ranks, if any of them was asked to stop.
    """
    training.loss.eval()
    # Without a metric of translations, each validation that may be the last translates a few lines for the report.
    may_be_last = training.counters.update >= training.config.max_updates or training.config.patience is not None
    may_be_last &= not training.model_config.learned_positions
    translates, share = training.config.translates, None
    most = training.config.valid_lines or (_LINES if training.data.codec.config.languages else sys.maxsize)
    units, references = (
        _lines(training, most if translates else _samples_each(training)) if translates or may_be_last else ([], [])
    )
    with training.average.in_use(), suppress(StoppedError):
        rank_units = units[training.world.rank :: training.world.size]
        best = _translations(training, training.loss.model, rank_units, "translating the validation set")
        share = _losses(training), [translation.text for translation in best]
    training.loss.train()
    training.world.end_together(share is None)
    assert share
    losses, translations = zip(*training.world.gather(share), strict=True)
    output = [""] * len(units)
    for rank, translated in enumerate(translations):
        output[rank :: len(translations)] = translated
    return _scored(training, units, references, output, losses)


def _scored(
    training: Training,
    units: Sequence[Unit],
    references: Sequence[str],
    translations: Sequence[str],
    losses: Sequence[Sequence[tuple[float, int]]],
) -> Validation:
    """Returns the scores of each direction and their means, with a few translations as samples.

    Args:
        losses: of each rank, for each direction the loss and its number of target tokens.
    """
    pairs_of = defaultdict[Direction, list[dict[str, str]]](list)
    for unit, reference, translation in zip(units, references, translations, strict=True):
        pairs_of[unit.direction].append({"source": unit.source, "reference": reference, "output": translation})
    text, directions = training.data.codec.config, training.data.directions("valid")
    metrics = [metric for metric in training.config.valid_metric if metric != "nll"]
    scores, signatures, samples = dict[str, Scores](), dict[str, None](), list[dict[str, str]]()
    for direction, *rank_losses in zip(directions, *losses, strict=True):
        nll = sum(total for total, _ in rank_losses) / sum(tokens for _, tokens in rank_losses)
        pairs = pairs_of[direction]
        config = ScoreConfig(lowercase=text.lowercase, target_lang=direction.target)
        outputs, own_references = ([pair[name] for pair in pairs] for name in ("output", "reference"))
        computed = corpus_scores(outputs, [own_references], metrics, config) if metrics else []
        metric_scores = dict(zip(metrics, computed, strict=True))
        values = {field_of(metric): score.score for metric, score in metric_scores.items()}
        scores[str(direction)] = Scores(training.counters.update, nll, **values)
        signatures |= {metric_scores["bleu"].signature: None} if "bleu" in metric_scores else {}
        # A few translations for metrics.jsonl.
        step = -(-len(pairs) // _samples_each(training)) or 1
        direction_field = {"direction": str(direction)} if text.languages else {}
        samples += [pair | direction_field for pair in pairs[::step]]
    names = ["nll", *map(field_of, metrics)]
    means = {name: sum(getattr(each, name) for each in scores.values()) / len(scores) for name in names}
    mean = Scores(training.counters.update, **means)
    return Validation(mean, ", ".join(signatures) or None, samples, scores if text.languages else {})


def _samples_each(training: Training) -> int:
    """Returns how many translations of each direction are in the log."""
    return max(1, _SAMPLES // len(training.data.directions("valid")))


def _losses(training: Training) -> list[tuple[float, int]]:
    """Returns the negative log-likelihood of this rank's share, in nats, and its number of target tokens.

    They are sums over the pairs of each direction.
    """
    valid, budget, world = training.data.split("valid"), training.device_tokens, training.world
    splits = [valid.rows(rows) for rows in training.data.directions("valid").values()]
    options = {"batch_tokens": budget, "groups": 1, "seed": 0, "epoch": 0}
    plans = [make_plan((split.source.lengths, split.target.lengths), **options, given=split.given) for split in splits]
    losses = []
    with console.Progress("computing the validation loss", sum(map(len, plans)), "batch", summary=False) as progress:
        for split, plan in zip(splits, plans, strict=True):
            total, tokens = 0.0, 0
            with closing(updates(split, plan, budget, rank=world.rank, ranks=world.size)) as rank_updates:
                for update in rank_updates:
                    training.stop.check()
                    for batch in update.batches:
                        with training.runtime.autocast():
                            _, nll = training.loss(moved(batch, training.runtime.device))
                        total += float(nll)
                        tokens += batch.target_tokens
                    progress.advance(1)
            losses.append((total, tokens))
    return losses


def _lines(training: Training, most: int) -> tuple[list[Unit], list[str]]:
    """Returns at most `most` lines of each direction, at even distances, and their references."""
    units, references = list[Unit](), list[str]()
    for direction in training.data.directions("valid"):
        source, reference = training.data.raw_lines("valid", direction)
        count = min(most, len(source))
        indices = [n * len(source) // count for n in range(count)]
        units += [Unit(source[i], direction=direction) for i in indices]
        references += [reference[i] for i in indices]
    return units, references


def _translations(training: Training, model: Transformer, units: Sequence[Unit], task: str) -> list[Translation]:
    """Returns the translation of each line by a model. Raises StoppedError if this rank was asked to stop."""
    if not units:
        return []
    translator = Translator(PyTorchEngine([model], training.data.codec, training.runtime))
    with console.Progress(task, len(units), "sentence", summary=False) as progress:

        def advance(sentences: int) -> None:
            training.stop.check()
            progress.advance(sentences)

        return [best for best, *_ in translator.hypotheses(units, SearchConfig(), advance)]


def calibrate_checkpoint(training: Training, path: Path, *, is_timed: bool) -> None:
    """Fits the confidence of a checkpoint of the training to text of the validation set, if that has enough lines.

    Args:
        is_timed: whether the training ends by the clock.
    """
    is_single = len(training.data.directions("valid")) == 1
    most = training.config.valid_lines or (_CALIBRATION_LINES if is_single else _CALIBRATION_LINES_EACH)
    in_time = max(training.counters.update // _UPDATES_PER_LINE, LEAST_LINES)
    units, references = _lines(training, min(most, in_time) if is_timed else most)
    if max(Counter(unit.direction for unit in units).values(), default=0) < LEAST_LINES:
        return
    try:
        best = _translations(training, build_model(load_checkpoint(path), path), units, "calibrating")
        translated = zip(units, best, references, strict=True)
        for calibration in calibrate([str(path)], validity(EngineConfig(), SearchConfig()), translated):
            console.info(f"{path}: {calibration}")
    except NmtError as error:
        console.warn(f"{path} gives translations no confidence, because calibration failed: {error}")
