"""Raw text to translations: batches, ensembles, and lines in order.

Shapes: see docs/architecture.md; B sentences, R rows of hypotheses, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from nmt import console
from nmt.checkpoint import build_model, load_checkpoint
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.loader import make_side
from nmt.decoding.search import Found
from nmt.decoding.search import search as search_over
from nmt.errors import NmtError
from nmt.model.incremental import DecoderCache, start, step
from nmt.model.runtime import Runtime, is_out_of_memory, resolve
from nmt.model.transformer import Transformer
from nmt.text.codec import TextCodec
from nmt.text.subword import BOS, EOS, with_eos

# Source sentences are padded to a multiple of this, so that many have the same width and can share a batch.
_WIDTHS = 4


@dataclass(frozen=True)
class Hypothesis:
    """A translation: raw text, score (log P over the length penalty), log P, and the target pieces.

    If a line was translated in parts, texts and pieces are joined and scores are summed.
    """

    text: str
    score: float
    log_prob: float
    pieces: list[str]


@dataclass(frozen=True)
class _EnsembleCache:
    caches: tuple[DecoderCache, ...]

    def select(self, parents_BW: Tensor, sentences_B: Tensor | None) -> "_EnsembleCache":
        return _EnsembleCache(tuple(cache.select(parents_BW, sentences_B) for cache in self.caches))


class Translator:
    """Translates with one model, or with several that average their probabilities."""

    def __init__(self, models: Sequence[Transformer], codec: TextCodec, runtime: Runtime) -> None:
        self.models = [model.to(runtime.device).eval() for model in models]
        self.codec, self.runtime = codec, runtime

    @classmethod
    def load(cls, *checkpoints: str | Path, runtime: RuntimeConfig | None = None, process: int = 0) -> Self:
        """Loads the model of a checkpoint, or an ensemble of several; uses GPU number `process` if there are several.

        Raises:
            NmtError: a file is not a checkpoint, or two differ in vocabulary or text processing.
        """
        resolved = resolve(runtime or RuntimeConfig(), process)
        loaded = [(path, load_checkpoint(path)) for path in checkpoints]
        first_path, first = loaded[0]
        for path, other in loaded[1:]:
            if other.codec.to_dict() != first.codec.to_dict():
                raise NmtError(
                    f"{path} and {first_path} differ in vocabulary or text processing; "
                    f"an ensemble's models must be trained on one data folder"
                )
        return cls([build_model(checkpoint, path) for path, checkpoint in loaded], first.codec, resolved)

    def translate(
        self,
        lines: Sequence[str],
        search: SearchConfig | None = None,
        advance: Callable[[int], None] = lambda _: None,
    ) -> list[str]:
        """Returns the best translation of each raw line, in order. An empty line gives an empty line.

        Args:
            advance: called after each batch with the number of sentences it held.

        Raises:
            TypeError: `lines` is a single string, whose characters would be taken for lines.
        """
        if isinstance(lines, str):
            raise TypeError("translate takes a list of lines; put a single one in brackets")
        return [hypotheses[0].text for hypotheses in self.hypotheses(lines, search or SearchConfig(), advance)]

    @torch.no_grad()
    def hypotheses(
        self,
        lines: Sequence[str],
        search: SearchConfig,
        advance: Callable[[int], None] = lambda _: None,
        line_numbers: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Returns the n best translations of each raw line, best first. A blank line has one empty translation.

        A line of more than `search.max_source_length` pieces is translated in parts, with a warning. The best
        translations of the parts are joined.

        Args:
            advance: called after each batch with the number of sentences it held.
            line_numbers: numbers of the lines for warnings; 1, 2, … if not given.
        """
        for model in self.models:
            model.config.check_positions(
                max(search.longest, search.max_source_length + _WIDTHS),
                "--max-source-length and --max-length-offset allow sentences of",
                "lower them, and longer lines are translated in parts",
            )
        encoded = [np.array(ids) for ids in self.codec.encode_source(list(lines))]
        parts = [_parts(ids, search.max_source_length) for ids in encoded]
        for number, line_parts in zip(line_numbers or range(1, len(parts) + 1), parts, strict=True):
            if len(line_parts) > 1:
                pieces = sum(map(len, line_parts))
                console.warn(
                    f"line {number} has {pieces:,} pieces, more than --max-source-length "
                    f"{search.max_source_length}; it is translated in {len(line_parts)} parts"
                )
        flat = [part for line_parts in parts for part in line_parts]
        found: list[list[Found]] = [[] for _ in flat]
        with self.runtime.autocast():  # entered once, because it keeps converted weights only until it is left
            for batch in _batches([len(part) for part in flat], search.tokens_at_once(self.runtime.device.type)):
                for index, result in zip(batch, self._search([flat[i] for i in batch], search), strict=True):
                    if not result:
                        raise NmtError("the model gives probabilities that are no numbers; use another checkpoint")
                    found[index] = result
                advance(len(batch))
        return self._assemble(parts, found)

    def _search(self, sources: Sequence[np.ndarray], search: SearchConfig) -> list[list[Found]]:
        """Searches sentences of one padded width, in halves if memory runs out."""
        try:
            return self._search_at_once(sources, search)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            if len(sources) == 1:
                raise NmtError(
                    f"memory ran out for a single sentence of {len(sources[0]):,} pieces; lower --max-source-length, "
                    f"and it is translated in parts, or --beam"
                ) from error
        # Outside the handler, because the error keeps the tensors of the failed attempt alive.
        half = len(sources) // 2
        console.warn(f"memory ran out with {len(sources):,} sentences at once, which are now translated in two halves")
        return self._search(sources[:half], search) + self._search(sources[half:], search)

    def _search_at_once(self, sources: Sequence[np.ndarray], search: SearchConfig) -> list[list[Found]]:
        side = make_side([[with_eos(ids) for ids in sources]], width_multiple=_WIDTHS).to(self.runtime.device)
        max_lengths_B = side.layout.lengths_B + search.max_length_offset  # both count EOS
        cache = _EnsembleCache(tuple(start(model, side.ids_F, side.layout, search.width) for model in self.models))
        return search_over(self._step, cache, max_lengths_B, bos=BOS, eos=EOS, config=search)  # type: ignore[arg-type]

    def _step(self, tokens_R: Tensor, cache: _EnsembleCache) -> tuple[Tensor, _EnsembleCache]:
        """Returns scores RV of the next token: the logits of one model, or log summed probabilities of several."""
        outputs = [step(model, tokens_R, c) for model, c in zip(self.models, cache.caches, strict=True)]
        caches = _EnsembleCache(tuple(c for _, c in outputs))
        if len(outputs) == 1:
            return outputs[0][0].float(), caches
        return torch.stack([logits_RV.float().log_softmax(-1) for logits_RV, _ in outputs]).logsumexp(0), caches

    def _assemble(self, parts: list[list[np.ndarray]], found: list[list[Found]]) -> list[list[Hypothesis]]:
        """Turns the found token sequences into hypotheses of lines."""
        texts = iter(self.codec.decode_target([f.tokens for part in found for f in part]))
        made = [[self._hypothesis(f, next(texts)) for f in part] for part in found]
        following = iter(made)
        return [_joined([next(following) for _ in line_parts]) for line_parts in parts]

    def _hypothesis(self, found: Found, text: str) -> Hypothesis:
        return Hypothesis(text, found.score, found.log_prob, self.codec.target.pieces(found.tokens))


def _parts(ids: np.ndarray, longest: int) -> list[np.ndarray]:
    """Cuts a line's ids into as few even parts as possible, none longer than `longest`. No ids give no parts."""
    return np.array_split(ids, math.ceil(len(ids) / longest)) if len(ids) else []


def _joined(parts: list[list[Hypothesis]]) -> list[Hypothesis]:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return [Hypothesis("", 0.0, 0.0, [])]
    return [
        Hypothesis(
            " ".join(h.text for h in ranked),
            sum(h.score for h in ranked),
            sum(h.log_prob for h in ranked),
            [piece for h in ranked for piece in h.pieces],
        )
        for ranked in zip(*parts, strict=False)
    ]


def _batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yields the indices of sentences that are padded to one width, longest first.

    Starting with the longest shows at once whether memory is enough. The padding of a sentence depends only on its own
    length, so its translation does not depend on the rest of its batch.
    """

    def width(i: int) -> int:
        return math.ceil((lengths[i] + 1) / _WIDTHS) * _WIDTHS  # with EOS

    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for padded, alike in groupby(longest_first, key=width):
        while batch := list(islice(alike, max(1, batch_tokens // padded))):
            yield batch
