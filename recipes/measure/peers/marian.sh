#!/usr/bin/env bash
# Trains Marian for recipes/measure/side_by_side.sh; runner.sh describes the arguments. SIGTERM makes Marian save the
# model. Its package for Python, pymarian, contains the commands of Marian.
set -euo pipefail
. "$(dirname "$0")/runner.sh"

own_environment "$environment" pymarian==1.12.42
# Marian finds its own symbols by their names.
printf '</s>\n<unk>\n' | cat - "$pieces/vocabulary" > "$out/vocabulary.txt"
vocabularies=("$out/vocabulary.txt" "$out/vocabulary.txt")
train SIGTERM "$environment/bin/pymarian" train -c "$config.yaml" --seed "$seed" --model "$model/model.npz" \
    --train-sets "$pieces/train.de" "$pieces/train.en" --vocabs "${vocabularies[@]}" --disp-freq 10u --tempdir "$out"
run "$environment/bin/pymarian" decode --models "$model/model.npz" --vocabs "${vocabularies[@]}" \
    --input "$pieces/$part.de" --output "$out/$part.pieces" --beam-size 5 --normalize 0.6 --cpu-threads 1 \
    --mini-batch 32 --maxi-batch 100 --maxi-batch-sort src --log-level warn --quiet-translation
text_of_pieces "$out/$part.pieces" "$out/$part.en"
progress=$model/model.npz.progress.yml
finish "$(sed -n 's/^batches: //p' "$progress")" "$(sed -n 's/^labels-total: //p' "$progress")"
