"""How often a model of context prefers the right one of two translations that only the lines before tell apart.

    python recipes/measure/contrast.py CHECKPOINT SOURCE TARGET [LINES]

SOURCE is English and TARGET German, with blank lines between dialogues. In each German line, a pronoun is replaced by
another that is as grammatical: "Ihnen" by "dir" and "Ihre" by "deine" and back, and where the English has "it", one of
"er", "sie" and "es" by another. Prints for how many the unchanged line has the larger log P, with up to LINES lines of
context (2) and without.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator

from nmt.text.corpus import read_rows

# What stands in the place of a pronoun, by kind: words of as many grammatical forms as verbs and articles allow.
_POSSESSIVES = [(f"Ihr{ending}", f"dein{ending}") for ending in ("", "e", "en", "em", "er", "es")]
_POLITE = [("Ihnen", "dir"), *_POSSESSIVES]
SWAPS = {
    "address": {word: [other] for pair in _POLITE for word, other in (pair, pair[::-1])},
    "gender": {word: sorted({"er", "sie", "es"} - {word}) for word in ("er", "sie", "es")} | {"ihn": ["sie", "es"]},
}


def pairs(source: str, target: str, context: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields the kind of each contrast, and its line of `nmt rescore --input-format jsonl`, the right one first."""
    earlier = list[str]()
    for source_line, line in read_rows(source, target):
        earlier = [*earlier, source_line] if source_line.strip() else []
        has_it = re.search(r"\bit\b", source_line, re.IGNORECASE)
        for kind, swaps in SWAPS.items():
            for match in re.finditer(r"\w+", line if kind == "address" or has_it else ""):
                for other in swaps.get(match[0], ()):
                    wrong = line[: match.start()] + other + line[match.end() :]
                    fields = {"source": source_line, "hypotheses": [{"text": line}, {"text": wrong}]}
                    yield kind, fields | {"context": earlier[-context - 1 : -1] if context else []}


def main(checkpoint: str, source: str, target: str, lines: str = "2") -> None:
    for context in (0, int(lines)):
        contrasts = list(pairs(source, target, context))
        if not contrasts:
            sys.exit(f"error: no line of {target} has such a word; give another text")
        kinds, rows = zip(*contrasts, strict=True)
        command = ["nmt", "rescore", checkpoint, "--input-format", "jsonl", "--output-format", "text"]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        output = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
        scores = [tuple(map(float, line.split("\t"))) for line in output.splitlines()]
        for kind in SWAPS:
            right = [a > b for each, (a, b) in zip(kinds, scores, strict=True) if each == kind]
            if right:
                share = sum(right) / len(right)
                print(f"{kind}, {context} lines of context: {sum(right)} of {len(right)} ({share:.1%})")


if __name__ == "__main__":
    main(*sys.argv[1:])
