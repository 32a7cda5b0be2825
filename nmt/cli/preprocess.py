"""`nmt preprocess` turns parallel text into a data folder."""

from typing import TYPE_CHECKING

from nmt.cli.flags import flags
from nmt.config import DataConfig, JobConfig

if TYPE_CHECKING:
    from nmt.text.codec import TextCodec


@flags(config=DataConfig, options=JobConfig)
def preprocess(config: DataConfig, options: JobConfig) -> None:
    """Turn parallel text into a data folder that `nmt train` reads.

    Tokenises the text, trains a subword model on it and encodes every line.

    A training pair is dropped and counted if a side is empty or too long, or if the lengths differ too much.
    Validation and test pairs are never dropped.
    """
    from nmt.data.preprocess import preprocess as run
    from nmt.jobs.ray_connection import connected

    with connected(options):
        run(config, options, _codec(config.like) if config.like else None)


def _codec(checkpoint: str) -> "TextCodec":
    from nmt.checkpoint import load_checkpoint  # loads torch, which other preprocessing does not need

    return load_checkpoint(checkpoint).codec
