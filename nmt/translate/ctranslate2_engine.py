"""The engine that computes with CTranslate2, whose models are exported to the user's cache."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from nmt import __version__
from nmt.cache import cached_folder
from nmt.checkpoint import load_checkpoint
from nmt.checkpoint_format import read_digest
from nmt.config import EngineConfig, Facts, RuntimeConfig, SearchConfig
from nmt.config.options import flag_name
from nmt.config.translation import LONGEST_EXPORTED
from nmt.errors import NmtError, importing
from nmt.files import digest_of
from nmt.interop.ctranslate2 import write_ctranslate2
from nmt.model.device import device_type
from nmt.search.api import TokenHypothesis
from nmt.search.beam import length_penalty, scored
from nmt.text.subword import NEVER
from nmt.text.words import AlignedWords
from nmt.translate.alignment import alignment_of
from nmt.translate.encoding import EncodedSentence
from nmt.translate.pairs import EncodedPair, Score
from nmt.translate.placed_terms import translate_with_terms
from nmt.translate.units import Translation

# Options of search that CTranslate2 has too.
_SUPPORTED = {
    "beam", "alpha", "max_length_offset", "n_best", "max_source_length", "batch_tokens", "min_length",
    "no_repeat_ngram", "alignments", "mbr", "seed", "glossary_mode", "glossary_fallback",
}  # fmt: skip
# Most tokens in a batch of pairs that are scored.
_SCORED_TOKENS = 4096


class CTranslate2Engine:
    """A model in CTranslate2; its methods are those of `nmt.translate.pytorch_engine.PyTorchEngine`."""

    has_constraints = False

    def __init__(self, path: str, config: EngineConfig, runtime: RuntimeConfig, process: int) -> None:
        if runtime.precision != "auto":
            raise NmtError(
                f"--precision is {runtime.precision}, but --engine is ctranslate2; use --compute-type instead"
            )
        with importing("ctranslate2", "--engine ctranslate2", extra="ctranslate2"):
            import ctranslate2  # the export would name another flag
        digests = [read_digest(path), config.vocabulary_map and digest_of(config.vocabulary_map)]
        checkpoint = load_checkpoint(path)
        self.path, self.codec = path, checkpoint.codec
        self._never = [[piece] for piece in self.codec.target.pieces(list(NEVER))]
        self._longest = checkpoint.model_config.learned_positions or LONGEST_EXPORTED
        # CTranslate2 converts the weights to the other types when it loads them, but its int8 overflows on some CPUs.
        quantization = "int8" if config.compute_type == "int8" else "float32"

        def write(folder: Path) -> None:
            write_ctranslate2(checkpoint, path, folder, quantization, Facts(), config.vocabulary_map, never=())

        folder = cached_folder("ctranslate2", [*digests, quantization, __version__], write)
        self.device = device_type(runtime)
        index = process % ctranslate2.get_cuda_device_count() if self.device == "cuda" else 0
        compute_type = "float32" if config.compute_type == "auto" else config.compute_type
        try:  # it takes as many threads as OMP_NUM_THREADS says
            self._translator = ctranslate2.Translator(
                str(folder), device=self.device, device_index=index, compute_type=compute_type
            )
        except ValueError as error:  # this machine does not have the type
            raise NmtError(f"--compute-type {compute_type} does not work here ({error}); choose another one") from error
        except RuntimeError as error:
            raise NmtError(
                f"CTranslate2 cannot load {folder} ({error}); if memory ran out, choose a smaller --compute-type; if "
                f"the folder is damaged, remove it, and it is made again"
            ) from error

    def session(self) -> AbstractContextManager[object]:
        return nullcontext()

    def _check(self, sentence: EncodedSentence, search: SearchConfig) -> None:
        """Raises NmtError if CTranslate2 cannot do what a sentence or its search asks for."""
        wrong = [name for name in search.variants() if name not in _SUPPORTED]
        if wrong:
            raise NmtError(f"--engine ctranslate2 does not support {flag_name(wrong[0])}; use --engine pytorch")
        if sentence.required.constraints:
            raise NmtError("--engine ctranslate2 does not support constraints; use --engine pytorch")
        if sentence.width > self._longest:
            raise NmtError(
                f"{sentence.place} has a part of {sentence.width} positions, but the exported model of {self.path} has "
                f"{self._longest}; lower --max-source-length"
            )

    def translate(
        self, sentences: Sequence[EncodedSentence], search: SearchConfig, *, log_probs: bool
    ) -> list[list[Translation]]:
        """Returns the translations of each sentence, ranked with the length penalty of this toolkit."""
        if any(sentence.terms for sentence in sentences):
            return translate_with_terms(self, sentences, search)
        for sentence in sentences:
            self._check(sentence, search)
        # CTranslate2's scores lack log P of a prefix, so the hypotheses are scored again before the best are taken.
        has_prefix = any(sentence.required.prefix for sentence in sentences)
        given = self.codec.config.given_tokens
        kept = search.beam if has_prefix else search.n_best
        results = zip(sentences, self._results(sentences, search), strict=True)
        ranked = [self._translations(sentence, result, kept, search) for sentence, result in results]
        if log_probs or has_prefix:
            pairs = [
                (self._source(s), [*self._given(s), *t.pieces])
                for s, each in zip(sentences, ranked, strict=True)
                for t in each
            ]
            pair_values = iter(self._scored(pairs))
            for translations in ranked:
                for i, translation in enumerate(translations):
                    values = next(pair_values)[given:]
                    score = sum(values) / length_penalty(float(len(values)), search.alpha)
                    translations[i] = translation._replace(score=score, log_probs=values)
            # Behind translations of the maximum length, log P of EOS counts now, which it did not in CTranslate2.
            ranked = [sorted(each, key=lambda t: -t.score)[: search.n_best] for each in ranked]
        if not log_probs:
            ranked = [[translation._replace(pieces=[], log_probs=[]) for translation in each] for each in ranked]
        return ranked

    def score_prefixes(self, sentences: Sequence[EncodedSentence], search: SearchConfig) -> list[TokenHypothesis]:
        """Returns the prefix of each sentence as the only hypothesis, with log P of its pieces and of EOS."""
        targets = [self._prefix(sentence) for sentence in sentences]
        scored_pairs = self._scored([(self._source(s), target) for s, target in zip(sentences, targets, strict=True)])
        given = self.codec.config.given_tokens
        both = zip(sentences, scored_pairs, strict=True)
        return [scored([*s.required.prefix], values[given:], search.alpha) for s, values in both]

    def _prefix(self, sentence: EncodedSentence) -> list[str]:
        """Returns the pieces that a target begins with: the token of the language, and the prefix."""
        return [*self._given(sentence), *self.codec.target.pieces(sentence.required.prefix)]

    def _given(self, sentence: EncodedSentence) -> list[str]:
        return self.codec.target.pieces(self.codec.given_ids(sentence.direction))

    def _source(self, sentence: EncodedSentence) -> list[str]:
        return self.codec.source.pieces(sentence.ids.tolist())

    def _limit(self, sentence: EncodedSentence, search: SearchConfig) -> int:
        """Returns the maximum length of a target. The model has positions for this many pieces, BOS and EOS."""
        given = self.codec.config.given_tokens
        return min(given + sentence.width + search.max_length_offset, self._longest - 1)

    def _results(self, sentences: Sequence[EncodedSentence], search: SearchConfig) -> list[Any]:
        """Returns CTranslate2's result for each sentence. All sentences of a call have the same maximum length."""
        limits = [self._limit(sentence, search) for sentence in sentences]
        by_index: dict[int, Any] = {}
        for limit in set(limits):
            alike = [i for i, own in enumerate(limits) if own == limit]
            prefixes = [self._prefix(sentences[i]) for i in alike]
            results = self._translator.translate_batch(
                [self._source(sentences[i]) for i in alike],
                target_prefix=prefixes if any(prefixes) else None,
                max_batch_size=search.tokens_at_once(self.device),
                batch_type="tokens",
                beam_size=search.beam,
                num_hypotheses=search.beam,
                length_penalty=search.alpha,
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=min(self.codec.config.given_tokens + search.least_pieces, limit),
                no_repeat_ngram_size=search.no_repeat_ngram or 0,
                suppress_sequences=self._never,
                return_scores=True,
                return_attention=any(sentences[i].words for i in alike),
                use_vmap=True,  # only a folder that was exported with a vocabulary map has one
            )
            by_index |= zip(alike, results, strict=True)
        return [by_index[i] for i in range(len(sentences))]

    def _translations(
        self, sentence: EncodedSentence, result: Any, count: int, search: SearchConfig
    ) -> list[Translation]:
        """Returns the best hypotheses of a result, without log P of their pieces."""
        codec, given = self.codec, self.codec.config.given_tokens
        lengths = [len(pieces) + 1.0 for pieces in result.hypotheses]  # EOS counts
        scores = [
            score * length**search.alpha / length_penalty(length - given, search.alpha)
            for score, length in zip(result.scores, lengths, strict=True)
        ]
        best = sorted(range(len(scores)), key=lambda rank: -scores[rank])[:count]
        ids = [codec.target.ids(result.hypotheses[rank]) for rank in best]
        translations = []
        for rank, own, decoded in zip(best, ids, self.codec.decode_target(ids), strict=True):
            text = codec.target_with(decoded, sentence.given, sentence.direction.target)
            alignment: tuple[AlignedWords, ...] | None = () if search.alignments else None
            if sentence.words:
                weights = np.array(result.attention[rank]).reshape(len(own), len(sentence.ids))
                alignment = tuple(alignment_of(weights, sentence.words, codec.words("target", text, own)))
            pieces = result.hypotheses[rank][given:]
            translations.append(Translation(text, scores[rank], pieces, [], alignment=alignment))
        return translations

    def _scored(self, pairs: Sequence[tuple[list[str], list[str]]]) -> list[list[float]]:
        """Returns log P of each piece of the translations, and of EOS."""
        results = self._translator.score_batch(
            [source for source, _ in pairs],
            [target for _, target in pairs],
            max_input_length=0,
            max_batch_size=_SCORED_TOKENS,
            batch_type="tokens",
        )
        return [list(result.log_probs) for result in results]

    def score(self, pairs: Sequence[EncodedPair], *, alignments: bool = True) -> list[list[Score]]:  # noqa: ARG002
        """Returns the scores of the given translations of each line, without alignments."""
        for pair in pairs:
            positions = 1 + max(len(pair.source), *map(len, pair.targets))
            if positions > self._longest:
                raise NmtError(
                    f"line {pair.line} has {positions:,} positions, but the exported model of {self.path} has "
                    f"{self._longest:,}; remove the line"
                )
        pieces = [[self.codec.target.pieces(ids.tolist()) for ids in pair.targets] for pair in pairs]
        sources = [self.codec.source.pieces(pair.source.tolist()) for pair in pairs]
        flat = [(source, target) for source, targets in zip(sources, pieces, strict=True) for target in targets]
        values, given = iter(self._scored(flat)), self.codec.config.given_tokens
        return [[Score.of_pieces(target[given:], next(values)[given:]) for target in targets] for targets in pieces]

    def alternatives(self, sentence: EncodedSentence, count: int, search: SearchConfig) -> list[Translation]:
        self._check(sentence, search)
        given = self._given(sentence)
        source, prefix = self._source(sentence), self._prefix(sentence)
        (result,) = self._translator.translate_batch(
            [source],
            target_prefix=[prefix],
            num_hypotheses=count,
            beam_size=1,
            max_input_length=0,
            max_decoding_length=self._limit(sentence, search),
            min_decoding_length=0,
            suppress_sequences=self._never,
            return_alternatives=True,
            use_vmap=True,
        )
        texts = self.codec.decode_target([self.codec.target.ids(pieces) for pieces in result.hypotheses])
        values = self._scored([(source, pieces) for pieces in result.hypotheses])
        return [
            Translation(
                self.codec.target_with(text, sentence.given, sentence.direction.target),
                sum(log_probs[len(given) :]),
                pieces[len(given) :],
                log_probs[len(given) :],
            )
            for text, pieces, log_probs in zip(texts, result.hypotheses, values, strict=True)
            if len(pieces) > len(prefix)
        ]
