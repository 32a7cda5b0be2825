"""Splits a corpus into training text, and pairs that are held out for validation and the test."""

from collections import Counter
from contextlib import ExitStack
from functools import partial

import numpy as np

from nmt import console
from nmt.config import SplitConfig
from nmt.data.corpora import in_chunks
from nmt.data.leaks import HeldOut
from nmt.errors import NmtError
from nmt.files import new_folder, writing
from nmt.text.corpus import parallel_paths, read_rows
from nmt.text.words import is_blank

_HELD_OUT = ("dev", "test")


def split(prefix: str, config: SplitConfig) -> None:
    """Writes the pairs of a corpus to train, dev and test in the folder `config.dest`, in their order.

    The pairs of dev and test are drawn at random. A training pair is left out if a side of it is held out, or nearly.

    Raises:
        NmtError: the corpus cannot be read or is too small, or the folder exists or cannot be written.
    """
    langs = config.source_lang, config.target_lang
    paths = parallel_paths(prefix, *langs)
    usable = np.flatnonzero([not any(map(is_blank, row)) for row in read_rows(*paths)])
    size = len(_HELD_OUT) * config.lines
    if len(usable) < 2 * size:
        problem = f"{prefix} has {console.counted(len(usable), 'pair')}, and --lines {config.lines} holds out {size:,}"
        raise NmtError(f"{problem}, which is more than half; give fewer --lines, or a larger corpus")
    drawn = np.random.default_rng(config.seed).choice(usable, size, replace=False).tolist()
    parts = {row: _HELD_OUT[i % len(_HELD_OUT)] for i, row in enumerate(drawn)}
    held_out = HeldOut((i, line) for i, row in enumerate(read_rows(*paths)) if i in parts for line in row)
    counts, first = Counter[str](), 0
    open_text = partial(open, mode="w", encoding="utf-8", errors="replace", newline="\n")
    names = [(part, lang) for part in ("train", *_HELD_OUT) for lang in langs]
    with new_folder(config.dest, "--dest") as folder, writing(config.dest, "free some space"), ExitStack() as stack:
        files = {name: stack.enter_context(open_text(folder / ".".join(name))) for name in names}
        for rows in in_chunks(read_rows(*paths)):
            copies = set(held_out.leaks_of_pairs(*map(list, zip(*rows, strict=True))).line_P.tolist())
            for i, row in enumerate(rows):
                part = parts.get(first + i, "copies" if i in copies else "train")
                counts[part] += 1
                for lang, line in zip(langs, row, strict=True):
                    if part != "copies":
                        files[part, lang].write(f"{line}\n")
            first += len(rows)
    for part in ("train", *_HELD_OUT):
        console.info(f"wrote {config.dest}/{part}: {console.counted(counts[part], 'pair')}")
    console.info(f"left out {counts['copies']:,} training pairs that have a side of dev or test, or nearly")
