"""Measures how well `nmt align` finds the pairs of texts that people have aligned.

    python recipes/measure/alignment_gold.py bleualign FOLDER NAME... [--embeddings]
    python recipes/measure/alignment_gold.py ladder SOURCE TARGET LADDER [ENCODING]
    python recipes/measure/alignment_gold.py po FOLDER PART/PARTS [--model=CHECKPOINT]

`bleualign` reads NAME.de, NAME.fr and NAME.defr (pairs of lists of line numbers) of Bleualign's evaluation, and prints
strict F1: only equal groups count, and sentences without a partner do not. `ladder` reads hunalign's format: each line
has the numbers of the target and the source line where both texts break. `po` makes two documents of each PO file,
without every twentieth message on one side, and with one in ten joined with the next one on one side. All files but PO
may end in .gz, and PARTS cuts the PO files, so that options are chosen on other files than those that measure. With
--model, translations of the sources are compared, too; 10/20 are files that aligned_corpus.py keeps apart for its test.
"""

import random
import re
import resource
import sys
import time
from ast import literal_eval
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import polib

from nmt.aligning.alignment import Embedder, align
from nmt.config import SearchConfig
from nmt.text.corpus import opened
from nmt.translate.translator import Translator

FEWEST = 20  # messages of a PO file that becomes two documents
Groups = set[tuple[tuple[int, ...], tuple[int, ...]]]


def lines_of(path: str, encoding: str = "utf-8") -> list[str]:
    """Returns the lines of a file, which may lack the end .gz of its name."""
    with opened(path if Path(path).exists() else f"{path}.gz") as file:
        return file.read().decode(encoding).removesuffix("\n").split("\n")


def messages_of(file: Path) -> list[tuple[str, str]]:
    """Returns the translated messages of a PO file and their translations, without plural forms."""
    return [(entry.msgid, entry.msgstr) for entry in polib.pofile(str(file)) if entry.translated() and entry.msgstr]


def damaged(messages: list[tuple[str, str]], draw: random.Random) -> tuple[list[str], list[str], Groups]:
    """Returns two documents with losses and joined paragraphs, and which paragraphs belong together."""
    sides: tuple[list[str], list[str]] = [], []
    gold: Groups = set()
    position = 0
    while position < len(messages):
        side, (here, there) = draw.randrange(2), (messages[position], messages[position + 1 : position + 2])
        starts = len(sides[0]), len(sides[1])
        if position % 20 == 19:
            sides[side].append(here[side])
        elif there and position % 20 != 18 and draw.random() < 0.1:
            sides[side].append(f"{here[side]} {there[0][side]}")
            sides[1 - side].extend([here[1 - side], there[0][1 - side]])
            groups = (starts[side],), (starts[1 - side], starts[1 - side] + 1)
            gold.add(groups if side == 0 else groups[::-1])
            position += 1
        else:
            for text, paragraphs in zip(here, sides, strict=True):
                paragraphs.append(text)
            gold.add(((starts[0],), (starts[1],)))
        position += 1
    return *sides, gold


def strict_f1(
    texts: Iterable[tuple[list[str], list[str], Groups]],
    embed: Embedder | None,
    translate: Callable[[list[str]], Iterable[str]] | None = None,
) -> str:
    """Returns precision, recall and F1 of the pairs of all texts together."""
    right = proposed = expected = 0
    for source, target, gold in texts:
        translations = dict(zip(source, translate(source), strict=True)) if translate else {}
        beads = [bead for bead in align(source, target, embed, translations)[0] if bead.is_pair]
        pairs = {(tuple(range(s, s_stop)), tuple(range(t, t_stop))) for s, s_stop, t, t_stop, _ in beads}
        right, proposed, expected = right + len(pairs & gold), proposed + len(pairs), expected + len(gold)
    return as_text(right, proposed, expected)


def as_text(right: int, proposed: int, expected: int) -> str:
    """Returns precision, recall and F1 of so many pairs."""
    precision, recall, f1 = right / proposed, right / expected, 2 * right / (proposed + expected)
    return f"precision {precision:.3f}, recall {recall:.3f}, F1 {f1:.3f}"


def main() -> None:
    """Prints the figures, the processor time and the memory."""
    kind, *arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
    embed = Embedder() if "--embeddings" in sys.argv else None
    if kind == "bleualign":
        folder, *names = arguments
        texts = []
        for path in (f"{folder}/{name}" for name in names):
            rows = [line.split(":") for line in lines_of(f"{path}.defr") if line]
            groups = {(tuple(literal_eval(source)), tuple(literal_eval(target))) for source, target in rows}
            gold = {(source, target) for source, target in groups if source and target}
            texts.append((lines_of(f"{path}.de"), lines_of(f"{path}.fr"), gold))
        print(strict_f1(texts, embed))
    elif kind == "ladder":
        source, target = (
            [re.sub("&[a-z]+;", " ", line) for line in lines_of(path, *arguments[3:])] for path in arguments[:2]
        )
        rungs = {tuple(map(int, line.split())) for line in lines_of(arguments[2]) if line}
        pairs = [bead for bead in align(source, target, embed)[0] if bead.is_pair]
        breaks = {(t, s) for s, _, t, _, _ in pairs} | {(t, s) for _, s, _, t, _ in pairs}
        right = len(breaks & rungs)
        print(f"F1 of the rungs {2 * right / (len(breaks) + len(rungs)):.4f}")
    else:
        part, parts = map(int, arguments[1].split("/"))
        files = sorted(Path(arguments[0]).rglob("*.po"))[part - 1 :: parts]
        draw = random.Random(1)
        documents = [damaged(each, draw) for each in map(messages_of, files) if len(each) >= FEWEST]
        models = [word.partition("=")[2] for word in sys.argv if word.startswith("--model=")]
        translator = Translator.load(*models) if models else None
        search = SearchConfig(beam=1)
        print(strict_f1(documents, embed, translator and partial(translator.translate, search=search)))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{time.process_time():.0f} s of a processor, {memory} MiB")


if __name__ == "__main__":
    main()
