"""Translation as work that workers share."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from nmt.config import EngineConfig, SearchConfig
from nmt.decoding.engines import Engine, load_engine
from nmt.decoding.hypotheses import Hypothesis
from nmt.decoding.job import ModelJob
from nmt.decoding.lines import LineFormat
from nmt.decoding.requests import Encoded, Request, batches, encode
from nmt.jobs.plan import Row
from nmt.jobs.results import Result
from nmt.jobs.work import Batch, Finished, Place, result_of_lines
from nmt.model.device import device_type
from nmt.text.codec import TextCodec


@dataclass(frozen=True)
class TranslationJob(ModelJob):
    """Which model translates, how it searches and where it runs."""

    search: SearchConfig
    engine: EngineConfig = field(default_factory=EngineConfig)
    lines: LineFormat = field(default_factory=LineFormat)

    def load(self, process: int) -> "TranslationProcessor":
        """Loads the model; on GPU number `process` if there are several."""
        engine = load_engine(self.models, self.engine, self.runtime, process)
        return TranslationProcessor(engine, self.search, log_probs=self.lines.output == "jsonl")

    def record(self, row: Row, place: Place) -> Request:
        """Returns the request of a row. Raises NmtError, naming the place, if it is none."""
        return self.lines.request(row, place)

    def batched(self, codec: TextCodec, records: Sequence[Request], first_number: int) -> Iterator[Batch]:
        """Yields the batches of a window of requests, longest first."""
        lines = encode(codec, records, first_number, self.search)
        for batch in batches(lines, self.search.tokens_at_once(device_type(self.runtime))):
            yield Batch([first_number + i for i in batch], [records[i] for i in batch], [lines[i] for i in batch])

    def output(self, record: Request, result: list[Hypothesis]) -> tuple[str, dict[str, float]]:
        """Returns the text of a line. There is nothing to add up."""
        return self.lines.written(record, result, self.search.outputs), {}

    def result(self, finished: Sequence[Finished]) -> Result:
        """Returns the result of a shard."""
        return result_of_lines(self, finished)


class TranslationProcessor:
    """An engine with the settings of its search; a `nmt.jobs.work.Processor`."""

    def __init__(self, engine: Engine, search: SearchConfig, *, log_probs: bool) -> None:
        self.engine, self.search, self.log_probs = engine, search, log_probs
        self.codec = engine.codec

    def __call__(self, batch: Sequence[Encoded]) -> list[list[Hypothesis]]:
        """Returns the translations of each line of a batch."""
        for line in batch:
            self.engine.check(line, self.search)
        return self.engine.search(batch, self.search, log_probs=self.log_probs)

    def session(self) -> AbstractContextManager[object]:
        """Returns a context for many calls."""
        return self.engine.session()
