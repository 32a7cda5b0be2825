"""`nmt preprocess`."""

from nmt.cli.flags import flags
from nmt.config import DataConfig


@flags(config=DataConfig)
def preprocess(config: DataConfig) -> None:
    """Turn parallel text into a data folder that `nmt train` reads.

    Tokenises the text, trains a subword model on it and encodes every line.

    Drops and counts training pairs with an empty side, too long or too uneven; never validation or test pairs.
    """
    from nmt.data.preprocess import preprocess as run

    run(config)
