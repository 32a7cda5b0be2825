#!/usr/bin/env bash
# Back-translation (Sennrich et al. 2016, arXiv:1511.06709): text in the target language alone becomes training text.
#
#   bash recipes/back_translation.sh beam|sample [nmt train option...]
#
# 1. A reverse model, German to English, is trained on the parallel text.
# 2. It translates the monolingual German text, by beam search or by sampling (Edunov et al. 2018, arXiv:1808.09381).
# 3. A model, English to German, is trained on the parallel text and on these pairs. Their source has the tag <bt>
#    (Caswell et al. 2019, arXiv:1906.06442). WEIGHT says how often they are used compared with real pairs (default 1).
# 4. The same is trained on the parallel text alone. Both translate the test set and are scored.
#
# The parallel text is one half of Multi30k, and the monolingual text is the German side of the other half. MULTI30K is
# the folder of the corpus (default runs/multi30k-corpus, where multi30k.sh puts it). RUN=folder receives all files.
# Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

case ${1:-} in
    beam) search=(--beam 4 --alpha 1.0) ;;
    sample) search=(--sample) ;;
    *) fail "'${1:-}' is not beam or sample; usage: back_translation.sh beam|sample [nmt train option...]" ;;
esac
method=$1
shift
corpus=$(path_or "${MULTI30K:-}" runs/multi30k-corpus)
[ -e "$corpus/train.en.gz" ] || fail "$corpus has no train.en.gz; download the corpus by recipes/multi30k.sh --prepare"
run_dir=$(path_or "${RUN:-}" runs/back-translation)
text=$run_dir/text
vocab_size=${VOCAB_SIZE:-8000}
# Settings for 14,500 pairs; options on the command line take precedence.
options=(--arch transformer_tiny --dropout 0.3 --batch-tokens 2500 --batch-groups 4 --warmup-updates 800
    --max-updates 4000 --save-updates 160 --average-last 8 --valid-updates 800 "$@")

write_text() { # its argument is for the record of unless_there
    local language
    mkdir -p "$text.part"
    for language in en de; do
        zcat < "$corpus/train.$language.gz" | awk 'NR % 2' > "$text.part/parallel.$language"
    done
    zcat < "$corpus/train.de.gz" | awk 'NR % 2 == 0' > "$text.part/monolingual.de"
    mv "$text.part" "$text"
}

# learn FOLDER SOURCE TARGET CORPUS...: preprocesses and trains; writes data and model/average.safetensors to FOLDER.
learn() {
    local folder=$1
    unless_there "$folder/data" nmt preprocess --source-lang "$2" --target-lang "$3" "${@:4}" --valid "$corpus/val" \
        --tokenizer moses --normalize-punctuation both --vocab-size "$vocab_size" --dest "$folder/data"
    unless_there "$folder/model/average.safetensors" nmt train "$folder/data" --save-dir "$folder/model" "${options[@]}"
}

# evaluate FOLDER: translates the test set and scores it.
evaluate() {
    run nmt generate "$1/model/average.safetensors" --input "$corpus/test_2016_flickr.en.gz" --output "$1/test.out.de" --alpha 1.0
    run nmt score --reference "$corpus/test_2016_flickr.de.gz" --hypothesis "$1/test.out.de"
}

set_up_environment
mkdir -p "$run_dir"
unless_there "$text" write_text MULTI30K="$corpus"
learn "$run_dir/reverse" de en --train "$text/parallel"
synthetic=$run_dir/synthetic-$method
mkdir -p "$synthetic"
unless_there "$synthetic/text.en" nmt generate "$run_dir/reverse/model/average.safetensors" --input "$text/monolingual.de" \
    --output "$synthetic/text.en" "${search[@]}"
cp "$text/monolingual.de" "$synthetic/text.de"
learn "$run_dir/$method" en de --train "$text/parallel" --weight 1 --tag '' --train "$synthetic/text" \
    --weight "${WEIGHT:-1}" --tag '<bt>'
learn "$run_dir/parallel" en de --train "$text/parallel"
for model in parallel "$method"; do
    evaluate "$run_dir/$model"
done
