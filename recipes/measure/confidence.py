"""Compares the confidence of translations with their chrF, and the time of translating with and without it.

    python recipes/measure/confidence.py MODEL SOURCE_LANG TARGET_LANG TRANSLATIONS REFERENCE ROUNDS

TRANSLATIONS are those of `nmt generate --output-format jsonl`. The time is that of the processor, in which other
programs do not count; each of the ROUNDS translates the text with and without confidence, and the median ratio counts.
"""

import json
import statistics
import sys
import time

import numpy as np

from nmt.config import RuntimeConfig, ScoreConfig
from nmt.scoring import sentence_scores
from nmt.text.corpus import read_lines
from nmt.translate.confidence import read_calibrations
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.translator import Translator

WORST = 5  # the worst fifth


def ranks(values: np.ndarray) -> np.ndarray:
    """Returns the rank of each value; equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (counts.cumsum() - (counts - 1) / 2)[inverse]


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Returns the rank correlation."""
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def share_of_worst(estimates: np.ndarray, scores: np.ndarray) -> float:
    """Returns which share of the fifth with the lowest estimates is in the fifth with the lowest scores."""
    count = len(scores) // WORST
    return len({*estimates.argsort(kind="stable")[:count]} & {*scores.argsort(kind="stable")[:count]}) / count


def ratio_of_times(model: str, languages: tuple[str, str], sources: list[str], rounds: int) -> float:
    """Returns how much longer translating takes with confidence."""
    engine = PyTorchEngine.load(model, runtime=RuntimeConfig())
    translators = Translator(engine), Translator(engine, read_calibrations([model]))
    source_lang, target_lang = languages
    translators[0].translate(sources[:100], source_lang=source_lang, target_lang=target_lang)  # warms up
    ratios = []
    for _ in range(rounds):
        seconds = []
        for translator in translators:
            began = time.process_time()
            translator.translate(sources, source_lang=source_lang, target_lang=target_lang)
            seconds.append(time.process_time() - began)
        ratios.append(seconds[1] / seconds[0])
    return statistics.median(ratios)


def main() -> None:
    """Prints the table."""
    model, source_lang, target_lang, translations, reference, rounds = sys.argv[1:]
    lines, references = list(map(json.loads, read_lines(translations))), list(read_lines(reference))
    best = [line["hypotheses"][0] for line in lines]
    if not all("confidence" in each for each in best):
        sys.exit(f"error: {translations} has no confidence; calibrate {model} with nmt calibrate")
    scores = np.array(
        [s.score / 100 for s in sentence_scores([b["text"] for b in best], [references], "chrf", ScoreConfig())]
    )
    confidence = np.array([each["confidence"] for each in best])
    log_prob = np.array([sum(each["log_probs"]) / max(1, len(each["log_probs"])) for each in best])
    tenths = np.array_split(confidence.argsort(kind="stable"), 10)
    predicted, real = (np.array([values[tenth].mean() for tenth in tenths]) for values in (confidence, scores))
    correlations = [spearman(values, scores) for values in (confidence, log_prob)]
    ratio = ratio_of_times(model, (source_lang, target_lang), [line["source"] for line in lines], int(rounds))
    rows = [
        ("lines", f"{len(lines):,}", ""),
        ("rank correlation of confidence and chrF", f"{correlations[0]:.3f}", ""),
        ("rank correlation of log P per piece and chrF", f"{correlations[1]:.3f}", ""),
        ("difference of the two", f"{correlations[0] - correlations[1]:.3f}", "at least 0.10"),
        (
            "of the worst fifth by confidence, in the worst fifth by chrF",
            f"{share_of_worst(confidence, scores):.0%}",
            "at least 50%",
        ),
        ("of the worst fifth by log P per piece", f"{share_of_worst(log_prob, scores):.0%}", ""),
        ("error of the calibration", f"{abs(predicted - real).mean():.3f}", "at most 0.05"),
        ("mean chrF from the worst tenth to the best", f"{real[0]:.2f} to {real[-1]:.2f}", "0.2 apart"),
        ("mean confidence of these tenths", f"{predicted[0]:.2f} to {predicted[-1]:.2f}", "0.2 apart"),
        ("time with confidence", f"{ratio:.3f}x", "at most 1.03x"),
    ]
    print("| | measured | wanted |\n|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
