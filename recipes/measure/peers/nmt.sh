#!/usr/bin/env bash
# Trains this toolkit for recipes/measure/side_by_side.sh; runner.sh describes the arguments. --minutes keeps the time,
# chooses what nmt-N.toml leaves open, and averages checkpoints.
set -euo pipefail
. "$(dirname "$0")/runner.sh"

train none nmt train "$pieces/data" --config "$config.toml" --minutes "$minutes" --seed "$seed" --save-dir "$model" \
    --device cpu
run nmt generate "$model/average.safetensors" --beam 4 --alpha 1.0 --device cpu --input "$text/$part.de" \
    --output "$out/$part.en"
# A record has the speed since the record before it.
read -r updates tokens < <(python - "$model/metrics.jsonl" << 'PYTHON'
import json, sys
seconds = tokens = 0.0
for record in map(json.loads, open(sys.argv[1], encoding="utf-8")):
    if record["kind"] == "train":
        tokens += record["target_tokens_per_second"] * (record["train_seconds"] - seconds)
        seconds = record["train_seconds"]
print(record["update"], round(tokens))
PYTHON
)
finish "$updates" "$tokens"
