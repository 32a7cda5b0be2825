#!/usr/bin/env bash
# Measures the word alignments of the model that quickstart.sh trained. The grammar that wrote the corpus knows which
# words translate each other. Prints the alignment error rate on the validation set and on the test set.
#
#   bash recipes/alignments.sh
#
# RUN=folder is the folder of quickstart.sh (default runs/quickstart).
set -euo pipefail
. "$(dirname "$0")/common.sh"

[ $# = 0 ] || fail "alignments.sh takes no arguments, but was given: $*; leave them out"
run_dir=$(path_or "${RUN:-}" runs/quickstart)
model=$run_dir/model/average.pt linked=$run_dir/linked

[ -e "$model" ] || fail "$model does not exist; run recipes/quickstart.sh first"
set_up_environment
run python recipes/grammar.py --out "$linked" --alignments
cmp "$linked/test.en" "$run_dir/corpus/test.en" || fail "$run_dir has another corpus; run recipes/quickstart.sh again"
for split in valid test; do
    run nmt rescore "$model" --source "$linked/$split.en" --target "$linked/$split.de" --alignments \
        --output "$linked/$split.found"
    run python recipes/aer.py --sure "$linked/$split.sure" --possible "$linked/$split.possible" "$linked/$split.found"
done
