#!/usr/bin/env bash
# Measures the confidence of a calibrated model on text with references, and what it costs. The text must not be the one
# of the calibration.
#
#   bash recipes/measure/confidence.sh MODEL SOURCE REFERENCE
#
# RUN=folder receives the translations. ROUNDS (default 5) is how often the time is measured. DIRECTION=eng_Latn-fra_Latn
# names the languages if the model has several.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

[ $# = 3 ] || fail "usage: confidence.sh MODEL SOURCE REFERENCE, a calibrated checkpoint and two files"
run_dir=$(path_or "${RUN:-}" runs/confidence)
model=$(path_or "$1" -) source=$(path_or "$2" -) reference=$(path_or "$3" -)
for file in "$model" "$source" "$reference"; do
    [ -e "$file" ] || fail "$file does not exist; give a checkpoint, a source file and a reference file"
done
set_up_environment
mkdir -p "$run_dir"
text=$source
choose_direction "$model"
run nmt generate "$model" "${languages[@]}" --input "$text" --output "$run_dir/out.jsonl" --output-format jsonl
run python recipes/measure/confidence.py "$model" "$source" "$target" "$run_dir/out.jsonl" "$reference" "${ROUNDS:-5}"
