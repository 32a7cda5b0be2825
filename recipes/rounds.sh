#!/usr/bin/env bash
# Text of one language improves a model of few pairs: back-translation and forward translation in rounds.
#
#   VALID=prefix SOURCE_TEXT=file TARGET_TEXT=file bash recipes/rounds.sh SOURCE_LANG TARGET_LANG CORPUS [--hours H]
#       [-- nmt train option...]
#
# CORPUS and VALID are prefixes, as for nmt preprocess. SOURCE_TEXT and TARGET_TEXT are files of lines in one language; one
# of the two is enough. A model of each direction is trained, side by side on half of the cores each.
#
# 1. Round 0 trains both models on CORPUS.
# 2. Each of ROUNDS=2 rounds translates TEXT_LINES=60000 lines of each text, drawn at random, with the models of the round
#    before. Both models are trained further on CORPUS and on these pairs. Sources have the tag <bt> if a model has written
#    them (Caswell et al. 2019, arXiv:1906.06442), and <ft> if it has written their targets. CORPUS is used WEIGHT times as
#    often as these pairs (default: such that both are half of the training text).
# 3. A round whose model of SOURCE_LANG to TARGET_LANG has no more BLEU on VALID than the round before is the last, and is
#    not kept.
#
# All trainings together take H hours (default 1); the last round trains one model, on all cores. RUN=folder receives all files (default
# runs/rounds): model.safetensors, and its card README.md, which says what each round gave. TEST=prefix is a test set for
# the card. VOCAB_SIZE=N sets the vocabulary size (default 8000). Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage="usage: VALID=prefix [SOURCE_TEXT=file] [TARGET_TEXT=file] rounds.sh SOURCE_LANG TARGET_LANG CORPUS [--hours H] \
[-- nmt train option...]"
[ $# -ge 3 ] || fail "give two languages and the prefix of a corpus; $usage"
source=$1 target=$2 corpus=$(path_or "$3" '')
shift 3
parse_hours "$usage" "$@"
valid=$(path_or "${VALID:-}" '') test=$(path_or "${TEST:-}" '')
[ -n "$valid" ] || fail "VALID is not set; $usage"
source_text=$(path_or "${SOURCE_TEXT:-}" '') target_text=$(path_or "${TARGET_TEXT:-}" '')
[ -n "$source_text$target_text" ] || fail "neither SOURCE_TEXT nor TARGET_TEXT is set; $usage"
for text in ${source_text:+"$source_text"} ${target_text:+"$target_text"}; do
    [ -e "$text" ] || fail "$text does not exist; check SOURCE_TEXT and TARGET_TEXT"
done
for language in "$source" "$target"; do
    [ -z "$test" ] || [ -e "$(file_of "$test" "$language")" ] || fail "$test.$language does not exist; check TEST"
done
rounds=${ROUNDS:-2} lines=${TEXT_LINES:-60000}
whole_or_fail ROUNDS "$rounds"
whole_or_fail TEXT_LINES "$lines"
run_dir=$(path_or "${RUN:-}" runs/rounds)
minutes=$(awk -v h="$hours" -v n="$rounds" 'BEGIN { print 60 * h / (n + 1) }')

# side_by_side FUNCTION ROUND: calls the function for both directions.
side_by_side() {
    in_background "$1" "$2" "$source" "$target" "$source_text"
    "$1" "$2" "$target" "$source" "$target_text"
    wait "$other"
    trap - EXIT
}

# synthesize ROUND FROM TO TEXT: draws lines of the text, and translates them with the model of the round before.
synthesize() {
    local folder=$run_dir/round$1/synthetic-$2
    [ -n "$4" ] || return 0
    mkdir -p "$folder"
    unless_there "$folder/text.$2" python recipes/rounds.py draw "$4" "$folder/text.$2" "$lines" "$1"
    OMP_NUM_THREADS=$threads unless_there "$folder/text.$3" nmt generate \
        "$run_dir/round$(($1 - 1))/$2-$3/average.safetensors" --input "$folder/text.$2" --output "$folder/text.$3" --beam 1
}

# learn ROUND FROM TO: trains the model of a direction, and translates VALID with it.
learn() {
    local round=$1 from=$2 to=$3 folder=$run_dir/round$1 cores=$threads training start='' weight model
    model=$folder/$from-$to
    # Of the last round, only the model that the recipe is for is needed.
    if [ "$round" = "$rounds" ]; then
        [ "$from" = "$source" ] || return 0
        cores=$all_cores
    fi
    if [ "$round" = 0 ]; then
        # The few tagged pairs put the tags into the vocabulary.
        training=(--tag '' --train "$run_dir/tagged" --tag '<bt>' --train "$run_dir/tagged" --tag '<ft>'
            --vocab-size "${VOCAB_SIZE:-8000}")
    else
        weight=$(python recipes/rounds.py weight "$folder" "$(file_of "$corpus" "$source")")
        start=$run_dir/round$((round - 1))/$from-$to/average.safetensors
        training=(--weight "${WEIGHT:-$weight}" --tag '' --like "$start")
        [ ! -e "$folder/synthetic-$to" ] || training+=(--train "$folder/synthetic-$to/text" --weight 1 --tag '<bt>')
        [ ! -e "$folder/synthetic-$from" ] || training+=(--train "$folder/synthetic-$from/text" --weight 1 --tag '<ft>')
    fi
    unless_there "$model-data" nmt preprocess --source-lang "$from" --target-lang "$to" --train "$corpus" \
        "${training[@]}" --valid "$valid" --dest "$model-data"
    OMP_NUM_THREADS=$cores unless_there "$model/average.safetensors" nmt train "$model-data" --save-dir "$model" \
        --minutes "$minutes" ${start:+--init-from "$start"} ${options[@]+"${options[@]}"}
    evaluate "$model" valid "$valid" "$from" "$to"
}

# evaluate MODEL NAME PREFIX FROM TO: translates a corpus, and scores the translations.
evaluate() {
    OMP_NUM_THREADS=$threads unless_there "$1/$2.$5" nmt generate "$1/average.safetensors" --input "$(file_of "$3" "$4")" \
        --output "$1/$2.$5"
    nmt score --reference "$(file_of "$3" "$5")" --hypothesis "$1/$2.$5" --target-lang "$5" --metric bleu --metric chrf \
        --json > "$1/$2.json.part"
    mv "$1/$2.json.part" "$1/$2.json"
}

set_up_environment
# write_tagged [SETTING...]: writes the few lines with tags. The settings are for the record of unless_there.
write_tagged() {
    local language
    for language in "$target" "$source"; do
        text_of "$corpus" "$language" | sed -n 1,20p > "$run_dir/tagged.$language.part"
        mv "$run_dir/tagged.$language.part" "$run_dir/tagged.$language"
    done
}

all_cores=$(python -c 'from nmt.resources import usable_cores; print(usable_cores())')
threads=$((all_cores > 1 ? all_cores / 2 : 1))
unless_there "$run_dir/tagged.$source" write_tagged CORPUS="$corpus" VALID="$valid" SOURCE_TEXT="$source_text" \
    TARGET_TEXT="$target_text" TEXT_LINES="$lines"
for ((round = 0; round <= rounds; round++)); do
    mkdir -p "$run_dir/round$round"
    [ "$round" = 0 ] || side_by_side synthesize "$round"
    side_by_side learn "$round"
    kept=$(python recipes/rounds.py kept "$run_dir" "$source-$target")
    [ "$kept" -ge "$round" ] || break
done
for round in 0 "$kept"; do
    [ -z "$test" ] || evaluate "$run_dir/round$round/$source-$target" test "$test" "$source" "$target"
done
cp "$run_dir/round$kept/$source-$target/average.safetensors" "$run_dir/model.safetensors"
python recipes/rounds.py card "$run_dir" "$source-$target" | tee "$run_dir/README.md"
