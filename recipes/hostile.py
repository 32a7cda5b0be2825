"""Runs the commands of `nmt` on damaged files, odd text, odd flags and with signals, and counts how they end.

one sentence   exit code 1 or 2, and one line of error
same output    exit code 0, and the same result as with undamaged files; where other input rightly gives other output, a
               complete result
stopped        by a signal: documented exit code, complete output or none, no process left, and the same command then
               finishes the work
else           anything else: traceback, silently different output, no end, too much memory, damage to the user's files
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
# Modules that commands import on demand. The parent imports them once, before it forks.
_LAZY_MODULES = (
    "nmt.training.train", "nmt.training.launcher", "nmt.decoding.translation", "nmt.data.preprocess", "nmt.pages.report",
    "nmt.pages.attention", "nmt.scoring.bleu", "nmt.parsing.brackets", "nmt.text.moses", "nmt.parsing.treebank",
    "sacrebleu", "torch._dynamo",
)  # fmt: skip
_OUTCOME = "outcome.json"
_CASES_A_LINE = 100
_LONGEST_LINE = 600


class Case(NamedTuple):
    kind: str
    number: int


def cases(total: int, seed: int) -> list[Case]:
    """At least `total` cases in random order, in the shares of their kinds."""
    shares = sum(share for _, share in KINDS.values())
    found = [Case(kind, n) for kind, (_, share) in KINDS.items() for n in range(math.ceil(total * share / shares))]
    Random(seed).shuffle(found)
    return found


def place_of(case: Case, folder: Path) -> Path:
    return folder / "cases" / f"{case.kind}-{case.number}"


def attempt(case: Case, folder: Path, seed: int) -> Outcome:
    """Tries one case in a copy of the undamaged folder."""
    here = place_of(case, folder) / "here"
    fresh_copy(folder / "undamaged" / "here", here)
    return KINDS[case.kind][0](Random(f"{seed} {case.kind} {case.number}"), here)


def prepare(folder: Path) -> None:
    """Creates the undamaged folder and records each command's result."""
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
    """Calls a function in a child; it must succeed."""
    ended = call(function, folder)
    if ended.code:
        sys.exit(f"error: a command fails with undamaged files:\n{ended.stderr}")
    return ended.value


def tried(wanted: list[Case], folder: Path, seed: int, jobs: int) -> Iterator[tuple[Case, Outcome]]:
    """Yields each case with its outcome. `jobs` cases run at a time, each in a process of its own."""
    waiting, running = wanted[::-1], dict[int, Case]()
    while waiting or running:
        if waiting and len(running) < jobs:
            case = waiting.pop()
            running[start(partial(attempt, case, folder, seed), place_of(case, folder))] = case
        else:
            case = running.pop(os.wait()[0])
            yield case, Outcome(**json.loads((place_of(case, folder) / _OUTCOME).read_text()))
            if len(wanted) > 1:
                shutil.rmtree(place_of(case, folder))


def start(work: Callable[[], Outcome], place: Path) -> int:
    """Starts a process that writes the outcome to the folder `place`, and returns its id."""
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
    """The text without control characters, cut to a readable length."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)[:_LONGEST_LINE]


def table(counts: Counter[tuple[str, str]]) -> str:
    """One row a kind, one column a verdict."""
    head = ("kind", "tried", *VERDICTS)
    rows = [(kind, *(counts[kind, verdict] for verdict in VERDICTS)) for kind in KINDS]
    rows.append(("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])))
    lines = [head, *((kind, sum(found), *found) for kind, *found in rows if sum(found))]
    return "\n".join(f"{kind:<15}" + "".join(f"{cell:>14}" for cell in cells) for kind, *cells in lines)


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where all files go; is emptied")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--only", metavar="KIND[:NUMBER]", help="cases of one kind, or one case, whose files are kept")
    options = parser.parse_args()
    if options.only and not re.fullmatch(rf"({'|'.join(KINDS)})(:\d+)?", options.only):
        parser.error(f"--only must be one of {', '.join(KINDS)}, or one with :NUMBER, but is {options.only}")
    return options


def chosen(options: argparse.Namespace) -> list[Case]:
    """The cases that the options select."""
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
    for case, outcome in tried(chosen(options), folder, options.seed, options.jobs):
        counts[case.kind, outcome.verdict] += 1
        if outcome.verdict == ELSE:
            print(f"{case.kind}:{case.number}: {shown(outcome.cause)}\n    {shown(outcome.command)}", flush=True)
        if counts.total() % _CASES_A_LINE == 0:
            print(f"{counts.total():,} cases tried", file=sys.stderr)
    print(table(counts))
    if any(counts[kind, ELSE] for kind in KINDS):
        print(f"to repeat one: bash recipes/hostile.sh --seed {options.seed} --only KIND:NUMBER")
        sys.exit(1)


if __name__ == "__main__":
    main()
