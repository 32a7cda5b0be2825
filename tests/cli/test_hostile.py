"""The commands end well in hostile cases, and those cases would notice faults."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import forks
import pytest

RECIPES = Path(__file__).parents[2] / "recipes" / "measure"
sys.path.insert(0, str(RECIPES))

import hostile  # noqa: E402
from hostile_cases import outcomes  # noqa: E402
from hostile_cases.child import MEMORY_BYTES, SECONDS, Ended, call  # noqa: E402
from hostile_cases.outcomes import ELSE, ONE_SENTENCE, PEAK_BYTES, SAME_OUTPUT, judged  # noqa: E402

SENTENCE = "warning: odd\nerror: --beam must be at least 1, but is 0\n"
DAMAGED = {"checkpoint", "offsets", "tokens", "meta.json", "metrics.jsonl", "text", "flags"}


def check_table(printed: str, kinds: set[str], cases: int) -> None:
    """Checks that each kind has been tried, and that no case ended otherwise than it should."""
    found = {line.split()[0]: line.split()[1:] for line in printed.splitlines()}
    assert found.keys() > kinds
    assert int(found["all"][0]) >= cases
    assert found["all"][-1] == "0"  # else


def without_chance() -> None:
    """Runs hostile.py without signals, which come at random moments, and without a bound that torch may exceed."""
    del hostile.KINDS["signals"]
    outcomes.call = lambda *arguments: replace(call(*arguments), peak_bytes=0)
    hostile.main()


def test_some_hostile_cases_end_well(tmp_path: Path) -> None:
    """The seed is fixed, so these are always the same cases."""
    command = forks.run("--folder", tmp_path / "run", "--cases", "14", "--jobs", "1", instead=without_chance)
    check_table(command.output, DAMAGED, 14)


@pytest.mark.nightly
def test_every_hostile_case_ends_well(tmp_path: Path) -> None:
    environment = os.environ | {"ENVIRONMENT": "active", "RUN": str(tmp_path / "run")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", RECIPES / "hostile.sh", "--cases", "60", "--jobs", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    check_table(done.stdout, DAMAGED | {"signals"}, 60)


@pytest.mark.parametrize("verdict, ended", [
    (SAME_OUTPUT, {}),
    (ONE_SENTENCE, {"exit_code": 1, "stderr": SENTENCE}),
    (ELSE, {"exit_code": 3, "stderr": SENTENCE}),
    (ELSE, {"exit_code": 1, "stderr": SENTENCE + "and a second line\n"}),
    (ELSE, {"exit_code": 1}),
    (ELSE, {"exit_code": 1, "stderr": "Traceback (most recent call last):\n" + SENTENCE}),
    (ELSE, {"odd": "other output, silently"}),
    (ELSE, {"harmed": ["treasure/notes.txt"]}),
    (ELSE, {"exit_code": 1, "stderr": SENTENCE, "left": ["out.partial-1"]}),
    (ELSE, {"peak_bytes": PEAK_BYTES + 1}),
    (ELSE, {"code": -signal.SIGALRM}),
])  # fmt: skip
def test_each_way_to_end_gets_its_verdict(verdict: str, ended: dict[str, object]) -> None:
    """The child process ends with `code`, and the command that it runs with `exit_code`."""
    value = {"code": ended.get("exit_code", 0), "odd": "", "harmed": [], "left": [], "peak": PEAK_BYTES}
    value |= {name: ended[name] for name in ("odd", "harmed", "left") if name in ended}
    child = {"code": 0, "stderr": "", "peak_bytes": 0, "value": value}
    child |= {name: ended[name] for name in ("code", "stderr", "peak_bytes") if name in ended}
    assert judged(Ended(**child)).verdict == verdict


def check_children(folder: Path) -> None:
    for function, code, value in (
        (lambda: 1 / 0, 1, None),
        (lambda: len(bytearray(MEMORY_BYTES + 1)), 1, None),
        (partial(signal.raise_signal, signal.SIGKILL), -signal.SIGKILL, None),
        (partial(signal.raise_signal, signal.SIGALRM), -signal.SIGALRM, None),  # as when the time is over
        (lambda: 0 < signal.alarm(0) <= SECONDS, 0, True),
    ):
        ended = call(function, folder)
        assert (ended.code, ended.value) == (code, value), ended


def test_a_child_that_fails_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    forks.run(instead=partial(check_children, tmp_path / "here"))
