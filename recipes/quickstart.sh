#!/usr/bin/env bash
# Shows the whole toolkit in one to four minutes, or longer on a slow machine. Makes the environment, writes a small
# English-German corpus from a grammar, trains a model on it, translates the test set and scores the translations. The
# exit code is 1 if the model is not good.
#
#   bash recipes/quickstart.sh
#
# UPDATES=N trains for N updates (default 400). RUN=folder receives all files (default runs/quickstart). Start the recipe
# again to resume it. To start over, delete that folder.
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ $# = 0 ] || fail "quickstart.sh takes no arguments, but was given: $*; leave them out"
run_dir=$(path_or "${RUN:-}" runs/quickstart)
corpus=$run_dir/corpus data=$run_dir/data model=$run_dir/model output=$run_dir/test.out.de updates=${UPDATES:-400}
whole_or_fail UPDATES "$updates"

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
if [ ! -e "$model" ]; then
    say "How long will the training take? See the line 'in total', and later the time left in the last column of the log"
    train_on_grammar "$data" "$model" --max-updates "$updates" --dry-run
fi
train_on_grammar "$data" "$model" --max-updates "$updates"
run nmt generate "$model/average.safetensors" --input "$corpus/test.en" --output "$output"
show_samples
run nmt score --reference "$corpus/test.de" --hypothesis "$output" | tee "$run_dir/score"
bleu=$(sed -n 's/^BLEU \([0-9]*\).*/\1/p' "$run_dir/score")
[ "$bleu" -ge 90 ] ||
    fail "the model is not good: it has $bleu BLEU on the test set, and at least 90 are expected;" \
        "delete $run_dir and run this again without UPDATES, or with more than $updates"
echo "Translate a sentence of your own:" >&2
printf "echo 'The old teacher sees a dog.' | %q generate %q\n" "$(command -v nmt)" "$(realpath "$model")/average.safetensors" >&2
