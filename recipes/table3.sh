#!/usr/bin/env bash
# The paper's Table 3: trains its rows, all or those named, at one budget each, and prints perplexity, BLEU and
# parameters on the development set beside the paper's.
#
#   bash recipes/table3.sh [--paper] [--updates N] [ROW...] [--OPTION=VALUE of nmt train...]
#
# A small budget is the default: every width a quarter, N a half, 1,000 updates of 2,500 tokens on Multi30k, about three
# minutes a row on two cores. --paper is the paper's: DATA=folder of nmt preprocess (runs/wmt14-en-de/data), 100,000
# updates of 25,000 tokens; add --gpus=8. RUN=folder is where the rows and table3.md and table3.json go. Run it again
# and it goes on where it was.
set -euo pipefail
. "$(dirname "$0")/common.sh"

case " $* " in
    *" --paper "*) default_data=runs/wmt14-en-de/data default_run=runs/table3-paper ;;
    *) default_data=runs/multi30k-en-de/data default_run=runs/table3 ;;
esac
data=$(path_or "${DATA:-}" $default_data)
set_up_environment
if [ ! -e "$data" ]; then
    [ "$data" = runs/multi30k-en-de/data ] ||
        fail "$data does not exist; make it with nmt preprocess, or name another data folder with DATA="
    run env -u RUN MULTI30K="$(path_or "${MULTI30K:-}" '')" bash recipes/multi30k.sh en-de --prepare
fi
run python recipes/table3.py "$data" "$(path_or "${RUN:-}" $default_run)" "$@"
