"""Measures the speed of CTranslate2 with a model that `nmt export` wrote, from raw text to raw text.

    python recipes/measure/peer_ctranslate2.py EXPORTED INPUT --type int8 --workers 2 --threads 1 --batch 32

Prints sentences per second and peak memory in MiB as JSON. The model must have a joint vocabulary.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import ctranslate2

from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.subword import Subword
from nmt.text.text_config import TextConfig


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder that nmt export wrote")
    parser.add_argument("input", help="plain text, one sentence a line")
    parser.add_argument("--type", default="float32", help="data type of the computation")
    parser.add_argument("--workers", type=int, default=1, help="batches translated in parallel")
    parser.add_argument("--threads", type=int, default=1, help="threads per batch")
    parser.add_argument("--batch", type=int, default=32, help="sentences per batch")
    parser.add_argument("--beam", type=int, default=4, help="hypotheses kept at every step")
    parser.add_argument("--alpha", type=float, default=0.6, help="length penalty")
    parser.add_argument("--output", help="file to write the translations to")
    options = parser.parse_args()
    settings = json.loads((Path(options.model) / "config.json").read_text(encoding="utf-8"))
    config = TextConfig.from_dict(settings["text"], options.model)
    model = (Path(options.model) / "subword.model").read_bytes()
    subword = Subword.from_bytes(model, config.subword, options.model)
    codec = TextCodec(config, subword, subword)
    translator = ctranslate2.Translator(
        options.model, compute_type=options.type, inter_threads=options.workers, intra_threads=options.threads
    )
    lines = list(read_lines(options.input))

    def translate() -> list[str]:
        pieces = [codec.source.pieces(sentence) for sentence in codec.encode_source(lines)]
        results = translator.translate_batch(
            pieces, max_batch_size=options.batch, beam_size=options.beam, length_penalty=options.alpha
        )
        return codec.decode_target([codec.target.ids(result.hypotheses[0]) for result in results])

    texts = translate()  # the first translation is slower, so it is not measured
    if options.output:
        Path(options.output).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    started = time.perf_counter()
    translate()
    speed = len(lines) / (time.perf_counter() - started)
    print(json.dumps({"speed": speed, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
