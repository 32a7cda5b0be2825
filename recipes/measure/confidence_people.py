"""Compares the features of confidence with the judgements of people in MLQE-PE (Fomicheva et al. 2022).

    python recipes/measure/confidence_people.py FOLDER

FOLDER has the unpacked archives of direct assessments, with the word probabilities of the systems. The regression is
fitted to the development set of each language pair. The table has Pearson correlations on the test set.
"""

import csv
import sys
from pathlib import Path

import numpy as np

from nmt.translate.confidence import features, weights
from nmt.translate.units import Translation

PAIRS = "en-de", "ro-en", "et-en"


def judged(folder: Path, split: str, pair: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the features of the translations of a split, and the mean z-score of each."""
    name = f"{split}.{pair.replace('-', '')}"
    (table,), (probabilities,) = (list(folder.rglob(each)) for each in (f"{name}.df.short.tsv", f"word_probas.{name}"))
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    lines = zip(rows, probabilities.read_text(encoding="utf-8").splitlines(), strict=True)
    values = [
        features(row["original"], Translation(row["translation"], 0.0, [], list(map(float, log_probs.split()))))
        for row, log_probs in lines
    ]
    return np.array([list(each.values()) for each in values]), np.array([float(row["z_mean"]) for row in rows])


def main() -> None:
    """Prints the table."""
    print("| | mean log P | the regression |\n|---|---|---|")
    for pair in PAIRS:
        (fit_NF, fit_scores_N), (test_NF, scores_N) = (judged(Path(sys.argv[1]), s, pair) for s in ("dev", "test20"))
        _, weights_F = weights(fit_NF, fit_scores_N)
        figures = [np.corrcoef(values_N, scores_N)[0, 1] for values_N in (test_NF[:, 0], test_NF @ weights_F)]
        print(f"| {pair} | {figures[0]:.3f} | {figures[1]:.3f} |")


if __name__ == "__main__":
    main()
