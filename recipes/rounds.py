"""Text, decisions and the card of rounds.sh.

python recipes/rounds.py draw TEXT OUTPUT LINES SEED
python recipes/rounds.py weight ROUND CORPUS_FILE
python recipes/rounds.py kept RUN DIRECTION
python recipes/rounds.py card RUN DIRECTION
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

from nmt.text.corpus import read_lines

MOST_CHARACTERS = 500  # longer lines are paragraphs, which a model of few pairs does not translate well


def draw(text: str, output: str, lines: str, seed: str) -> None:
    """Writes lines of a text, each at most once, in random order."""
    distinct = dict.fromkeys(line for line in read_lines(text) if line.strip() and len(line) <= MOST_CHARACTERS)
    drawn = random.Random(int(seed)).sample(list(distinct), min(int(lines), len(distinct)))
    part = Path(f"{output}.part")
    part.write_text("".join(f"{line}\n" for line in drawn), encoding="utf-8")
    part.rename(output)


def translated_lines(folder: Path) -> int:
    """Returns the number of lines that a model has translated."""
    return sum(1 for _ in read_lines(next(path for path in folder.glob("text.*") if path.suffix != ".made-from")))


def weight(folder: str, corpus: str) -> None:
    """Prints how often a corpus is used, so that it is half of the training text, but at least once."""
    synthetic = sum(translated_lines(path) for path in Path(folder).glob("synthetic-*"))
    print(round(max(1.0, synthetic / sum(1 for _ in read_lines(corpus))), 2))


def scores(run: Path, direction: str) -> list[dict[str, Any]]:
    """Returns the scores of the rounds that are done, by split and metric."""
    folders = sorted(run.glob("round*"), key=lambda folder: int(folder.name[5:]))
    paths = [folder / direction for folder in folders if (folder / direction / "valid.json").exists()]
    return [{path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")} for folder in paths]


def kept(done: list[dict[str, Any]]) -> int:
    """Returns the number of the best round on the validation text; of equal ones, the first."""
    return max(range(len(done)), key=lambda round_index: (done[round_index]["valid"]["bleu"]["score"], -round_index))


def card(run: Path, direction: str, done: list[dict[str, Any]]) -> None:
    """Prints what each round gave."""
    print(f"# {direction}, trained in rounds\n")
    print(
        "| round | lines translated | BLEU, validation | chrF, validation | BLEU, test | chrF, test | |\n|" + "---|" * 7
    )
    for round_index, round_scores in enumerate(done):
        lines = sum(map(translated_lines, (run / f"round{round_index}").glob("synthetic-*")))
        cells = [
            f"{round_scores[split][metric]['score']:.2f}" if split in round_scores else ""
            for split in ("valid", "test")
            for metric in ("bleu", "chrf")
        ]
        print(f"| {round_index} | {lines:,} | {' | '.join(cells)} | {'kept' if round_index == kept(done) else ''} |")
    print(
        f"\n`model.safetensors` is the model of round {kept(done)}. Scores of beam search by `nmt generate`: ", end=""
    )
    print(", ".join(done[0]["valid"][metric]["signature"] for metric in ("bleu", "chrf")) + ".")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "draw":
        draw(*arguments)
    elif command == "weight":
        weight(*arguments)
    elif command == "kept":
        print(kept(scores(Path(arguments[0]), arguments[1])))
    else:
        card(Path(arguments[0]), arguments[1], scores(Path(arguments[0]), arguments[1]))
