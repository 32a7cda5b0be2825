"""`nmt split` holds out pairs of a corpus."""

from typing import Annotated

from typer import Argument, Option

from nmt.cli.flags import flags
from nmt.config import CorpusConfig


@flags()
def split(
    corpus: Annotated[str, Argument(metavar="CORPUS", help="PREFIX of corpus.en and corpus.de, or a file like .csv.")],
    files: CorpusConfig,
    source_lang: Annotated[str, Option(help="Source language: the suffix of its files, for example en.")],
    target_lang: Annotated[str, Option(help="Target language: the suffix of its files, for example de.")],
    dest: Annotated[str, Option(help="Folder to write, with the corpora train, dev and test.")],
    lines: Annotated[int, Option(min=1, max=10**6, help="Pairs to hold out for dev, and as many for test.")] = 1000,
) -> None:
    """Hold out pairs of a corpus for validation (dev) and the test, and write the rest as training text.

    Training pairs that are copies of held-out ones, or nearly, are left out, because scores would be too high.
    """
    from nmt.config.data import check_languages
    from nmt.corpora.reading import plain_prefix, refuse_options
    from nmt.data.splitting import split as run

    check_languages(source_lang, target_lang)
    prefix = plain_prefix(corpus, [(source_lang, target_lang)], files)
    if prefix == corpus:
        refuse_options(files)
    run(prefix, (source_lang, target_lang), lines, dest)
