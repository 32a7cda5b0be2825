#!/usr/bin/env bash
# Runs all checks that a change must pass.
#
#   bash tests/run.sh [pytest argument...]
#
# Needs Python 3.11 or newer and makes its own environment.
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
# Two tests run at a time with one thread each. With more threads than cores, waiting threads would stall both tests.
# Tests of one group run one after the other.
OMP_NUM_THREADS=1 check pytest -n 2 --dist loadgroup "$@"
exit $status
