#!/usr/bin/env bash
# Runs all checks that a change must pass; with --quick only those that it may concern, which takes about a minute; or
# with --nightly the tests that take long or need more than Python.
#
#   bash tests/run.sh [--quick | --nightly] [pytest argument...]
#
# Needs Python 3.11 or newer and makes its own environment.
set -euo pipefail
. "$(dirname "$0")/../recipes/common.sh"
set_up_environment
# These change what commands print, or make a command a rank of a training.
unset FORCE_COLOR TTY_COMPATIBLE GITHUB_ACTIONS PY_COLORS PYTHONWARNINGS RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT

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
# Prints the files of tests that changed or are of modules that changed, since the last commit or, if nothing did, in it.
# The tests of a module have its name, or import it.
tests_of_changes() {
    local changed file module
    changed=$(git diff --name-only HEAD && git ls-files --others --exclude-standard)
    [ -n "$changed" ] || changed=$(git diff --name-only HEAD~)
    for file in $changed; do
        case $file in
            tests/*test_*.py) [ ! -e "$file" ] || echo "$file" ;;
            nmt/*.py | recipes/*.py)
                module=${file%.py} module=${module%/__init__} module=${module#recipes/}
                find tests -name "test_*$(basename "$module")*.py"
                grep -rlE "(from|import) ${module//\//.}( |$)" tests --include 'test_*.py' || true
                ;;
        esac
    done | sort -u
}
# install_if_missing PROGRAM PACKAGE
install_if_missing() {
    if ! command -v "$1" > /dev/null; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
            fail "the nightly tests need $1, which was not found; install it (apt-get install $2 on Debian, Ubuntu)"
        fi
        run apt-get update -q > /dev/null && run apt-get install -y -q "$2" > /dev/null || fail "$2 was not installed"
    fi
}
# The tests of numbers, with the oldest instructions that torch, oneDNN and CTranslate2 have kernels for.
test_numbers() {
    ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 CT2_FORCE_CPU_ISA=GENERIC test_all tests/model tests/search \
        tests/translate tests/interop tests/training/test_{gradients,loss,optimizer}.py
}
TIMEFORMAT='%0lR in all, processor time %0lU + %0lS (user + system)'
if [ "${1:-}" = --nightly ]; then
    install_if_missing chromium chromium
    install_if_missing ip iproute2
    install_if_missing npm npm
    time test_all "$@"
    [ $# -gt 1 ] || time test_numbers
elif [ "${1:-}" = --quick ]; then
    whole_way=tests/training/test_pipeline.py::test_every_input_line_gives_one_output_line
    # shellcheck disable=SC2046 # names of files have no spaces
    time check_all $(tests_of_changes) $whole_way "${@:2}"
else
    time check_all "$@"
fi
exit $status
