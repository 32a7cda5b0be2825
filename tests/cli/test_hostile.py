"""The commands end well in hostile cases, of which the nightly set tries many. Each way to end has its verdict."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hostile_cases.child import Ended  # isort: skip # `stand_ins` has added its folder to the path
from hostile_cases.outcomes import ELSE, ONE_SENTENCE, PEAK_BYTES, SAME_OUTPUT, judged  # isort: skip

SENTENCE = "warning: odd\nerror: --beam must be at least 1, but is 0\n"
KINDS = {"checkpoint", "offsets", "tokens", "meta.json", "metrics.jsonl", "text", "flags", "signals"}


@pytest.mark.nightly
def test_every_hostile_case_ends_well(tmp_path: Path) -> None:
    environment = os.environ | {"ENVIRONMENT": "active", "RUN": str(tmp_path / "run")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["bash", Path(__file__).parents[2] / "recipes" / "measure" / "hostile.sh", "--cases", "60", "--jobs", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert counts.keys() > KINDS
    assert int(counts["all"][0]) >= 60
    assert counts["all"][-1] == "0"  # else


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
