#!/usr/bin/env bash
# The table of speeds on a GPU: base and big in training, with and without --compile, and base in decoding, on generated
# sentences as long as WMT's.
#
#   bash recipes/benchmark_gpu.sh [--json]
#
# Training: 25,000 tokens an update, a vocabulary of 37,000, sentences of 28 pieces on the average; the share of a bf16
# matrix product's FLOP/s is measured on the same card. Decoding: beam 4, an untrained model, output as long as input, in
# batches of several sizes.
set -euo pipefail
. "$(dirname "$0")/common.sh"
set_up_environment

for arch in transformer_base transformer_big; do
    for compile in --no-compile --compile; do
        run nmt benchmark train --arch "$arch" --device cuda --batch-tokens 25000 --device-tokens 25000 --updates 20 \
            "$compile" "$@"
    done
done
for batch_tokens in 4096 16384 65536; do
    run nmt benchmark generate --arch transformer_base --device cuda --lines 3000 --batch-tokens "$batch_tokens" \
        --max-length-offset 0 "$@"
done
