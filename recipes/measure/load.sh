#!/usr/bin/env bash
# Measures `nmt serve` under load, and `nmt generate` on the same lines in the same minutes, with both engines.
#
#   RUN=runs/multi30k-en-de bash recipes/measure/load.sh [--requests 100000]
#
# RUN is a finished run of recipes/multi30k.sh. REPEATS=3 sets how often everything is measured. The clients run on the
# same cores as the server. --requests N sends N more requests and compares the server's memory before and after.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

run_dir=$(path_or "${RUN:-}" runs/multi30k-en-de)
[ -e "$run_dir/model/average.safetensors" ] ||
    fail "$run_dir has no model/average.safetensors; run recipes/multi30k.sh first, or set RUN to its run folder"
set_up_environment
for engine in "pytorch --compute-type auto" "ctranslate2 --compute-type int8"; do
    # shellcheck disable=SC2086 # the options are words
    run python recipes/measure/load.py "$run_dir/model/average.safetensors" "$run_dir/data/test.en.txt" --engine $engine \
        --repeats "${REPEATS:-3}" "$@"
done
