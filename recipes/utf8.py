"""Copies a file, plain or compressed, without the bytes that are not UTF-8, and says how many these are.

python recipes/utf8.py FILE COPY
"""

import codecs
import sys
from pathlib import Path
from typing import cast

from nmt.errors import NmtError
from nmt.text.corpus import opened

dropped = 0


def drop(error: UnicodeError) -> tuple[str, int]:
    """Leaves out the bytes of an error, and counts them."""
    global dropped
    wrong = cast(UnicodeDecodeError, error)
    dropped += wrong.end - wrong.start
    return "", wrong.end


source, copy = map(Path, sys.argv[1:])
codecs.register_error("drop", drop)
decoder = codecs.getincrementaldecoder("utf-8")("drop")
try:
    with opened(source) as file, copy.open("wb") as output:
        while block := file.read(2**20):
            output.write(decoder.decode(block).encode())
        output.write(decoder.decode(b"", final=True).encode())
except NmtError as error:
    sys.exit(f"error: {error}")
if dropped:
    print(f"{source.name}: bytes that are not UTF-8 and were left out: {dropped:,}", file=sys.stderr)
