"""Prints the lines of a text file, which may be compressed.

python recipes/lines.py FILE
"""

import sys

from nmt import console
from nmt.errors import NmtError
from nmt.text.corpus import read_lines

try:
    with console.printing():
        for line in read_lines(sys.argv[1]):
            print(line)
except NmtError as error:
    sys.exit(f"error: {error}")
