# What tests/run.sh and the recipes share; to be sourced. Goes to the repository's root.
# shellcheck shell=bash

fail() {
    echo "error: $*" >&2
    exit 1
}

say() {
    echo "== $*" >&2
}

# Says the command, then runs it.
run() {
    say "$*"
    "$@"
}

# unless_there FILE COMMAND...: runs the command that makes FILE, unless an earlier run did.
unless_there() {
    if [ -e "$1" ]; then
        say "$1 is there already"
    else
        run "${@:2}"
    fi
}

# write_grammar_corpus FOLDER: the small English-German corpus of grammar.py; whole or not there.
write_grammar_corpus() {
    rm -rf "$1.part"
    python recipes/grammar.py --out "$1.part"
    mv "$1.part" "$1"
}

# path_or PATH DEFAULT: a path as it was meant where the script was called; the default if it is empty.
path_or() {
    case $1 in
        '') echo "$2" ;;
        /*) echo "$1" ;;
        *) echo "$called_from/$1" ;;
    esac
}

# What the environment was made from. Written last, so that an interrupted set-up is not taken for a whole one.
environment_inputs() {
    echo "$PWD"
    "$python" -c 'import sys; print(sys.version)'
    cat pyproject.toml constraints.txt
}

# Puts the repository's own environment, .venv, on the PATH, and makes it first where it is missing, unfinished or older
# than what it is made from. PYTHON names the interpreter to make it with (python3).
set_up_environment() {
    local python=${PYTHON:-python3}
    command -v "$python" > /dev/null || fail "there is no $python; install Python 3.11 or newer, or name one with PYTHON="
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is $("$python" -V 2>&1), but nmt needs Python 3.11 or newer; name one with PYTHON="
    if [ "$(environment_inputs)" != "$(cat .venv/made-from 2> /dev/null)" ]; then
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

called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
