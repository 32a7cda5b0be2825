"""The models that search and scoring read: one, or several that average their probabilities.

Shapes: see docs/architecture.md; B sentences, R rows of hypotheses, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np
import torch
from torch import Tensor

from nmt.config import SearchConfig
from nmt.data.loader import make_side
from nmt.data.vocabulary_map import VocabularyMap
from nmt.model.device import Runtime
from nmt.model.incremental import DecoderCache, start
from nmt.model.incremental import step as step_model
from nmt.model.masks import bound_on
from nmt.model.transformer import LOGIT_ROWS, OutputLayer, Transformer
from nmt.search.api import Required, SearchBatch
from nmt.text.subword import BOS, EOS, NEVER, with_bos, with_eos
from nmt.translate.units import LEAST_WIDTH, WIDTH_MULTIPLE, EncodedSentence

# The source positions of a batch are padded to a multiple of this. Each is a row of a matrix product, and CPUs compile
# bf16 products for every new number of rows.
_POSITIONS = 64


@dataclass(frozen=True)
class Candidates:
    """The tokens that translate the sentences of a batch. Search numbers them from 0, in the order of their ids.

    Attributes:
        ids_V: the candidates of any sentence.
        bias_BV: -inf where a token is no candidate of a sentence, so that its translation does not depend on the batch.
        outputs: what computes the logits of the candidates, for each model.
    """

    ids_V: Tensor
    bias_BV: Tensor
    outputs: tuple[OutputLayer, ...]

    def tokens(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Returns the numbers of candidates with these ids. Other ids are left out."""
        wanted = torch.tensor(ids, dtype=torch.long, device=self.ids_V.device)
        return tuple(torch.searchsorted(self.ids_V, wanted[torch.isin(wanted, self.ids_V)]).tolist())

    def restricted(self, batch: SearchBatch) -> SearchBatch:
        """Returns the batch with numbers of candidates in place of ids."""
        required = [
            Required(self.tokens(r.prefix), tuple(tuple(map(self.tokens, phrases)) for phrases in r.constraints))
            for r in batch.required
        ]
        (bos, eos), never = self.tokens([batch.bos, batch.eos]), self.tokens(batch.never)
        borders_V = None if batch.borders_V is None else batch.borders_V[self.ids_V]
        return replace(batch, bos=bos, eos=eos, never=never, required=required, borders_V=borders_V)


@dataclass(frozen=True)
class EnsembleCache:
    """The state of each model, and with --vocabulary-map the candidates."""

    caches: tuple[DecoderCache, ...]
    candidates: Candidates | None

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> "EnsembleCache":
        candidates = self.candidates
        if candidates is not None and sentences_B is not None:
            candidates = replace(candidates, bias_BV=candidates.bias_BV.index_select(0, sentences_B))
        return EnsembleCache(tuple(cache.select(parents_BW, sentences_B) for cache in self.caches), candidates)

    def join(self, others: "EnsembleCache", places_X: Tensor) -> "EnsembleCache":
        caches = zip(self.caches, others.caches, strict=True)
        return replace(self, caches=tuple(cache.join(other, places_X) for cache, other in caches))


class Ensemble:
    """One model, or several that average their probabilities.

    Attributes:
        vocabulary_map: restricts the pieces that a sentence is translated with, if there is one.
        borders: which pieces may stand directly behind a required phrase; by default all.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        runtime: Runtime,
        vocabulary_map: VocabularyMap | None = None,
        borders: Sequence[bool] | None = None,
    ) -> None:
        self.models = [model.to(runtime.device).eval() for model in models]
        self.runtime, self.vocabulary_map = runtime, vocabulary_map
        self._borders_V = None if borders is None else torch.tensor(borders, device=runtime.device)

    def start(self, sentences: Sequence[EncodedSentence], search: SearchConfig) -> tuple[EnsembleCache, SearchBatch]:
        """Encodes sentences in the order of their widths, and returns what search begins with.

        On a CPU, their sources lie in blocks of one padded width each, so none is padded to the width of another. On a
        GPU, the calls for so many blocks would take longer than computing the padding.
        """
        on_cpu = self.runtime.device.type == "cpu"
        widths = [s.width if on_cpu else bound_on(s.width) for s in sentences]
        in_blocks = groupby(zip(widths, sentences, strict=True), key=lambda pair: pair[0])
        blocks = [[with_eos(s.ids) for _, s in block] for _, block in in_blocks]
        learned = [model.config.learned_positions or LEAST_WIDTH for model in self.models]
        side = make_side(blocks, _POSITIONS, WIDTH_MULTIPLE, min(LEAST_WIDTH, *learned)).to(self.runtime.device)
        states = tuple(start(model, side.ids_F, side.layout, search.hypotheses) for model in self.models)
        batch = SearchBatch(
            max_lengths_B=side.layout.lengths_B + search.max_length_offset,  # source and output both count EOS
            bos=BOS,
            eos=EOS,
            # A line that has words never gets an empty translation.
            config=replace(search, min_length=max(1, search.min_length)),
            required=[s.required for s in sentences],
            streams=[s.stream for s in sentences],
            never=NEVER,
            borders_V=self._borders_V,
        )
        if self.vocabulary_map is None:
            return EnsembleCache(states, None), batch
        candidates = self._candidates(sentences, self.vocabulary_map)
        return EnsembleCache(states, candidates), candidates.restricted(batch)

    def _candidates(self, sentences: Sequence[EncodedSentence], vocabulary_map: VocabularyMap) -> Candidates:
        """Returns the candidates of sentences: those of the map, and what their translations must contain."""
        allowed_BV = torch.from_numpy(vocabulary_map.candidates([s.ids.tolist() for s in sentences]))
        for allowed_V, sentence in zip(allowed_BV, sentences, strict=True):
            phrases = chain.from_iterable(sentence.required.constraints)
            allowed_V[[*sentence.required.prefix, *chain.from_iterable(phrases)]] = True
        ids_V = allowed_BV.any(0).nonzero()[:, 0]
        ids_V, allowed_BV = ids_V.to(self.runtime.device), allowed_BV[:, ids_V].to(self.runtime.device)
        outputs = tuple(model.output_layer(ids_V) for model in self.models)
        bias_BV = torch.zeros(allowed_BV.shape, device=allowed_BV.device).masked_fill_(~allowed_BV, -torch.inf)
        return Candidates(ids_V, bias_BV, outputs)

    def step(self, tokens_R: Tensor, cache: EnsembleCache) -> tuple[Tensor, EnsembleCache]:
        """Returns scores RV of the next token: the logits, or for an ensemble, the log of the summed probabilities.

        Search normalises them, so that the sum becomes the average.
        """
        candidates = cache.candidates
        ids_R = candidates.ids_V[tokens_R] if candidates else tokens_R
        layers = candidates.outputs if candidates else [None] * len(self.models)
        states = zip(self.models, cache.caches, layers, strict=True)
        outputs = [step_model(model, ids_R, state, layer) for model, state, layer in states]
        caches = replace(cache, caches=tuple(state for _, state in outputs))
        logits = [logits_RV.float() for logits_RV, _ in outputs]
        if candidates:
            for logits_RV in logits:  # in bf16, a CPU takes several times as long
                logits_RV.unflatten(0, (len(candidates.bias_BV), -1)).add_(candidates.bias_BV[:, None])
        if len(logits) == 1:
            return logits[0], caches
        return torch.stack([logits_RV.log_softmax(-1) for logits_RV in logits]).logsumexp(0), caches

    def _decoded(self, source: Sequence[np.ndarray], target: Sequence[Sequence[int] | np.ndarray]) -> list[Tensor]:
        """Returns the decoder output of each model for pairs of ids, padded to one width; [M, D]."""
        sources = make_side([list(map(with_eos, source))]).to(self.runtime.device)
        targets = make_side([list(map(with_bos, target))]).to(self.runtime.device)
        return [
            model.decode(targets.ids_F, targets.layout, model.encode(sources.ids_F, sources.layout), sources.layout)
            for model in self.models
        ]

    def next_probabilities(self, source: np.ndarray, prefix: Sequence[int]) -> Tensor:
        """Returns the probability of each piece behind the prefix, summed over the models; [V]."""
        decoded = zip(self.models, self._decoded([source], [prefix]), strict=True)
        return torch.stack([m.logits(x_MD)[len(prefix)].float().softmax(-1) for m, x_MD in decoded]).sum(0)

    def log_probs(self, source: Sequence[np.ndarray], target: Sequence[np.ndarray]) -> list[list[float]]:
        """Returns log P of each piece of each target and, last, of EOS, with the models' probabilities averaged."""
        decoded = self._decoded(source, target)
        labels_M = make_side([list(map(with_eos, target))]).to(self.runtime.device).ids_F
        rows = LOGIT_ROWS[self.runtime.device.type]
        log_probs = []
        for labels_J, *decoded_JD in zip(labels_M.split(rows), *(x_MD.split(rows) for x_MD in decoded), strict=True):
            of_models = [
                model.logits(x_JD).float().log_softmax(-1).gather(1, labels_J[:, None])[:, 0]
                for model, x_JD in zip(self.models, decoded_JD, strict=True)
            ]
            log_probs.append(torch.stack(of_models).logsumexp(0) - math.log(len(of_models)))
        padded = torch.cat(log_probs).view(len(target), -1).tolist()
        return [of_target[: len(ids) + 1] for of_target, ids in zip(padded, target, strict=True)]
