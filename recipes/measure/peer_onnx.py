"""Measures the speed of greedy search in ONNX Runtime with a model that `nmt export onnx` wrote.

    python recipes/measure/peer_onnx.py EXPORTED INPUT --type int8 --threads 2 --batch 32

Runs in an environment with optimum-onnx, such as the one that recipes/verify_exports.sh makes. Prints sentences per
second and peak memory in MiB as JSON.
"""

import argparse
import json
import resource
import time
from pathlib import Path

from onnxruntime import SessionOptions
from optimum.onnxruntime import ORTModelForSeq2SeqLM
from transformers import MarianTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder that nmt export wrote")
    parser.add_argument("input", help="plain text, one sentence a line")
    parser.add_argument("--type", choices=["float32", "int8"], default="float32", help="data type of the weights")
    parser.add_argument("--threads", type=int, default=2, help="threads")
    parser.add_argument("--batch", type=int, default=32, help="sentences per batch")
    options = parser.parse_args()
    ending = "_quantized" if options.type == "int8" else ""
    session = SessionOptions()
    session.intra_op_num_threads = options.threads
    model = ORTModelForSeq2SeqLM.from_pretrained(
        options.model,
        subfolder="onnx",
        encoder_file_name=f"encoder_model{ending}.onnx",
        decoder_file_name=f"decoder_model_merged{ending}.onnx",
        use_merged=True,
        session_options=session,
    )
    tokenizer = MarianTokenizer.from_pretrained(options.model)
    lines = sorted(Path(options.input).read_text(encoding="utf-8").splitlines(), key=len)

    def translate(lines: list[str]) -> None:
        for first in range(0, len(lines), options.batch):
            batch = tokenizer(lines[first : first + options.batch], return_tensors="pt", padding=True)
            tokenizer.batch_decode(model.generate(**batch, num_beams=1), skip_special_tokens=True)

    translate(lines[: options.batch])  # the first translation is slower, so it is not measured
    started = time.perf_counter()
    translate(lines)
    speed = len(lines) / (time.perf_counter() - started)
    print(json.dumps({"speed": speed, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
