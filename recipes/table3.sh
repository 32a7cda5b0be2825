#!/usr/bin/env bash
# The paper's Table 3: trains all rows, or the named ones, with the same number of updates. Prints perplexity and BLEU
# on the development set and the number of parameters, beside the paper's figures.
#
#   bash recipes/table3.sh [--paper] [--updates N] [ROW...] [--OPTION=VALUE of nmt train...]
#
# By default the models are small: a quarter of each width, half of the layers, 1,000 updates of 2,500 tokens on
# Multi30k. A row takes about three minutes on two cores. --paper trains the paper's sizes for 100,000 updates of
# 25,000 tokens on DATA=folder of nmt preprocess (default runs/wmt14-en-de/data); add --gpus=8. RUN=folder receives the
# runs, table3.md and table3.json. Start the recipe again to resume it.
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
