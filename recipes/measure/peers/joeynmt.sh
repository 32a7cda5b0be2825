#!/usr/bin/env bash
# Trains JoeyNMT for recipes/measure/side_by_side.sh; runner.sh describes the arguments. SIGINT makes it write a last
# checkpoint. The last five checkpoints are averaged as its script average_checkpoints.py does, which is not in its
# package.
set -euo pipefail
. "$(dirname "$0")/runner.sh"

own_environment "$environment" joeynmt==2.3.0 torch==2.13.0 numpy==2.4.6 importlib_metadata==10.2.0
for language in de en; do
    head -n 10 "$pieces/choose.$language" > "$out/dev.$language"
done
sed "s|OUT|${out//&/\\&}|; s|PIECES|${pieces//&/\\&}|; s|SEED|$seed|" "$config.yaml" > "$out/config.yaml"
train SIGINT "$environment/bin/python" -m joeynmt train "$out/config.yaml" --skip-test
read -r updates tokens < <("$environment/bin/python" - "$model" << 'PYTHON'
import pathlib, sys, torch
folder = pathlib.Path(sys.argv[1])
newest = sorted((path for path in folder.glob("[0-9]*.ckpt")), key=lambda path: int(path.stem))[-5:]
states = [torch.load(path, map_location="cpu", weights_only=False) for path in newest]
for name, weights in states[-1]["model_state"].items():
    if weights.is_floating_point():
        weights.copy_(sum(state["model_state"][name] for state in states) / len(states))
torch.save(states[-1], folder / "average.ckpt")
print(states[-1]["stats_state"]["steps"], states[-1]["stats_state"]["total_tokens"])
PYTHON
)
run "$environment/bin/python" -m joeynmt translate "$out/config.yaml" < "$pieces/$part.de" > "$out/$part.pieces"
text_of_pieces "$out/$part.pieces" "$out/$part.en"
finish "$updates" "$tokens"
