#!/usr/bin/env bash
# Trains a MarianMTModel of transformers for recipes/measure/side_by_side.sh; runner.sh describes the arguments. A
# callback of transformers_seq2seq.py ends the training. Checkpoints are not averaged: transformers has no tool for it.
set -euo pipefail
. "$(dirname "$0")/runner.sh"

own_environment "$environment" transformers==5.24.0 torch==2.13.0 accelerate==1.15.0 sentencepiece==0.2.3
program=("$environment/bin/python" recipes/measure/peers/transformers_seq2seq.py)
train none "${program[@]}" train "$model" "$pieces" "$text" "$config.yaml" "$minutes" "$seed"
run "${program[@]}" translate "$model" "$pieces" "$text/$part.de" "$out/$part.en"
read -r updates tokens < "$model/counts"
finish "$updates" "$tokens"
