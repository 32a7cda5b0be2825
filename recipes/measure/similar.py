"""BLEU and chrF of translations by how similar the most similar sentence of a memory is.

    python recipes/measure/similar.py REFERENCE TRANSLATIONS...

TRANSLATIONS are outputs of `nmt generate --memory MEMORY --output-format jsonl` for the same lines, such as those of a
model that reads similar sentences and of one that does not. The first file says which band a line belongs to.
"""

import json
import sys
from pathlib import Path

import nmt
from nmt.text.corpus import read_lines

BANDS = (0.0, 0.7, 0.8, 0.9, 1.0)


def band_of(line: str) -> float:
    """Returns the lower end of the band of a line of JSON."""
    best = max((match["score"] for match in json.loads(line).get("memory", ())), default=0.0)
    return max(band for band in BANDS if band <= best)


def main() -> None:
    references = list(read_lines(sys.argv[1]))
    files = {path: list(read_lines(path)) for path in sys.argv[2:]}
    bands = list(map(band_of, next(iter(files.values()))))
    print(f"{'similarity':>12}{'lines':>8}" + "".join(f"{Path(path).name:>24}" for path in files))
    for band in (*BANDS, None):
        indices = [i for i, line_band in enumerate(bands) if band in (line_band, None)]
        cells = []
        for lines in files.values():
            texts = [json.loads(lines[i])["hypotheses"][0]["text"] for i in indices]
            scores = nmt.score(texts, [references[i] for i in indices], metric=("bleu", "chrf")) if indices else {}
            cells.append(" ".join(f"{score.score:.2f}" for score in scores.values()))
        name = "all" if band is None else f"from {band}" if band else "none"
        print(f"{name:>12}{len(indices):>8}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
