"""Prints the table of a finished run of one_or_many.sh.

python recipes/measure/one_or_many.py RUN
"""

import json
import sys
from pathlib import Path
from statistics import mean

METRICS = ("bleu", "chrf")


def main() -> None:
    run = Path(sys.argv[1])
    print(f"{'':22}{'BLEU: one':>10}{'many':>7}{'chrF: one':>11}{'many':>7}{'gain':>7}")
    rows = []
    for path in sorted((run / "many").glob("*/scores.json")):
        direction = path.parent.name
        both = [json.loads(scores.read_text()) for scores in (run / "one" / "out" / f"{direction}.json", path)]
        bleu, chrf = ([scores[metric]["score"] for scores in both] for metric in METRICS)
        rows.append((*bleu, *chrf, chrf[0] - chrf[1]))
        print("{:22}{:10.2f}{:7.2f}{:11.2f}{:7.2f}{:+7.2f}".format(direction, *rows[-1]))
    print("{:22}{:10.2f}{:7.2f}{:11.2f}{:7.2f}{:+7.2f}".format("mean", *map(mean, zip(*rows, strict=True))))


if __name__ == "__main__":
    main()
