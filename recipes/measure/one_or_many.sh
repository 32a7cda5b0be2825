#!/usr/bin/env bash
# Compares one model of many directions with a model for each direction. Both ways take the same time in total.
#
#   VALID=prefix bash recipes/measure/one_or_many.sh [--hours H] PREFIX... [-- nmt train option...]
#
# PREFIX, VALID and the settings are those of ../multilingual.sh, which trains the one model for H hours (default 1). The
# names of the files of PREFIX have both languages, such as PREFIX.en-de.en. The even lines of VALID are the test set. Each
# of the N other models has H/N hours and a vocabulary of PAIR_VOCAB_SIZE pieces (default 4000). The table has BLEU and chrF
# of both for each direction of the test set that has training text. RUN=folder receives all files (default
# runs/one-or-many). Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

usage="usage: VALID=prefix one_or_many.sh [--hours H] PREFIX... [-- nmt train option...]"
parse_prefixes "$usage" PREFIX "$@"
run_dir=$(path_or "${RUN:-}" runs/one-or-many)
set_up_environment
VALID=$(path_or "${VALID:-}" '') TEST='' RUN=$run_dir/one run bash recipes/multilingual.sh --hours "$hours" "${prefixes[@]}" \
    -- ${options[@]+"${options[@]}"} >&2

# training_text SOURCE TARGET: sets `training` to the corpora of a direction.
training_text() {
    local prefix stem
    training=()
    for prefix in "${prefixes[@]}"; do
        for stem in "$prefix.$1-$2" "$prefix.$2-$1"; do
            [ ! -e "$(file_of "$stem" "$1")" ] || training+=(--train "$stem")
        done
    done
}

directions=()
while read -r source target; do
    training_text "$source" "$target"
    [ ${#training[@]} -eq 0 ] || directions+=("$source $target")
done < "$run_dir/one/directions"
[ ${#directions[@]} -gt 0 ] || fail "no PREFIX has files whose names have both languages, such as ${prefixes[0]}.en-de.en"
minutes=$(awk -v h="$hours" -v n=${#directions[@]} 'BEGIN { print 60 * h / n }')
mkdir -p "$run_dir/many"
for direction in "${directions[@]}"; do
    read -r source target <<< "$direction"
    folder=$run_dir/many/$source-$target
    training_text "$source" "$target"
    for ending in "" ".$target-$source" ".$source-$target"; do
        [ ! -e "$run_dir/one/valid$ending.$source" ] || files=$ending
    done
    unless_there "$folder/data" nmt preprocess --source-lang "$source" --target-lang "$target" "${training[@]}" \
        --valid "$run_dir/one/valid$files" --vocab-size "${PAIR_VOCAB_SIZE:-4000}" --dest "$folder/data"
    unless_there "$folder/model/average.safetensors" nmt train "$folder/data" --save-dir "$folder/model" \
        --minutes "$minutes" ${options[@]+"${options[@]}"}
    run nmt generate "$folder/model/average.safetensors" --input "$run_dir/one/test$files.$source" \
        --output "$folder/out.$target"
    nmt score --reference "$run_dir/one/out/$source-$target.reference" --hypothesis "$folder/out.$target" \
        --target-lang "$target" --metric bleu --metric chrf --json > "$folder/scores.json"
done
python recipes/measure/one_or_many.py "$run_dir" | tee "$run_dir/scores"
