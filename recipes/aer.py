"""Prints the alignment error rate of word alignments (Och and Ney 2003, Computational Linguistics 29(1)).

    python recipes/aer.py --sure test.sure --possible test.possible found.align

AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|) for found links A, sure links S and possible links P, which include S. Each
line of the files has the links of a sentence pair as `0-0 1-2`. In the found file, text before `|||` is skipped, so
that it may be the output of `nmt rescore --alignments` or `nmt generate --alignments`.
"""

import argparse
import sys
from collections.abc import Iterable

from nmt.errors import NmtError
from nmt.text.corpus import read_rows

Links = set[str]


def alignment_error_rate(pairs: Iterable[tuple[Links, Links, Links]]) -> float:
    """Returns the AER over all sentence pairs, given their sure, possible and found links."""
    right = total = 0
    for s, p, a in pairs:
        right += len(a & s) + len(a & (p | s))
        total += len(a) + len(s)
    if not total:
        raise NmtError("the files have neither sure nor found links; give files with links such as 0-0")
    return 1 - right / total


def links_of(line: str) -> Links:
    """Returns the links of a line."""
    return set(line.rpartition("|||")[2].split())


def main() -> None:
    """Prints the rate."""
    parser = argparse.ArgumentParser(description="Print the alignment error rate of word alignments.")
    parser.add_argument("--sure", required=True, help="links that must be found")
    parser.add_argument("--possible", required=True, help="links that may be found")
    parser.add_argument("found", help="links that were found")
    options = parser.parse_args()
    try:
        rows = read_rows(options.sure, options.possible, options.found)
        rate = alignment_error_rate((links_of(s), links_of(p), links_of(a)) for s, p, a in rows)
    except NmtError as error:
        sys.exit(f"error: {error}")
    print(f"AER {100 * rate:.1f}%")


if __name__ == "__main__":
    main()
