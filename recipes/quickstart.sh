#!/usr/bin/env bash
# Shows the whole toolkit in a few minutes. Makes the environment, writes a small English-German corpus from a grammar,
# trains on it, translates the test set and scores the translations.
#
#   bash recipes/quickstart.sh
#
# RUN=folder receives all files (default runs/quickstart). Start the recipe again to resume it. To start over, delete
# that folder.
set -euo pipefail
. "$(dirname "$0")/common.sh"

VOCAB_SIZE=2000
DROPOUT=0.1
BATCH_TOKENS=2500 # source tokens, and as many target tokens, in an update
BATCH_GROUPS=2
WARMUP_UPDATES=500
MAX_UPDATES=850
SAVE_UPDATES=50
AVERAGED=5 # checkpoints

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
    --test "$corpus/test" --dest "$data" --vocab-size "$VOCAB_SIZE"
run nmt train "$data" --arch transformer_tiny --save-dir "$model" --dropout "$DROPOUT" --batch-tokens "$BATCH_TOKENS" \
    --batch-groups "$BATCH_GROUPS" --warmup-updates "$WARMUP_UPDATES" --max-updates "$MAX_UPDATES" \
    --save-updates "$SAVE_UPDATES" --valid-updates 300
run nmt average-checkpoints "$model" --last "$AVERAGED" --output "$model/average.pt"
run nmt generate "$model/average.pt" --input "$corpus/test.en" --output "$output"
show_samples
run nmt score --reference "$corpus/test.de" --hypothesis "$output"
echo "Translate a sentence of your own: echo 'The old teacher sees a dog.' | nmt generate $model/average.pt" >&2
