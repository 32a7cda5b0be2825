"""The interface of an engine, which translates and scores with a loaded model."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.text.codec import TextCodec
from nmt.text.protected import Protected
from nmt.translate.pairs import EncodedPair
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.records import Score, Translation
from nmt.translate.units import EncodedSentence


class Engine(Protocol):
    """A loaded model that translates and scores."""

    codec: TextCodec

    @property
    def device(self) -> str:
        """`cuda` or `cpu`."""

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls, within which autocast converts each weight only once."""

    def translate(
        self, sentences: Sequence[EncodedSentence], search: SearchConfig, *, log_probs: bool
    ) -> list[list[Translation]]:
        """Returns the translations of each sentence of a batch, best first, or its samples.

        Args:
            log_probs: whether pieces and their log P are needed.

        Raises:
            NmtError: the engine cannot do what a sentence or the search asks for.
        """

    def score(self, pairs: Sequence[EncodedPair], *, alignments: bool = True) -> list[list[Score]]:
        """Returns the scores of the given translations of each line.

        Args:
            alignments: whether alignments are needed, if the engine has them.
        """

    def alternatives(self, sentence: EncodedSentence, count: int, search: SearchConfig) -> list[Translation]:
        """Returns translations that continue the prefix with different pieces, the most probable piece first.

        Args:
            search: greedy search, with which each piece is continued.
        """


def load_engine(checkpoints: Sequence[str], config: EngineConfig, runtime: RuntimeConfig, process: int = 0) -> Engine:
    """Returns the engine for a model, or for an ensemble; see `nmt.model.device.set_up` for `process`."""
    engine = _loaded(checkpoints, config, runtime, process)
    engine.codec.protected = Protected(config.keep)
    return engine


def _loaded(checkpoints: Sequence[str], config: EngineConfig, runtime: RuntimeConfig, process: int) -> Engine:
    if config.engine == "pytorch":
        return PyTorchEngine.load(*checkpoints, runtime=runtime, process=process, vocabulary_map=config.vocabulary_map)
    from nmt.translate.ctranslate2_engine import CTranslate2Engine

    if len(checkpoints) > 1:
        raise NmtError(
            f"--engine ctranslate2 has no ensembles, but there are {len(checkpoints)} checkpoints; give one, "
            f"or use --engine pytorch"
        )
    return CTranslate2Engine(checkpoints[0], config, runtime, process)
