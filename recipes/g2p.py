"""Files and the table of g2p.sh.

python recipes/g2p.py split FILE.tsv PREFIX
python recipes/g2p.py table RUN LANGUAGE...
"""

import gzip
import json
import sys
import unicodedata
from pathlib import Path


def split(path: str, prefix: str) -> None:
    """Writes the words and the pronunciations of a table, plain or .gz, line by line.

    Words are decomposed, so that a model of few words sees that é is an e, and Korean syllables have letters.
    """
    if Path(path).exists():
        content = Path(path).read_bytes()
    elif Path(f"{path}.gz").exists():
        content = gzip.decompress(Path(f"{path}.gz").read_bytes())
    else:
        sys.exit(f"error: neither {path} nor {path}.gz exists; check G2P and the names of the languages")
    rows = [line.split("\t") for line in content.decode().splitlines()]
    words = [unicodedata.normalize("NFD", word) for word, _ in rows]
    for suffix, lines in (("word", words), ("ipa", [phonemes for _, phonemes in rows])):
        Path(f"{prefix}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def table(run: Path, languages: list[str]) -> None:
    """Prints WER and PER of the single model and of the ensemble, with their means for each part of the task."""
    print(f"{'':16}{'single':>16}{'ensemble':>16}\n{'':16}{'WER':>8}{'PER':>8}{'WER':>8}{'PER':>8}")
    rows: dict[str, list[list[float]]] = {}
    for language in languages:
        row = []
        for name in ("single", "ensemble"):
            scores = json.loads((run / language / f"{name}.json").read_text())
            row += [100 - scores["exact"]["score"], scores["wer"]["score"]]
        rows.setdefault(language.split("/")[0], []).append(row)
        print(f"{language:16}" + "".join(f"{value:8.2f}" for value in row))
    for part, values in rows.items():
        means = [sum(column) / len(column) for column in zip(*values, strict=True)]
        print(f"{f'mean of {part}':16}" + "".join(f"{value:8.2f}" for value in means))


if __name__ == "__main__":
    if sys.argv[1] == "split":
        split(sys.argv[2], sys.argv[3])
    else:
        table(Path(sys.argv[2]), sys.argv[3:])
