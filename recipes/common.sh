# Functions shared by tests/run.sh and the recipes. Source this file; it changes to the root of the repository. --help
# prints the comment at the top of a recipe.
# shellcheck shell=bash

fail() {
    echo "error: $*" >&2
    exit 1
}

say() {
    echo "== $*" >&2
}

# Some versions of awk write a decimal comma where the language of the user does.
awk() {
    LC_ALL=C command awk "$@"
}

# Prints the command, then runs it.
run() {
    say "$*"
    "$@"
}

# unless_there FILE COMMAND...: runs the command that makes FILE, unless FILE exists. FILE.made-from records the command,
# and another command for the same FILE is an error. A FILE without a record was put there by the user and is kept. The
# place of the run folder and options about the machine are not compared. It is also an error if another command has begun
# a training that was interrupted, and if text of --train, --valid, --test, --exclude or --input has changed: a file, or
# the files of a PREFIX in the languages `source` and `target`, or `codes`.
unless_there() {
    local command="${*:2}" recorded product=$1 is_begun=''
    command=${command//"$run_dir"/RUN}
    command=${command//"$PWD/"/}
    command=$(sed -E 's/ --(workers|gpus|device|device-tokens)[ =][^ ]+//g' <<< "$command")
    if [[ $command == *"nmt train "* ]]; then
        product=$(dirname "$1")
        ! compgen -G "$product/state-*" > /dev/null || is_begun=yes
    fi
    if [ -e "$1" ] || [ $is_begun ]; then
        recorded=$(cat "$1.made-from" 2> /dev/null || echo "$command")
        [ "$recorded" = "$command" ] ||
            fail "$1 was made by '$recorded', but the command is now '$command'; set RUN to another folder," \
                "or delete $product and what was made from it"
    fi
    if [ ! -e "$1" ]; then
        mkdir -p "$(dirname "$1")"
        echo "$command" > "$1.made-from"
        run "${@:2}"
        return
    fi
    local flag='' word file language
    for word in "${@:2}"; do
        if [[ $flag =~ ^--(train|valid|test|exclude|input)$ && -e $1.made-from && $word != "$run_dir"/* &&
            $cached != *" $word "* ]]; then
            for language in ${codes[@]+"${codes[@]}"} "${source:-}" "${target:-}"; do
                for file in "$word" "$(file_of "$word" "$language")" "$word".*-*."$language"{,.gz,.xz,.bz2,.zst}; do
                    [[ ! -f $file || ! $file -nt $1.made-from ]] ||
                        fail "$file has changed since $1 was made from it; set RUN to another folder, or delete $1 and" \
                            "what was made from it"
                done
            done
        fi
        flag=$word
    done
    say "$1 exists already"
}

# choose_tokenization DEFAULT: sets `tokenization`, the options of nmt preprocess for TOKENIZER, moses or none.
choose_tokenization() {
    case ${TOKENIZER:-$1} in
        moses) tokenization=(--tokenizer moses --normalize-punctuation both) ;;
        none) tokenization=(--tokenizer none) ;;
        *) fail "TOKENIZER must be moses or none, but is '$TOKENIZER'" ;;
    esac
}

# refuse OPTION ADVICE ARGUMENT...: fails if the option is among the arguments.
refuse() {
    local argument
    for argument in "${@:3}"; do
        [[ $argument != "$1" && $argument != "$1="* ]] || fail "$1 cannot be given, because this recipe sets it; $2"
    done
}

# whole_or_fail NAME VALUE: fails unless VALUE is a whole number.
whole_or_fail() {
    [[ $2 =~ ^[0-9]+$ ]] || fail "$1 must be a whole number, but is '$2'"
}

# fetch URL FILE: downloads a file and resumes an earlier download. A terminal shows the progress. A transfer that fails
# or has stood still for a minute is tried again. If the server has nothing behind the end of the file (HTTP 416), the
# file is wrong and is removed.
fetch() {
    local progress=--silent
    [ ! -t 2 ] || progress=--progress-bar
    if command -v curl > /dev/null; then
        curl --fail --location $progress --show-error --retry 5 --speed-limit 1 --speed-time 60 --continue-at - \
            --dump-header "$2.head" --output "$2" "$1" || {
            ! grep -q '^HTTP[^ ]* 416' "$2.head" 2> /dev/null || rm -f "$2"
            rm -f "$2.head"
            return 1
        }
        rm -f "$2.head"
    elif command -v wget > /dev/null; then
        wget --no-verbose --tries 6 --waitretry 10 --timeout 60 --continue --output-document="$2" "$1"
    else
        fail "neither curl nor wget is installed; install one of them, or download $1 yourself to ${2%.part}"
    fi
}

# download URL FILE [MD5]: downloads to FILE.part, or resumes that file, and renames it to FILE when it is complete.
# Does nothing if FILE exists.
download() {
    local wrong shows_end='' # whether the content shows that it is whole
    [ ! -e "$2" ] || return 0
    [[ -z ${3:-} && ! $2 =~ \.(gz|tgz|tar)$ ]] || shows_end=yes
    # An earlier call may have been killed before it renamed the file. A server has nothing to add to such a file.
    if [ ! -s "$2.part" ] || [ ! $shows_end ] || [ "$(wrong_with "$2.part" "$2" "${3:-}")" ]; then
        say "Downloading $1"
        fetch "$1" "$2.part" ||
            fail "$1 could not be downloaded completely; run this again to resume $2.part, or put the file at $2 yourself"
        wrong=$(wrong_with "$2.part" "$2" "${3:-}")
        if [ "$wrong" ]; then
            rm "$2.part"
            fail "the download of $1 $wrong; run this again"
        fi
    fi
    mv "$2.part" "$2"
}

# wrong_with FILE NAME [MD5]: prints what is wrong with the content of an archive that has this name or will get it.
wrong_with() {
    if [ -n "${3:-}" ]; then
        [ "$(md5_of "$1")" = "$3" ] || echo "does not have the MD5 $3"
        return
    fi
    case $2 in
        *.gz) gzip -t "$1" 2> /dev/null || echo "is not a whole gzip file" ;;
        *.tgz) tar -tzf "$1" > /dev/null 2>&1 || echo "is not a whole tar archive in gzip" ;;
        *.tar) tar -tf "$1" > /dev/null 2>&1 || echo "is not a whole tar archive" ;;
    esac
}

md5_of() {
    python -c 'import hashlib, sys; print(hashlib.file_digest(open(sys.argv[1], "rb"), "md5").hexdigest())' "$1"
}

# write_grammar_corpus FOLDER: writes the small English-German corpus of grammar.py. FOLDER appears when it is complete.
write_grammar_corpus() {
    rm -rf "$1.part"
    python recipes/grammar.py --out "$1.part"
    mv "$1.part" "$1"
}

# train_on_grammar DATA MODEL [OPTION...]: trains a small model; MODEL/average.safetensors is the average of its end. It
# trains for a fixed number of updates, so that the model is as good on a slow machine as on a fast one.
train_on_grammar() {
    run nmt train "$1" --arch transformer_tiny --save-dir "$2" --optimizer muon --dropout 0.1 --batch-tokens 2500 \
        --batch-groups 4 --warmup-updates 100 --max-updates 400 --save-updates 20 --average-last 5 --log-updates 25 \
        --valid-updates 100 "${@:3}"
}

# parse_hours USAGE [--hours H] [-- nmt train option...]: sets `hours` and `options`.
parse_hours() {
    local usage=$1
    shift
    hours=1
    if [ "${1:-}" = --hours ]; then
        hours=${2:-}
        [[ $hours =~ ^[0-9]*[.]?[0-9]+$ ]] || fail "--hours must be a number, but is '$hours'; $usage"
        shift 2
    fi
    [ $# = 0 ] || [ "$1" = -- ] || fail "$1 is not a valid argument; $usage"
    options=("${@:2}")
}

# parse_prefixes USAGE NOUN [--hours H] PREFIX... [-- nmt train option...]: sets `prefixes`, which path_or has made absolute,
# and `options` and `hours`, which is 1 unless it is set before. NOUN is what a PREFIX is called in messages.
parse_prefixes() {
    local usage=$1 noun=$2
    shift 2
    hours=${hours:-1} prefixes=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        case $1 in
            --hours)
                hours=${2:-}
                shift $(($# > 1 ? 2 : 1))
                ;;
            *)
                prefixes+=("$(path_or "$1" '')")
                shift
                ;;
        esac
    done
    parse_hours "$usage" --hours "$hours" "$@"
    [ ${#prefixes[@]} -gt 0 ] || fail "$noun is missing; $usage"
}

# logged LOG COMMAND...: runs the command on one core, and writes its output to the log.
logged() {
    OMP_NUM_THREADS=1 "${@:2}" > "$1" 2>&1 || fail "${*:2:2} failed; $1 says why"
}

# in_background COMMAND...: starts the command, of which `other` becomes the process. It ends when the script ends.
in_background() {
    set -m # a process group of its own, which does not ignore signals
    "$@" &
    other=$!
    set +m
    # shellcheck disable=SC2064 # the process of now
    trap "kill -- -$other 2> /dev/null || true" EXIT
}

# two_at_a_time COMMAND ITEM...: runs the command, a function and perhaps its first arguments, for each item.
two_at_a_time() {
    local command=$1 other
    shift
    while [ $# -gt 0 ]; do
        in_background $command "$1"
        [ $# = 1 ] || $command "$2"
        wait "$other"
        trap - EXIT
        shift $(($# > 1 ? 2 : 1))
    done
}

# path_or PATH DEFAULT: prints PATH, relative to the folder that the script was called from, or DEFAULT if PATH is
# empty.
path_or() {
    case $1 in
        '') echo "$2" ;;
        /*) echo "$1" ;;
        *) echo "$called_from/$1" ;;
    esac
}

# choose_direction MODEL: sets `source`, `target` and `languages`, the options of commands, to the languages of a
# checkpoint, or to DIRECTION.
choose_direction() {
    local direction
    direction=$(python recipes/direction.py "$1" ${DIRECTION:+"$DIRECTION"}) || exit 1
    read -r source target <<< "$direction"
    languages=(--source-lang "$source" --target-lang "$target")
}

# plain_text NAME LANGUAGE...: if the path in the variable NAME is a corpus file, such as TMX, replaces it by the PREFIX of
# its text in the cache, whose name is made from its content. Needs the environment.
cached=' '
plain_text() {
    local plain # no name that a caller gives
    plain=$(python recipes/plain_text.py "${!1}" "${@:2}") || exit 1
    [ "$plain" = "${!1}" ] || cached+="$plain "
    printf -v "$1" %s "$plain"
}

# The ends of compressed files that commands read, in the order in which they look for them.
COMPRESSED='gz xz bz2 zst'

# file_of PREFIX LANGUAGE: prints the path of the plain file, or if only a compressed one exists, the path of that.
file_of() {
    local end
    for end in '' $COMPRESSED; do
        if [ -e "$1.$2${end:+.$end}" ]; then
            echo "$1.$2${end:+.$end}"
            return
        fi
    done
    echo "$1.$2"
}

# text_of PREFIX LANGUAGE: prints the lines of the file that file_of finds. Needs the environment.
text_of() {
    python recipes/lines.py "$(file_of "$1" "$2")"
}

# Prints what the environment depends on. The output is saved only after the installation, so that an interrupted
# installation is repeated.
environment_inputs() {
    echo "$PWD"
    "$python" -c 'import sys; print(sys.version)'
    cat pyproject.toml constraints.txt
}

# Puts the environment of the recipes, .venv-recipes, on the PATH. Makes it first if it is missing, unfinished or out of
# date. PYTHON names the interpreter to make it with (default python3). ENVIRONMENT=active makes no environment and
# uses the nmt that is already on the PATH.
set_up_environment() {
    if [ "${ENVIRONMENT:-}" = active ]; then
        command -v nmt > /dev/null && (cd / && python -c 'import nmt') 2> /dev/null ||
            fail "ENVIRONMENT is active, but the PATH has no nmt, or no python that can import it; activate the" \
                "environment that nmt is installed in, or unset ENVIRONMENT"
        return
    fi
    local python=${PYTHON:-python3} environment=.venv-recipes
    command -v "$python" > /dev/null ||
        fail "$python was not found; install Python 3.11 or newer, or set PYTHON to its name"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is $("$python" -V 2>&1), but nmt needs Python 3.11 or newer; install it or set PYTHON to its name"
    if [ "$(environment_inputs)" != "$(cat $environment/made-from 2> /dev/null)" ]; then
        "$python" -c 'import ensurepip, venv' 2> /dev/null ||
            fail "$python cannot make environments; install its venv module (apt install python3-venv on Debian, Ubuntu)"
        say "Making the environment $environment takes a few minutes, mostly to download PyTorch"
        "$python" -m venv --clear $environment || fail "$python could not make $environment; see its message above"
        $environment/bin/python -m pip install --disable-pip-version-check -e '.[dev]' -c constraints.txt >&2 ||
            fail "the packages could not be installed; correct what pip reports above and run this again"
        environment_inputs > $environment/made-from
    fi
    export PATH="$PWD/$environment/bin:$PATH" VIRTUAL_ENV="$PWD/$environment"
    unset PYTHONHOME PYTHONPATH
}

# own_environment FOLDER PACKAGE...: makes an environment with these packages, unless it is there.
own_environment() {
    [ "${*:2}" != "$(cat "$1/made-from" 2> /dev/null)" ] || return 0
    [ -z "$(ls -A "$1" 2> /dev/null)" ] || [ -e "$1/pyvenv.cfg" ] ||
        fail "$1 exists already and is no environment; remove it, or choose another folder"
    say "Making the environment $1"
    python -m venv --clear "$1"
    "$1/bin/python" -m pip install --disable-pip-version-check "${@:2}" >&2 ||
        fail "the packages could not be installed; correct what pip reports above and run this again"
    echo "${*:2}" > "$1/made-from"
}

case ${1:-} in -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit
    ;;
esac
refuse --save-dir "set RUN to another folder" "$@"
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
