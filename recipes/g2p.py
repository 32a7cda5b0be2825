"""Files and the table of g2p.sh.

python recipes/g2p.py split G2P RUN EVALUATED LANGUAGE...
python recipes/g2p.py table RUN LANGUAGE...
"""

import gzip
import json
import sys
import unicodedata
from pathlib import Path


def rows_of(path: str) -> list[list[str]]:
    """Returns the words and pronunciations of a table, plain or .gz."""
    if Path(path).exists():
        content = Path(path).read_bytes()
    elif Path(f"{path}.gz").exists():
        content = gzip.decompress(Path(f"{path}.gz").read_bytes())
    else:
        sys.exit(f"error: neither {path} nor {path}.gz exists; check G2P and the names of the languages")
    return [line.split("\t") for line in content.decode().splitlines()]


def split(corpus: str, run: Path, evaluated: str, languages: list[str]) -> None:
    """Writes the splits of each language and of all together, and at last the symbols: the language, letters, phonemes.

    A source line is the language and the letters, with spaces between. A space in a word becomes _. Words are
    decomposed, so that a model of few words sees that é is an e, and Korean syllables have letters.
    """
    symbols, together = set[str](), dict[tuple[str, str], str]()
    for language in languages:
        (run / language).mkdir(parents=True, exist_ok=True)
        for part in dict.fromkeys(("train", "dev", evaluated)):
            rows = rows_of(f"{corpus}/{language}_{part}.tsv")
            words = [unicodedata.normalize("NFD", word).replace(" ", "_") for word, _ in rows]
            sources = [[f"<{Path(language).name}>", *word] for word in words]
            targets = [phonemes.split() for _, phonemes in rows]
            if part == "train":
                symbols.update(*sources, *targets)
            for suffix, lines in (("word", sources), ("ipa", targets)):
                text = "".join(f"{' '.join(line)}\n" for line in lines)
                together[part, suffix] = together.get((part, suffix), "") + text
                (run / language / f"{part}.{suffix}").write_text(text, encoding="utf-8")
    folder = (run / languages[0]).parent
    for (part, suffix), text in together.items():
        (folder / f"{part}.{suffix}").write_text(text, encoding="utf-8")
    (folder / "symbols").write_text("".join(f"{symbol}\n" for symbol in sorted(symbols)), encoding="utf-8")


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
        split(sys.argv[2], Path(sys.argv[3]), sys.argv[4], sys.argv[5:])
    else:
        table(Path(sys.argv[2]), sys.argv[3:])
