"""The engine that computes with PyTorch: from encoded sentences to translations, and from pairs to scores."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import torch

from nmt import console, extensions
from nmt.checkpoint import build_model, load_checkpoint
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.vocabulary_map import VocabularyMap
from nmt.errors import NmtError
from nmt.model.device import Runtime, set_up
from nmt.model.out_of_memory import in_halves
from nmt.model.transformer import Transformer
from nmt.search import search as search_for
from nmt.search.api import Required, Scorer, SearchBatch, TokenHypothesis
from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.subword import BOS, EOS, PAD, UNK
from nmt.translate.alignment import SentencePair, align
from nmt.translate.ensemble import Ensemble, EnsembleCache
from nmt.translate.pairs import EncodedPair
from nmt.translate.records import Score, Translation
from nmt.translate.units import WIDTH_MULTIPLE, EncodedSentence, longest_first


class PyTorchEngine:
    """The engine of this toolkit; see `nmt.translate.engine.Engine`."""

    def __init__(
        self,
        models: Sequence[Transformer],
        codec: TextCodec,
        runtime: Runtime,
        vocabulary_map: VocabularyMap | None = None,
    ) -> None:
        self.ensemble = Ensemble(models, runtime, vocabulary_map, codec.borders())
        self.codec, self.runtime = codec, runtime
        self._scorers: dict[str, Scorer] = {}

    @classmethod
    def load(
        cls,
        *checkpoints: str | Path,
        runtime: RuntimeConfig | None = None,
        process: int = 0,
        vocabulary_map: str | None = None,
    ) -> Self:
        """Loads the model of a checkpoint, or an ensemble of several; see `nmt.model.device.set_up` for `process`.

        Raises:
            NmtError: a file is not a checkpoint, or two differ in vocabulary or text processing.
        """
        runtime = runtime or RuntimeConfig()
        extensions.load(runtime.user_module)  # in a worker process, this is the first time
        resolved = set_up(runtime, process, shares_gpus=True)
        loaded = list(map(load_checkpoint, checkpoints))
        codec = loaded[0].codec
        for path, other in zip(checkpoints[1:], loaded[1:], strict=True):
            if other.codec.to_dict() != codec.to_dict():
                raise NmtError(
                    f"{path} and {checkpoints[0]} differ in vocabulary or text processing; "
                    f"an ensemble's models must be trained on one data folder"
                )
        # On a GPU, converting activations between fp32 and 16 bits takes longer than most products of a step.
        dtype = torch.float32 if resolved.device.type == "cpu" else resolved.dtype
        models = [build_model(*each).to(dtype) for each in zip(loaded, checkpoints, strict=True)]
        candidates = None
        if vocabulary_map is not None:
            candidates = VocabularyMap.parsed(read_lines(vocabulary_map), vocabulary_map, codec)
        return cls(models, codec, resolved, candidates)

    @property
    def device(self) -> str:
        return self.runtime.device.type

    def session(self) -> AbstractContextManager[object]:
        is_converted = self.ensemble.models[0].softmax_matrix_VD.dtype == self.runtime.dtype
        return nullcontext() if is_converted else self.runtime.autocast()

    @torch.no_grad()
    def translate(
        self, sentences: Sequence[EncodedSentence], search: SearchConfig, *, log_probs: bool
    ) -> list[list[Translation]]:
        if search.scorer and self.ensemble.vocabulary_map:
            raise NmtError("--scorer needs the whole vocabulary, but --vocabulary-map was given; leave out one of them")
        for model in self.ensemble.models:
            model.config.check_positions(
                max(search.longest, search.max_source_length + WIDTH_MULTIPLE),
                "--max-source-length and --max-length-offset allow sentences of",
                "lower them, and longer lines are translated in parts",
            )

        def too_large(sentence: EncodedSentence) -> NmtError:
            return NmtError(
                f"memory ran out for a single sentence of {len(sentence.ids):,} pieces; "
                f"lower --max-source-length, and it is translated in parts, or --beam or --samples"
            )

        def warn(count: int) -> None:
            console.warn(f"memory ran out with {count:,} sentences at once, which are now translated in two halves")

        by_index: dict[int, list[TokenHypothesis]] = {}
        with self.session():
            # Batches of the service, and alternatives, may hold more tokens than are computed at once.
            for batch in longest_first([s.width for s in sentences], search.tokens_at_once(self.device)):
                chosen = [sentences[i] for i in batch]
                hypotheses = in_halves(lambda half: self._search(half, search), chosen, too_large, warn)
                by_index |= zip(batch, hypotheses, strict=True)
        in_order = [by_index[i] for i in range(len(sentences))]
        return self.translations(sentences, in_order, search, log_probs=log_probs)

    def _search(self, sentences: Sequence[EncodedSentence], search: SearchConfig) -> list[list[TokenHypothesis]]:
        """Searches all sentences together."""
        order = sorted(range(len(sentences)), key=lambda i: sentences[i].width)
        cache, batch = self.start([sentences[i] for i in order], search)
        of_order = search_for(self.ensemble.step, cache, batch)  # type: ignore[arg-type]
        if cache.candidates:
            ids = cache.candidates.ids_V.tolist()
            of_order = [[replace(h, tokens=[ids[token] for token in h.tokens]) for h in each] for each in of_order]
        return [of_sentence for _, of_sentence in sorted(zip(order, of_order, strict=True), key=lambda pair: pair[0])]

    def start(self, sentences: Sequence[EncodedSentence], search: SearchConfig) -> tuple[EnsembleCache, SearchBatch]:
        """Encodes sentences in the order of their widths, and returns what search begins with."""
        cache, batch = self.ensemble.start(sentences, search)
        if search.scorer is None:
            return cache, batch
        if search.scorer not in self._scorers:
            self._scorers[search.scorer] = extensions.scorer(search.scorer)(self.codec)
        return cache, replace(batch, scorer=self._scorers[search.scorer])

    def translations(
        self,
        sentences: Sequence[EncodedSentence],
        hypotheses: Sequence[Sequence[TokenHypothesis]],
        search: SearchConfig,
        *,
        log_probs: bool,
    ) -> list[list[Translation]]:
        """Returns the translations of sentences from their hypotheses."""
        if not all(hypotheses):  # search gives no hypothesis if all pieces have the probability 0 or NaN
            if search.scorer:
                raise NmtError(f"--scorer {search.scorer} leaves no piece that may be next; correct it")
            raise NmtError("the model gives NaN probabilities; use another checkpoint")
        flat = [(s, h) for s, of_sentence in zip(sentences, hypotheses, strict=True) for h in of_sentence]
        texts = [
            # Prefixes and constraints as they were given
            self.codec.target_with(text, sentence.given._replace(constraints=()) if h.unmet else sentence.given)
            for text, (sentence, h) in zip(self.codec.decode_target([h.tokens for _, h in flat]), flat, strict=True)
        ]
        pairs = [
            SentencePair(sentence.ids, sentence.words, h.tokens, self.codec.words("target", text, h.tokens))
            for text, (sentence, h) in zip(texts, flat, strict=True)
            if sentence.words
        ]
        aligned = iter(align(self.ensemble.models, self.runtime, pairs) if pairs else ())
        records = iter(
            Translation(
                text,
                h.score,
                self.codec.target.pieces(h.tokens) if log_probs else [],
                h.log_probs if log_probs else [],
                h.unmet,
                tuple(next(aligned)) if sentence.words else () if search.alignments else None,
            )
            for text, (sentence, h) in zip(texts, flat, strict=True)
        )
        for sentence, of_sentence in zip(sentences, hypotheses, strict=True):
            if any(h.unmet for h in of_sentence):
                console.warn(
                    f"{sentence.place}: a translation lacks some of its constraints, because they do not fit into "
                    f"the maximum length; raise --max-length-offset or leave some out"
                )
        return [[next(records) for _ in of_sentence] for of_sentence in hypotheses]

    @torch.no_grad()
    def score(self, pairs: Sequence[EncodedPair], *, alignments: bool = True) -> list[list[Score]]:
        flat = [(pair, target) for pair in pairs for target in pair.targets]

        def log_probs(some: Sequence[tuple[EncodedPair, np.ndarray]]) -> list[list[float]]:
            for pair, ids in some:
                for model in self.ensemble.models:
                    needed = 1 + max(len(pair.source), len(ids))
                    model.config.check_positions(needed, f"line {pair.number} has", "take it out")
            values = self.ensemble.log_probs([pair.source for pair, _ in some], [ids for _, ids in some])
            if any(map(math.isnan, chain.from_iterable(values))):
                raise NmtError("the model gives NaN probabilities; use another checkpoint")
            return values

        def too_large(pair_and_ids: tuple[EncodedPair, np.ndarray]) -> NmtError:
            pair, ids = pair_and_ids
            return NmtError(
                f"memory ran out for line {pair.number} ({len(pair.source):,} source pieces, "
                f"{len(ids):,} target pieces); take it out or use a machine with more memory"
            )

        with self.session():
            values = iter(in_halves(log_probs, flat, too_large) if flat else [])
            words = [pair.words(self.codec) for pair in pairs] if alignments else []
            aligned = iter(align(self.ensemble.models, self.runtime, list(chain.from_iterable(words))))
        return [
            [
                Score.of_pieces(self.codec.target.pieces(ids.tolist()), next(values), next(aligned, None))
                for ids in pair.targets
            ]
            for pair in pairs
        ]

    @torch.no_grad()
    def alternatives(self, sentence: EncodedSentence, count: int, search: SearchConfig) -> list[Translation]:
        prefix = sentence.required.prefix
        with self.session():
            probabilities_V = self.ensemble.next_probabilities(sentence.ids, prefix)
        probabilities_V[[PAD, UNK, BOS, EOS]] = -1
        pieces = probabilities_V.topk(min(count, len(probabilities_V) - 4)).indices.tolist()
        continued = [replace(sentence, required=Required((*prefix, piece))) for piece in pieces]
        return [translations[0] for translations in self.translate(continued, search, log_probs=True)]
