"""The engine that computes with PyTorch: from encoded sentences to translations, and from pairs to scores.

Shapes: see docs/architecture.md; B sentences, R rows of hypotheses, V vocabulary.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from nmt import console, extensions
from nmt.checkpoint import build_model, joint_codec, load_checkpoint
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.sides import make_side
from nmt.errors import NmtError
from nmt.model.device import Runtime, in_halves, is_native, moved, set_up
from nmt.model.masks import bound_on
from nmt.model.transformer import LOGIT_ROWS, OutputLayer, Transformer, pack, start
from nmt.model.transformer import step as step_model
from nmt.search.api import Caches, Required, Scorer, SearchBatch, TokenHypothesis
from nmt.search.beam import beam_search, scored
from nmt.search.sampling import sample
from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.languages import has_spaces
from nmt.text.subword import BOS, EOS, NEVER, PAD, UNK, with_bos, with_eos
from nmt.translate.alignment import SentencePair, align
from nmt.translate.encoding import LEAST_WIDTH, WIDTH_MULTIPLE, EncodedSentence, in_batches
from nmt.translate.pairs import EncodedPair, Score
from nmt.translate.placed_terms import translate_with_terms
from nmt.translate.units import Translation

if TYPE_CHECKING:
    from nmt.data.vocabulary_map import VocabularyMap

# The source positions of a batch are padded to a multiple of this. Each is a row of a matrix product, and CPUs
# compile bf16 products for every new number of rows.
_POSITIONS = 64


@dataclass(frozen=True)
class Shortlist:
    """The candidates of a batch by a vocabulary map. Search numbers them from 0, in the order of their ids.

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
        first_B = torch.searchsorted(self.ids_V, batch.first_B)
        return replace(batch, first_B=first_B, bos=bos, eos=eos, never=never, required=required, borders_V=borders_V)

    def select(self, _: Tensor, sentences_B: Tensor | None) -> Self:
        """Returns the shortlist of some of the sentences, like `DecoderCache.select`."""
        return self if sentences_B is None else replace(self, bias_BV=self.bias_BV.index_select(0, sentences_B))


def _too_large(sentence: EncodedSentence) -> NmtError:
    return NmtError(
        f"memory ran out for a single sentence of {len(sentence.ids):,} pieces; "
        f"lower --max-source-length, and it is translated in parts, or --beam or --samples"
    )


class PyTorchEngine:
    """The engine of this toolkit; a loaded model that translates and scores.

    Attributes:
        has_constraints: whether it can require phrases of a translation.
        models: one, or several that average their probabilities.
        vocabulary_map: restricts the pieces that a sentence is translated with, if there is one.
    """

    has_constraints = True

    def __init__(
        self,
        models: Sequence[Transformer],
        codec: TextCodec,
        runtime: Runtime,
        vocabulary_map: "VocabularyMap | None" = None,
    ) -> None:
        self.models = [model.to(runtime.device).eval() for model in models]
        self.codec, self.runtime, self.vocabulary_map = codec, runtime, vocabulary_map
        # With --mbr, each model of several searches alone.
        alone = [[model] for model in self.models] if len(self.models) > 1 else []
        self._members = [PyTorchEngine(each, codec, runtime, vocabulary_map) for each in alone] or [self]
        self._scorers: dict[str, Scorer] = {}
        self._borders_V: Tensor | None = None

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
            if (joint := joint_codec(codec, other.codec)) is None:
                raise NmtError(
                    f"{path} and {checkpoints[0]} differ in vocabulary or text processing; "
                    f"an ensemble's models must be trained on one data folder"
                )
            codec = joint
        # On a GPU, converting activations between fp32 and 16 bits takes longer than most products of a step.
        dtype = torch.float32 if resolved.device.type == "cpu" else resolved.dtype
        models = [build_model(*each).to(dtype) for each in zip(loaded, checkpoints, strict=True)]
        if resolved.dtype == torch.bfloat16 and dtype == torch.float32 and is_native(torch.bfloat16, "cpu"):
            for model in models:
                pack(model)
        candidates = None
        if vocabulary_map is not None:
            from nmt.data.vocabulary_map import VocabularyMap

            candidates = VocabularyMap.parsed(read_lines(vocabulary_map), vocabulary_map, codec)
        return cls(models, codec, resolved, candidates)

    @property
    def device(self) -> str:
        """`cuda` or `cpu`."""
        return self.runtime.device.type

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls, within which autocast converts each weight only once."""
        is_converted = all(weight.dtype == self.runtime.dtype for weight in self.models[0].parameters())
        return nullcontext() if is_converted else self.runtime.autocast()

    @torch.no_grad()
    def translate(
        self, sentences: Sequence[EncodedSentence], search: SearchConfig, *, log_probs: bool
    ) -> list[list[Translation]]:
        """Returns the translations of each sentence of a batch, best first, or its samples.

        Args:
            log_probs: whether pieces and their log P are needed.

        Raises:
            NmtError: the engine cannot do what a sentence or the search asks for.
        """
        if search.scorer and self.vocabulary_map:
            raise NmtError("--scorer needs the whole vocabulary, but --vocabulary-map was given; leave out one of them")
        if any(sentence.terms for sentence in sentences):
            return translate_with_terms(self, sentences, search)
        for model in self.models:
            model.config.check_positions(
                max(search.longest, search.max_source_length + WIDTH_MULTIPLE) + self.codec.config.most_language_tokens,
                "--max-source-length and --max-length-offset allow sentences of",
                "lower them, and longer lines are translated in parts",
            )

        def searched(batch: Sequence[EncodedSentence]) -> list[list[TokenHypothesis]]:
            pools = list[list[list[TokenHypothesis]]]()
            for n, engine in enumerate(self._members if search.mbr == "chrf" else [self]):
                caches, search_batch = engine.start(batch, replace(search, seed=search.seed + n))
                hypotheses = (sample if search.sample else beam_search)(engine.step, caches, search_batch)
                if self.vocabulary_map:
                    ids = caches[-1].ids_V.tolist()
                    hypotheses = [[replace(h, tokens=[ids[i] for i in h.tokens]) for h in each] for each in hypotheses]
                pools.append(hypotheses)
            return [[*chain(*each)] if all(each) else [] for each in zip(*pools, strict=True)]

        def warn(count: int) -> None:
            console.warn(f"memory ran out with {count:,} sentences at once, which are now translated in two halves")

        with self.session():
            hypotheses = in_halves(searched, sentences, _too_large, warn)
        return self.translations(sentences, hypotheses, search, log_probs=log_probs)

    @torch.no_grad()
    def score_prefixes(self, sentences: Sequence[EncodedSentence], search: SearchConfig) -> list[TokenHypothesis]:
        """Returns the prefix of each sentence as the only hypothesis, with log P of its pieces and of EOS."""

        def hypotheses(some: Sequence[EncodedSentence]) -> list[TokenHypothesis]:
            given = [self.codec.given_ids(s.direction) for s in some]
            targets = [np.array([*ids, *s.required.prefix]) for s, ids in zip(some, given, strict=True)]
            both = zip(some, given, self._log_probs([s.ids for s in some], targets), strict=True)
            return [scored([*s.required.prefix], values[len(ids) :], search.alpha) for s, ids, values in both]

        def fitting(some: Sequence[EncodedSentence]) -> list[TokenHypothesis]:
            return in_halves(hypotheses, some, _too_large)

        widths = [len(s.ids) + len(s.required.prefix) + 2 for s in sentences]
        with self.session():
            return in_batches(fitting, sentences, widths, search.tokens_at_once(self.device))

    def start(self, sentences: Sequence[EncodedSentence], search: SearchConfig) -> tuple[Caches, SearchBatch]:
        """Encodes sentences, of which those of equal width lie side by side; returns what search begins with.

        The caches are those of the models and, with a vocabulary map, the `Shortlist` behind them. On a CPU,
        sources lie in blocks of one padded width each, so none is padded to the width of another. On a GPU, the
        calls for so many blocks would take longer than computing the padding.
        """
        on_cpu = self.runtime.device.type == "cpu"
        widths = [s.width if on_cpu else bound_on(s.width) for s in sentences]
        in_blocks = groupby(zip(widths, sentences, strict=True), key=lambda pair: pair[0])
        blocks = [[with_eos(s.ids) for _, s in block] for _, block in in_blocks]
        learned = [model.config.learned_positions or LEAST_WIDTH for model in self.models]
        side = moved(make_side(blocks, _POSITIONS, WIDTH_MULTIPLE, min(LEAST_WIDTH, *learned)), self.runtime.device)
        caches: Caches = [start(model, side.ids_F, side.layout, search.hypotheses) for model in self.models]
        given = [self.codec.given_ids(s.direction) for s in sentences]
        if any(given):  # search begins behind BOS
            bos_R = side.ids_F.new_full((len(sentences) * search.hypotheses,), BOS)
            pairs = zip(self.models, caches, strict=True)
            caches = [step_model(model, bos_R, cache, model.output_layer(bos_R[:1]))[1] for model, cache in pairs]
        constrained = [s.direction.target for s in sentences if s.required.constraints]
        batch = SearchBatch(
            max_lengths_B=side.layout.lengths_B + search.max_length_offset,  # source and output both count EOS
            first_B=torch.tensor([[BOS, *ids][-1] for ids in given], device=self.runtime.device),
            bos=BOS,
            eos=EOS,
            config=search,
            required=[s.required for s in sentences],
            streams=[s.key if any(s.key[1:]) else s.key[:1] for s in sentences],
            min_length=search.least_pieces,
            never=NEVER,
            borders_V=self._borders(constrained) if constrained else None,
            scorer=self._scorer(search.scorer) if search.scorer else None,
        )
        if self.vocabulary_map:
            shortlist = self._shortlist(sentences, self.vocabulary_map)
            return [*caches, shortlist], shortlist.restricted(batch)
        return caches, batch

    def _shortlist(self, sentences: Sequence[EncodedSentence], vocabulary_map: "VocabularyMap") -> Shortlist:
        """Returns the candidates of sentences: those of the map, and what their translations must or may contain."""
        allowed_BV = torch.from_numpy(vocabulary_map.candidates([s.ids.tolist() for s in sentences]))
        for allowed_V, sentence in zip(allowed_BV, sentences, strict=True):
            phrases = chain.from_iterable(sentence.required.constraints)
            given = self.codec.given_ids(sentence.direction)
            allowed_V[[*given, *sentence.required.prefix, *chain.from_iterable(phrases)]] = True
            if self.codec.config.term_pieces or self.codec.config.similar_piece:  # translations are in the source
                allowed_V[sentence.ids] = True
        ids_V = allowed_BV.any(0).nonzero()[:, 0]
        ids_V, allowed_BV = ids_V.to(self.runtime.device), allowed_BV[:, ids_V].to(self.runtime.device)
        outputs = tuple(model.output_layer(ids_V) for model in self.models)
        bias_BV = torch.zeros(allowed_BV.shape, device=allowed_BV.device).masked_fill_(~allowed_BV, -torch.inf)
        return Shortlist(ids_V, bias_BV, outputs)

    def _borders(self, languages: Sequence[str]) -> Tensor | None:
        """Returns what may follow phrases of these languages; anything if one of them has no spaces."""
        if not all(map(has_spaces, languages)):
            return None
        if self._borders_V is None and (borders := self.codec.borders()):
            self._borders_V = torch.tensor(borders, device=self.runtime.device)
        return self._borders_V

    def _scorer(self, name: str) -> Scorer:
        if name not in self._scorers:
            self._scorers[name] = extensions.entry(extensions.SCORERS, name, "--scorer")(self.codec)
        return self._scorers[name]

    def step(self, tokens_R: Tensor, caches: Caches) -> tuple[Tensor, Caches]:
        """Returns scores RV of the next token: the logits, or for an ensemble, the log of the summed probabilities.

        Search normalises them, so that the sum becomes the average.
        """
        shortlist = caches[-1] if self.vocabulary_map else None
        ids_R = shortlist.ids_V[tokens_R] if shortlist else tokens_R
        scores, kept = list[Tensor](), list[Any]()
        for n, (model, cache) in enumerate(zip(self.models, caches, strict=False)):
            logits_RV, cache = step_model(model, ids_R, cache, shortlist.outputs[n] if shortlist else None)
            logits_RV = logits_RV.float()
            if shortlist:  # in bf16, a CPU takes several times as long
                logits_RV.unflatten(0, (len(shortlist.bias_BV), -1)).add_(shortlist.bias_BV[:, None])
            scores.append(logits_RV)
            kept.append(cache)
        kept += [shortlist] if shortlist else []
        if len(scores) == 1:
            return scores[0], kept
        return torch.stack([logits_RV.log_softmax(-1) for logits_RV in scores]).logsumexp(0), kept

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
        decoded = iter(self.codec.decode_target([h.tokens for own_hypotheses in hypotheses for h in own_hypotheses]))
        translations: list[list[Translation]] = [[] for _ in sentences]
        pairs: list[SentencePair] = []
        aligned: list[tuple[list[Translation], int]] = []  # the list that has the translation of each pair, and where
        for sentence, own_hypotheses, ranked in zip(sentences, hypotheses, translations, strict=True):
            if any(h.unmet for h in own_hypotheses):
                console.warn(
                    f"{sentence.place}: a translation lacks some of its constraints, because they do not fit into "
                    f"the maximum length; raise --max-length-offset or leave some out"
                )
            for h in own_hypotheses:
                given = sentence.given._replace(constraints=()) if h.unmet else sentence.given
                # Prefixes and constraints as they were given
                text = self.codec.target_with(next(decoded), given, sentence.direction.target)
                pieces, values = (self.codec.target.pieces(h.tokens), h.log_probs) if log_probs else ([], [])
                if sentence.is_aligned(text):
                    aligned.append((ranked, len(ranked)))
                    target = [*self.codec.given_ids(sentence.direction), *h.tokens]
                    words = self.codec.words("target", text, target)
                    pairs.append(SentencePair(sentence.ids, sentence.words, target, words))
                ranked.append(Translation(text, h.score, pieces, values, h.unmet))
        alignments = align(self.models, self.runtime, pairs) if pairs else []
        for (ranked, i), alignment in zip(aligned, alignments, strict=True):
            ranked[i] = ranked[i]._replace(alignment=tuple(alignment))
        return translations

    @torch.no_grad()
    def score(self, pairs: Sequence[EncodedPair], *, alignments: bool = True) -> list[list[Score]]:
        """Returns the scores of the given translations of each line, with alignments if they are needed."""
        flat = [(pair, target) for pair in pairs for target in pair.targets]

        def log_probs(some: Sequence[tuple[EncodedPair, np.ndarray]]) -> list[list[float]]:
            for pair, ids in some:
                for model in self.models:
                    needed = 1 + max(len(pair.source), len(ids))
                    model.config.check_positions(needed, f"line {pair.line} has", "take it out")
            values = self._log_probs([pair.source for pair, _ in some], [ids for _, ids in some])
            if any(map(math.isnan, chain.from_iterable(values))):
                raise NmtError("the model gives NaN probabilities; use another checkpoint")
            return values

        def too_large(pair_and_ids: tuple[EncodedPair, np.ndarray]) -> NmtError:
            pair, ids = pair_and_ids
            return NmtError(
                f"memory ran out for line {pair.line} ({len(pair.source):,} source pieces, "
                f"{len(ids):,} target pieces); take it out or use a machine with more memory"
            )

        given = self.codec.config.given_tokens
        with self.session():
            values = iter(in_halves(log_probs, flat, too_large) if flat else [])
            words = [pair.words(self.codec) for pair in pairs] if alignments else []
            aligned = iter(align(self.models, self.runtime, list(chain.from_iterable(words))))
        return [
            [
                Score.of_pieces(
                    self.codec.target.pieces(ids.tolist()[given:]), next(values)[given:], next(aligned, None)
                )
                for ids in pair.targets
            ]
            for pair in pairs
        ]

    @torch.no_grad()
    def alternatives(self, sentence: EncodedSentence, count: int, search: SearchConfig) -> list[Translation]:
        """Returns translations that continue the prefix with different pieces, the most probable piece first.

        Args:
            search: greedy search, with which each piece is continued.
        """
        prefix = sentence.required.prefix
        with self.session():
            given = self.codec.given_ids(sentence.direction)
            probabilities_V = self._next_probabilities(sentence.ids, [*given, *prefix])
        probabilities_V[[PAD, UNK, BOS, EOS]] = -1
        pieces = probabilities_V.topk(min(count, len(probabilities_V) - 4)).indices.tolist()
        continued = [replace(sentence, required=Required((*prefix, piece))) for piece in pieces]
        translations = in_batches(
            lambda batch: self.translate(batch, search, log_probs=True),
            continued,
            [each.width for each in continued],
            search.tokens_at_once(self.device),
        )
        return [best for best, *_ in translations]

    def _decoded(self, source: Sequence[np.ndarray], target: Sequence[Sequence[int] | np.ndarray]) -> list[Tensor]:
        """Returns the decoder output of each model for pairs of ids, padded to one width; [M, D]."""
        sources = moved(make_side([list(map(with_eos, source))]), self.runtime.device)
        targets = moved(make_side([list(map(with_bos, target))]), self.runtime.device)
        return [
            model.decode(targets.ids_F, targets.layout, model.encode(sources.ids_F, sources.layout), sources.layout)
            for model in self.models
        ]

    def _next_probabilities(self, source: np.ndarray, prefix: Sequence[int]) -> Tensor:
        """Returns the probability of each piece behind the prefix, summed over the models; [V]."""
        decoded = zip(self.models, self._decoded([source], [prefix]), strict=True)
        return torch.stack([m.logits(x_MD)[len(prefix)].float().softmax(-1) for m, x_MD in decoded]).sum(0)

    def _log_probs(self, source: Sequence[np.ndarray], target: Sequence[np.ndarray]) -> list[list[float]]:
        """Returns log P of each piece of each target and, last, of EOS, with the models' probabilities averaged."""
        decoded = self._decoded(source, target)
        labels_M = moved(make_side([list(map(with_eos, target))]), self.runtime.device).ids_F
        rows = LOGIT_ROWS[self.runtime.device.type]
        log_probs = []
        for labels_J, *decoded_JD in zip(labels_M.split(rows), *(x_MD.split(rows) for x_MD in decoded), strict=True):
            model_log_probs = [
                model.logits(x_JD).float().log_softmax(-1).gather(1, labels_J[:, None])[:, 0]
                for model, x_JD in zip(self.models, decoded_JD, strict=True)
            ]
            log_probs.append(torch.stack(model_log_probs).logsumexp(0) - math.log(len(model_log_probs)))
        padded = torch.cat(log_probs).view(len(target), -1).tolist()
        return [target_log_probs[: len(ids) + 1] for target_log_probs, ids in zip(padded, target, strict=True)]
