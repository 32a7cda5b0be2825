#!/usr/bin/env bash
# Measures speed on a GPU: training of base and big, with and without --compile, and translation with base.
#
#   bash recipes/measure/benchmark_gpu.sh [--json]
#
# The sentences are generated and have 28 pieces on average, as in WMT14. An update has 25,000 tokens, and the
# vocabulary has 37,000 pieces. Utilisation is the achieved FLOP/s as a share of the FLOP/s of a large bf16 matrix
# product on the same GPU. Translation uses beam 4, an untrained model and several batch sizes. Its output is as long as
# its input.
set -euo pipefail
. "$(dirname "$0")/../common.sh"
set_up_environment

for arch in transformer_base transformer_big; do
    for compile in --no-compile --compile; do
        run python recipes/measure/benchmark.py train --arch "$arch" --device cuda --batch-tokens 25000 --updates 20 "$compile" "$@"
    done
done
for batch_tokens in 4096 16384 65536; do
    run python recipes/measure/benchmark.py generate --arch transformer_base --device cuda --lines 3000 --batch-tokens "$batch_tokens" \
        --max-length-offset 0 "$@"
done
