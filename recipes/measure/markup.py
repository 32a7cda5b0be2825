"""Measures whether tags are put around the right words of a translation.

    nmt rescore CHECKPOINT --source test.en --target test.de --alignments --output test.links
    python recipes/measure/markup.py --source test.en --target test.de --sure test.sure --possible test.possible \
        --links test.links

Each sentence gets one to three inline tags around phrases whose translation is known: consecutive words whose sure
links lead to consecutive words, and from there back to the same words. A tag is correct if it is around all words that
are surely linked to the phrase and no words but those that are possibly linked to it, as in the alignment error rate.
With --translation, a file that `nmt generate --alignments` wrote, the words in the tags of the translation are compared
with those of the target. Prints one JSON object.
"""

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from nmt.errors import NmtError
from nmt.text.corpus import read_rows
from nmt.text.marked import MarkedText
from nmt.text.markup_projection import projected
from nmt.text.markup_reading import parse, written
from nmt.text.protected import Protected
from nmt.text.words import AlignedWords, parse_pharaoh


def phrases(links: Sequence[AlignedWords], words: Sequence[str]) -> Iterator[range]:
    """Yields phrases of up to three source words, which neither begin nor end with punctuation alone."""
    for size in (1, 2, 3):
        for start in range(len(words) - size + 1):
            if not all(re.search(r"\w", words[edge]) for edge in (start, start + size - 1)):
                continue
            source = range(start, start + size)
            target = sorted({t for s, t in links if s in source})
            back = {s for s, t in links if t in target}
            if back == set(source) and target == list(range(target[0], target[-1] + 1)):
                yield source


def words_in(text: str) -> list[str]:
    """Returns the words of a text without punctuation at their edges."""
    return [word for word in (re.sub(r"^\W+|\W+$", "", part) for part in text.split()) if word]


def tagged(line: str, chosen: Sequence[range]) -> str:
    """Returns a line as HTML with a tag around each of the chosen ranges of words, inside of their punctuation."""
    words = line.split()
    begins = {source[0]: f"<b id={i}>" for i, source in enumerate(chosen)}
    ends = {source[-1]: "</b>" for source in chosen}
    parts = [re.fullmatch(r"(\W*)(.*?)(\W*)", word) for word in words]
    return " ".join(
        escape(part[1], quote=False)
        + begins.get(i, "")
        + escape(part[2], quote=False)
        + ends.get(i, "")
        + escape(part[3], quote=False)
        for i, part in enumerate(parts)
        if part
    )


def measured(pair: Sequence[str], translation: str, links: str, rng: random.Random) -> list[bool]:
    """Returns whether each tag of a sentence is correct.

    Args:
        pair: source, target, sure links and possible links.
    """
    source, target, sure, possible = pair
    known = list(phrases(parse_pharaoh(sure), source.split()))
    rng.shuffle(known)
    tags = rng.randint(1, 3)
    chosen: list[range] = []
    for phrase in known:
        if len(chosen) < tags and all(set(phrase).isdisjoint(other) for other in chosen):
            chosen.append(phrase)
    (unit,) = parse(tagged(source, chosen), "html", Protected())
    assert isinstance(unit, MarkedText)
    output = written(projected(unit, translation, parse_pharaoh(links)))
    correct = []
    for number, phrase in enumerate(chosen):
        inside = Counter(words_in(" ".join(re.findall(rf"<b id={number}>(.*?)</b>", output))))
        least, most = (
            Counter(words_in(" ".join(target.split()[t] for t in sorted({t for s, t in links if s in phrase}))))
            for links in map(parse_pharaoh, (sure, possible))
        )
        correct.append(least <= inside <= most | least)
    return correct


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--sure", required=True, help="known links, one line for each pair")
    parser.add_argument("--possible", help="links that are no error; by default the known ones")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--links", help="output of nmt rescore --alignments for these pairs")
    given.add_argument("--translation", help="output of nmt generate --alignments for the source")
    parser.add_argument("--sentences", type=int, default=500)
    options = parser.parse_args()
    names = [options.source, options.target, options.sure, options.possible or options.sure]
    try:
        rows = list(read_rows(*names, options.translation or options.links))
    except NmtError as error:
        sys.exit(f"error: {error}")
    rng, correct = random.Random(1), []
    for *pair, line in rows[: options.sentences]:
        translation, _, links = line.rpartition("|||")
        correct.append(measured(pair, translation.strip() if options.translation else pair[1], links, rng))
    tags = [tag for sentence in correct for tag in sentence]
    figures = {"sentences": len(correct), "tags": len(tags), "correct": round(sum(tags) / len(tags), 4)}
    with_tags = [sentence for sentence in correct if sentence]
    print(json.dumps(figures | {"sentences_without_error": round(sum(map(all, with_tags)) / len(with_tags), 4)}))


if __name__ == "__main__":
    main()
