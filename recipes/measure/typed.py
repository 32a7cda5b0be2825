"""Writes a parallel test set as people type it: in capitals, in title case and so on.

    python recipes/measure/typed.py SOURCE TARGET FOLDER

FOLDER receives NAME.source and NAME.target for each name that it prints. The changes are those of
`nmt preprocess --augment`; typing errors are made in the source only.
"""

import random
import sys
from pathlib import Path

from nmt.data.augmentation import in_title_case, with_typing_errors, without_final_punctuation
from nmt.text.corpus import read_lines

SEED = 1
CHANGES = {
    "plain": lambda line: line,
    "capitals": str.upper,
    "title-case": in_title_case,
    "no-final-punctuation": without_final_punctuation,
}


def main() -> None:
    """Writes the files and prints their names."""
    source, target, folder = list(read_lines(sys.argv[1])), list(read_lines(sys.argv[2])), Path(sys.argv[3])
    draw = random.Random(SEED)
    variants = {name: (list(map(change, source)), list(map(change, target))) for name, change in CHANGES.items()}
    variants["typing-errors"] = [with_typing_errors(line, draw) for line in source], target
    folder.mkdir(parents=True, exist_ok=True)
    for name, sides in variants.items():
        for side, lines in zip(("source", "target"), sides, strict=True):
            (folder / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
