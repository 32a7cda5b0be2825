"""Splits a corpus into training text, and pairs that are held out for validation and the test."""

from collections import Counter
from contextlib import ExitStack

import numpy as np

from nmt import console
from nmt.data.leaks import HeldOut
from nmt.data.raw_pairs import in_chunks
from nmt.errors import NmtError
from nmt.files import check_new, new_folder, open_text
from nmt.text.corpus import parallel_paths, read_rows
from nmt.text.words import is_blank


def split(prefix: str, langs: tuple[str, str], lines: int, dest: str) -> None:
    """Writes the pairs of a corpus to the corpora train, dev and test in a new folder, in their order.

    The pairs of dev and test are a random choice, `lines` for each. A training pair is left out if one of its sides
    is held out, or nearly.

    Raises:
        NmtError: the corpus cannot be read or is too small, or the folder exists or cannot be written.
    """
    check_new(dest, "--dest")
    paths = parallel_paths(prefix, *langs)
    usable = np.flatnonzero([not any(map(is_blank, row)) for row in read_rows(*paths)])
    if len(usable) < 4:
        count = console.counted(len(usable), "pair")
        raise NmtError(f"{prefix} has {count}, which is too few to split; check how the corpus was made")
    if len(usable) < 4 * lines:
        problem = f"--lines {lines} holds out {2 * lines:,} of the {console.counted(len(usable), 'pair')} of {prefix}"
        raise NmtError(f"{problem}; give fewer --lines, so that it is at most half")
    drawn = np.random.default_rng(1).choice(usable, 2 * lines, replace=False).tolist()
    part_of = dict.fromkeys(drawn[:lines], "dev") | dict.fromkeys(drawn[lines:], "test")
    held_out = HeldOut((i, line) for i, row in enumerate(read_rows(*paths)) if i in part_of for line in row)
    counts, first = Counter[str](), 0
    with new_folder(dest, "--dest") as folder, ExitStack() as stack:
        names = [(part, lang) for part in ("train", "dev", "test") for lang in langs]
        files = {name: stack.enter_context(open_text(folder / ".".join(name))) for name in names}
        for rows in in_chunks(read_rows(*paths)):
            copies = set(held_out.leaks_of_pairs(*zip(*rows, strict=True)).line_P.tolist())
            for i, row in enumerate(rows):
                part = part_of.get(first + i, "copies" if i in copies else "train")
                counts[part] += 1
                for lang, line in zip(langs, row if part != "copies" else (), strict=False):
                    files[part, lang].write(f"{line}\n")
            first += len(rows)
        if not counts["train"]:
            problem = f"all other pairs of {prefix} are nearly those that are held out, so none is left for training"
            raise NmtError(f"{problem}; drop its copies with nmt clean first")
    pairs = ", ".join(f"{part} {counts[part]:,}" for part in ("train", "dev", "test"))
    console.info(f"wrote {dest}: pairs in {pairs}; left out {counts['copies']:,} copies of pairs in dev and test")
