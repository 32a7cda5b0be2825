#!/usr/bin/env bash
# Translates 100,000 lines on a Ray cluster of two nodes of this machine, while nodes, workers and the driver are killed
# and nodes are added. Compares the result with that of an undisturbed run (docs/jobs.md).
#
#   bash recipes/measure/translate_cluster.sh [--seconds N] [--seed N] [nmt generate option...]
#
# MODEL is a checkpoint and TEXT a file of raw text; by default, those of a finished run of quickstart.sh. TEXT_LINES says how
# many lines are translated; the text is repeated as often as needed. RUN=folder receives all files (default
# runs/translate-cluster).
set -euo pipefail
. "$(dirname "$0")/../common.sh"

run_dir=$(path_or "${RUN:-}" runs/translate-cluster)
model=$(path_or "${MODEL:-}" runs/quickstart/model/average.safetensors)
text=$(path_or "${TEXT:-}" runs/quickstart/corpus/train.en)
lines=${TEXT_LINES:-100000}
[ -e "$model" ] || fail "$model does not exist; run recipes/quickstart.sh first, or set MODEL"
[ -s "$text" ] || fail "$text does not exist or is empty; run recipes/quickstart.sh first, or set TEXT"

set_up_environment
mkdir -p "$run_dir"
rm -rf "$run_dir/disturbed" "$run_dir/disturbed.unfinished"
while cat "$text"; do :; done 2> /dev/null | head -n "$lines" > "$run_dir/input" || true
run python recipes/measure/translate_cluster.py "$model" "$run_dir/input" "$run_dir" --shard-lines 1000 "$@"
