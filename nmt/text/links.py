"""Word alignments as text, in the format of Pharaoh, Moses and fast_align: `0-0 1-2`."""

import re
from collections.abc import Sequence

# The numbers of a source word and of a target word, both from 0, that translate each other.
Link = tuple[int, int]

_LINK = re.compile("([0-9]{1,9})-([0-9]{1,9})", re.ASCII)


def pharaoh(links: Sequence[Link]) -> str:
    """Returns links as text, the source word first."""
    return " ".join(f"{source}-{target}" for source, target in links)


def parse_links(line: str) -> list[Link]:
    """Returns the links of a line.

    Raises:
        ValueError: the line has something else; says what.
    """
    found = []
    for text in line.split():
        match = _LINK.fullmatch(text)
        if not match:
            raise ValueError(f"{text!r:.40} is no link")
        found.append((int(match[1]), int(match[2])))
    return found
