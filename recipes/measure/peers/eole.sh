#!/usr/bin/env bash
# Trains eole for recipes/measure/side_by_side.sh; runner.sh describes the arguments. eole has no time limit and writes
# nothing when it is stopped: the last checkpoint counts, which it writes every 20 updates. It cuts the text into pieces
# itself, with the shared sentencepiece model.
set -euo pipefail
. "$(dirname "$0")/runner.sh"

# aiohttp is missing among the dependencies of eole.
own_environment "$environment" eole==0.6.4 torch==2.13.0 aiohttp==3.14.5
sed "s|MODEL|${model//&/\\&}|; s|TEXT|${text//&/\\&}|; s|PIECES|${pieces//&/\\&}|; s|SEED|$seed|" "$config.yaml" > "$out/config.yaml"
train SIGTERM "$environment/bin/eole" train -config "$out/config.yaml"
run "$environment/bin/eole" predict -model_path "$model" -src "$text/$part.de" \
    -output "$out/$part.en" -beam_size 5 -batch_size 32
# A line of the log has the mean target tokens of a batch, for the updates since the line before it.
read -r updates tokens < <(sed -nE 's|.* Step ([0-9]+)/.* bsz: *[0-9]+/ *([0-9]+)/.*|\1 \2|p' "$out/train.log" |
    awk '{ tokens += $2 * ($1 - updates); updates = $1 } END { print updates, tokens }')
finish "$updates" "$tokens"
