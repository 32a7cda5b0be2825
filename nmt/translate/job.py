"""Translation as a job: lines become units with their sentences, and the translations of these become lines."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from nmt import __version__
from nmt.checkpoint_format import read_codec
from nmt.config import DirectionConfig, EngineConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.config.options import Config, flag_name
from nmt.errors import NmtError, naming
from nmt.files import digest_of, refuse_inputs
from nmt.jobs.ray import has_gpus
from nmt.jobs.stream import Batch, Chunk, Place, Result, Row
from nmt.memories.matching import Match
from nmt.memories.memory import Memory
from nmt.model.device import device_type, precision_of
from nmt.text.codec import Direction, TextCodec
from nmt.text.glossary import Glossary
from nmt.text.icu import is_icu
from nmt.text.protected import Protected
from nmt.text.words import AlignedWords, pharaoh
from nmt.translate.encoding import EncodedSentence, by_sentence, encode, longest_first
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.units import Sentence, Translation, Unit, with_matches

if TYPE_CHECKING:
    from nmt.translate.ctranslate2_engine import CTranslate2Engine

# What translates and scores with a loaded model. Both have the same methods, which `PyTorchEngine` describes.
Engine: TypeAlias = "PyTorchEngine | CTranslate2Engine"


def load_engine(checkpoints: Sequence[str], config: EngineConfig, runtime: RuntimeConfig, process: int = 0) -> Engine:
    """Returns the engine for a model, or for an ensemble; see `nmt.model.device.set_up` for `process`."""
    engine = _loaded(checkpoints, config, runtime, process)
    engine.codec.protected = Protected(config.keep, config.protect)
    return engine


def _loaded(checkpoints: Sequence[str], config: EngineConfig, runtime: RuntimeConfig, process: int) -> Engine:
    if config.engine == "pytorch":
        return PyTorchEngine.load(*checkpoints, runtime=runtime, process=process, vocabulary_map=config.vocabulary_map)
    from nmt.translate.ctranslate2_engine import CTranslate2Engine

    if len(checkpoints) > 1:
        raise NmtError(
            f"--engine ctranslate2 has no ensembles, but there are {len(checkpoints)} checkpoints; give one, "
            f"or use --engine pytorch"
        )
    return CTranslate2Engine(checkpoints[0], config, runtime, process)


@lru_cache(maxsize=1)
def _codec(checkpoint: str, keep: tuple[str, ...], protect: bool) -> TextCodec:
    """Returns the text processing of a checkpoint, which cuts all lines of a job into sentences."""
    return read_codec(checkpoint, Protected(keep, protect))


def direction_of(fields: Mapping[str, Any], languages: DirectionConfig) -> Direction | None:
    """Returns the direction in the fields of a line; for what they do not say, that of the options. None if no side is.

    Raises:
        NmtError: a field is not text.
    """
    codes = [fields.get(name, code) or "" for name, code in languages.to_dict().items()]
    if not all(isinstance(code, str) for code in codes):
        raise NmtError(f'"source_lang" and "target_lang" must be text, but are {codes!r:.80}')
    return Direction.of(*codes)


class TranslatedLine(NamedTuple):
    """The translations of a line, best first, or its samples.

    Attributes:
        place: what messages call the line.
        source: the raw line; empty for text, like the fields.
        fields: the JSON object of the line.
        matches: those of memories for its sentences.
    """

    place: str
    source: str
    fields: dict[str, Any]
    translations: list[Translation]
    matches: list[Match]

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Returns the record whose JSON values these are."""
        place, source, fields, translations, matches = values
        translations = [Translation(*translation) for translation in translations]
        return cls(place, source, fields, translations, [Match(*match) for match in matches])


@dataclass(frozen=True)
class ModelJob:
    """Work of a model, or of an ensemble of several."""

    models: tuple[str, ...]
    runtime: RuntimeConfig
    engine = EngineConfig()
    languages = DirectionConfig()

    @property
    def device(self) -> str:
        return self.runtime.device

    def codec(self) -> TextCodec:
        return read_codec(self.models[0], Protected(self.engine.keep, self.engine.protect))

    def load(self, models: Sequence[str], process: int) -> Engine:
        return load_engine(models, self.engine, self.runtime, process)


@dataclass(frozen=True)
class TranslationJob(ModelJob):
    """Which model translates, how it searches, its glossary, and how lines are written.

    Attributes:
        input: `sentence` is a sentence of a document, followed by the places of what stays as JSON.
        prefixes, constraints: whether rows of text have a prefix or constraints behind the line.
        split_sentences: whether the sentences of lines are translated one by one.
        memories: the first one that has a sentence translates it.
        offers: whether similar sentences of memories are in the results.
    """

    search: SearchConfig
    engine: EngineConfig = field(default_factory=EngineConfig)
    languages: DirectionConfig = field(default_factory=DirectionConfig)
    glossary: Glossary | None = None
    input: Literal["text", "jsonl", "html", "sentence"] = "text"
    output: Literal["text", "jsonl"] = "text"
    prefixes: bool = False
    constraints: bool = False
    split_sentences: bool = False
    memories: tuple[Memory, ...] = ()
    offers: bool = False

    def unit(self, row: Row, place: Place) -> tuple[Unit, Sequence[Sentence]]:
        """Returns the unit in a row of the input, and its sentences with their matches."""
        unit, sentences = self._unit(row, place)
        if self.memories:
            codec = _codec(self.models[0], self.engine.keep, self.engine.protect)
            with naming(str(place)):
                sentences = with_matches(codec, unit, sentences, self.memories, offers=self.offers)
        return unit, sentences

    def _unit(self, row: Row, place: Place) -> tuple[Unit, Sequence[Sentence]]:
        line, name = row[0], str(place)
        direction = direction_of({}, self.languages)
        cutting = _codec(self.models[0], self.engine.keep, self.engine.protect) if self.split_sentences else None
        if self.input == "html" or (self.input == "text" and len(row) == 1 and is_icu(line)):
            unit = Unit(line, "html" if self.input == "html" else "icu", place=name, direction=direction)
            with naming(name):
                return unit, unit.sentences(cutting)
        if self.input == "jsonl":
            fields = parsed_object(line, name)
            line, prefix, constraints = fields["source"], fields.get("prefix") or "", fields.get("constraints") or []
            if not isinstance(prefix, str):
                raise NmtError(f'{name}: "prefix" must be text, but is {prefix!r:.40}')
            if not isinstance(constraints, list) or not all(
                isinstance(phrase, str) for c in constraints for phrase in (c if isinstance(c, list) else [c])
            ):
                raise NmtError(f'{name}: "constraints" must be a list of texts or of lists, but is {constraints!r:.40}')
            with naming(name):
                direction = direction_of(fields, self.languages)
            unit = Unit(line, None, prefix, tuple(constraints), name, fields, direction=direction)
        elif self.input == "sentence":
            spans, has_elements = json.loads(row[1])
            kept = tuple((start, stop) for start, stop in spans)
            unit = Unit(line, place=f"the sentence {line:.80}", direction=direction)
            return unit, [Sentence(0, line, kept, has_elements)]
        else:
            phrases = tuple(filter(None, row[-1].split("\t"))) if self.constraints else ()
            prefix = row[1] if self.prefixes else ""
            unit = Unit(line, prefix=prefix, constraints=phrases, place=name, direction=direction)
        return unit, unit.sentences(cutting) if cutting else [Sentence(0, line)]

    def batches(self, codec: TextCodec, chunk: Chunk) -> Iterator[Batch]:
        """Yields the batches of the sentences of a chunk, longest first."""
        sentences = encode(codec, chunk.units, self.search, self.glossary, chunk.first)
        budget = self.search.tokens_at_once(device_type(self.runtime))
        for batch in longest_first([sentence.width for sentence in sentences], budget):
            yield Batch([sentences[i].key.unit for i in batch], [sentences[i] for i in batch])

    def compute(self, engine: Engine, sentences: Sequence[EncodedSentence]) -> list[list[Translation]]:
        """Returns the translations of each sentence of a batch."""
        return engine.translate(sentences, self.search, log_probs=self.output == "jsonl")

    def result(self, codec: TextCodec, chunk: Chunk, done: Sequence[tuple[Batch, Any]]) -> Result:
        """Returns a `TranslatedLine` for each unit of a chunk. Only JSON gets the source and the other fields."""
        translations = [pair for batch, results in done for pair in zip(batch.work, results, strict=True)]
        options: dict[str, Any] = {"aligned": self.search.alignments, "glossary": self.glossary}
        of_units = by_sentence(codec, chunk.units, translations, **options, first=chunk.first)
        lines = []
        for (unit, sentences), of_sentences in zip(chunk.units, of_units, strict=True):
            if unit.markup or self.split_sentences:
                of_unit = [unit.translation(sentences, [ranked[0] for ranked in of_sentences], codec)]
            else:
                (of_unit,) = of_sentences
            source, fields = (unit.source, dict(unit.fields)) if self.output == "jsonl" else ("", {})
            matches = [match for sentence in sentences for match in sentence.matches if self.offers]
            lines.append(TranslatedLine(unit.place, source, fields, of_unit, matches))
        return Result(lines)

    def text(self, line: TranslatedLine) -> str:
        """Returns the output for a line.

        The output is one JSON object with the fields of the input and the hypotheses, or a line of text for each
        translation that was asked for, which is blank if there are fewer.
        """
        if self.output == "jsonl":
            hypotheses = [translation.fields() for translation in line.translations]
            memory = {"memory": [match.fields() for match in line.matches]} if line.matches else {}
            fields = {**line.fields, "source": line.source, "hypotheses": hypotheses} | memory
            return json.dumps(fields, ensure_ascii=False) + "\n"
        is_aligned = self.search.alignments and self.input != "html"  # whose alignment places its tags
        texts = [
            with_alignment(each.text, () if each.is_from_memory and is_aligned else each.alignment)
            for each in line.translations
        ]
        return "".join(text + "\n" for text in texts + [""] * (self.search.outputs - len(texts)))


def parsed_object(line: str, place: str) -> dict[str, Any]:
    """Returns the JSON object of a line, which has a source."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{place} is not JSON ({error}); give one object on each line") from error
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        raise NmtError(f'{place} has no text as its "source"; give objects such as {{"source": "…"}}')
    return value


def with_alignment(text: str, alignment: Sequence[AlignedWords] | None) -> str:
    """Returns text with the alignment behind it, if there is one."""
    return text if alignment is None else f"{text} ||| {pharaoh(alignment)}"


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
    values = {**here.to_dict(), "device": device_type(here), "precision": precision}
    return RuntimeConfig.from_dict(values, "this machine")


def settings_of_files(
    engine: EngineConfig, glossary: str | None, memories: Sequence[Memory], output: str, options: JobConfig
) -> dict[str, Any]:
    """Returns the content of the files that the output depends on besides models and lines, by flag."""
    if engine.vocabulary_map is not None and options.cluster:
        raise NmtError("--vocabulary-map does not work with --cluster: other machines lack the file; leave out one")
    paths = {"--vocabulary-map": engine.vocabulary_map, "--glossary": glossary}
    given = {flag: path for flag, path in paths.items() if path is not None}
    refuse_inputs(output, given.values(), f"--output {output}")
    contents: dict[str, Any] = {flag: _content_of(path) for flag, path in given.items()}
    return contents | ({"--memory": [f"SHA-256 {memory.digest[:16]}…" for memory in memories]} if memories else {})


def _content_of(path: str) -> str:
    return f"SHA-256 {digest_of(path)[:16]}…"


def settings_of(*configs: Config) -> dict[str, Any]:
    """Returns what output depends on: the version, and options by flag."""
    options = {name: value for config in configs for name, value in config.to_dict().items()}
    options.pop("batch_tokens", None)  # changes the speed alone
    if path := options.get("user_module"):
        options["user_module"] = _content_of(path)
    return {"version of nmt": __version__} | {flag_name(name): value for name, value in options.items()}
