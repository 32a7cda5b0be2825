"""The commands pass a random sample of the hostile cases, and those cases would notice faults."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

RECIPES = Path(__file__).parents[1] / "recipes"
sys.path.insert(0, str(RECIPES))

from hostile_cases.child import MEMORY_BYTES, Ended, call  # noqa: E402
from hostile_cases.outcomes import ELSE, ONE_SENTENCE, PEAK_BYTES, SAME_OUTPUT, judged  # noqa: E402

CASES = 60
SENTENCE = "warning: odd\nerror: --beam must be at least 1, but is 0\n"


def test_every_hostile_case_ends_well(tmp_path: Path) -> None:
    environment = os.environ | {"ENVIRONMENT": "active", "RUN": str(tmp_path / "run")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", RECIPES / "hostile.sh", "--cases", str(CASES), "--jobs", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert int(kinds["all"][0]) >= CASES
    assert kinds["all"][-1] == "0"  # else
    assert kinds.keys() > {"checkpoint", "offsets", "tokens", "meta.json", "metrics.jsonl", "text", "flags", "signals"}


@pytest.mark.parametrize(
    ("verdict", "ended"),
    [
        (SAME_OUTPUT, {}),
        (ONE_SENTENCE, {"exit_code": 1, "stderr": SENTENCE}),
        (ONE_SENTENCE, {"exit_code": 2, "stderr": SENTENCE}),
        (ELSE, {"exit_code": 3, "stderr": SENTENCE}),
        (ELSE, {"exit_code": 1, "stderr": SENTENCE + "and a second line\n"}),
        (ELSE, {"exit_code": 1, "stderr": SENTENCE + SENTENCE}),
        (ELSE, {"exit_code": 1}),
        (ELSE, {"exit_code": 1, "stderr": "Traceback (most recent call last):\n" + SENTENCE}),
        (ELSE, {"odd": "other output, silently"}),
        (ELSE, {"harmed": ["treasure/notes.txt"]}),
        (ELSE, {"exit_code": 1, "stderr": SENTENCE, "left": ["out.partial-1"]}),
        (ELSE, {"peak_bytes": PEAK_BYTES + 1}),
        (ELSE, {"code": -signal.SIGALRM}),
        (ELSE, {"code": -signal.SIGSEGV}),
    ],
)
def test_each_way_to_end_gets_its_verdict(verdict: str, ended: dict[str, object]) -> None:
    """The child process ends with `code`, and the command that it runs with `exit_code`."""
    value = {"code": ended.get("exit_code", 0), "odd": "", "harmed": [], "left": [], "peak": PEAK_BYTES}
    value |= {name: ended[name] for name in ("odd", "harmed", "left") if name in ended}
    child = {"code": 0, "stderr": "", "peak_bytes": 0, "value": value}
    child |= {name: ended[name] for name in ("code", "stderr", "peak_bytes") if name in ended}
    assert judged(Ended(**child)).verdict == verdict


def never_ends() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01)  # the same signal as at the limit, but much earlier
    time.sleep(60)


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda: 1 / 0, 1),
        (lambda: len(bytearray(MEMORY_BYTES + 1)), 1),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL),
        (never_ends, -signal.SIGALRM),
    ],
)
def test_a_child_that_fails_is_noticed(function: Callable[[], object], code: int, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    ended = call(function, tmp_path / "here")
    assert (ended.code, ended.value) == (code, None)
