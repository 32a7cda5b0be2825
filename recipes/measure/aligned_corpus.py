"""Makes a corpus by `nmt align` of documents with known pairs, beside the corpus of these pairs, to train on both.

    python recipes/measure/aligned_corpus.py PO_FOLDER SOURCE_LANG TARGET_LANG RUN

Each PO file becomes a document in either language, of which a line is a paragraph, in the folder RUN/documents.
Every twentieth paragraph is missing on one side, and one in ten is joined with the next one on one side. The script
aligns the documents, prints the strict F1, and writes the prefixes RUN/aligned and RUN/gold. Every tenth file is kept
apart and whole: these give RUN/test and RUN/valid in turn. At the end, the script prints the commands for one of the
corpora; the other one takes the same.
"""

import random
import sys
import time
from pathlib import Path

from alignment_gold import FEWEST, Groups, as_text, damaged, messages_of

import nmt
from nmt.errors import NmtError

Pairs = list[tuple[str, str]]


def numbers(place: str) -> tuple[int, ...]:
    """Returns the positions of the lines of a place such as `12-13`, from 0."""
    first, _, last = place.partition("-")
    return tuple(range(int(first) - 1, int(last or first)))


def write(pairs: Pairs, prefix: Path, languages: tuple[str, str]) -> None:
    """Writes a corpus."""
    for side, lang in enumerate(languages):
        prefix.with_name(f"{prefix.name}.{lang}").write_text(
            "".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8"
        )
    print(f"{len(pairs):,} pairs in {prefix}")


def main() -> None:
    """Makes the documents and the corpora."""
    po_folder, source_lang, target_lang, run_folder = sys.argv[1:]
    languages, run, draw = (source_lang, target_lang), Path(run_folder), random.Random(1)
    corpora: dict[str, Pairs] = {"aligned": [], "gold": [], "valid": [], "test": []}
    right = proposed = expected = 0
    started = time.process_time()
    for count, file in enumerate(sorted(Path(po_folder).rglob("*.po"))):
        messages = [(" ".join(source.split()), " ".join(target.split())) for source, target in messages_of(file)]
        if count % 10 == 9:
            corpora["test" if count % 20 == 9 else "valid"] += messages
            continue
        if len(messages) < FEWEST:
            continue
        *sides, gold = damaged(messages, draw)
        paths = [run / "documents" / lang / file.relative_to(po_folder).with_suffix(".txt") for lang in languages]
        for path, lines in zip(paths, sides, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        try:
            pairs = nmt.align(*paths, source_lang=source_lang, target_lang=target_lang)
        except NmtError as error:
            print(error)
            pairs = []
        groups: Groups = {(numbers(pair.source_place), numbers(pair.target_place)) for pair in pairs}
        right, proposed, expected = right + len(groups & gold), proposed + len(groups), expected + len(gold)
        corpora["aligned"] += [(pair.source, pair.target) for pair in pairs]
        corpora["gold"] += [
            (" ".join(sides[0][i] for i in s), " ".join(sides[1][j] for j in t)) for s, t in sorted(gold)
        ]
    print(f"{as_text(right, proposed, expected)}, {time.process_time() - started:.0f} s of a processor")
    for name, corpus in corpora.items():
        write(corpus, run / name, languages)
    options = f"--source-lang {source_lang} --target-lang {target_lang}"
    excluded = f"--exclude {run}/valid --exclude {run}/test"
    print(f"nmt clean {options} --train {run}/aligned {excluded} --dest {run}/clean")
    print(f"nmt preprocess {options} --train {run}/clean --valid {run}/valid --dest {run}/data --vocab-size 8000")
    print(f"nmt train {run}/data --save-dir {run}/model --hours 1")


if __name__ == "__main__":
    main()
