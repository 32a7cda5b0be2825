#!/usr/bin/env bash
# Pronunciations of words (grapheme to phoneme): SIGMORPHON 2021, shared task 1, low and medium resource (Ashby et al.
# 2021).
#
#   G2P=folder bash recipes/g2p.sh [LANGUAGE...] [-- nmt train option...]
#
# G2P is the folder `data` of the task (the repository sigmorphon/2021-task1), with low/LANGUAGE_train.tsv,
# medium/LANGUAGE_dev.tsv and so on, plain or .gz. Without a LANGUAGE, such as low/ice, all that are there are done.
#
# 1. Letters and phonemes are pieces. MODELS=4 models learn all languages of a part, low or medium, together. One attention
#    head learns which letter each phoneme belongs to, as g2p.py aligns them.
# 2. Each of them is tuned to each language, and the ensemble of the tuned models is scored.
#
# Each language has MINUTES=5 on two cores, which train two models at a time. Step 1 has JOINT=0.6 of the time. EVALUATE=dev
# or test is the part that is scored. The table has WER, the percentage of wrong words, and PER, the edit distance in percent
# of the phonemes, for the first model and for the ensemble. RUN=folder receives all files. Start the recipe again to resume
# it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

corpus=$(path_or "${G2P:-}" '')
[ -d "$corpus" ] || fail "G2P is '$corpus', which is not a folder; set it to the folder data of sigmorphon/2021-task1"
run_dir=$(path_or "${RUN:-}" runs/g2p)
models=${MODELS:-4} minutes=${MINUTES:-5} joint=${JOINT:-0.6} evaluated=${EVALUATE:-dev}
whole_or_fail MODELS "$models"
whole_or_fail MINUTES "$minutes"
[ "$models" -gt 0 ] && [ "$minutes" -gt 0 ] || fail "MODELS and MINUTES must be at least 1"
languages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    languages+=("$1")
    shift
done
options=("${@:2}")
refuse --seed "the models have the seeds 1 to MODELS" ${options[@]+"${options[@]}"}
if [ ${#languages[@]} -eq 0 ]; then
    while read -r language; do languages+=("$language"); done < <(
        for file in "$corpus"/{low,medium}/*_train.tsv*; do
            [ ! -e "$file" ] || echo "$(basename "$(dirname "$file")")/$(basename "${file%_train.tsv*}")"
        done | sort -u
    )
fi
[ ${#languages[@]} -gt 0 ] || fail "$corpus has no low/LANGUAGE_train.tsv; check the folder"
for language in "${languages[@]}"; do
    [[ $language == low/* || $language == medium/* ]] || fail "$language has no part of the task; write it as low/$language"
done
read -ra seeds <<< "$(seq -s " " "$models")"
set_up_environment
# Half of the models train at a time on each core; nine tenths of the time are for training.
model_minutes=$(awk "BEGIN { print $minutes * 0.9 / int(($models + 1) / 2) }")

# preprocess DATA PREFIX OPTION...: makes a data folder from PREFIX/train and PREFIX/dev.
preprocess() {
    unless_there "$1" nmt preprocess --source-lang word --target-lang ipa --train "$2/train" --alignments "$2/train.links" \
        --valid "$2/dev" --dest "$1" "${@:3}"
}

# train_model DATA FOLDER SEED MINUTES OPTION...: trains one of the models on one core, unless it is there.
train_model() {
    unless_there "$2/model$3/average.safetensors" logged "$2/model$3.log" nmt train "$1" --save-dir "$2/model$3" --seed "$3" \
        --minutes "$4" --no-tensorboard --dropout 0.3 --guided-alignment 1 --alignment-weight 0.1 "${@:5}" \
        ${options[@]+"${options[@]}"}
}

# learn PART SEED: trains a model of all languages of a part.
learn() {
    local time=0 language
    for language in "${languages[@]}"; do
        [[ $language != "$1"/* ]] || time=$(awk "BEGIN { print $time + $model_minutes * $joint }")
    done
    # Few words need few layers: with four on each side, one of three Icelandic words was wrong, and with two, one of five.
    train_model "$run_dir/$1/data" "$run_dir/$1" "$2" "$time" --arch transformer_tiny --encoder-layers 2 --decoder-layers 2
}

# tune LANGUAGE SEED: tunes such a model to a language.
tune() {
    local folder=$run_dir/$1
    train_model "$folder/data" "$folder" "$2" "$(awk "BEGIN { print $model_minutes * (1 - $joint) }")" \
        --init-from "$(dirname "$folder")/model$2/average.safetensors"
}

for part in low medium; do
    [[ " ${languages[*]}" == *" $part/"* ]] || continue
    mkdir -p "$run_dir/$part"
    # shellcheck disable=SC2046 # names of languages have no spaces
    unless_there "$run_dir/$part/symbols" python recipes/g2p.py split "$corpus" "$run_dir" \
        $(printf '%s\n' "${languages[@]}" | grep "^$part/")
    for language in "${languages[@]}"; do
        [[ $language != "$part"/* ]] || [ -e "$run_dir/$language/$evaluated.word" ] ||
            fail "$corpus/${language}_$evaluated.tsv does not exist; change EVALUATE, or leave out the language"
    done
    preprocess "$run_dir/$part/data" "$run_dir/$part" --symbols "$run_dir/$part/symbols"
    two_at_a_time "learn $part" "${seeds[@]}"
done
for language in "${languages[@]}"; do
    folder=$run_dir/$language
    preprocess "$folder/data" "$folder" --like "$run_dir/${language%/*}/model1/average.safetensors"
    two_at_a_time "tune $language" "${seeds[@]}"
    averages=()
    for seed in "${seeds[@]}"; do averages+=("$folder/model$seed/average.safetensors"); done
    for name in single ensemble; do
        [ $name = ensemble ] || used=("${averages[0]}")
        [ $name = single ] || used=("${averages[@]}")
        run nmt generate "${used[@]}" --no-protect --input "$folder/$evaluated.word" --output "$folder/$name.ipa"
        nmt score --reference "$folder/$evaluated.ipa" --hypothesis "$folder/$name.ipa" --metric exact --metric wer \
            --json > "$folder/$name.json"
    done
done
python recipes/g2p.py table "$run_dir" "${languages[@]}"
