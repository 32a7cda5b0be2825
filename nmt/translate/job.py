"""Translation as a job: sentences of units are translated in batches, and each unit becomes a record."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from nmt.checkpoint_format import read_codec
from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.jobs.stream import Batch, Chunk, Result
from nmt.memories.matching import Match
from nmt.model.device import device_type
from nmt.text.codec import TextCodec
from nmt.text.words import pharaoh
from nmt.translate.confidence import Calibration
from nmt.translate.encoding import EncodedSentence, by_sentence, encode, longest_first
from nmt.translate.least_risk import least_risk
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.units import Translation

if TYPE_CHECKING:
    from nmt.translate.ctranslate2_engine import CTranslate2Engine

# What translates and scores with a loaded model. Both have the same methods, which `PyTorchEngine` describes.
Engine: TypeAlias = "PyTorchEngine | CTranslate2Engine"
# What would begin another column or row of a table.
_SEPARATORS = re.compile(r"[\t\r\n]")
OutputForm = Literal["text", "tsv", "jsonl"]


def load_engine(checkpoints: Sequence[str], config: EngineConfig, runtime: RuntimeConfig, process: int = 0) -> Engine:
    """Returns the engine for a model, or for an ensemble; see `nmt.model.device.set_up` for `process`."""
    if config.engine == "pytorch":
        return PyTorchEngine.load(*checkpoints, runtime=runtime, process=process, vocabulary_map=config.vocabulary_map)
    from nmt.translate.ctranslate2_engine import CTranslate2Engine

    if len(checkpoints) > 1:
        raise NmtError(
            f"--engine ctranslate2 has no ensembles, but there are {len(checkpoints)} checkpoints; give one, "
            f"or use --engine pytorch"
        )
    return CTranslate2Engine(checkpoints[0], config, runtime, process)


class TranslatedUnit(NamedTuple):
    """The translations of a unit, best first, or its samples.

    Attributes:
        place: what messages call the unit.
        source: its raw text; empty for text, like the fields.
        fields: its JSON object.
        matches: those of memories for its sentences.
    """

    place: str
    source: str
    fields: dict[str, Any]
    translations: list[Translation]
    matches: list[Match]


@dataclass(frozen=True)
class ModelJob:
    """Work of a model, or of an ensemble of several."""

    models: tuple[str, ...]
    runtime: RuntimeConfig
    engine: EngineConfig = field(default_factory=EngineConfig, kw_only=True)

    @property
    def device(self) -> str:
        return self.runtime.device

    def codec(self) -> TextCodec:
        return read_codec(self.models[0])

    def load(self, models: Sequence[str], process: int) -> Engine:
        return load_engine(models, self.engine, self.runtime, process)


@dataclass(frozen=True)
class TranslationJob(ModelJob):
    """Which model translates, how it searches, and how translations are written.

    Attributes:
        offers: whether similar sentences of memories are in the results.
        shows_alignments: whether the output has them, which markup also needs without showing them.
        calibrations: see `by_sentence`.
    """

    search: SearchConfig
    output: OutputForm = "text"
    offers: bool = False
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    shows_alignments: bool = False

    def batches(self, codec: TextCodec, chunk: Chunk) -> Iterator[Batch]:
        """Yields the batches of the sentences of a chunk, longest first."""
        sentences = encode(codec, chunk.units, self.search, chunk.first)
        budget = self.search.tokens_at_once(device_type(self.runtime))
        for batch in longest_first([sentence.width for sentence in sentences], budget):
            yield Batch([sentences[i].key.unit for i in batch], [sentences[i] for i in batch])

    def compute(self, engine: Engine, sentences: Sequence[EncodedSentence]) -> list[list[Translation]]:
        """Returns the translations of each sentence of a batch."""
        needs_log_probs = self.output == "jsonl" or bool(self.calibrations)
        translations = engine.translate(sentences, self.search, log_probs=needs_log_probs)
        return [[least_risk(each)] for each in translations] if self.search.mbr == "chrf" else translations

    def result(self, _: Any, chunk: Chunk, done: Sequence[tuple[Batch, Any]]) -> Result:
        """Returns a `TranslatedUnit` for each unit of a chunk, without what its output does not need."""
        translations = [pair for batch, results in done for pair in zip(batch.work, results, strict=True)]
        ranked_sentences = by_sentence(
            chunk.units, translations, aligned=self.search.alignments, first=chunk.first, calibrations=self.calibrations
        )
        records = []
        for unit, ranked in zip(chunk.units, ranked_sentences, strict=True):
            is_sentence = unit.content is None and len(unit.sentences) == 1
            best = [translations[0] for translations in ranked]
            ranking = ranked[0] if is_sentence else [unit.translation(best, unit.direction.target)]
            if not unit.sentences and str(unit.direction) in self.calibrations:
                ranking = [translation._replace(confidence=1.0) for translation in ranking]
            if self.shows_alignments:  # without a translation by the model, there may be no links
                ranking = [translation._replace(alignment=translation.alignment or ()) for translation in ranking]
            source, fields = "" if self.output == "text" else unit.source, dict(unit.fields)
            if self.output != "jsonl":
                fields, ranking = {}, [translation._replace(pieces=[], log_probs=[]) for translation in ranking]
            matches = [match for sentence in unit.sentences for match in sentence.matches if self.offers]
            records.append(TranslatedUnit(unit.place, source, fields, ranking, matches))
        return Result(records)

    def restored(self, record: Any) -> TranslatedUnit:
        place, source, fields, translations, matches = record
        ranking = [Translation(*translation) for translation in translations]
        return TranslatedUnit(place, source, fields, ranking, [Match(*match) for match in matches])

    def text(self, record: TranslatedUnit) -> str:
        """Returns the output for a line.

        The output is one JSON object with the fields of the input and the hypotheses, or a line for each translation:
        of columns, or of text, which is blank if there are fewer translations than were asked for.
        """
        if self.output == "jsonl":
            hypotheses = [translation.fields() for translation in record.translations]
            memory = {"memory": [match.fields() for match in record.matches]} if record.matches else {}
            fields = {**record.fields, "source": record.source, "hypotheses": hypotheses} | memory
            return json.dumps(fields, ensure_ascii=False) + "\n"
        if self.output == "tsv":
            rows = [("" if t.confidence is None else f"{t.confidence:.4f}", t.text) for t in record.translations]
            columns = ((value, *(_SEPARATORS.sub(" ", x) for x in (record.source, text))) for value, text in rows)
            return "".join("\t".join(row) + "\n" for row in columns)
        lines = []
        for translation in record.translations:
            alignment = () if translation.origin != "model" else translation.alignment or ()
            aligned = "" if translation.alignment is None else f" ||| {pharaoh(alignment)}"
            lines.append(translation.text.replace("\n", " ") + aligned)
        return "".join(line + "\n" for line in lines + [""] * (self.search.outputs - len(lines)))
