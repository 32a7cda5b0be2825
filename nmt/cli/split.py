"""`nmt split` holds out pairs of a corpus."""

from typing import Annotated

from typer import Argument

from nmt.cli.flags import flags
from nmt.config import CorpusConfig, SplitConfig

# The way from a corpus to a page, as README.md has it.
PATH_EXAMPLE = """nmt split corpus --source-lang en --target-lang de --dest parts

nmt preprocess --source-lang en --target-lang de --train parts/train --valid parts/dev --test parts/test --dest data

nmt train data --save-dir run --hours 0.1

nmt generate run/average.safetensors --input parts/test.en --output test.out.de

nmt score --reference parts/test.de --hypothesis test.out.de --target-lang de

nmt serve run/average.safetensors"""
EXAMPLES = f"""Example, for corpus.en and corpus.de; a table such as corpus.csv does as well:

{PATH_EXAMPLE.partition(chr(10))[0]}"""


@flags()
def split(
    corpus: Annotated[
        str, Argument(metavar="CORPUS", help="PREFIX of the files PREFIX.en and PREFIX.de, or a file like .csv.")
    ],
    files: CorpusConfig,
    config: SplitConfig,
) -> None:
    """Hold out pairs of a corpus for validation and the test, and write the rest as training text.

    Training pairs that are copies of a held-out one, or nearly, are left out. Scores would be too high with them.
    """
    from nmt.corpora.reading import plain_prefix
    from nmt.data.splitting import split as run

    run(plain_prefix(corpus, [(config.source_lang, config.target_lang)], files), config)
