"""`nmt preprocess` turns parallel text into a data folder."""

from nmt.cli.flags import flags
from nmt.config import DataConfig


@flags(config=DataConfig)
def preprocess(config: DataConfig) -> None:
    """Turn parallel text into a data folder that `nmt train` reads.

    Tokenises the text, trains a subword model on it and encodes every line.

    A training pair is dropped and counted if a side is empty or too long, or if the lengths differ too much.
    Validation and test pairs are never dropped.
    """
    from nmt.data.preprocess import preprocess as run

    run(config)
