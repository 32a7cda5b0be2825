#!/usr/bin/env bash
# Measures how a model translates what people type. Prints case-insensitive BLEU on a test set: unchanged, in capitals,
# in title case, without final punctuation, and with typing errors.
#
#   bash recipes/measure/robustness.sh MODEL SOURCE REFERENCE TARGET_LANG
#
# The reference changes in the same way, but gets no typing errors. RUN=folder receives the files.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

[ $# = 4 ] || fail "usage: robustness.sh MODEL SOURCE REFERENCE TARGET_LANG, a checkpoint, two files and a language"
run_dir=$(path_or "${RUN:-}" runs/robustness)
model=$(path_or "$1" -) source=$(path_or "$2" -) reference=$(path_or "$3" -)
for file in "$model" "$source" "$reference"; do
    [ -e "$file" ] || fail "$file does not exist; give a checkpoint, a source file and a reference file"
done
set_up_environment
names=$(python recipes/measure/typed.py "$source" "$reference" "$run_dir")
for name in $names; do
    run nmt generate "$model" --input "$run_dir/$name.source" --output "$run_dir/$name.out"
    score=$(nmt score --reference "$run_dir/$name.target" --hypothesis "$run_dir/$name.out" --target-lang "$4" --lowercase)
    printf '%-22s%s\n' "$name" "$(head -n 1 <<< "$score")"
done
tail -n 1 <<< "$score"
