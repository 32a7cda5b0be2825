"""Translation and rescoring as jobs: what workers do with the units of files, and what output depends on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nmt import __version__
from nmt.checkpoint_file import read_codec
from nmt.config import EngineConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.config.options import Config, flag_name
from nmt.errors import NmtError
from nmt.files import digest_of, refuse_inputs
from nmt.jobs.plan import Row
from nmt.jobs.ray import has_gpus
from nmt.jobs.stream import Batch, Chunk, Place, Result
from nmt.model.device import device_type, precision_of
from nmt.text.codec import TextCodec
from nmt.text.glossary import Glossary
from nmt.translate.alignment import PADDED_TOKENS
from nmt.translate.engine import Engine, load_engine
from nmt.translate.lines import LineFormat, Pair, PairFormat
from nmt.translate.pairs import EncodedPair, encode_pairs
from nmt.translate.records import Score, ScoredLine, TranslatedLine, Translation
from nmt.translate.units import EncodedSentence, Sentence, Unit, by_sentence, encode, longest_first


@dataclass(frozen=True)
class _ModelJob:
    """Work of a model, or of an ensemble of several."""

    models: tuple[str, ...]
    runtime: RuntimeConfig
    engine = EngineConfig()

    @property
    def device(self) -> str:
        return self.runtime.device

    def codec(self) -> TextCodec:
        return read_codec(self.models[0], self.engine.keep)

    def load(self, models: Sequence[str], process: int) -> Engine:
        return load_engine(models, self.engine, self.runtime, process)


@dataclass(frozen=True)
class TranslationJob(_ModelJob):
    """Which model translates, how it searches, the form of its lines, and its glossary."""

    search: SearchConfig
    engine: EngineConfig = field(default_factory=EngineConfig)
    format: LineFormat = field(default_factory=LineFormat)
    glossary: Glossary | None = None

    def unit(self, row: Row, place: Place) -> Unit:
        return self.format.unit(row, place)

    def _cut(self, codec: TextCodec, chunk: Chunk) -> list[tuple[Unit, list[Sentence]]]:
        return [(unit, unit.sentences(codec, "lines" if unit.markup else "unit")) for unit in chunk.units]

    def batches(self, codec: TextCodec, chunk: Chunk) -> Iterator[Batch]:
        """Yields the batches of the sentences of a chunk, longest first."""
        sentences = encode(codec, self._cut(codec, chunk), self.search, self.glossary, chunk.first)
        budget = self.search.tokens_at_once(device_type(self.runtime))
        for batch in longest_first([sentence.width for sentence in sentences], budget):
            yield Batch([sentences[i].key.unit for i in batch], [sentences[i] for i in batch])

    def compute(self, engine: Engine, sentences: Sequence[EncodedSentence]) -> list[list[Translation]]:
        """Returns the translations of each sentence of a batch."""
        return engine.translate(sentences, self.search, log_probs=self.format.output == "jsonl")

    def result(self, codec: TextCodec, chunk: Chunk, done: Sequence[tuple[Batch, Any]]) -> Result:
        """Returns a `TranslatedLine` for each unit of a chunk. Only JSON gets the source and the other fields."""
        translations = {
            sentence.key: ranked
            for batch, results in done
            for sentence, ranked in zip(batch.work, results, strict=True)
        }
        units = self._cut(codec, chunk)
        of_units = by_sentence(codec, units, translations, aligned=self.search.alignments, first=chunk.first)
        is_json = self.format.output == "jsonl"
        lines = []
        for (unit, sentences), of_sentences in zip(units, of_units, strict=True):
            if unit.markup:
                best = [ranked[0] for ranked in of_sentences]
                unmet = any(translation.unmet for translation in best)
                of_unit = [Translation(unit.translated(sentences, best, codec), 0.0, [], [], unmet)]
            else:
                (of_unit,) = of_sentences
            source, fields = (unit.source, dict(unit.fields)) if is_json else ("", {})
            lines.append(TranslatedLine(unit.place, source, fields, of_unit))
        return Result(lines)


@dataclass(frozen=True)
class RescoringJob(_ModelJob):
    """Which model scores given translations, and where it runs."""

    batch_tokens: int | None = None
    alignments: bool = False
    format: PairFormat = field(default_factory=PairFormat)

    def unit(self, row: Row, place: Place) -> Pair:
        return self.format.pair(row, place)

    def batches(self, codec: TextCodec, chunk: Chunk) -> Iterator[Batch]:
        """Yields the batches of a chunk of pairs, longest first. The translations of a line share a batch."""
        pairs = encode_pairs(codec, chunk.units, chunk.first)
        budget = self.batch_tokens or PADDED_TOKENS[device_type(self.runtime)]
        for batch in longest_first([pair.tokens for pair in pairs], budget):
            yield Batch([pairs[i].number for i in batch], [pairs[i] for i in batch])

    def compute(self, engine: Engine, pairs: Sequence[EncodedPair]) -> list[list[Score]]:
        """Returns the scores of the translations of each line of a batch."""
        return engine.score(pairs, alignments=self.alignments)

    def result(self, codec: TextCodec, chunk: Chunk, done: Sequence[tuple[Batch, Any]]) -> Result:  # noqa: ARG002
        """Returns a record for each pair of a chunk."""
        scores = {
            pair.number: of_pair for batch, results in done for pair, of_pair in zip(batch.work, results, strict=True)
        }
        return Result([self.record(pair, scores[number]) for number, pair in enumerate(chunk.units, chunk.first)])

    def record(self, pair: Pair, scores: list[Score]) -> Any:
        """Returns a `ScoredLine`. Only JSON gets the text, the pieces and the other fields."""
        if self.format.output == "jsonl":
            return ScoredLine(pair.source, [target.text for target in pair.targets], dict(pair.fields), scores)
        return ScoredLine("", [], {}, [score._replace(pieces=[], log_probs=[]) for score in scores])


# Options that change the speed, but not the output.
_SPEED = {"batch_tokens"}


def placed(runtime: RuntimeConfig, options: JobConfig, engine: str = "pytorch") -> RuntimeConfig:
    """Returns the runtime with a device and a precision in place of `auto`. With --cluster, it must be connected."""
    if options.cluster and runtime.user_module:
        raise NmtError(
            "--user-module does not work with --cluster, because other machines lack the file; leave out one"
        )
    if options.cluster and runtime.device != "cpu" and has_gpus():
        bf16 = runtime.precision == "auto" and engine == "pytorch"
        return RuntimeConfig(device="cuda", precision="bf16" if bf16 else runtime.precision)
    if options.cluster and runtime.device == "cuda":
        raise NmtError("--device is cuda, but the cluster has no GPU; give --device cpu")
    here = replace(runtime, device="cpu") if options.cluster else runtime
    precision = precision_of(here) if engine == "pytorch" else runtime.precision
    return RuntimeConfig.from_dict(
        {**here.to_dict(), "device": device_type(here), "precision": precision}, "this machine"
    )


def settings_of_files(engine: EngineConfig, glossary: str | None, output: str, options: JobConfig) -> dict[str, str]:
    """Returns the content of the files that the output depends on besides models and lines, by flag."""
    if engine.vocabulary_map is not None and options.cluster:
        raise NmtError("--vocabulary-map does not work with --cluster: other machines lack the file; leave out one")
    paths = {"--vocabulary-map": engine.vocabulary_map, "--glossary": glossary}
    given = {flag: path for flag, path in paths.items() if path is not None}
    refuse_inputs(output, given.values(), f"--output {output}")
    return {flag: _content_of(path) for flag, path in given.items()}


def _content_of(path: str) -> str:
    return f"SHA-256 {digest_of(path)[:16]}…"


def settings_of(*configs: Config) -> dict[str, Any]:
    """Returns what output depends on: the version, and options by flag."""
    options = {name: value for config in configs for name, value in config.to_dict().items() if name not in _SPEED}
    if path := options.get("user_module"):
        options["user_module"] = _content_of(path)
    return {"version of nmt": __version__} | {flag_name(name): value for name, value in options.items()}
