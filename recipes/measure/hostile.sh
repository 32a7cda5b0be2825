#!/usr/bin/env bash
# Checks that no input does harm. Runs the commands on randomly damaged files, on odd text, with odd flags and with
# signals, and prints a table of how they ended. Prints every case that ended badly, and how to repeat it. Needs Linux.
#
#   bash recipes/measure/hostile.sh [--cases N] [--seed S] [--jobs J] [--only KIND[:NUMBER]]     # 2,000 cases by default
#
# RUN=folder receives all files (default runs/hostile). The folder is emptied first.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

run_dir=$(path_or "${RUN:-}" runs/hostile)
[ -z "$(ls -A "$run_dir" 2> /dev/null)" ] || [ -d "$run_dir/undamaged" ] ||
    fail "$run_dir exists already and is not a run of this recipe; set RUN to another folder, or remove it"
set_up_environment
OMP_NUM_THREADS=1 run python recipes/measure/hostile.py --folder "$run_dir" "$@"
