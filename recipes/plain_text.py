"""Prints the PREFIX of the text of a corpus file, such as TMX. A PREFIX of files of text is printed as it is.

python recipes/plain_text.py PREFIX LANGUAGE LANGUAGE...
"""

import sys
from itertools import combinations

from nmt import console
from nmt.config import CorpusConfig
from nmt.corpora.reading import plain_prefix
from nmt.errors import NmtError

try:
    with console.printing():
        print(plain_prefix(sys.argv[1], list(combinations(sys.argv[2:], 2)), CorpusConfig()))
except NmtError as error:
    sys.exit(f"error: {error}")
