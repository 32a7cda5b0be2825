"""A beam search that sentences of new requests join between two steps."""

from collections.abc import Hashable, Mapping

import torch

from nmt.config import ModelConfig, SearchConfig
from nmt.search.api import Required, TokenHypothesis
from nmt.search.beam import BeamSearch
from nmt.text.codec import TextCodec
from nmt.translate.encoding import EncodedSentence
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.units import Translation

# Sentences that are done leave a running search when they are this share of it. Until then, others can take their
# places.
_DONE_SHARE = 0.25


def can_join(sentence: EncodedSentence, search: SearchConfig, config: ModelConfig, codec: TextCodec) -> bool:
    """Returns whether a sentence can join a `RunningSearch` of this model, whose engine has no vocabulary map.

    The search begins with BOS, and not with the token of a language. The position of a sentence that is done keeps
    growing until another sentence takes its place, so models with learned positions could run out of them. Windows
    of attention use slots again.
    """
    if (
        config.learned_positions is not None
        or config.attention_window is not None
        or codec.given_ids(sentence.direction)
    ):
        return False
    is_free = sentence.required == Required() and not sentence.terms
    return is_free and not (search.sample or search.scorer or search.beam_groups > 1)


class RunningSearch:
    """Beam search of sentences that join it at any time, and leave it when they are done.

    On a CPU, the translations are the same as in batches. See `can_join`.
    """

    def __init__(self, engine: PyTorchEngine, search: SearchConfig, log_probs: bool) -> None:
        self._engine, self._config, self._log_probs = engine, search, log_probs
        self._search: BeamSearch | None = None
        self._sentences: dict[int, tuple[Hashable, EncodedSentence]] = {}  # by their indices in the search

    @property
    def keys(self) -> list[Hashable]:
        """The keys of the sentences that are searched."""
        return [key for key, _ in self._sentences.values()]

    @torch.no_grad()
    def advance(self, sentences: Mapping[Hashable, EncodedSentence], steps: int) -> dict[Hashable, list[Translation]]:
        """Adds sentences, makes at most `steps` steps, and returns the translations of those that are done, by key."""
        hypotheses: dict[int, list[TokenHypothesis]] = {}
        with self._engine.session():
            if sentences:
                ordered = sorted(sentences.items(), key=lambda item: item[1].width)
                begun = self._engine.start([sentence for _, sentence in ordered], self._config)
                first = self._search.count if self._search else 0
                if self._search:
                    self._search.join(*begun)
                else:
                    self._search = BeamSearch(self._engine.step, *begun, _DONE_SHARE)
                self._sentences.update(enumerate(ordered, first))
            while self._search and self._search.live and steps:
                hypotheses |= self._search.advance()
                steps -= 1
        done = [self._sentences.pop(index) for index in hypotheses]
        if not self._sentences:
            self._search = None
        translations = self._engine.translations(
            [sentence for _, sentence in done], list(hypotheses.values()), self._config, log_probs=self._log_probs
        )
        return dict(zip((key for key, _ in done), translations, strict=True))
