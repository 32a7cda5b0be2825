#!/usr/bin/env bash
# Shows the whole toolkit in a few minutes. Makes the environment, writes a small English-German corpus from a grammar,
# trains on it for four minutes, translates the test set and scores the translations.
#
#   bash recipes/quickstart.sh
#
# MINUTES=N trains for N minutes. RUN=folder receives all files (default runs/quickstart). Start the recipe again to
# resume it. To start over, delete that folder.
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ $# = 0 ] || fail "quickstart.sh takes no arguments, but was given: $*; leave them out"
run_dir=$(path_or "${RUN:-}" runs/quickstart)
corpus=$run_dir/corpus data=$run_dir/data model=$run_dir/model output=$run_dir/test.out.de

show_samples() {
    paste -d '\n' "$corpus/test.en" "$output" "$corpus/test.de" |
        awk 'BEGIN { split("source output reference", label) }
             NR <= 15 { printf "%-10s %s\n", label[(NR - 1) % 3 + 1], $0 }
             NR <= 15 && NR % 3 == 0 { print "" }'
}

set_up_environment
mkdir -p "$run_dir"
unless_there "$corpus" write_grammar_corpus "$corpus"
unless_there "$data" nmt preprocess --source-lang en --target-lang de --train "$corpus/train" --valid "$corpus/valid" \
    --test "$corpus/test" --dest "$data" --vocab-size 2000
run nmt train "$data" --save-dir "$model" --minutes "${MINUTES:-4}"
run nmt generate "$model/average.safetensors" --input "$corpus/test.en" --output "$output"
show_samples
run nmt score --reference "$corpus/test.de" --hypothesis "$output"
echo "Translate a sentence of your own:" >&2
printf "echo 'The old teacher sees a dog.' | %q generate %q\n" "$(command -v nmt)" "$(realpath "$model")/average.safetensors" >&2
