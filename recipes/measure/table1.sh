#!/usr/bin/env bash
# The paper's Table 1: times one layer of each kind for several sentence lengths and several widths. Prints how the time
# grows, beside the complexity that the paper gives. Writes table1.json and table1.svg to RUN=folder (default
# runs/table1).
#
#   bash recipes/measure/table1.sh [--device cpu|cuda] [--repeats N]
set -euo pipefail
. "$(dirname "$0")/../common.sh"

set_up_environment
run python recipes/measure/table1.py "$(path_or "${RUN:-}" runs/table1)" "$@"
