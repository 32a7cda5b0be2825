"""Files and the table of g2p.sh.

python recipes/g2p.py split G2P RUN LANGUAGE...
python recipes/g2p.py table RUN LANGUAGE...
"""

import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from math import log
from pathlib import Path

from nmt.text.corpus import read_lines

# Costs of a monotone alignment: for each letter that is left out, and for another phoneme of the same letter.
SKIP, SAME = 0.7, 1.5


def rows_of(path: str) -> list[list[str]]:
    """Returns the words and pronunciations of a table, plain or .gz; none if it does not exist."""
    files = [file for file in (path, f"{path}.gz") if Path(file).exists()]
    return [line.split("\t") for line in read_lines(files[0])] if files else []


def viterbi(letters: Sequence[str], phonemes: Sequence[str], score: Callable[[str, str, float], float]) -> list[int]:
    """Returns the number of the letter that each phoneme belongs to, in order.

    Args:
        score: of a letter and a phoneme, and how much later the letter is, as a share of the word.
    """
    best, origins = [-SKIP * i for i in range(len(letters))], list[list[int]]()
    for j, phoneme in enumerate(phonemes):
        row, origin = list[float](), list[int]()
        for i, letter in enumerate(letters):
            reach = [best[k] - (SAME if k == i else SKIP * (i - k - 1)) for k in range(i + 1)] if j else [best[i]]
            value = max(reach)
            origin.append(reach.index(value))
            row.append(value + score(letter, phoneme, i / len(letters) - j / len(phonemes)))
        best = row
        origins.append(origin)
    place = max(range(len(letters)), key=lambda i: best[i] - SKIP * (len(letters) - 1 - i))
    places = list[int]()
    for origin in reversed(origins):
        places.append(place)
        place = origin[place]
    return places[::-1]


def links(words: Sequence[Sequence[str]], pronunciations: Sequence[Sequence[str]]) -> list[str]:
    """Returns the letter of each phoneme, such as 0-0 1-2, as six rounds of hard EM find them.

    The first item of a word names its language and is linked to nothing.
    """

    def score(letter: str, phoneme: str, distance: float) -> float:
        if not counts:
            return -3 * abs(distance)
        return log((counts[letter, phoneme] + 0.05) / (totals[letter] + 5)) - 0.5 * abs(distance)

    counts, totals = Counter[tuple[str, str]](), Counter[str]()
    for _ in range(6):
        places = [viterbi(word[1:], phonemes, score) for word, phonemes in zip(words, pronunciations, strict=True)]
        linked = [
            (word[1 + i], phoneme)
            for word, phonemes, word_places in zip(words, pronunciations, places, strict=True)
            for i, phoneme in zip(word_places, phonemes, strict=True)
        ]
        counts, totals = Counter(linked), Counter(letter for letter, _ in linked)
    return [" ".join(f"{i + 1}-{j}" for j, i in enumerate(word_places)) for word_places in places]


def split(corpus: str, run: Path, languages: list[str]) -> None:
    """Writes the splits of each language and of all together, and at last the symbols: the language, letters, phonemes.

    Training words are aligned with their pronunciations.

    A source line is the language and the letters, with spaces between. A space in a word becomes _. Words are
    decomposed, so that a model of few words sees that é is an e, and Korean syllables have letters.
    """
    symbols, together = set[str](), dict[tuple[str, str], str]()
    for language in languages:
        (run / language).mkdir(parents=True, exist_ok=True)
        for part in ("train", "dev", "test"):
            rows = rows_of(f"{corpus}/{language}_{part}.tsv")
            if not rows and part == "test":
                continue
            if not rows:
                sys.exit(f"error: {corpus}/{language}_{part}.tsv is missing or empty; check G2P and the languages")
            words = [unicodedata.normalize("NFD", word).replace(" ", "_") for word, _ in rows]
            sources = [[f"<{Path(language).name}>", *word] for word in words]
            targets = [phonemes.split() for _, phonemes in rows]
            texts = {"word": map(" ".join, sources), "ipa": map(" ".join, targets)}
            if part == "train":
                symbols.update(*sources, *targets)
                texts["links"] = links(sources, targets)
            for suffix, lines in texts.items():
                text = "".join(f"{line}\n" for line in lines)
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
        split(sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
    else:
        table(Path(sys.argv[2]), sys.argv[3:])
