# What tests/run.sh and the recipes share; to be sourced. Goes to the repository's root and puts its own environment,
# .venv, on the PATH, which it makes first where that is missing, unfinished or older than what it is made from.
# PYTHON names the interpreter to make it with (python3).
# shellcheck shell=bash

fail() {
    echo "error: $*" >&2
    exit 1
}

say() {
    echo "== $*" >&2
}

# What the environment was made from. Written last, so that an interrupted set-up is not taken for a whole one.
environment_inputs() {
    echo "$PWD"
    "$python" -c 'import sys; print(sys.version)'
    cat pyproject.toml constraints.txt
}

set_up_environment() {
    local python=${PYTHON:-python3}
    command -v "$python" > /dev/null || fail "there is no $python; install Python 3.11 or newer, or name it with PYTHON="
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is $("$python" -V 2>&1), but nmt needs Python 3.11 or newer; name one with PYTHON="
    if ! environment_inputs | cmp -s - .venv/made-from; then
        "$python" -c 'import ensurepip, venv' 2> /dev/null ||
            fail "$python cannot make environments; install its venv module (Debian and Ubuntu: apt install python3-venv)"
        say "Making the environment .venv (a few minutes, mostly for PyTorch)"
        "$python" -m venv --clear .venv || fail "$python could not make .venv; see its message above"
        .venv/bin/python -m pip install --disable-pip-version-check -e '.[dev]' -c constraints.txt >&2 ||
            fail "the packages could not be installed; put right what pip says above and run this again"
        environment_inputs > .venv/made-from
    fi
    export PATH="$PWD/.venv/bin:$PATH" VIRTUAL_ENV="$PWD/.venv"
    unset PYTHONHOME PYTHONPATH
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
set_up_environment
