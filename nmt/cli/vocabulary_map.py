"""`nmt vocabulary-map` writes which target pieces may translate each source piece."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from nmt import console
from nmt.cli.flags import flags
from nmt.config import VocabularyMapConfig


@flags()
def vocabulary_map(
    data: Annotated[str, Argument(metavar="DATA", help="Data folder with word alignments.")],
    output: Annotated[str, Option(help="File to write; - is standard output.")],
    config: VocabularyMapConfig,
) -> None:
    """Write which target pieces may translate each source piece, for the option --vocabulary-map.

    With the map, translating on a CPU is faster, because only some pieces of the vocabulary are scored for a
    sentence. The word alignments of nmt preprocess --alignments say which pieces translate each other.
    """
    from nmt.data.folder import DataFolder
    from nmt.data.vocabulary_map import vocabulary_map_lines
    from nmt.files import STDIO, output_file

    with output_file(output, Path(data).glob("*")) as file:
        for line in vocabulary_map_lines(DataFolder.open(data), config):
            file.write(line)
    if output != STDIO:
        console.info(f"wrote {output}")
