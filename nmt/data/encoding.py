"""Encoding of training text as work that workers and machines share."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Self

import numpy as np

from nmt.data.corpora import chunked
from nmt.data.encoder import Encoded, Encoder
from nmt.data.sampling import Sampling
from nmt.data.writer import Flat
from nmt.jobs.plan import Row
from nmt.jobs.results import Result
from nmt.jobs.work import Batch, Finished, Place

_Record = tuple[str, str, str, str]  # source, target, alignment and tag


@dataclass(frozen=True)
class EncodingJob:
    """How training text is encoded; a `nmt.jobs.work.Job`.

    Attributes:
        codec_values: `TextCodec.to_dict()`.
        limits: maximum length and length ratio.
        tags: the tag of each segment; empty if there are no tags.
    """

    codec_values: dict[str, Any]
    limits: tuple[int, float]
    sampling: Sampling
    tags: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """Text is encoded on CPUs."""
        return "cpu"

    def with_models(self, _: tuple[str, ...]) -> Self:
        """Returns the same job, which reads no files."""
        return self

    def load(self, _: int) -> Encoder:
        """Returns the encoder."""
        return Encoder(self.codec_values, self.limits, self.sampling)

    def codec(self) -> None:
        """Returns nothing, because rows are cut into batches as they are."""

    def record(self, row: Row, place: Place) -> _Record:
        """Returns the pair of a row with its alignment and its tag."""
        links = row[2] if len(row) > 2 else ""
        return row[0], row[1], links, self.tags[place.segment] if self.tags else ""

    def batched(self, _: Any, records: Sequence[_Record], first_number: int) -> Iterator[Batch]:
        """Yields the pairs in chunks."""
        for chunk in chunked(records, first=first_number - 1):
            yield Batch(range(chunk.first + 1, chunk.first + 1 + len(chunk.source)), [], chunk)

    def result(self, finished: Sequence[Finished]) -> Result:
        """Returns the encoded pairs of a shard, and how many were kept and dropped."""
        in_order: list[Encoded] = [done.results for done in sorted(finished, key=lambda done: done.batch.work.first)]
        content = BytesIO()
        for flats in zip(*((e.source, e.target, e.links) for e in in_order), strict=True):
            np.save(content, np.concatenate([flat.tokens for flat in flats]))
            np.save(content, np.concatenate([flat.lengths for flat in flats]))
        dropped = Counter[str]()
        for encoded in in_order:
            dropped.update(encoded.dropped)
        return Result(content.getvalue(), {"kept": sum(e.kept for e in in_order), "dropped": dict(dropped)})


def flats_of(result: Result) -> list[Flat]:
    """Returns the source, the target and the alignments in the result of a shard."""
    content = BytesIO(result.content)
    return [Flat(np.load(content), np.load(content)) for _ in range(3)]
