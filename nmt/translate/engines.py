"""The protocol of an engine, and the engine that computes with PyTorch.

`nmt.translate.ctranslate2_engine` is the other one.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch

from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.data.loader import make_side
from nmt.data.vocabulary_map import VocabularyMap
from nmt.errors import NmtError
from nmt.search.api import Required
from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.subword import BOS, EOS, PAD, UNK, with_bos, with_eos
from nmt.translate.formats import Rescored
from nmt.translate.requests import EncodedRequest, Hypothesis
from nmt.translate.rescoring import EncodedPair, Rescorer
from nmt.translate.translator import Translator


class Engine(Protocol):
    """A loaded model that translates and scores."""

    codec: TextCodec

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls, within which autocast converts each weight only once."""

    def search(
        self, lines: Sequence[EncodedRequest], search: SearchConfig, *, log_probs: bool
    ) -> list[list[Hypothesis]]:
        """Returns the translations of each line of a batch, best first, or its samples.

        Args:
            log_probs: whether log P of each piece is needed.

        Raises:
            NmtError: the engine cannot do what a line or the search asks for.
        """

    def score(self, lines: Sequence[EncodedPair]) -> list[list[Rescored]]:
        """Returns pieces, log P and, if the engine has them, alignments of the given translations of each line."""

    def alternatives(self, line: EncodedRequest, count: int, search: SearchConfig) -> list[Hypothesis]:
        """Returns translations that continue the line's prefix with different pieces, the most probable piece first.

        Args:
            search: greedy search, with which each piece is continued.
        """


class PyTorchEngine(Translator):
    """The engine of this toolkit: a `Translator`, which searches, that also scores and finds alternatives."""

    def score(self, lines: Sequence[EncodedPair]) -> list[list[Rescored]]:
        """Returns pieces, log P and alignments of the given translations of each line."""
        return Rescorer(self, alignments=True)(lines)

    def alternatives(self, line: EncodedRequest, count: int, search: SearchConfig) -> list[Hypothesis]:
        """Returns translations that continue the line's prefix with different pieces."""
        prefix = line.required.prefix
        prefixes = [(*prefix, piece) for piece in self._next_pieces(line.parts[0], prefix, count)]
        continued = [replace(line, required=Required(longer)) for longer in prefixes]
        return [found[0] for found in self.search(continued, search)]

    @torch.no_grad()
    def _next_pieces(self, source: np.ndarray, prefix: Sequence[int], count: int) -> list[int]:
        """Returns the most probable pieces behind the prefix. EOS and the other special pieces are left out."""
        side = make_side([[with_eos(source)]]).to(self.runtime.device)
        target = make_side([[with_bos(prefix)]]).to(self.runtime.device)
        of_models = []
        with self.session():
            for model in self.models:
                x_MD = model.decode(target.ids_F, target.layout, model.encode(side.ids_F, side.layout), side.layout)
                of_models.append(model.logits(x_MD)[len(prefix)].float().softmax(-1))
        total_V = torch.stack(of_models).sum(0)
        total_V[[PAD, UNK, BOS, EOS]] = -1
        return total_V.topk(min(count, len(total_V) - 4)).indices.tolist()


def load_engine(checkpoints: Sequence[str], config: EngineConfig, runtime: RuntimeConfig, process: int = 0) -> Engine:
    """Returns the engine for a model, or for an ensemble; see `nmt.model.device.set_up` for `process`."""
    if config.engine == "ctranslate2":
        from nmt.translate.ctranslate2_engine import CTranslate2Engine

        if len(checkpoints) > 1:
            raise NmtError(
                f"--engine ctranslate2 has no ensembles, but there are {len(checkpoints)} checkpoints; give one, "
                f"or use --engine pytorch"
            )
        return CTranslate2Engine(checkpoints[0], config, runtime, process)
    engine = PyTorchEngine.load(*checkpoints, runtime=runtime, process=process)
    if (path := config.vocabulary_map) is not None:
        engine.vocabulary_map = VocabularyMap.parsed(read_lines(path), path, engine.codec)
    return engine
