#!/usr/bin/env bash
# Extracts a glossary from a translator's earlier translations. Read it, and delete what is wrong, before it is used.
#
#   bash recipes/terms.sh MODEL MEMORY... > terms.tsv
#
# MODEL is a checkpoint, which aligns the words of the memories. A MEMORY is a TMX, TSV, XLIFF or PO file, another corpus
# that nmt clean reads, or the PREFIX of two text files. The languages are those of the model; DIRECTION=eng_Latn-fra_Latn
# names them if it has several. terms.py says which phrases are terms. RUN=folder receives the other files (default
# runs/terms).
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ $# -ge 2 ] || fail "MODEL or MEMORY is missing; usage: terms.sh MODEL MEMORY... > terms.tsv"
model=$(path_or "$1" '') run_dir=$(path_or "${RUN:-}" runs/terms) memories=()
shift
for memory in "$@"; do memories+=(--train "$(path_or "$memory" '')"); done

set_up_environment
mkdir -p "$run_dir"
choose_direction "$model"
pairs=$run_dir/memory
unless_there "$pairs.$source" nmt clean "${languages[@]}" "${memories[@]}" --dest "$pairs" >&2
python recipes/terms.py "$pairs.$source" "$pairs.$target"
unless_there "$run_dir/links" nmt rescore "$model" "${languages[@]}" --source "$pairs.$source" --target "$pairs.$target" \
    --alignments --output "$run_dir/links" >&2
python recipes/terms.py "$pairs.$source" "$pairs.$target" "$run_dir/links"
