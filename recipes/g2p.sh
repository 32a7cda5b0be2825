#!/usr/bin/env bash
# Pronunciations of words (grapheme to phoneme): SIGMORPHON 2021, shared task 1, low and medium resource (Ashby et al.
# 2021). For each language, several models are trained on characters, and an ensemble of them is scored.
#
#   G2P=folder bash recipes/g2p.sh [LANGUAGE...] [-- nmt train option...]
#
# G2P is the folder `data` of the task (the repository sigmorphon/2021-task1), with low/LANGUAGE_train.tsv,
# medium/LANGUAGE_dev.tsv and so on, plain or .gz. Without a LANGUAGE, such as low/ice, all that are there are done.
# Each has MINUTES=5 on two cores: MODELS=4 models, two at a time. EVALUATE=dev or test is the part that is scored.
# The table has WER, the percentage of wrong words, and PER, the edit distance in percent of the phonemes, for the first
# model and for the ensemble. RUN=folder receives all files. Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

corpus=$(path_or "${G2P:-}" '')
[ -d "$corpus" ] || fail "G2P is '$corpus', which is not a folder; set it to the folder data of sigmorphon/2021-task1"
run_dir=$(path_or "${RUN:-}" runs/g2p)
models=${MODELS:-4} minutes=${MINUTES:-5} evaluated=${EVALUATE:-dev}
whole_or_fail MODELS "$models"
whole_or_fail MINUTES "$minutes"
[ "$models" -gt 0 ] && [ "$minutes" -gt 0 ] || fail "MODELS and MINUTES must be at least 1"
languages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    languages+=("$1")
    shift
done
shift $(($# > 0))
if [ ${#languages[@]} -eq 0 ]; then
    for file in "$corpus"/{low,medium}/*_train.tsv*; do
        [ ! -e "$file" ] || languages+=("$(basename "$(dirname "$file")")/$(basename "${file%_train.tsv*}")")
    done
fi
[ ${#languages[@]} -gt 0 ] || fail "$corpus has no low/LANGUAGE_train.tsv; check the folder"
set_up_environment
mkdir -p "$run_dir"

# train_model FOLDER SEED OPTION...: trains one of the models in its share of the time, on one core.
train_model() {
    local share
    share=$(awk "BEGIN { print $minutes * 0.9 / int(($models + 1) / 2) }")
    # Few words need few layers: with four on each side, one of three Icelandic words was wrong, and with two, one of five.
    OMP_NUM_THREADS=1 nmt train "$1/data" --save-dir "$1/model$2" --seed "$2" --minutes "$share" \
        --arch transformer_tiny --encoder-layers 2 --decoder-layers 2 --dropout 0.2 --label-smoothing 0.1 \
        --no-tensorboard "${@:3}" > "$1/model$2.log" 2>&1 || fail "a training failed; $1/model$2.log says why"
}

for language in "${languages[@]}"; do
    folder=$run_dir/$language
    mkdir -p "$folder"
    for part in train dev "$evaluated"; do
        [ -e "$folder/$part.ipa" ] || run python recipes/g2p.py split "$corpus/$language"_$part.tsv "$folder/$part"
    done
    unless_there "$folder/data" nmt preprocess --source-lang word --target-lang ipa --train "$folder/train" \
        --valid "$folder/dev" --dest "$folder/data" --subword char --separate-vocab
    for ((seed = 1; seed <= models; seed += 2)); do
        trainings=()
        for model in $seed $((seed + 1)); do
            if [ "$model" -le "$models" ] && [ ! -e "$folder/model$model/average.safetensors" ]; then
                train_model "$folder" "$model" "$@" &
                trainings+=($!)
            fi
        done
        for training in ${trainings[@]+"${trainings[@]}"}; do wait "$training"; done
    done
    averages=()
    for ((seed = 1; seed <= models; seed++)); do averages+=("$folder/model$seed/average.safetensors"); done
    for name in single ensemble; do
        [ $name = ensemble ] || used=("${averages[0]}")
        [ $name = single ] || used=("${averages[@]}")
        run nmt generate "${used[@]}" --no-protect --input "$folder/$evaluated.word" --output "$folder/$name.ipa"
        nmt score --reference "$folder/$evaluated.ipa" --hypothesis "$folder/$name.ipa" --metric exact --metric wer \
            --json > "$folder/$name.json"
    done
done
python recipes/g2p.py table "$run_dir" "${languages[@]}"
