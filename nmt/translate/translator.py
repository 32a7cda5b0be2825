"""Raw text to translations, with one model or an ensemble.

Shapes: see docs/architecture.md; B sentences, R rows of hypotheses, V vocabulary.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from nmt import console, extensions
from nmt.checkpoint import build_model, load_checkpoint
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.loader import make_side
from nmt.data.vocabulary_map import VocabularyMap
from nmt.errors import NmtError
from nmt.model.device import Runtime, set_up
from nmt.model.incremental import DecoderCache, start
from nmt.model.incremental import step as step_model
from nmt.model.masks import bound_on
from nmt.model.out_of_memory import in_halves
from nmt.model.transformer import OutputLayer, Transformer
from nmt.search import search as search_for
from nmt.search.api import Required, Scorer, SearchBatch, TokenHypothesis
from nmt.search.beam import BeamSearch
from nmt.text.codec import TextCodec
from nmt.text.subword import BOS, EOS, NEVER, with_eos
from nmt.text.words import AlignedWords
from nmt.translate.alignment import SentencePair, align
from nmt.translate.requests import (
    LEAST_WIDTH,
    WIDTH_MULTIPLE,
    EncodedRequest,
    Hypothesis,
    Request,
    batches,
    encode,
    joined,
    longest_first,
    parts_and_words,
)

# The number of a sentence seeds its random numbers. Part i (from 0) of line n has the number n + i · this.
_NUMBERS_OF_LINES = 2**40
# The source positions of a batch are padded to a multiple of this. Each is a row of a matrix product, and CPUs compile
# bf16 products for every new number of rows.
_POSITIONS = 64
# Lines that are done leave a running search when they are this share of it. Until then, others can take their places.
_DONE_SHARE = 0.25


@dataclass(frozen=True)
class _Candidates:
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
        return replace(batch, bos=bos, eos=eos, never=never, required=required)

    def mask(self, logits_RV: Tensor) -> None:
        """Changes the logits of tokens that are no candidates of the row's sentence to -inf, in place."""
        logits_RV.unflatten(0, (len(self.bias_BV), -1)).add_(self.bias_BV[:, None])


@dataclass(frozen=True)
class _EnsembleCache:
    """The state of each model, and with --vocabulary-map the candidates."""

    caches: tuple[DecoderCache, ...]
    candidates: _Candidates | None

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> "_EnsembleCache":
        candidates = self.candidates
        if candidates is not None and sentences_B is not None:
            candidates = replace(candidates, bias_BV=candidates.bias_BV.index_select(0, sentences_B))
        return _EnsembleCache(tuple(cache.select(parents_BW, sentences_B) for cache in self.caches), candidates)

    def join(self, others: "_EnsembleCache", places_X: Tensor) -> "_EnsembleCache":
        caches = zip(self.caches, others.caches, strict=True)
        return replace(self, caches=tuple(cache.join(other, places_X) for cache, other in caches))


def can_join(line: EncodedRequest, search: SearchConfig) -> bool:
    """Returns whether a line can join a `RunningSearch`. Its model must allow that too."""
    is_plain = not (search.sample or search.scorer or search.beam_groups > 1)
    return is_plain and len(line.parts) == 1 and line.required == Required()


class RunningSearch:
    """Beam search of lines that join it at any time, and leave it when they are done.

    On a CPU, the translations are the same as in batches. See `can_join` and `nmt.model.incremental.can_join`. The
    translator must not have a vocabulary map.
    """

    def __init__(self, translator: "Translator", search: SearchConfig) -> None:
        self._translator, self._config = translator, search
        self._search: BeamSearch | None = None
        self._lines: dict[int, tuple[Hashable, EncodedRequest]] = {}  # by their numbers in the search

    @property
    def keys(self) -> list[Hashable]:
        """The keys of the lines that are searched."""
        return [key for key, _ in self._lines.values()]

    @torch.no_grad()
    def advance(self, lines: Mapping[Hashable, EncodedRequest], steps: int) -> dict[Hashable, list[Hypothesis]]:
        """Adds lines, makes at most `steps` steps, and returns the translations of the lines that are done, by key."""
        found: dict[int, list[TokenHypothesis]] = {}
        with self._translator.session():
            if lines:
                self._join(lines)
            while self._search and self._search.live and steps:
                found |= self._search.advance()
                steps -= 1
        done = [self._lines.pop(number) for number in found]
        if not self._lines:
            self._search = None
        translations = self._translator.translations([line for _, line in done], list(found.values()), self._config)
        return dict(zip((key for key, _ in done), translations, strict=True))

    def _join(self, lines: Mapping[Hashable, EncodedRequest]) -> None:
        ordered = sorted(lines.items(), key=lambda item: item[1].width)
        cache, batch = self._translator.begun([line for _, line in ordered], self._config)
        if self._search is None:
            step = self._translator.step
            self._search, first = BeamSearch(step, cache, batch, _DONE_SHARE), 0  # type: ignore[arg-type]
        else:
            first = self._search.count
            self._search.join(cache, batch)
        self._lines.update(enumerate(ordered, first))


class Translator:
    """Translates with one model, or with several that average their probabilities.

    Attributes:
        vocabulary_map: restricts the pieces that a sentence is translated with, if there is one.
    """

    vocabulary_map: VocabularyMap | None = None

    def __init__(self, models: Sequence[Transformer], codec: TextCodec, runtime: Runtime) -> None:
        self.models = [model.to(runtime.device).eval() for model in models]
        self.codec, self.runtime = codec, runtime
        self._scorers: dict[str, Scorer] = {}

    @classmethod
    def load(cls, *checkpoints: str | Path, runtime: RuntimeConfig | None = None, process: int = 0) -> Self:
        """Loads the model of a checkpoint, or an ensemble of several; see `nmt.model.device.set_up` for `process`.

        Raises:
            NmtError: a file is not a checkpoint, or two differ in vocabulary or text processing.
        """
        runtime = runtime or RuntimeConfig()
        extensions.load(runtime.user_module)  # in a worker process, this is the first time
        resolved = set_up(runtime, process, shares_gpus=True)
        loaded = [(path, load_checkpoint(path)) for path in checkpoints]
        first_path, first = loaded[0]
        for path, other in loaded[1:]:
            if other.codec.to_dict() != first.codec.to_dict():
                raise NmtError(
                    f"{path} and {first_path} differ in vocabulary or text processing; "
                    f"an ensemble's models must be trained on one data folder"
                )
        models = [build_model(checkpoint, path) for path, checkpoint in loaded]
        # On a GPU, converting activations between fp32 and 16 bits takes longer than most products of a step.
        dtype = torch.float32 if resolved.device.type == "cpu" else resolved.dtype
        return cls([model.to(dtype) for model in models], first.codec, resolved)

    def translate(
        self, lines: Sequence[str], search: SearchConfig | None = None, advance: Callable[[int], None] = lambda _: None
    ) -> list[str]:
        """Returns the best translation of each raw line, in order. An empty line gives an empty line.

        Args:
            advance: called after each batch with the number of lines it held.

        Raises:
            TypeError: `lines` is a single string, whose characters would be taken for lines.
        """
        return [hypotheses[0].text for hypotheses in self.hypotheses(lines, search or SearchConfig(), advance)]

    def hypotheses(
        self, lines: Sequence[str | Request], search: SearchConfig, advance: Callable[[int], None] = lambda _: None
    ) -> list[list[Hypothesis]]:
        """Returns the n best translations of each line, best first, or its samples.

        A blank line has one empty translation. A line of more than `search.max_source_length` pieces is translated in
        parts, with a warning. The best translations of the parts are joined.

        Args:
            lines: raw text, or requests with prefixes and constraints.
            advance: called after each batch with the number of lines it held.
        """
        if isinstance(lines, str):
            raise TypeError("translate and hypotheses take a list of lines; put a single one in brackets")
        requests = [line if isinstance(line, Request) else Request(line) for line in lines]
        encoded = encode(self.codec, requests, 1, search)
        found: list[list[Hypothesis]] = [[] for _ in encoded]
        with self.session():
            for batch in batches(encoded, search.tokens_at_once(self.runtime.device.type)):
                for index, result in zip(batch, self.search([encoded[i] for i in batch], search), strict=True):
                    found[index] = result
                advance(len(batch))
        return found

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for several calls of `search`, within which autocast converts each weight at most once."""
        is_converted = self.models[0].softmax_matrix_VD.dtype == self.runtime.dtype
        return nullcontext() if is_converted else self.runtime.autocast()

    @torch.no_grad()
    def search(
        self,
        lines: Sequence[EncodedRequest],
        search: SearchConfig,
        *,
        log_probs: bool = True,  # noqa: ARG002 (other engines use it)
    ) -> list[list[Hypothesis]]:
        """Returns the translations of the lines of a batch, always with log P of each piece."""
        if search.scorer and self.vocabulary_map:
            raise NmtError("--scorer needs the whole vocabulary, but --vocabulary-map was given; leave out one of them")
        for model in self.models:
            model.config.check_positions(
                max(search.longest, search.max_source_length + WIDTH_MULTIPLE),
                "--max-source-length and --max-length-offset allow sentences of",
                "lower them, and longer lines are translated in parts",
            )
        sentences = [
            replace(line, parts=(part,), number=line.number + i * _NUMBERS_OF_LINES)
            for line in lines
            for i, part in enumerate(line.parts)
        ]
        found: list[list[TokenHypothesis]] = [[] for _ in sentences]
        with self.session():  # a long line may have more parts than memory can hold at once
            for batch in longest_first([s.width for s in sentences], search.tokens_at_once(self.runtime.device.type)):
                for index, result in zip(batch, self._search([sentences[i] for i in batch], search), strict=True):
                    found[index] = result
        return self.translations(lines, found, search)

    def translations(
        self, lines: Sequence[EncodedRequest], found: Sequence[Sequence[TokenHypothesis]], search: SearchConfig
    ) -> list[list[Hypothesis]]:
        """Returns the translations of lines from what was found for each of their parts."""
        if not all(found):  # search finds nothing if all pieces have the probability 0 or NaN
            if search.scorer:
                raise NmtError(f"--scorer {search.scorer} leaves no piece that may be next; correct it")
            raise NmtError("the model gives NaN probabilities; use another checkpoint")
        texts = self._texts(lines, found)
        alignments = self._alignments(lines, found, texts) if search.alignments else [None] * len(texts)
        decoded = zip(texts, alignments, strict=True)
        parts = iter([[self._hypothesis(f, *next(decoded)) for f in of_part] for of_part in found])
        translations = [
            joined(self.codec, [next(parts) for _ in line.parts], aligned=search.alignments) for line in lines
        ]
        for line, hypotheses in zip(lines, translations, strict=True):
            if any(h.unmet for h in hypotheses):
                console.warn(
                    f"{line.place}: a translation lacks some of its constraints, because they do not fit into "
                    f"the maximum length; raise --max-length-offset or leave some out"
                )
        return translations

    def _search(self, sentences: Sequence[EncodedRequest], search: SearchConfig) -> list[list[TokenHypothesis]]:
        """Searches sentences, which have one part each, in halves if memory runs out."""

        def too_large(sentence: EncodedRequest) -> NmtError:
            return NmtError(
                f"memory ran out for a single sentence of {len(sentence.parts[0]):,} pieces; "
                f"lower --max-source-length, and it is translated in parts, or --beam or --samples"
            )

        def halved(count: int) -> None:
            console.warn(f"memory ran out with {count:,} sentences at once, which are now translated in two halves")

        return in_halves(lambda some: self._search_at_once(some, search), sentences, too_large, halved)

    def _search_at_once(self, sentences: Sequence[EncodedRequest], search: SearchConfig) -> list[list[TokenHypothesis]]:
        """Searches all sentences together."""
        order = sorted(range(len(sentences)), key=lambda i: sentences[i].width)
        cache, batch = self.begun([sentences[i] for i in order], search)
        found = search_for(self.step, cache, batch)  # type: ignore[arg-type]
        if cache.candidates:
            ids = cache.candidates.ids_V.tolist()
            found = [[replace(f, tokens=[ids[token] for token in f.tokens]) for f in of_one] for of_one in found]
        return [of_sentence for _, of_sentence in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    def begun(self, ordered: Sequence[EncodedRequest], search: SearchConfig) -> tuple[_EnsembleCache, SearchBatch]:
        """Encodes sentences of one part each, in the order of their widths, and returns what search begins with.

        On a CPU, their sources lie in blocks of one padded width each, so none is padded to the width of another. On a
        GPU, the calls for so many blocks would take longer than computing the padding.
        """
        on_cpu = self.runtime.device.type == "cpu"
        widths = [s.width if on_cpu else bound_on(s.width) for s in ordered]
        in_blocks = groupby(zip(widths, ordered, strict=True), key=lambda pair: pair[0])
        blocks = [[with_eos(s.parts[0]) for _, s in block] for _, block in in_blocks]
        learned = [model.config.learned_positions or LEAST_WIDTH for model in self.models]
        side = make_side(blocks, _POSITIONS, WIDTH_MULTIPLE, min(LEAST_WIDTH, *learned)).to(self.runtime.device)
        candidates = self._candidates(ordered, self.vocabulary_map) if self.vocabulary_map else None
        states = tuple(start(model, side.ids_F, side.layout, search.hypotheses) for model in self.models)
        batch = SearchBatch(
            max_lengths_B=side.layout.lengths_B + search.max_length_offset,  # source and output both count EOS
            bos=BOS,
            eos=EOS,
            config=search,
            required=[s.required for s in ordered],
            streams=[s.number for s in ordered],
            never=NEVER,
            scorer=self._scorer(search.scorer) if search.scorer else None,
        )
        return _EnsembleCache(states, candidates), candidates.restricted(batch) if candidates else batch

    def _candidates(self, sentences: Sequence[EncodedRequest], vocabulary_map: VocabularyMap) -> _Candidates:
        """Returns the candidates of sentences: those of the map, and what their translations must contain."""
        allowed_BV = torch.from_numpy(vocabulary_map.candidates([s.parts[0].tolist() for s in sentences]))
        for allowed_V, sentence in zip(allowed_BV, sentences, strict=True):
            phrases = chain.from_iterable(sentence.required.constraints)
            allowed_V[[*sentence.required.prefix, *chain.from_iterable(phrases)]] = True
        ids_V = allowed_BV.any(0).nonzero()[:, 0]
        ids_V, allowed_BV = ids_V.to(self.runtime.device), allowed_BV[:, ids_V].to(self.runtime.device)
        outputs = tuple(model.output_layer(ids_V) for model in self.models)
        bias_BV = torch.zeros(allowed_BV.shape, device=allowed_BV.device).masked_fill_(~allowed_BV, -torch.inf)
        return _Candidates(ids_V, bias_BV, outputs)

    def _scorer(self, name: str) -> Scorer:
        if name not in self._scorers:
            self._scorers[name] = extensions.scorer(name)(self.codec)
        return self._scorers[name]

    def step(self, tokens_R: Tensor, cache: _EnsembleCache) -> tuple[Tensor, _EnsembleCache]:
        """Returns scores RV of the next token: the logits, or for an ensemble, the log of the summed probabilities.

        Search normalises them, so that the sum becomes the average.
        """
        chosen = cache.candidates
        ids_R = chosen.ids_V[tokens_R] if chosen else tokens_R
        layers = chosen.outputs if chosen else [None] * len(self.models)
        states = zip(self.models, cache.caches, layers, strict=True)
        outputs = [step_model(model, ids_R, state, layer) for model, state, layer in states]
        caches = replace(cache, caches=tuple(c for _, c in outputs))
        logits = [logits_RV.float() for logits_RV, _ in outputs]
        if chosen:
            for logits_RV in logits:
                chosen.mask(logits_RV)  # in bf16, a CPU takes several times as long
        if len(logits) == 1:
            return logits[0], caches
        return torch.stack([logits_RV.log_softmax(-1) for logits_RV in logits]).logsumexp(0), caches

    def _texts(self, lines: Sequence[EncodedRequest], found: Sequence[Sequence[TokenHypothesis]]) -> list[str]:
        """Returns the raw text of each translation of each part, with prefixes and constraints as they were given."""
        owners = [line for line in lines for _ in line.parts]
        texts = iter(self.codec.decode_target([f.tokens for part in found for f in part]))
        return [
            self.codec.target_with(next(texts), line.given._replace(constraints=()) if f.unmet else line.given)
            for line, part in zip(owners, found, strict=True)
            for f in part
        ]

    def _alignments(
        self, lines: Sequence[EncodedRequest], found: Sequence[Sequence[TokenHypothesis]], texts: Sequence[str]
    ) -> list[tuple[AlignedWords, ...]]:
        """Returns the alignment of each translation of each part: words of the line, and of the translation."""
        sources = [part for line in lines for part in parts_and_words(self.codec, line)]
        owners = [source for source, translations in zip(sources, found, strict=True) for _ in translations]
        targets = [f.tokens for translations in found for f in translations]
        pairs = [
            SentencePair(*source, tokens, self.codec.target_words(text, tokens))
            for source, tokens, text in zip(owners, targets, texts, strict=True)
        ]
        return list(map(tuple, align(self.models, self.runtime, pairs)))

    def _hypothesis(self, found: TokenHypothesis, text: str, alignment: tuple[AlignedWords, ...] | None) -> Hypothesis:
        pieces = self.codec.target.pieces(found.tokens)
        return Hypothesis(text, found.score, pieces, found.log_probs, found.unmet, alignment)
