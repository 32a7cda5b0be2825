"""Prints the alignment error rate of word alignments (Och and Ney 2003, Computational Linguistics 29(1)).

    python recipes/aer.py --sure test.sure --possible test.possible found.align

AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|) for found links A, sure links S and possible links P, which include S. Each
line of the files has the links of a sentence pair as `0-0 1-2`. In the found file, text before `|||` is skipped, so
that it may be the output of `nmt rescore --alignments` or `nmt generate --alignments`.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

Links = set[str]


def alignment_error_rate(sure: Iterable[Links], possible: Iterable[Links], found: Iterable[Links]) -> float:
    """Returns the AER over all sentence pairs."""
    right = total = 0
    for s, p, a in zip(sure, possible, found, strict=True):
        right += len(a & s) + len(a & (p | s))
        total += len(a) + len(s)
    return 1 - right / total


def read(path: Path) -> list[Links]:
    """Returns the links of each line."""
    return [set(line.rpartition("|||")[2].split()) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def main() -> None:
    """Prints the rate."""
    parser = argparse.ArgumentParser(description="Print the alignment error rate of word alignments.")
    parser.add_argument("--sure", type=Path, required=True, help="links that must be found")
    parser.add_argument("--possible", type=Path, required=True, help="links that may be found")
    parser.add_argument("found", type=Path, help="links that were found")
    options = parser.parse_args()
    rate = alignment_error_rate(*map(read, (options.sure, options.possible, options.found)))
    print(f"AER {100 * rate:.1f}%")


if __name__ == "__main__":
    main()
