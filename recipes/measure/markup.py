"""Measures whether tags are put around the right words of a translation.

    nmt rescore CHECKPOINT --source test.en --target test.de --alignments --output found
    python recipes/measure/markup.py --source test.en --target test.de --sure test.sure --found found

Each sentence gets one to three inline tags around phrases whose translation is known: consecutive words whose sure
links lead to consecutive words, and from there back to the same words. A tag is correct if it is around exactly the
words of the phrase's translation, apart from punctuation. With --translation, a file that `nmt generate --alignments`
wrote, the words of the translation are compared with those in the target. Prints one JSON object.
"""

import argparse
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.text.markup import Unit, parse
from nmt.text.words import AlignedWords, parse_pharaoh


def phrases(links: Sequence[AlignedWords], words: int) -> Iterator[tuple[range, list[int]]]:
    """Yields phrases of up to three source words, and the words of their translations."""
    for size in (1, 2, 3):
        for start in range(words - size + 1):
            source = range(start, start + size)
            target = sorted({t for s, t in links if s in source})
            back = {s for s, t in links if t in target}
            if back == set(source) and target == list(range(target[0], target[-1] + 1)):
                yield source, target


def words_in(text: str) -> list[str]:
    """Returns the words of a text without punctuation at their edges."""
    return [word for word in (re.sub(r"^\W+|\W+$", "", part) for part in text.split()) if word]


def tagged(line: str, chosen: Sequence[range]) -> str:
    """Returns a line as HTML with a tag around each of the chosen ranges of words, inside of their punctuation."""
    words = line.replace("&", "&amp;").replace("<", "&lt;").split()
    for number, source in enumerate(chosen):
        words[source[0]] = re.sub(r"\w", rf"<b id={number}>\g<0>", words[source[0]], count=1)
        words[source[-1]] = re.sub(r"(.*\w)", r"\1</b>", words[source[-1]], count=1)
    return " ".join(words)


def measured(line: str, target: str, sure: str, translation: str, found: str, rng: random.Random) -> list[bool]:
    """Returns whether each tag of a sentence is correct."""
    links = parse_pharaoh(sure)
    known = list(phrases(links, len(line.split())))
    rng.shuffle(known)
    tags = rng.randint(1, 3)
    chosen: list[tuple[range, list[int]]] = []
    for phrase in known:
        if len(chosen) < tags and all(set(phrase[0]).isdisjoint(other) for other, _ in chosen):
            chosen.append(phrase)
    (unit,) = parse(tagged(line, [source for source, _ in chosen]), "html")
    assert isinstance(unit, Unit)
    output = unit.restored(translation, parse_pharaoh(found))
    correct = []
    for number, (_, words) in enumerate(chosen):
        inside = re.findall(rf"<b id={number}>(.*?)</b>", output)
        expected = words_in(" ".join(target.split()[word] for word in words))
        correct.append([words_in(part) for part in inside] == [expected])
    return correct


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--sure", required=True, help="known links, one line for each pair")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--found", help="output of nmt rescore --alignments for these pairs")
    given.add_argument("--translation", help="output of nmt generate --alignments for the source")
    parser.add_argument("--sentences", type=int, default=500)
    options = parser.parse_args()
    names = [options.source, options.target, options.sure, options.translation or options.found]
    files = [Path(name).read_text(encoding="utf-8").split("\n")[:-1] for name in names]
    rng, correct = random.Random(1), []
    for line, target, sure, found in list(zip(*files, strict=True))[: options.sentences]:
        before, _, links = found.rpartition("|||")
        translation = before.strip() if options.translation else target
        correct.append(measured(line, target, sure, translation, links, rng))
    tags = [tag for sentence in correct for tag in sentence]
    figures = {"sentences": len(correct), "tags": len(tags), "correct": round(sum(tags) / len(tags), 4)}
    print(json.dumps(figures | {"sentences_without_error": round(sum(map(all, correct)) / len(correct), 4)}))


if __name__ == "__main__":
    main()
