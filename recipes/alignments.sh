#!/usr/bin/env bash
# Measures the word alignments of the model that quickstart.sh trained. The grammar that wrote the corpus also wrote which
# words translate each other. Prints the alignment error rate on the validation set and on the test set.
#
#   bash recipes/alignments.sh [--guided]
#
# --guided trains another model, in which one attention head learns the alignments of the training set, and measures
# that model instead. RUN=folder is the folder of quickstart.sh (default runs/quickstart).
set -euo pipefail
. "$(dirname "$0")/common.sh"

case $* in
    '' | --guided) ;;
    *) fail "$* is not a valid argument; usage: alignments.sh [--guided]" ;;
esac
guided=${1:-}
run_dir=$(path_or "${RUN:-}" runs/quickstart)
linked=$run_dir/linked data=$run_dir/guided-data model=$run_dir/model

[ -e "$model/average.safetensors" ] || fail "$model/average.safetensors does not exist; run recipes/quickstart.sh first"
set_up_environment
run python recipes/grammar.py --out "$linked" --alignments
cmp "$linked/test.en" "$run_dir/corpus/test.en" || fail "$run_dir has another corpus; delete it, and run recipes/quickstart.sh again"
if [ "$guided" ]; then
    model=$run_dir/guided
    unless_there "$data" nmt preprocess --source-lang en --target-lang de --train "$linked/train" \
        --alignments "$linked/train.sure" --valid "$linked/valid" --test "$linked/test" --dest "$data" --vocab-size 2000
    train_on_grammar "$data" "$model" --guided-alignment 3
fi
for split in valid test; do
    run nmt rescore "$model/average.safetensors" --source "$linked/$split.en" --target "$linked/$split.de" --alignments \
        --output "$linked/$split.links"
    run python recipes/aer.py --sure "$linked/$split.sure" --possible "$linked/$split.possible" "$linked/$split.links"
done
