"""Translates standard input with an exported ONNX folder in `optimum`, greedily. Runs in an environment without nmt.

python onnx_python.py FOLDER split|merged
"""

import sys

from optimum.onnxruntime import ORTModelForSeq2SeqLM
from transformers import MarianTokenizer

folder, decoders = sys.argv[1:]
model = ORTModelForSeq2SeqLM.from_pretrained(folder, use_merged=decoders == "merged")
tokenizer = MarianTokenizer.from_pretrained(folder)
lines = sys.stdin.read().splitlines()
for first in range(0, len(lines), 20):
    batch = tokenizer(lines[first : first + 20], return_tensors="pt", padding=True)
    for line in tokenizer.batch_decode(model.generate(**batch, num_beams=1), skip_special_tokens=True):
        print(line)
