"""Splits a corpus into training text and held-out text that is not similar to it.

    python recipes/hold_out.py CORPUS OUTPUT SOURCE_LANG [TARGET_LANG] [--held-out N] [--no-test] [--like FILE]

CORPUS and OUTPUT are prefixes. OUTPUT-test gets N pairs (500) from the end of the corpus, because the newest text of a
memory comes last, and OUTPUT-valid the N pairs before; with --no-test, OUTPUT-valid gets the last ones. A pair is left
out of all of them if its source is similar to a held-out one, by 70 % as `nmt generate --memory` counts it. Text that
repeats is translated by a memory, so a pair with more than three similar ones is not held out. OUTPUT gets the other
pairs, with --like at most as many as FILE has lines, evenly chosen.
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

from nmt.errors import NmtError
from nmt.files import digest_of_json
from nmt.memories.matching import normalised
from nmt.memories.memory import Memory
from nmt.text.corpus import parallel_paths, read_lines, read_rows
from nmt.text.words import is_blank

MOST_REPEATED = 3


def held_out_pairs(sources: list[str], language: str, count: int) -> tuple[list[int], set[int]]:
    """Returns the indices of the pairs to hold out, the last first, and of those that are similar to one of them."""
    if not count:
        return [], set()
    indices_by_source: dict[str, set[int]] = defaultdict(set)
    for index, source in enumerate(sources):
        indices_by_source[normalised(source)].add(index)
    memory = Memory.of(lambda: ((source, "") for source in indices_by_source), digest_of_json(sources), (language, ""))
    held_out, similar = list[int](), set[int]()
    for index in reversed(range(len(sources))):
        if len(held_out) == count:
            break
        if index not in similar:
            matches = memory.near(sources[index], most=MOST_REPEATED + 2)
            others = set().union(*(indices_by_source[match.source] for match in matches)) - {index}
            if len(others) <= MOST_REPEATED:
                held_out.append(index)
                similar |= others
    return held_out, similar


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("corpus", "output"):
        parser.add_argument(name)
    parser.add_argument("languages", nargs="+")
    parser.add_argument("--held-out", type=int, default=500)
    parser.add_argument("--no-test", action="store_true")
    parser.add_argument("--like")
    options = parser.parse_args()
    try:
        lines = list(
            read_rows(
                *parallel_paths(options.corpus, options.languages[0], options.languages[-1])[: len(options.languages)]
            )
        )
        limit = sum(1 for _ in read_lines(options.like)) if options.like else len(lines)
        sets = ["-valid"] if options.no_test else ["-test", "-valid"]
        count = len(sets) * options.held_out
        lines = [line for line in lines if not any(map(is_blank, line))]
        held_out, similar = held_out_pairs([line[0] for line in lines], options.languages[0], count)
    except NmtError as error:
        sys.exit(f"error: {error}")
    if len(held_out) < count:
        sys.exit(
            f"error: only {len(held_out)} of {len(lines)} pairs of {options.corpus} differ from all others, but "
            f"{count} are to be held out; set HELD_OUT to a lower number"
        )
    rest = sorted(set(range(len(lines))) - set(held_out) - similar)
    if not rest:
        sys.exit(
            f"error: none of the {len(lines)} pairs of {options.corpus} is left for training: {len(held_out)} are held "
            f"out and {len(similar)} are similar to these; add text, or set HELD_OUT to a lower number"
        )
    if not limit:
        sys.exit(f"error: {options.like} has no lines, and {options.output} may not have more; add text to it")
    training = [rest[i * len(rest) // limit] for i in range(limit)] if len(rest) > limit else rest
    parts = {
        name: sorted(held_out[position * options.held_out :][: options.held_out]) for position, name in enumerate(sets)
    }
    # The source of the training text is written last, because recipes take it for the sign that all is there.
    for name, indices in (parts | {"": training}).items():
        for side, lang in reversed(list(enumerate(options.languages))):
            text = "".join(f"{lines[index][side]}\n" for index in indices)
            part = Path(f"{options.output}{name}.{lang}.part")
            part.write_text(text, encoding="utf-8")
            part.rename(part.with_suffix(""))
    print(f"{options.output}: {len(training)} pairs; {len(similar)} are similar to {count} held-out ones, and left out")


if __name__ == "__main__":
    main()
