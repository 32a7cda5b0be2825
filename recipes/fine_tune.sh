#!/usr/bin/env bash
# Fine-tuning of a model to one's own text: a MarianMT model of Hugging Face, such as those of Opus-MT, or a checkpoint.
#
#   TRAIN=prefix VALID=prefix TEST=prefix bash recipes/fine_tune.sh MODEL SOURCE TARGET [nmt train option...]
#
# MODEL is a folder in the format of Hugging Face, or a checkpoint file. SOURCE and TARGET are its languages, such as en
# and de, and the suffixes of the text: TRAIN=corpus means corpus.en and corpus.de, also compressed.
# TRAIN, VALID and TEST may also be corpus files, such as memory.tmx.
# 1. A folder is imported as a checkpoint.
# 2. The text is encoded with the vocabulary of the model.
# 3. The model is trained until the validation loss has not improved in 5 validations.
# 4. The model translates TEST before and after. A paired bootstrap test says whether the difference is significant.
# 5. The tuned model is exported for Hugging Face, with its score in the model card.
# RUN=folder receives all files (default runs/fine-tune). Start the recipe again to resume it.
set -euo pipefail
. "$(dirname "$0")/common.sh"

usage="TRAIN=prefix VALID=prefix TEST=prefix fine_tune.sh MODEL SOURCE TARGET [nmt train option...]"
[ $# -ge 3 ] || fail "MODEL, SOURCE or TARGET is missing; usage: $usage"
[ -n "${TRAIN:-}" ] && [ -n "${VALID:-}" ] && [ -n "${TEST:-}" ] || fail "TRAIN, VALID or TEST is not set; usage: $usage"
model=$(path_or "$1" '') source=$2 target=$3
shift 3
train=$(path_or "$TRAIN" '') valid=$(path_or "$VALID" '') test=$(path_or "$TEST" '')
run_dir=$(path_or "${RUN:-}" runs/fine-tune)
# Options on the command line take precedence.
options=(--lr-schedule inverse-sqrt --lr 1e-4 --warmup-updates 100 --batch-tokens 4000 --max-updates 10000
    --valid-updates 100 --valid-metric nll --patience 5 "$@")

[ -e "$model" ] || fail "the model $model does not exist; give a checkpoint or a folder in the format of Hugging Face"

set_up_environment
for name in train valid test; do
    plain_text "$name" "$source" "$target"
    for language in "$source" "$target"; do
        [ -e "$(file_of "${!name}" "$language")" ] ||
            fail "${!name}.$language does not exist, plain or compressed; check TRAIN, VALID and TEST"
    done
done
mkdir -p "$run_dir"
if [ -d "$model" ]; then
    unless_there "$run_dir/model.safetensors" nmt import huggingface "$model" --source-lang "$source" --target-lang "$target" \
        --output "$run_dir/model.safetensors"
    model=$run_dir/model.safetensors
fi
unless_there "$run_dir/data" nmt preprocess --source-lang "$source" --target-lang "$target" --train "$train" \
    --valid "$valid" --like "$model" --dest "$run_dir/data"
# making FILE COMMAND...: runs the command, and makes an empty FILE when it has ended.
making() {
    "${@:2}"
    touch "$1"
}
unless_there "$run_dir/run/trained" making "$run_dir/run/trained" nmt train "$run_dir/data" --init-from "$model" \
    --save-dir "$run_dir/run" "${options[@]}"
before=$run_dir/before.$target after=$run_dir/after.$target
unless_there "$before" nmt generate "$model" --input "$(file_of "$test" "$source")" --output "$before"
run nmt generate "$run_dir/run/best.safetensors" --input "$(file_of "$test" "$source")" --output "$after"
score=(nmt score --reference "$(file_of "$test" "$target")" --target-lang "$target")
run "${score[@]}" --hypothesis "$before" --hypothesis "$after" --paired bootstrap
"${score[@]}" --hypothesis "$after" > "$run_dir/scores"
rm -rf "$run_dir/exported"
run nmt export huggingface "$run_dir/run/best.safetensors" --scores "$run_dir/scores" --output "$run_dir/exported"
