#!/usr/bin/env bash
# Compares settings of training that take the same time: trains a small corpus with each, and scores held-out text.
#
#   bash recipes/measure/ablation.sh [--updates N] [NAME...]
#
# Each row of the table takes as long as N updates (5,000) of base, the settings of recipes/multi30k.sh. How much longer
# an update takes is measured in pairs of dry runs. A row is scored on the validation set and on 2,000 pairs that are
# split off the training text; no test set is used. CORPUS=folder names the folder with the raw corpus, train.en.gz to
# val.de.gz; the default is Multi30k. LANGUAGES='en ja' names other languages. RUN=folder receives everything.
# HELD_OUT=N holds out N pairs. TOKENIZER=none leaves out Moses. Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

HELD_OUT=${HELD_OUT:-2000} PAIRS=3
options_of() {
    case $1 in
        base) ;;
        muon) echo --optimizer muon ;;
        linear) echo --lr-schedule linear --lr 0.003125 ;;
        muon_linear) echo --optimizer muon --lr-schedule linear --lr 0.003125 ;;
        seed2) echo --seed 2 ;;
        muon_seed2) echo --optimizer muon --seed 2 ;;
        *) fail "$1 is not a row; choose from base, muon, linear, muon_linear, seed2, muon_seed2" ;;
    esac
}

whole_or_fail HELD_OUT "$HELD_OUT"
updates=5000 rows=()
while [ $# -gt 0 ]; do
    case $1 in
        --updates) updates=${2:-} && whole_or_fail --updates "$updates" && shift 2 ;;
        *) options_of "$1" > /dev/null && rows+=("$1") && shift ;;
    esac
done
[ ${#rows[@]} -gt 0 ] || rows=(base muon linear muon_linear seed2 muon_seed2)
run_dir=$(path_or "${RUN:-}" runs/ablation)
corpus=$(path_or "${CORPUS:-${MULTI30K:-}}" runs/multi30k-corpus)
choose_tokenization moses
read -r source target <<< "${LANGUAGES:-en de}"
set_up_environment
[ -e "$corpus/train.$source.gz" ] ||
    fail "$corpus has no train.$source.gz; run recipes/multi30k.sh first, or set CORPUS and LANGUAGES"
mkdir -p "$run_dir"
make_data() { # its arguments are for the record of unless_there
    local language pairs
    for language in "$source" "$target"; do
        gzip -cd "$corpus/train.$language.gz" > "$run_dir/all.$language"
        pairs=$(wc -l < "$run_dir/all.$language")
        [ "$pairs" -gt "$HELD_OUT" ] || fail "$corpus has only $((pairs)) pairs; lower HELD_OUT, which is $HELD_OUT"
        head -n "$(($(wc -l < "$run_dir/all.$language") - HELD_OUT))" "$run_dir/all.$language" > "$run_dir/train.$language"
        tail -n "$HELD_OUT" "$run_dir/all.$language" > "$run_dir/held.$language"
        gzip -cd "$corpus/val.$language.gz" > "$run_dir/val.$language"
    done
    run nmt preprocess --source-lang "$source" --target-lang "$target" --train "$run_dir/train" \
        --valid "$run_dir/val" --dest "$run_dir/data" --vocab-size 10000 "${tokenization[@]}"
}
unless_there "$run_dir/data" make_data CORPUS="$corpus" LANGUAGES="$source $target" HELD_OUT="$HELD_OUT" \
    TOKENIZATION="${tokenization[*]}"

# arguments_of ROW: sets `arguments`, the command without its length. Each length has its own run folder.
arguments_of() {
    arguments=("$run_dir/data" --arch transformer_tiny --save-dir "$run_dir/$1-$updates" --dropout 0.2 --batch-tokens 2500
        --batch-groups 4 --warmup-updates 800 --valid-metric nll --save-updates 180 --keep-checkpoints 10)
    # shellcheck disable=SC2207 # the options are words
    arguments+=($(options_of "$1"))
}
# seconds_of ROW: prints how long an update takes now.
seconds_of() {
    arguments_of "$1"
    nmt train "${arguments[@]}" --dry-run 2>&1 | sed -n 's/^ *update .* TFLOP, \(.*\) s$/\1/p'
}
# cost_of ROW: prints the time of an update divided by that of base: the median of several pairs.
cost_of() {
    for _ in $(seq $PAIRS); do
        echo "$(seconds_of "$1") $(seconds_of base)"
    done | awk '{ print $1 / $2 }' | sort -n | sed -n "$(((PAIRS + 1) / 2))p"
}
# score_of NAME SPLIT: prints the BLEU of translations.
score_of() {
    nmt score --reference "$run_dir/$2.$target" --hypothesis "$run_dir/$1.$2" --target-lang "$target" --json |
        sed 's/.*"score": \([0-9.]*\).*/\1/'
}
for row in "${rows[@]}"; do
    name=$row-$updates
    result=$run_dir/$name.result
    if [ -s "$result" ]; then
        cat "$result"
        continue
    fi
    cost=1
    if [[ $row != base && $row != seed2 ]]; then
        [ -s "$run_dir/$row.cost" ] || cost_of "$row" > "$run_dir/$row.cost"
        cost=$(cat "$run_dir/$row.cost")
    fi
    arguments_of "$row"
    length=$(awk -v n="$updates" -v cost="$cost" 'BEGIN { printf "%d", n / cost }')
    run nmt train "${arguments[@]}" --max-updates "$length" --valid-updates "$length"
    average=$run_dir/$name/average.safetensors
    run nmt average-checkpoints "$run_dir/$name" --last $((length < 1800 ? 1 : 10)) --output "$average"
    for split in val held; do
        run nmt generate "$average" --beam 4 --alpha 1.0 --input "$run_dir/$split.$source" --output "$run_dir/$name.$split"
    done
    on_val=$(score_of "$name" val) on_held=$(score_of "$name" held)
    echo "$row: $length updates of $cost, BLEU $on_val on val, $on_held held out" | tee "$result"
done
