#!/usr/bin/env bash
# Multi30k: trains transformer_tiny on 29,000 image captions and scores its translations of test_2016_flickr.
#
#   bash recipes/multi30k.sh [en-de|en-fr] [--published] [--prepare]
#
# --prepare stops after the data folder is made.
# --published uses the lowercased, normalised, tokenised text that published results use.
# MULTI30K=folder names a folder with the corpus (train.en.gz, …; with --published tok/train.lc.norm.tok.en.gz, …).
# Without it, the corpus is downloaded. RUN=folder receives all other files. Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

VOCAB_SIZE=10000
BATCH_GROUPS=4
REPOSITORY=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1

pair=en-de
published= prepare=
for argument in "$@"; do
    case $argument in
        en-de | en-fr) pair=$argument ;;
        --published) published=yes ;;
        --prepare) prepare=yes ;;
        *) fail "$argument is not a valid argument; usage: multi30k.sh [en-de|en-fr] [--published] [--prepare]" ;;
    esac
done
source=${pair%-*} target=${pair#*-}
run_dir=$(path_or "${RUN:-}" "runs/multi30k-$pair${published:+-published}")
corpus=$(path_or "${MULTI30K:-}" runs/multi30k-corpus)
if [ $published ]; then
    folder=$corpus/tok suffix=.lc.norm.tok tokenization=(--tokenizer none) score_tokenizer=none
    # Training takes about 57 minutes on two cores.
    BATCH_TOKENS=2500 DROPOUT=0.3 WARMUP_UPDATES=800 LR_SCALE=1 MAX_UPDATES=17460 SAVE_UPDATES=180
    options=(--attention-dropout 0.1 --activation-dropout 0.1)
    AVERAGED=20 BEAM=4 ALPHA=1.4 # chosen on the validation set
else
    folder=$corpus suffix='' tokenization=(--tokenizer moses --normalize-punctuation both) score_tokenizer=13a
    # Training takes about 15 minutes on two cores. A small corpus needs small batches.
    BATCH_TOKENS=2500 DROPOUT=0.2 WARMUP_UPDATES=800 LR_SCALE=1 MAX_UPDATES=5000 SAVE_UPDATES=180
    options=()
    AVERAGED=10 BEAM=4 ALPHA=1.0
fi

download_corpus() {
    local split language name
    mkdir -p "$folder"
    for split in train val test_2016_flickr; do
        for language in "$source" "$target"; do
            if [ $published ]; then
                name=$split$suffix.$language
                download "$REPOSITORY/tok/$name" "$folder/$name"
            else
                name=$split.$language.gz
                download "$REPOSITORY/raw/$name" "$folder/$name"
            fi
        done
    done
}

[ -z "${MULTI30K:-}" ] || [ -d "$corpus" ] ||
    fail "MULTI30K is $MULTI30K, which is not a folder; unset it to download the corpus"
set_up_environment
[ -n "${MULTI30K:-}" ] || download_corpus
mkdir -p "$run_dir"
data=$run_dir/data model=$run_dir/model output=$run_dir/test_2016_flickr.out.$target test=$folder/test_2016_flickr$suffix
unless_there "$data" nmt preprocess --source-lang "$source" --target-lang "$target" --train "$folder/train$suffix" \
    --valid "$folder/val$suffix" --test "$test" --dest "$data" "${tokenization[@]}" \
    --vocab-size "$VOCAB_SIZE"
[ ! $prepare ] || exit 0
run nmt train "$data" --arch transformer_tiny --save-dir "$model" --dropout "$DROPOUT" --batch-tokens "$BATCH_TOKENS" \
    --batch-groups "$BATCH_GROUPS" --warmup-updates "$WARMUP_UPDATES" --lr-scale "$LR_SCALE" --max-updates "$MAX_UPDATES" \
    --save-updates "$SAVE_UPDATES" --average-last "$AVERAGED" --valid-updates 1500 ${options[@]+"${options[@]}"}
run nmt generate "$model/average.safetensors" --input "$(file_of "$test" "$source")" --output "$output" \
    --beam "$BEAM" --alpha "$ALPHA"
run nmt score --reference "$(file_of "$test" "$target")" --hypothesis "$output" --tokenize "$score_tokenizer"
