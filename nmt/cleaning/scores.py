"""Scores pairs by how well two models, one in each direction, predict them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nmt import console
from nmt.checkpoint_format import read_text_config
from nmt.config import CleanConfig, RuntimeConfig
from nmt.data.measures import length_ratio, measure
from nmt.data.raw_pairs import in_chunks
from nmt.errors import NmtError, naming
from nmt.files import digest_of_json, replaced_file
from nmt.jobs.run import Run, settings_of
from nmt.jobs.source import Files
from nmt.jobs.stream import Execution
from nmt.text.corpus import read_rows
from nmt.text.directions import Direction
from nmt.translate.pairs import Pair, Score
from nmt.translate.rescoring import PairReader, RescoringJob
from nmt.translate.setup import placed

# How much the surprise of an early end counts, and the logarithm of the ratio of the lengths. These weights were
# chosen on statutes with planted noise (docs/cleaning.md).
_WEIGHT_OF_END, _WEIGHT_OF_RATIO = 0.25, 4


class _EntropyJob(RescoringJob):
    """Finds, for each pair, -log P of a piece in the mean, and -log P of EOS."""

    def record(self, pair: Pair, scores: list[Score]) -> list[float]:  # noqa: ARG002 (other jobs use the pair)
        """Returns both numbers, rounded so that they do not depend on batches."""
        (score,) = scores
        return [round(-score.log_prob / score.tokens, 6), round(-score.log_probs[-1], 6)]

    def restored(self, record: Any) -> Any:
        return record


def check_models(models: Sequence[str], languages: Sequence[str]) -> None:
    """Checks that the first model translates the languages in this direction, and the second in the other one."""
    for model, wanted in zip(models, (tuple(languages), tuple(reversed(languages))), strict=True):
        text = read_text_config(model)
        try:
            text.direction(*wanted)
        except NmtError as error:
            direction = f"{text.in_words.replace(' -> ', ' to ')}, but must translate {wanted[0]} to {wanted[1]}"
            advice = "give a model of the forward direction and then one of the backward direction"
            raise NmtError(f"--score-with {model} translates {direction}; {advice}") from error


def dual_scores(
    config: CleanConfig, sides: Sequence[str], folder: Path, runtime: RuntimeConfig, execution: Execution
) -> np.ndarray:
    """Returns a score between 0 and 1 for each line of two files, float64.

    This is exp(−H − E / 4) / R⁴. H is the larger of the cross-entropies of the two models in nats a piece, E the larger
    −log P of EOS, and R the ratio of the lengths. The score is high if both models expect the pair and that it ends
    where it does, and if its sides are about equally long. In dual conditional cross-entropy (Junczys-Dowmunt 2018,
    arXiv:1809.00197), the difference of the two cross-entropies counts twice as much, and E and R do not count.

    Args:
        config: has the models of both directions.
        folder: the numbers of each model are kept here, so that interrupted work resumes.
    """
    execution = replace(execution, options=replace(execution.options, shard_lines=None))
    directions, here = [], placed(runtime, execution.options)
    # Numbers that were computed with another precision, for example, are not used.
    digest = digest_of_json(settings_of(here))
    languages, models = config.languages, config.score_with or ()
    both_ways = zip(("forward", "backward"), models, (sides, sides[::-1]), (languages, languages[::-1]), strict=True)
    for name, model, files, (source_lang, target_lang) in both_ways:
        output = folder / f"{name}-{digest[:16]}"
        if not output.exists():
            direction = Direction(source_lang, target_lang)
            pairs = PairReader(read_text_config(model), direction, "files")
            job = _EntropyJob((model,), here)
            with console.Progress(f"Scoring {name}", None, "pair") as progress, naming(f"--score-with {model}"):
                source = Files([files], ["--source", "--target"], pairs)
                run = Run(job, source, str(output), settings_of(here), execution, progress)
                advice = f"correct that and start the same command again; what is finished stays in {folder.parent}"
                with run.records() as records, replaced_file(output, advice) as file:
                    file.write(np.fromiter(chain.from_iterable(records or ()), np.float64).tobytes())
        directions.append(np.fromfile(output).reshape(-1, 2).T)
    (forward, forward_end), (backward, backward_end) = directions
    entropy, end = np.maximum(forward, backward), np.maximum(forward_end, backward_end)
    chunks = in_chunks(read_rows(*sides))
    ratios = [length_ratio(*map(measure, zip(*rows, strict=True), languages)) for rows in chunks]
    return np.exp(-entropy - _WEIGHT_OF_END * end) / np.concatenate(ratios) ** _WEIGHT_OF_RATIO


def threshold(scores: np.ndarray, keep: float) -> float:
    """Returns the largest score such that this share of the scores is at least as large."""
    kept = max(1, math.ceil(round(keep * len(scores), 6)))
    return float(np.sort(scores)[::-1][kept - 1])
