"""Prints the commands of a tutorial as a script that says when each block begins.

    python recipes/verify/tutorial_commands.py PAGE

A block of commands is a fenced block without a language. It is left out if the paragraph before it says "Not run by our
tests".
"""

import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    print("set -euo pipefail -m")  # -m: jobs have numbers, as in a terminal
    for block in BLOCK.finditer(text):
        paragraph = text[: block.start()].rstrip().rpartition("\n\n")[2]
        line = text[: block.start()].count("\n") + 1
        if not block[1] and "Not run by our tests" in paragraph:
            print(f"echo '== {page}:{line} is left out, as it says' >&2")
        elif not block[1]:
            print(f'echo "== {page}:{line}, after $SECONDS s" >&2\n{block[2]}')
    print(f'echo "== {page} took $SECONDS s" >&2')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
