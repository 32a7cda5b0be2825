#!/usr/bin/env bash
# Spanish to nine indigenous languages of the Americas, of which there are 3,900 to 26,000 pairs: the shared task
# AmericasNLP 2021 (Mager et al. 2021), beside its baseline and its best system.
#
#   AMERICASNLP=folder bash recipes/americasnlp.sh [-- nmt train option...]
#
# AMERICASNLP is the task's folder (the repository AmericasNLP/americasnlp2021), with data/aymara-spanish/train.aym and so
# on, or a folder of files such as train.es-aym.aym and dev.es-aym.es, plain or .gz.
#
# 1. Pairs that occur twice are dropped, and 50 pairs of each language are held out of the training text. They show the
#    progress. The development set is translated once at the end, because the task scored its baseline on it.
# 2. MODELS=2 models of all nine languages are trained in MINUTES=76, two at a time on one core each.
# 3. Each model draws SAMPLES=16 translations of each line. Of all of them, the one with the least Bayes risk is chosen: it
#    has the highest mean chrF when the others are taken as references.
#
# RUN=folder receives all files (default runs/americasnlp). Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

corpus=$(path_or "${AMERICASNLP:-}" '')
[ -d "$corpus" ] || fail "AMERICASNLP is '$corpus', which is not a folder; set it to the task's folder"
[ $# = 0 ] || [ "$1" = -- ] || fail "$1 is not a valid argument; options of nmt train follow --"
options=("${@:2}")
run_dir=$(path_or "${RUN:-}" runs/americasnlp)
models=${MODELS:-2} minutes=${MINUTES:-76} samples=${SAMPLES:-16}
whole_or_fail MODELS "$models"
whole_or_fail MINUTES "$minutes"
whole_or_fail SAMPLES "$samples"
languages=(aym cni bzd gn oto nah tar shp hch)

write_text() { # its argument is for the record of unless_there
    rm -rf "$run_dir/text.part"
    python recipes/americasnlp.py split "$corpus" "$run_dir/text.part"
    mv "$run_dir/text.part" "$run_dir/text"
}

# train_model NUMBER: trains a model on one core, unless it is there.
train_model() {
    OMP_NUM_THREADS=1 nmt train "$run_dir/data" --save-dir "$run_dir/model$1" --seed "$1" --minutes "$minutes" \
        --arch transformer_tiny --no-tensorboard ${options[@]+"${options[@]}"} > "$run_dir/model$1.log" 2>&1 ||
        fail "a training failed; $run_dir/model$1.log says why"
}

# sample_all NUMBER: draws translations of all languages with a model on one core.
sample_all() {
    local lang
    for lang in "${languages[@]}"; do
        OMP_NUM_THREADS=1 nmt generate "$run_dir/model$1/average.safetensors" --source-lang es --target-lang "$lang" \
            --input "$run_dir/text/test.es-$lang.es" --output "$run_dir/out/$1.$lang" --sample --temperature 0.85 --samples "$samples" \
            --seed "$1" > "$run_dir/out/$1.log" 2>&1 || fail "a translation failed; $run_dir/out/$1.log says why"
    done
}

# two_at_a_time FUNCTION: calls the function with the number of each model.
two_at_a_time() {
    local number other
    for ((number = 1; number <= models; number += 2)); do
        "$1" "$number" &
        other=$!
        [ "$number" = "$models" ] || "$1" $((number + 1))
        wait "$other"
    done
}

set_up_environment
mkdir -p "$run_dir/out"
unless_there "$run_dir/text" write_text AMERICASNLP="$corpus"
directions=$(printf ',es-%s' "${languages[@]}")
unless_there "$run_dir/data" nmt preprocess --languages "es$(printf ',%s' "${languages[@]}")" --directions "${directions:1}" \
    --train "$run_dir/text/train" --valid "$run_dir/text/valid" --temperature 2 --vocab-size "${VOCAB_SIZE:-4000}" \
    --dest "$run_dir/data"
say "Training $models models; $run_dir/model1.log shows the progress"
two_at_a_time train_model
say "Translating the development sets; $run_dir/out/1.log shows the progress"
two_at_a_time sample_all
for lang in "${languages[@]}"; do
    outputs=()
    for ((number = 1; number <= models; number++)); do outputs+=("$run_dir/out/$number.$lang"); done
    python recipes/least_risk.py "$samples" "${outputs[@]}" > "$run_dir/out/$lang.txt"
    nmt score --reference "$run_dir/text/test.es-$lang.$lang" --hypothesis "$run_dir/out/$lang.txt" --metric chrf \
        --metric bleu --json > "$run_dir/out/$lang.json"
done
python recipes/americasnlp.py table "$run_dir" | tee "$run_dir/scores"
