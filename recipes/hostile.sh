#!/usr/bin/env bash
# Shows that no input harms anything: runs the commands on damaged files, odd text, odd flags and with signals, at random,
# and prints a table of how they ended. Prints every case that ended badly, and how to repeat it. Needs Linux.
#
#   bash recipes/hostile.sh [--cases N] [--seed S] [--jobs J] [--only KIND[:NUMBER]]     # 2,000 cases if N is not given
#
# RUN=folder is where everything goes; the folder is emptied first.
set -euo pipefail
. "$(dirname "$0")/common.sh"

run_dir=$(path_or "${RUN:-}" runs/hostile)
set_up_environment
OMP_NUM_THREADS=1 run python recipes/hostile.py --folder "$run_dir" "$@"
