"""`nmt preprocess`."""

from nmt.cli.flags import flags
from nmt.config import DataConfig


@flags(config=DataConfig)
def preprocess(config: DataConfig) -> None:
    """Turn parallel text into a data folder that `nmt train` reads.

    Tokenises the text, trains a subword model on it and encodes every line. Training pairs with an empty side, or that
    are too long or too uneven in length, are dropped and counted; validation and test pairs never are.
    """
    from nmt.data.preprocess import preprocess as run

    run(config)
