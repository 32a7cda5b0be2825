#!/usr/bin/env bash
# Compares the speed and memory of this toolkit with other software on two cores of this machine. Training is compared
# with a plain loop around torch.nn.Transformer, and translation with CTranslate2 and the same model. All contenders are
# measured in turn, so that changes of the machine's load affect all of them.
#
#   RUN=runs/multi30k-en-de-published bash recipes/measure/compare_peers.sh [--only train|decode]
#
# RUN is a finished run of recipes/multi30k.sh --published. REPEATS=3 sets how often each contender is measured.
set -euo pipefail
. "$(dirname "$0")/../common.sh"

run_dir=$(path_or "${RUN:-}" runs/multi30k-en-de-published)
[ -e "$run_dir/model/average.safetensors" ] ||
    fail "$run_dir has no model/average.safetensors; run recipes/multi30k.sh --published first, or set RUN to its run folder"
set_up_environment
base=$run_dir/base
# The quality of this model does not matter. It is trained just enough to end its translations.
if [ ! -e "$base/average.safetensors" ]; then
    run nmt train "$run_dir/data" --arch transformer_base --save-dir "$base" --batch-tokens 4096 --valid-metric nll \
        --warmup-updates 200 --lr-scale 0.3 --max-updates 300
    run nmt average-checkpoints "$base" --last 1 --output "$base/average.safetensors"
fi
run python recipes/measure/compare_peers.py "$run_dir" --repeats "${REPEATS:-3}" "$@"
