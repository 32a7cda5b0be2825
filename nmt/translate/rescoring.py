"""Rescoring as a job: lines with given translations become pairs, and their scores become lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

from nmt.errors import NmtError, naming
from nmt.jobs.stream import Batch, Chunk, Place, Result, Row
from nmt.model.device import device_type
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.text_config import TextConfig
from nmt.text.words import is_blank, pharaoh
from nmt.translate.alignment import PADDED_TOKENS
from nmt.translate.encoding import longest_first
from nmt.translate.job import Engine, ModelJob
from nmt.translate.pairs import EncodedPair, Pair, Score, Target, encode_pairs
from nmt.translate.sources import direction_of, earlier_in, parsed_object


@dataclass(frozen=True)
class PairReader:
    """Makes pairs with given translations of rows.

    Attributes:
        text: the text processing of the model.
        direction: of pairs that name none.
        form: of the rows: a source and a target file, or lines of tsv or JSON.
    """

    text: TextConfig
    direction: Direction
    form: Literal["tsv", "jsonl", "files"]

    def __call__(self, row: Row, place: Place) -> Pair:
        name = str(place)
        if self.form == "jsonl":
            fields = parsed_object(row[0], name)
            with naming(name):
                direction = self.text.resolved(direction_of(fields, self.direction))
                earlier = earlier_in(fields)[-self.text.context :] if self.text.context else ()
            return Pair(fields["source"], _targets(fields, name), direction, fields, earlier)
        texts = row if self.form == "files" else row[0].split("\t")
        if len(texts) != 2:
            raise NmtError(f"{name} has {len(texts) - 1} tabs; give source, a tab, target")
        with naming(name):
            return Pair(texts[0], (Target(texts[1]),), self.text.resolved(self.direction))


class ScoredLine(NamedTuple):
    """A source line with its given translations, and the score of each.

    Attributes:
        targets: raw text of the translations.
        fields: the JSON object of the line; empty for text.
    """

    source: str
    targets: list[str]
    fields: dict[str, Any]
    scores: list[Score]


@dataclass(frozen=True)
class RescoringJob(ModelJob):
    """Which model scores given translations, and how these and their scores are written.

    Attributes:
        normalize: whether text has log P divided by the number of pieces.
    """

    batch_tokens: int | None = None
    alignments: bool = False
    output: Literal["text", "jsonl"] = "text"
    normalize: bool = False

    def batches(self, codec: TextCodec, chunk: Chunk) -> Iterator[Batch]:
        """Yields the batches of a chunk of pairs, longest first. The translations of a line share a batch."""
        pairs = encode_pairs(codec, chunk.units, chunk.first)
        budget = self.batch_tokens or PADDED_TOKENS[device_type(self.runtime)]
        for batch in longest_first([pair.tokens for pair in pairs], budget):
            yield Batch([pairs[i].line for i in batch], [pairs[i] for i in batch])

    def compute(self, engine: Engine, pairs: Sequence[EncodedPair]) -> list[list[Score]]:
        """Returns the scores of the translations of each line of a batch."""
        return engine.score(pairs, alignments=self.alignments)

    def result(self, codec: TextCodec, chunk: Chunk, done: Sequence[tuple[Batch, Any]]) -> Result:  # noqa: ARG002
        """Returns a record for each pair of a chunk."""
        pairs = chain.from_iterable(zip(batch.work, results, strict=True) for batch, results in done)
        scores = {pair.line: pair_scores for pair, pair_scores in pairs}
        return Result([self.record(pair, scores[line]) for line, pair in enumerate(chunk.units, chunk.first)])

    def record(self, pair: Pair, scores: list[Score]) -> Any:
        """Returns a `ScoredLine`. Only JSON gets the text, the pieces and the other fields."""
        if self.output == "jsonl":
            return ScoredLine(pair.source, [target.text for target in pair.targets], dict(pair.fields), scores)
        return ScoredLine("", [], {}, [score._replace(pieces=[], log_probs=[]) for score in scores])

    def restored(self, record: Any) -> Any:
        source, targets, fields, scores = record
        return ScoredLine(source, targets, fields, [Score(*score) for score in scores])

    def text(self, line: ScoredLine) -> str:
        """Returns the output for a line.

        The output is one JSON object with the fields of the input and the scores, as `rescored` in the object
        itself or in each of its hypotheses, or a line of text. The line has log P of each translation, separated
        by tabs, and the alignments if there are any.
        """
        if self.output == "jsonl":
            scores = [score.fields() for score in line.scores]
            if "hypotheses" in line.fields:
                hypotheses = zip(line.fields["hypotheses"], scores, strict=True)
                fields = {**line.fields, "hypotheses": [{**h, "rescored": score} for h, score in hypotheses]}
            else:
                fields = {"source": line.source, "target": line.targets[0], **line.fields, "rescored": scores[0]}
            return json.dumps(fields, ensure_ascii=False) + "\n"
        texts = [
            f"{score.log_prob / (score.tokens if self.normalize else 1):.6f}"
            + ("" if score.alignment is None else f" ||| {pharaoh(score.alignment)}")
            for score in line.scores
        ]
        return "\t".join(texts) + "\n"


def _targets(fields: Mapping[str, Any], place: str) -> tuple[Target, ...]:
    listed = fields.get("hypotheses", [{"text": fields.get("target")}])
    if not isinstance(listed, list) or not all(isinstance(h, dict) and isinstance(h.get("text"), str) for h in listed):
        raise NmtError(f'{place} has neither a text as its "target" nor "hypotheses" with a "text" each; add one')
    targets = []
    for text, pieces in ((h["text"], h.get("pieces")) for h in listed):
        if pieces is not None and not (isinstance(pieces, list) and all(isinstance(piece, str) for piece in pieces)):
            raise NmtError(f'{place}: "pieces" must be a list of texts, but is {pieces!r:.40}; mend it or leave it out')
        is_copied = pieces == [] and not is_blank(text)  # by nmt generate, without the model
        targets.append(Target(text, None if pieces is None or is_copied else tuple(pieces)))
    return tuple(targets)
