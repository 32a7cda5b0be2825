#!/usr/bin/env bash
# All checks a change must pass. Needs Python 3.11 or newer and makes its own environment; arguments go to pytest.
set -euo pipefail
. "$(dirname "$0")/../recipes/common.sh"
set_up_environment

status=0
check() {
    run "$@" || status=1
}
check ruff check
check ruff format --check
check mypy
# Two tests at a time, of a thread each: threads that wait for each other would bring both to a standstill.
OMP_NUM_THREADS=1 check pytest -n 2 "$@"
exit $status
