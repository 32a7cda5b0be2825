#!/usr/bin/env bash
# Checks that nothing is lost when training is killed. Trains a small model once without interruption. Then trains it
# again, kills the training at random moments (also while it writes a checkpoint), and restarts it until it is done. The
# weights of both runs must be the same to the last bit.
#
#   bash recipes/measure/chaos.sh [KILLS]     # 50 kills by default, about 7 seconds each
#
# GPUS=2 trains with two processes and kills a random one. RUN=folder receives all files (default runs/chaos).
set -euo pipefail
. "$(dirname "$0")/../common.sh"

kills=${1:-50}
[ $# -le 1 ] && [ "$kills" -gt 0 ] 2> /dev/null ||
    fail "chaos.sh takes one number above 0, but was given: $*; usage: chaos.sh [KILLS]"
run_dir=$(path_or "${RUN:-}" runs/chaos)
corpus=$run_dir/corpus data=$run_dir/data

set_up_environment
mkdir -p "$run_dir"
unless_there "$corpus" write_grammar_corpus "$corpus"
unless_there "$data" nmt preprocess --source-lang en --target-lang de --train "$corpus/train" --valid "$corpus/valid" \
    --dest "$data" --vocab-size 2000
run python recipes/measure/chaos.py "$data" --folder "$run_dir" --kills "$kills" --gpus "${GPUS:-1}"
