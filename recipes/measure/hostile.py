"""Runs the commands of `nmt` on damaged files, on odd text, with odd flags and with signals, and counts how they end.

one sentence   The exit code is 1 or 2, and there is one line of error.
same output    The exit code is 0, and the result is the same as with undamaged files. If the input is changed in a way
               that must change the output, the result only has to be complete.
stopped        A signal stopped the command. The exit code is the documented one, the output is complete or missing, no
               process is left, and the same command then finishes the work.
else           Anything else: a traceback, silently different output, no end, too much memory, damage to files.
"""

import argparse
import json
import math
import os
import re
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import NamedTuple

from hostile_cases import checkpoints, files, flags, signals, texts
from hostile_cases.child import call
from hostile_cases.commands import COMMANDS, set_up, undamaged
from hostile_cases.outcomes import ELSE, VERDICTS, Outcome, fresh_copy, in_process

# Each kind of case with its relative frequency. A signal case is rare because it takes several seconds.
KINDS: dict[str, tuple[Callable[[Random, Path], Outcome], int]] = {
    "checkpoint": (partial(in_process, checkpoints.checkpoint), 5),
    "offsets": (partial(in_process, files.offsets), 5),
    "tokens": (partial(in_process, files.tokens), 5),
    "meta.json": (partial(in_process, files.meta), 5),
    "metrics.jsonl": (partial(in_process, files.log), 5),
    "text": (partial(in_process, texts.text), 5),
    "flags": (partial(in_process, flags.flags), 5),
    "signals": (signals.signalled, 1),
}
# Modules that commands import on demand. The parent imports them before it forks, so that not every child has to.
_LAZY_MODULES = (
    "nmt.training.train", "nmt.training.ranks", "nmt.translate.job",
    "nmt.data.preprocess", "nmt.pages.report", "nmt.pages.attention", "nmt.scoring", "nmt.parsing.evalb",
    "nmt.parsing.treebank", "sacrebleu", "torch._dynamo",
)  # fmt: skip
_OUTCOME = "outcome.json"
_CASES_A_LINE = 100
_LONGEST_LINE = 600


class Case(NamedTuple):
    """A case; together with the seed, kind and number determine everything that is random in it."""

    kind: str
    number: int


def cases(total: int, seed: int) -> list[Case]:
    """Returns at least `total` cases in random order, with the relative frequencies of KINDS."""
    shares = sum(share for _, share in KINDS.values())
    cases = [Case(kind, n) for kind, (_, share) in KINDS.items() for n in range(math.ceil(total * share / shares))]
    Random(seed).shuffle(cases)
    return cases


def place_of(case: Case, folder: Path) -> Path:
    return folder / "cases" / f"{case.kind}-{case.number}"


def attempt(case: Case, folder: Path, seed: int) -> Outcome:
    """Runs one case in a copy of the undamaged folder and returns its outcome."""
    here = place_of(case, folder) / "here"
    fresh_copy(folder / "undamaged" / "here", here)
    return KINDS[case.kind][0](Random(f"{seed} {case.kind} {case.number}"), here)


def prepare(folder: Path) -> None:
    """Creates the undamaged folder and records the result of each command in `undamaged`."""
    shutil.rmtree(folder, ignore_errors=True)
    here = folder / "undamaged" / "here"
    here.mkdir(parents=True)
    value_of(set_up, here)
    for name, command in COMMANDS.items():
        place = folder / "cases" / name / "here"
        fresh_copy(here, place)
        undamaged[name] = value_of(command.made, place)
        shutil.rmtree(place.parent)


def value_of(function: Callable[[], object], folder: Path) -> object:
    """Returns the value of a function that is called in a child. Exits with an error if the function fails."""
    ended = call(function, folder)
    if ended.code:
        sys.exit(f"error: a command fails even with undamaged files:\n{ended.stderr}")
    return ended.value


def outcomes(selected: list[Case], folder: Path, seed: int, jobs: int) -> Iterator[tuple[Case, Outcome]]:
    """Yields each case with its outcome. `jobs` cases run at a time, each in a process of its own."""
    waiting = selected[::-1]
    running: dict[int, Case] = {}
    while waiting or running:
        if waiting and len(running) < jobs:
            case = waiting.pop()
            running[start(partial(attempt, case, folder, seed), place_of(case, folder))] = case
        else:
            case = running.pop(os.wait()[0])
            yield case, Outcome(**json.loads((place_of(case, folder) / _OUTCOME).read_text()))
            if len(selected) > 1:
                shutil.rmtree(place_of(case, folder))


def start(work: Callable[[], Outcome], place: Path) -> int:
    """Starts a process that writes its outcome to the folder `place`, and returns the id of the process."""
    pid = os.fork()
    if pid == 0:
        try:
            outcome = json.dumps(asdict(work()))
            (place / _OUTCOME).write_text(outcome)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


def shown(text: str) -> str:
    """Returns the text without control characters, cut to a readable length."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)[:_LONGEST_LINE]


def table(counts: Counter[tuple[str, str]]) -> str:
    """Returns a table of the counts with a row for each kind and a column for each verdict."""
    head = ("kind", "tried", *VERDICTS)
    rows = [(kind, *(counts[kind, verdict] for verdict in VERDICTS)) for kind in KINDS]
    rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    lines = [head, *((kind, sum(counts), *counts) for kind, *counts in rows if sum(counts))]
    return "\n".join(f"{kind:<15}" + "".join(f"{cell:>14}" for cell in cells) for kind, *cells in lines)


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="folder for all files; it is emptied first")
    parser.add_argument("--cases", type=int, default=2000, help="number of cases")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same cases")
    parser.add_argument("--jobs", type=int, default=2, help="cases that run at the same time")
    parser.add_argument(
        "--only", metavar="KIND[:NUMBER]", help="run only the cases of one kind, or one case and keep its files"
    )
    options = parser.parse_args()
    if options.only and not re.fullmatch(rf"({'|'.join(KINDS)})(:\d+)?", options.only):
        parser.error(f"--only must be one of {', '.join(KINDS)}, perhaps with :NUMBER, but is {options.only}")
    return options


def chosen(options: argparse.Namespace) -> list[Case]:
    """Returns the cases that the options select."""
    kind, _, number = (options.only or "").partition(":")
    if number:
        return [Case(kind, int(number))]
    return [case for case in cases(options.cases, options.seed) if kind in ("", case.kind)]


def main() -> None:
    options = parsed_arguments()
    folder = options.folder.resolve()
    for module in _LAZY_MODULES:
        import_module(module)
    prepare(folder)
    counts: Counter[tuple[str, str]] = Counter()
    for case, outcome in outcomes(chosen(options), folder, options.seed, options.jobs):
        counts[case.kind, outcome.verdict] += 1
        if outcome.verdict == ELSE:
            print(f"{case.kind}:{case.number}: {shown(outcome.cause)}\n    {shown(outcome.command)}", flush=True)
        if counts.total() % _CASES_A_LINE == 0:
            print(f"{counts.total():,} cases tried", file=sys.stderr)
    print(table(counts))
    if any(counts[kind, ELSE] for kind in KINDS):
        print(f"to repeat a case: bash recipes/measure/hostile.sh --seed {options.seed} --only KIND:NUMBER")
        sys.exit(1)


if __name__ == "__main__":
    main()
