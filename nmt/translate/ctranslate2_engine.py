"""The engine that computes with CTranslate2, and the cache of exported models."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt import __version__
from nmt.checkpoint import Checkpoint, load_checkpoint
from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.config.options import flag_name
from nmt.config.translation import LONGEST_EXPORTED
from nmt.errors import NmtError, importing
from nmt.files import digest_of, new_folder, writing
from nmt.interop.ctranslate2 import write_ctranslate2
from nmt.interop.model_card import Facts
from nmt.locks import LOCK, locked
from nmt.model.device import device_type
from nmt.search.beam import length_penalty
from nmt.text.subword import NEVER
from nmt.text.words import Given
from nmt.translate.alignment import alignment_of
from nmt.translate.formats import Rescored
from nmt.translate.requests import EncodedRequest, Hypothesis, joined, padded_width, parts_and_words
from nmt.translate.rescoring import EncodedPair

_ADVICE = "set XDG_CACHE_HOME to a folder that can be written"
_PATIENCE_SECONDS = 600.0  # for the export of another process


def exported(checkpoint: Checkpoint, origin: str, digest: str, vocabulary_map: str | None, quantization: str) -> Path:
    """Returns the folder with a checkpoint, and perhaps a vocabulary map, in the format of CTranslate2."""
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise NmtError(f"the cache of exported models has no place ({error}); {_ADVICE}") from error
    cache = root / "nmt" / "ctranslate2"
    with writing(cache, _ADVICE):
        cache.mkdir(parents=True, exist_ok=True)
    map_digest = "" if vocabulary_map is None else f"-{digest_of(vocabulary_map)}"
    folder = cache / f"{digest}{map_digest}-{quantization}-{__version__}"
    busy = f"another process exports a model into {cache}; wait until it ends"
    with locked(cache / LOCK, busy, _ADVICE, patience=_PATIENCE_SECONDS):
        if not folder.exists():
            with new_folder(folder, "XDG_CACHE_HOME") as made, writing(folder, f"free some space, or {_ADVICE}"):
                write_ctranslate2(checkpoint, origin, made, quantization, Facts(), vocabulary_map, never=())
    return folder


# Options of search that CTranslate2 has too.
_SUPPORTED = {
    "beam", "alpha", "max_length_offset", "n_best", "max_source_length", "batch_tokens", "min_length",
    "no_repeat_ngram", "alignments", "seed",
}  # fmt: skip
# Most tokens in a batch of pairs that are scored.
_SCORED_TOKENS = 4096


class _Part(NamedTuple):
    """One input of search: the pieces of a line or of a part, and those that its translation begins with."""

    pieces: list[str]
    prefix: list[str]
    given: Given
    words: Sequence[int]
    ids: np.ndarray


class CTranslate2Engine:
    """A model in CTranslate2; a `nmt.translate.engines.Engine`."""

    def __init__(self, path: str, config: EngineConfig, runtime: RuntimeConfig, process: int) -> None:
        if runtime.precision != "auto":
            raise NmtError(
                f"--precision is {runtime.precision}, but --engine is ctranslate2; use --compute-type instead"
            )
        with importing("ctranslate2", "--engine ctranslate2"):
            import ctranslate2  # noqa: F401 (the export would name another flag)
        digest = digest_of(path)
        checkpoint = load_checkpoint(path)
        self.path, self.codec = path, checkpoint.codec
        self._never = [[piece] for piece in self.codec.target.pieces(list(NEVER))]
        self._longest = checkpoint.model_config.learned_positions or LONGEST_EXPORTED
        # CTranslate2 converts the weights to the other types when it loads them, but its int8 overflows on some CPUs.
        quantization = "int8" if config.compute_type == "int8" else "float32"
        folder = exported(checkpoint, path, digest, config.vocabulary_map, quantization)
        self._device = device_type(runtime)
        self._translator = _loaded(folder, config, self._device, process)

    def session(self) -> AbstractContextManager[object]:
        """Returns a context that does nothing."""
        return nullcontext()

    def _check(self, line: EncodedRequest, search: SearchConfig) -> None:
        """Raises NmtError if CTranslate2 cannot do what a line or its search asks for."""
        wrong = [name for name in search.variants() if name not in _SUPPORTED]
        if wrong:
            raise NmtError(f"--engine ctranslate2 does not support {flag_name(wrong[0])}; use --engine pytorch")
        if line.required.constraints:
            raise NmtError("--engine ctranslate2 does not support constraints or glossaries; use --engine pytorch")
        if line.width > self._longest:
            raise NmtError(
                f"{line.place} has a part of {line.width} positions, but the exported model of {self.path} has "
                f"{self._longest}; lower --max-source-length"
            )

    def search(
        self, lines: Sequence[EncodedRequest], search: SearchConfig, *, log_probs: bool
    ) -> list[list[Hypothesis]]:
        """Returns the translations of each line of a batch, ranked with the length penalty of this toolkit."""
        for line in lines:
            self._check(line, search)
        parts = [part for line in lines for part in self._parts(line, aligned=search.alignments)]
        results = self._results(parts, search)
        # CTranslate2's scores lack log P of a prefix, so the hypotheses are scored again before the best are taken.
        has_prefix = any(part.prefix for part in parts)
        kept = replace(search, n_best=search.beam) if has_prefix else search
        ranked = [self._hypotheses(part, result, kept) for part, result in zip(parts, results, strict=True)]
        if log_probs or has_prefix:
            ranked = self._with_log_probs(parts, ranked, search)
            # Behind translations of the maximum length, log P of EOS counts now, which it did not in CTranslate2.
            ranked = [sorted(of_part, key=lambda one: -one.score)[: search.n_best] for of_part in ranked]
        found = iter(ranked)
        return [joined(self.codec, [next(found) for _ in line.parts], aligned=search.alignments) for line in lines]

    def _parts(self, line: EncodedRequest, *, aligned: bool) -> list[_Part]:
        prefix = self.codec.target.pieces(list(line.required.prefix))
        pairs = parts_and_words(self.codec, line) if aligned else [(ids, []) for ids in line.parts]
        return [_Part(self.codec.source.pieces(ids.tolist()), prefix, line.given, words, ids) for ids, words in pairs]

    def _limit(self, part: _Part, search: SearchConfig) -> int:
        """Returns the maximum length of a translation. The model has positions for this many pieces, BOS and EOS."""
        return min(padded_width(part.ids) + search.max_length_offset, self._longest - 1)

    def _results(self, parts: Sequence[_Part], search: SearchConfig) -> list[Any]:
        """Returns what CTranslate2 finds for each part. All parts of a call have the same maximum length."""
        limits = [self._limit(part, search) for part in parts]
        found: dict[int, Any] = {}
        for limit in set(limits):
            alike = [i for i, own in enumerate(limits) if own == limit]
            prefixes = [parts[i].prefix for i in alike]
            results = self._translator.translate_batch(
                [parts[i].pieces for i in alike],
                target_prefix=prefixes if any(prefixes) else None,
                max_batch_size=search.tokens_at_once(self._device),
                batch_type="tokens",
                beam_size=search.beam,
                num_hypotheses=search.beam,
                length_penalty=search.alpha,
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=min(search.min_length, limit),
                no_repeat_ngram_size=search.no_repeat_ngram or 0,
                suppress_sequences=self._never,
                return_scores=True,
                return_attention=search.alignments,
                use_vmap=True,  # only a folder that was exported with a vocabulary map has one
            )
            found |= zip(alike, results, strict=True)
        return [found[i] for i in range(len(parts))]

    def _hypotheses(self, part: _Part, result: Any, search: SearchConfig) -> list[Hypothesis]:
        lengths = [len(pieces) + 1.0 for pieces in result.hypotheses]  # EOS counts
        scores = [
            score * length**search.alpha / length_penalty(length, search.alpha)
            for score, length in zip(result.scores, lengths, strict=True)
        ]
        best = sorted(range(len(scores)), key=lambda number: -scores[number])[: search.n_best]
        ids = {number: self.codec.target.ids(result.hypotheses[number]) for number in best}
        made = []
        for number, decoded in zip(best, self.codec.decode_target(list(ids.values())), strict=True):
            text, alignment = self.codec.target_with(decoded, part.given), None
            if search.alignments:
                weights = np.array(result.attention[number]).reshape(len(ids[number]), len(part.ids))
                words = self.codec.target_words(text, ids[number])
                alignment = tuple(alignment_of(weights, part.words, words))
            made.append(Hypothesis(text, scores[number], result.hypotheses[number], [], alignment=alignment))
        return made

    def _with_log_probs(
        self, parts: Sequence[_Part], found: Sequence[Sequence[Hypothesis]], search: SearchConfig
    ) -> list[list[Hypothesis]]:
        """Returns the translations with log P of each piece, and scores computed from it."""
        pairs = [(part.pieces, h.pieces) for part, of_part in zip(parts, found, strict=True) for h in of_part]
        scored = iter(self._scored(pairs))

        def completed(hypothesis: Hypothesis) -> Hypothesis:
            values = next(scored)
            score = sum(values) / length_penalty(float(len(values)), search.alpha)
            return replace(hypothesis, score=score, log_probs=values)

        return [list(map(completed, of_part)) for of_part in found]

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

    def score(self, lines: Sequence[EncodedPair]) -> list[list[Rescored]]:
        """Returns pieces and log P of the given translations of each line, without alignments."""
        for line in lines:
            positions = 1 + max(len(line.source), *map(len, line.targets))
            if positions > self._longest:
                raise NmtError(
                    f"line {line.number} has {positions:,} positions, but the exported model of {self.path} has "
                    f"{self._longest:,}; remove the line"
                )
        pieces = [[self.codec.target.pieces(ids.tolist()) for ids in line.targets] for line in lines]
        sources = [self.codec.source.pieces(line.source.tolist()) for line in lines]
        pairs = [(source, target) for source, targets in zip(sources, pieces, strict=True) for target in targets]
        scored = iter(self._scored(pairs))
        return [[Rescored(target, next(scored)) for target in targets] for targets in pieces]

    def alternatives(self, line: EncodedRequest, count: int, search: SearchConfig) -> list[Hypothesis]:
        """Returns translations that continue the line's prefix with different pieces, the most probable piece first."""
        self._check(line, search)
        (part,) = self._parts(line, aligned=False)
        (result,) = self._translator.translate_batch(
            [part.pieces],
            target_prefix=[part.prefix],
            num_hypotheses=count,
            beam_size=1,
            max_input_length=0,
            max_decoding_length=self._limit(part, search),
            min_decoding_length=0,
            suppress_sequences=self._never,
            return_alternatives=True,
            use_vmap=True,
        )
        texts = self.codec.decode_target([self.codec.target.ids(pieces) for pieces in result.hypotheses])
        scored = self._scored([(part.pieces, pieces) for pieces in result.hypotheses])
        return [
            Hypothesis(self.codec.target_with(text, line.given), sum(values), pieces, values)
            for text, pieces, values in zip(texts, result.hypotheses, scored, strict=True)
            if len(pieces) > len(part.prefix)
        ]


def _loaded(folder: Any, config: EngineConfig, device: str, process: int) -> Any:
    """Returns the exported model in CTranslate2. It takes as many threads as OMP_NUM_THREADS says."""
    import ctranslate2

    index = process % ctranslate2.get_cuda_device_count() if device == "cuda" else 0
    compute_type = "float32" if config.compute_type == "auto" else config.compute_type
    try:
        return ctranslate2.Translator(str(folder), device=device, device_index=index, compute_type=compute_type)
    except ValueError as error:  # this machine does not have the type
        raise NmtError(f"--compute-type {compute_type} does not work here ({error}); choose another one") from error
    except RuntimeError as error:
        raise NmtError(
            f"CTranslate2 cannot load {folder} ({error}); if memory ran out, choose a smaller --compute-type; if "
            f"the folder is damaged, remove it, and it is made again"
        ) from error
