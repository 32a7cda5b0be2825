#!/usr/bin/env bash
# The paper's Table 3: trains all rows, or the named ones, with the same number of updates. Prints perplexity,
# BLEU as the paper counts it, sacreBLEU's BLEU and the number of parameters, beside the paper's figures.
#
#   bash recipes/measure/table3.sh [--paper] [--updates N] [ROW...] [--OPTION=VALUE of nmt train...]
#
# By default the models are small and train on Multi30k: a quarter of each width, half of the layers, 1,000 updates of
# 2,500 tokens. A row takes about three minutes on two cores. --paper trains models of the paper's sizes for 100,000
# updates of 25,000 tokens; add --gpus=8. DATA=folder names the data folder (default runs/multi30k-en-de/data, with
# --paper runs/wmt14-en-de/data). RUN=folder receives the run folders, table3.md and table3.json. Start the recipe again
# to resume it.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

case " $* " in
    *" --paper "*) default_data=runs/wmt14-en-de/data default_run=runs/table3-paper ;;
    *) default_data=runs/multi30k-en-de/data default_run=runs/table3 ;;
esac
data=$(path_or "${DATA:-}" $default_data)
set_up_environment
if [ ! -e "$data" ]; then
    [ "$data" = runs/multi30k-en-de/data ] ||
        fail "$data does not exist; make it with nmt preprocess, or set DATA to another data folder"
    run env -u RUN MULTI30K="$(path_or "${MULTI30K:-}" '')" bash recipes/multi30k.sh en-de --prepare
fi
run python recipes/measure/table3.py "$data" "$(path_or "${RUN:-}" $default_run)" "$@"
