"""log P of given translations, by one model or an ensemble."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt.checkpoint_file import read_codec
from nmt.config import RuntimeConfig
from nmt.data.loader import make_side
from nmt.errors import NmtError
from nmt.jobs.folder import Result
from nmt.jobs.plan import Row
from nmt.jobs.run import Batch, Finished, LineJob, Place, result_of_lines
from nmt.model.device import device_type
from nmt.model.out_of_memory import in_halves
from nmt.model.transformer import LOGIT_ROWS
from nmt.text.codec import TextCodec
from nmt.text.subword import BOS, EOS, PAD, with_bos, with_eos
from nmt.translate.alignment import PADDED_TOKENS, SentencePair, align
from nmt.translate.formats import Pair, PairFormat, Rescored, Target
from nmt.translate.requests import longest_first
from nmt.translate.translator import Translator


@dataclass(frozen=True)
class ModelJob:
    """The part of a `nmt.jobs.run.LineJob` that depends on its model alone."""

    models: tuple[str, ...]
    runtime: RuntimeConfig

    @property
    def device(self) -> str:
        """`cuda` or `cpu`: whether a worker needs a GPU."""
        return self.runtime.device

    def codec(self) -> TextCodec:
        """Returns how the model's text is processed."""
        return read_codec(self.models[0])

    def result(self: LineJob, finished: Sequence[Finished]) -> Result:
        """Returns the result of a shard."""
        return result_of_lines(self, finished)


class EncodedPair(NamedTuple):
    """A source line and its translations: the pair without its other fields, and ids without EOS."""

    number: int
    pair: Pair
    source: np.ndarray
    targets: tuple[np.ndarray, ...]

    @property
    def tokens(self) -> int:
        """Positions that it takes in a padded batch, if the batch is padded to the widths of this line."""
        longest = max(map(len, self.targets), default=0)
        return len(self.targets) * (len(self.source) + longest + 2)


@dataclass(frozen=True)
class RescoringJob(ModelJob):
    """Which model scores, and where it runs."""

    batch_tokens: int | None = None
    alignments: bool = False
    lines: PairFormat = field(default_factory=PairFormat)

    def load(self, models: Sequence[str], process: int) -> "Rescorer":
        """Loads the model; see `nmt.model.device.set_up` for `process`."""
        translator = Translator.load(*models, runtime=self.runtime, process=process)
        return Rescorer(translator, alignments=self.alignments)

    def record(self, row: Row, place: Place) -> Pair:
        """Returns the pair of a row. Raises NmtError with the place of the row if it is not a valid pair."""
        return self.lines.pair(row, place)

    def batched(self, codec: TextCodec, records: Sequence[Pair], first_number: int) -> Iterator[Batch]:
        """Yields the batches of a maxi-batch of pairs, longest first. The translations of a line share a batch."""
        lines = encode(codec, records, first_number)
        budget = self.batch_tokens or PADDED_TOKENS[device_type(self.runtime)]
        for batch in longest_first([line.tokens for line in lines], budget):
            yield Batch([first_number + i for i in batch], [records[i] for i in batch], [lines[i] for i in batch])

    def output(self, record: Pair, result: list[Rescored]) -> tuple[str, dict[str, float]]:
        """Returns the text of a pair, its log P, and the number of its pieces."""
        log_prob, pieces = sum(sum(one.log_probs) for one in result), sum(len(one.log_probs) for one in result)
        return self.lines.written(record, result), {"lines": 1, "pieces": pieces, "log_prob": log_prob}


def encode(codec: TextCodec, pairs: Sequence[Pair], first_number: int) -> list[EncodedPair]:
    """Returns pairs as ids: those of the given pieces, or of the text. Raises NmtError for pieces of another model."""
    sources = codec.encode_source([pair.source for pair in pairs])
    texts = [codec.config.cased_for(pair.source, target.text) for pair in pairs for target in pair.targets]
    targets = iter(codec.encode_target(texts))
    return [
        EncodedPair(
            number,
            Pair(pair.source, pair.targets),
            np.array(source),
            tuple(_given(codec, target, next(targets), number) for target in pair.targets),
        )
        for number, (pair, source) in enumerate(zip(pairs, sources, strict=True), start=first_number)
    ]


def _given(codec: TextCodec, target: Target, encoded: list[int], number: int) -> np.ndarray:
    if target.pieces is None:
        return np.array(encoded)
    ids = codec.target.ids(list(target.pieces))
    for i, piece, known in zip(ids, target.pieces, codec.target.pieces(ids), strict=True):
        if piece != known or i in (PAD, BOS, EOS):  # UNK itself may be in a translation
            raise NmtError(
                f"line {number}: {piece!r:.80} is no piece of text in this model; remove the field pieces to split the "
                f"text anew"
            )
    return np.array(ids)


class Rescorer:
    """Models that score given translations; a `nmt.jobs.run.Processor`."""

    def __init__(self, translator: Translator, *, alignments: bool = False) -> None:
        self.models, self.codec, self.runtime = translator.models, translator.codec, translator.runtime
        self.session = translator.session
        self._alignments = alignments

    def __call__(self, batch: Sequence[EncodedPair]) -> list[list[Rescored]]:
        """Returns pieces, log P and perhaps alignments of the translations of each line of a batch."""
        flat = [(line, target) for line in batch for target in line.targets]
        with self.session():
            found = iter(self._score(flat) if flat else [])
            alignments = (
                iter(align(self.models, self.runtime, self._words(batch))) if self._alignments else repeat(None)
            )
        return [
            [Rescored(self.codec.target.pieces(ids.tolist()), next(found), next(alignments)) for ids in line.targets]
            for line in batch
        ]

    def _words(self, batch: Sequence[EncodedPair]) -> list[SentencePair]:
        """Returns each line with each of its translations, and the words that their ids belong to."""
        pairs = []
        for line in batch:
            words = self.codec.source_words(line.pair.source, line.source)
            for ids, target in zip(line.targets, line.pair.targets, strict=True):
                pairs.append(SentencePair(line.source, words, ids, self.codec.target_words(target.text, ids)))
        return pairs

    def _score(self, pairs: Sequence[tuple[EncodedPair, np.ndarray]]) -> list[list[float]]:
        """Returns log P of every token of each pair, in halves if memory runs out."""

        def too_large(pair: tuple[EncodedPair, np.ndarray]) -> NmtError:
            line, target = pair
            return NmtError(
                f"memory ran out for line {line.number} ({len(line.source):,} source pieces, "
                f"{len(target):,} target pieces); take it out or use a machine with more memory"
            )

        return in_halves(self._score_at_once, pairs, too_large)

    @torch.no_grad()
    def _score_at_once(self, pairs: Sequence[tuple[EncodedPair, np.ndarray]]) -> list[list[float]]:
        for line, ids in pairs:
            for model in self.models:
                needed = 1 + max(len(line.source), len(ids))
                model.config.check_positions(needed, f"line {line.number} has", "take it out")
        source = make_side([[with_eos(line.source) for line, _ in pairs]]).to(self.runtime.device)
        target = make_side([[with_bos(ids) for _, ids in pairs]]).to(self.runtime.device)
        labels = make_side([[with_eos(ids) for _, ids in pairs]]).to(self.runtime.device)
        hidden = [
            model.decode(target.ids_F, target.layout, model.encode(source.ids_F, source.layout), source.layout)
            for model in self.models
        ]
        found = self._log_probs(hidden, labels.ids_F).view(len(pairs), -1).tolist()
        rows = [row[: len(ids) + 1] for row, (_, ids) in zip(found, pairs, strict=True)]
        if any(map(math.isnan, chain.from_iterable(rows))):
            raise NmtError("the model gives NaN probabilities; use another checkpoint")
        return rows

    def _log_probs(self, hidden: Sequence[Tensor], labels_M: Tensor) -> Tensor:
        """Returns log P of each label, M, with the probabilities of the models averaged."""
        rows = LOGIT_ROWS[self.runtime.device.type]
        found = []
        for labels_J, *hidden_JD in zip(labels_M.split(rows), *(x.split(rows) for x in hidden), strict=True):
            of_models = [
                model.logits(x).float().log_softmax(-1).gather(1, labels_J[:, None])[:, 0]
                for model, x in zip(self.models, hidden_JD, strict=True)
            ]
            found.append(torch.stack(of_models).logsumexp(0) - math.log(len(of_models)))
        return torch.cat(found)
