#!/usr/bin/env bash
# Runs all checks that a change must pass, or with --nightly the tests that take long or need more than Python.
#
#   bash tests/run.sh [--nightly] [pytest argument...]
#
# Needs Python 3.11 or newer and makes its own environment.
set -euo pipefail
. "$(dirname "$0")/../recipes/common.sh"
set_up_environment

status=0
check() {
    run "$@" || status=1
}
# Two tests run at a time with one thread each. With more threads than cores, waiting threads would stall both tests.
# Tests of one group run one after the other.
test_all() {
    OMP_NUM_THREADS=1 check pytest -n 2 --dist loadgroup --durations 10 "$@"
}
check_all() {
    check ruff check
    check ruff format --check
    check mypy
    test_all "$@"
}
TIMEFORMAT='%0lR in all, processor time %0lU + %0lS (user + system)'
if [ "${1:-}" = --nightly ]; then
    time test_all "$@"
else
    time check_all "$@"
fi
exit $status
