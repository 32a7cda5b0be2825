"""`nmt preprocess` turns parallel text into a data folder."""

from nmt.cli.flags import flags
from nmt.config import CorpusConfig, DataConfig, JobConfig

EXAMPLES = """Examples. The first one reads what nmt split has written:

nmt preprocess --source-lang en --target-lang de --train parts/train --valid parts/dev --test parts/test --dest data

nmt preprocess --languages en,de,fr --both-ways --train corpus --valid dev --dest data

nmt preprocess --source-lang en --target-lang de --train news --valid dev --dest more --like run/best.safetensors"""


@flags()
def preprocess(files: CorpusConfig, config: DataConfig, options: JobConfig) -> None:
    """Turn parallel text into a data folder that `nmt train` reads.

    Trains a subword model on the text and encodes every line.

    A training pair is dropped and counted if a side is empty or too long, or if the lengths differ too much.
    Validation and test pairs are never dropped.
    """
    from nmt.checkpoint_format import read_codec
    from nmt.corpora.reading import with_plain_text
    from nmt.data.preprocess import preprocess as run
    from nmt.jobs.run import executing

    config = with_plain_text(config, ("train", "valid", "test"), config.pairs, files)
    with executing(options, config.workers) as execution:
        run(config, execution, read_codec(config.like) if config.like else None)
