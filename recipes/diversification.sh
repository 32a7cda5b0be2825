#!/usr/bin/env bash
# Data diversification (Nguyen et al. 2020, arXiv:1911.01986): a student learns from the corpus and from translations of
# it, and translates better than its teachers, which have the same size.
#
#   bash recipes/diversification.sh [SEED...] [-- nmt train option...]
#
# 1. Two teachers are trained, English to German. One is trained for UPDATES updates (default 16,020). The other is
#    trained for half of them on both directions together, and for the rest on English to German.
# 2. Both translate the source side of the training text. The model of both directions translates the target side.
# 3. For each SEED (default 1), a student is trained on the corpus and these translations, and translates the test set.
#
# The corpus is Multi30k, lowercased and tokenised as in the literature. MULTI30K is its folder (default
# runs/multi30k-corpus, where multi30k.sh --published puts it). RUN=folder receives all files. Start the recipe again to
# resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

corpus=$(path_or "${MULTI30K:-}" runs/multi30k-corpus)/tok
run_dir=$(path_or "${RUN:-}" runs/diversification)
updates=${UPDATES:-16020}
whole_or_fail UPDATES "$updates"
[ -e "$(file_of "$corpus/train.lc.norm.tok" en)" ] ||
    fail "$corpus has no text; download the corpus by recipes/multi30k.sh --published --prepare"
seeds=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    whole_or_fail "a SEED (options of nmt train follow --)" "$1"
    seeds+=("$1")
    shift
done
[ ${#seeds[@]} -gt 0 ] || seeds=(1)
options=("${@:2}")
refuse --seed "name the seeds before --" ${options[@]+"${options[@]}"}
refuse --max-updates "set UPDATES" ${options[@]+"${options[@]}"}
AVERAGED=20 BEAM=4 ALPHA=1.4 # chosen on the validation set

write_text() { # its arguments are for the record of unless_there
    local language split
    rm -rf "$run_dir/text.part"
    mkdir -p "$run_dir/text.part"
    for split in train val test_2016_flickr; do
        for language in en de; do
            text_of "$corpus/$split.lc.norm.tok" "$language" > "$run_dir/text.part/$split.$language"
        done
    done
    # Both directions are one corpus. Its source side has both languages.
    cat "$run_dir/text.part/train.en" "$run_dir/text.part/train.de" > "$run_dir/text.part/both.en"
    cat "$run_dir/text.part/train.de" "$run_dir/text.part/train.en" > "$run_dir/text.part/both.de"
    mv "$run_dir/text.part" "$run_dir/text"
}

# preprocess NAME OPTION...: makes the data folder NAME.
preprocess() {
    unless_there "$run_dir/$1" nmt preprocess --source-lang en --target-lang de --valid "$run_dir/text/val" \
        --dest "$run_dir/$1" "${@:2}"
}
# train DATA NAME UPDATES OPTION...: trains and averages; writes NAME/average.safetensors.
train() {
    unless_there "$run_dir/$2/average.safetensors" nmt train "$run_dir/$1" --save-dir "$run_dir/$2" --max-updates "$3" \
        --optimizer muon --attention-dropout 0.1 --activation-dropout 0.1 --batch-tokens 2500 --batch-groups 4 \
        --warmup-updates 800 --valid-metric nll --save-updates 180 --average-last "$AVERAGED" "${@:4}" \
        ${options[@]+"${options[@]}"}
}
# translate MODEL INPUT OUTPUT: translates training text.
translate() {
    unless_there "$3" nmt generate "$1" --input "$2" --output "$3" --beam "$BEAM" --alpha 1
}

set_up_environment
text=$run_dir/text made=$run_dir/made
mkdir -p "$made"
unless_there "$text" write_text MULTI30K="$corpus" UPDATES="$updates"
new=(--tokenizer none --vocab-size "${VOCAB_SIZE:-10000}")
preprocess data --train "$text/train" "${new[@]}"
train data first "$updates" --arch transformer_tiny --dropout 0.3
preprocess both-data --train "$text/both" "${new[@]}"
train both-data both $((updates / 2)) --arch transformer_tiny --dropout 0.3
both=$run_dir/both/$(printf 'snapshot-%08d.safetensors' $((updates / 2)))
preprocess second-data --train "$text/train" --like "$both"
train second-data second $((updates - updates / 2)) --init-from "$both" --dropout 0.3 --lr-schedule inverse-sqrt \
    --lr 1.5e-3 --warmup-updates 400
for teacher in first second; do
    ln -sf ../text/train.en "$made/$teacher.en"
    translate "$run_dir/$teacher/average.safetensors" "$text/train.en" "$made/$teacher.de"
done
ln -sf ../text/train.de "$made/back.de"
translate "$run_dir/both/average.safetensors" "$text/train.de" "$made/back.en"
preprocess student-data --train "$text/train" --train "$made/first" --train "$made/second" --train "$made/back" \
    --like "$run_dir/first/average.safetensors"
for seed in "${seeds[@]}"; do
    train student-data "student-$seed" "$updates" --arch transformer_tiny --dropout 0.2 --seed "$seed"
done
for model in first second $(printf 'student-%s ' "${seeds[@]}"); do
    output=$run_dir/$model/test_2016_flickr.de
    run nmt generate "$run_dir/$model/average.safetensors" --input "$text/test_2016_flickr.en" --output "$output" \
        --beam "$BEAM" --alpha "$ALPHA"
    run nmt score --reference "$text/test_2016_flickr.de" --hypothesis "$output" --tokenize none
done
