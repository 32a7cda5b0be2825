#!/usr/bin/env bash
# Shows that training survives whatever happens to it: trains a small model once without disturbance, then again and
# again while it is killed at random moments, writing of checkpoints included, and started anew until it is done. In the
# end the weights must be the same to the last bit.
#
#   bash recipes/chaos.sh [KILLS]     # 50 kills unless told otherwise, about 7 seconds each
#
# GPUS=2 trains with two processes, of which a random one is killed. RUN=folder is where everything goes.
set -euo pipefail
. "$(dirname "$0")/common.sh"

kills=${1:-50}
[ $# -le 1 ] && [ "$kills" -gt 0 ] 2> /dev/null || fail "usage: chaos.sh [KILLS]; KILLS is a number above 0"
run_dir=$(path_or "${RUN:-}" runs/chaos)
corpus=$run_dir/corpus data=$run_dir/data

set_up_environment
mkdir -p "$run_dir"
unless_there "$corpus" write_grammar_corpus "$corpus"
unless_there "$data" nmt preprocess --source-lang en --target-lang de --train "$corpus/train" --valid "$corpus/valid" \
    --dest "$data" --vocab-size 2000
run python recipes/chaos.py "$data" --folder "$run_dir" --kills "$kills" --gpus "${GPUS:-1}"
