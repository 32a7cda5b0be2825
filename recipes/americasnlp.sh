#!/usr/bin/env bash
# Spanish to nine indigenous languages of the Americas, of which there are 3,900 to 26,000 pairs: the shared task
# AmericasNLP 2021 (Mager et al. 2021), beside its baseline and its best system.
#
#   AMERICASNLP=folder bash recipes/americasnlp.sh [-- nmt train option...]
#
# AMERICASNLP is the task's folder (the repository AmericasNLP/americasnlp2021), with data/aymara-spanish/train.aym and so
# on, or a folder of files such as train.es-aym.aym and dev.es-aym.es, plain or .gz.
#
# 1. Copies of pairs are dropped, and 50 pairs of each language are held out of the training text. They show the progress.
#    The development set is translated once at the end, because the task scored its baseline on it.
# 2. MODELS=2 models of all nine languages are trained for MINUTES=76 each, two at a time on one core each.
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
refuse --seed "the models have the seeds 1 to MODELS" ${options[@]+"${options[@]}"}
run_dir=$(path_or "${RUN:-}" runs/americasnlp)
models=${MODELS:-2} minutes=${MINUTES:-76} samples=${SAMPLES:-16}
whole_or_fail MODELS "$models"
whole_or_fail MINUTES "$minutes"
whole_or_fail SAMPLES "$samples"
[ "$models" -gt 0 ] || fail "MODELS must be at least 1"
languages=(aym cni bzd gn oto nah tar shp hch)

write_text() { # its argument is for the record of unless_there
    rm -rf "$run_dir/text.part"
    python recipes/americasnlp.py split "$corpus" "$run_dir/text.part"
    mv "$run_dir/text.part" "$run_dir/text"
}

# train_model SEED: trains a model on one core, unless it is there.
train_model() {
    unless_there "$run_dir/model$1/average.safetensors" logged "$run_dir/model$1.log" nmt train "$run_dir/data" \
        --save-dir "$run_dir/model$1" --seed "$1" --minutes "$minutes" --arch transformer_tiny --no-tensorboard \
        ${options[@]+"${options[@]}"}
}

# translate_into LANGUAGE: translates the development set with all models on one core.
translate_into() {
    unless_there "$run_dir/out/$1.txt" logged "$run_dir/out/$1.log" nmt generate "${checkpoints[@]}" --source-lang es --target-lang "$1" \
        --input "$run_dir/text/test.es-$1.es" --output "$run_dir/out/$1.txt" --sample --temperature 0.85 \
        --samples "$samples" --mbr chrf
}

set_up_environment
mkdir -p "$run_dir/out"
unless_there "$run_dir/text" write_text AMERICASNLP="$corpus"
directions=$(printf ',es-%s' "${languages[@]}")
unless_there "$run_dir/data" nmt preprocess --languages "es$(printf ',%s' "${languages[@]}")" --directions "${directions:1}" \
    --train "$run_dir/text/train" --valid "$run_dir/text/valid" --temperature 2 --vocab-size "${VOCAB_SIZE:-4000}" \
    --dest "$run_dir/data"
say "Training $models models; $run_dir/model1.log shows the progress"
read -ra seeds <<< "$(seq -s " " "$models")"
two_at_a_time train_model "${seeds[@]}"
checkpoints=()
for seed in "${seeds[@]}"; do checkpoints+=("$run_dir/model$seed/average.safetensors"); done
say "Translating the development sets; $run_dir/out/aym.log shows the progress"
two_at_a_time translate_into "${languages[@]}"
for lang in "${languages[@]}"; do
    nmt score --reference "$run_dir/text/test.es-$lang.$lang" --hypothesis "$run_dir/out/$lang.txt" --metric chrf \
        --metric bleu --json > "$run_dir/out/$lang.json"
done
python recipes/americasnlp.py table "$run_dir" | tee "$run_dir/scores"
