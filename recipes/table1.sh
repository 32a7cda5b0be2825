#!/usr/bin/env bash
# The paper's Table 1: times one layer of each kind over growing sentences and growing widths, and prints how the time
# grows beside the complexity the paper states; table1.json and table1.svg go to RUN=folder (runs/table1).
#
#   bash recipes/table1.sh [--device cpu|cuda] [--repeats N]
set -euo pipefail
. "$(dirname "$0")/common.sh"

set_up_environment
run python recipes/table1.py "$(path_or "${RUN:-}" runs/table1)" "$@"
