"""What is served, by the names that requests have for it: models, languages, glossaries, memories and corrections."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Self, TypeVar

from nmt.checkpoint_format import latest, read_model
from nmt.config import EngineConfig, ModelConfig, SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.interop.hub import checkpoint_file
from nmt.memories.files import open_memory
from nmt.memories.memory import Memory
from nmt.serving.corrections import Corrections
from nmt.serving.errors import UnknownNameError
from nmt.serving.schema import Detection, Directions
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.glossary import Glossary
from nmt.text.languages import Identifier, base_language, label_of, listed_codes, matching, public_codes
from nmt.text.protected import Protected
from nmt.training.records import METRICS, MetricsFile
from nmt.translate.confidence import Calibration, calibrations_of
from nmt.translate.encoding import WIDTH_MULTIPLE

# The source language of a request that asks the server to identify it.
AUTO = "auto"
# A text stays as it is if it is in the target language with at least this probability. Of 10,000 English strings
# of programs, 0.05 % stay with it in place of 1.8 %.
_SURE = 0.5
_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class ServedModel:
    """A model that is served; `last_trained` has directions of a model of several languages."""

    name: str
    path: str
    config: ModelConfig
    codec: TextCodec
    last_trained: Sequence[tuple[str, str]] = ()
    calibrations: Sequence[Calibration] = field(default=(), compare=False)  # cannot be hashed
    examples: Sequence[str] = field(default=(), compare=False)  # sentences that the page suggests

    @cached_property
    def directions(self) -> list[Directions]:
        """What it translates."""
        config = self.codec.config
        public = public_codes(config.all_languages)
        if config.trained:
            targets: dict[str, list[str]] = {}
            for source, target in config.trained:
                targets.setdefault(public.get(source, source), []).append(public.get(target, target))
            return [Directions(source_langs=[lang], target_langs=targets[lang], models=[self.name]) for lang in targets]
        # All directions, with the languages of the last training first.
        trained = [pair for pair in self.last_trained if public.keys() >= set(pair)]
        first = [[public[pair[side]] for pair in trained] for side in (0, 1)]
        source_langs, target_langs = (list(dict.fromkeys([*langs, *public.values()])) for langs in first)
        return [Directions(source_langs=source_langs, target_langs=target_langs, models=[self.name])]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The languages of each direction."""
        return [pair for directions in self.directions for pair in directions.pairs]

    def directed(self, source_lang: str | None, target_lang: str | None) -> Self:
        """Returns the model for one of its directions. A model of two languages need not be told its direction."""
        config = self.codec.config
        if not config.languages:
            return self
        direction = config.direction(source_lang or "", target_lang or "")
        return replace(self, codec=self.codec.directed(direction))


# Models that translate one after the other: one, two with a pivot language between them, or none if there is
# nothing to translate.
ModelPath = tuple[ServedModel, ...]


def model_names(path: ModelPath) -> str:
    """Returns the names of models that translate in turn, as messages have them."""
    return " and ".join(model.name for model in path)


def load_models(checkpoints: Sequence[str], named: Sequence[str]) -> dict[str, ServedModel]:
    """Returns the model of each checkpoint, by name."""
    models: dict[str, ServedModel] = {}
    for given, path in [*_named(named, "--model", "CHECKPOINT"), *(("", path) for path in checkpoints)]:
        path = checkpoint_file(path)
        config, codec, provenance = read_model(path)
        name = given or f"{codec.config.source_lang}-{codec.config.target_lang}"
        if name in models:
            raise NmtError(f"{path} and {models[name].path} are both called {name}; give --model NAME={path}")
        trained = latest(provenance).get("directions", ()) if codec.config.languages else ()
        directions = tuple(map(Direction.parsed, trained))
        calibrations, examples = calibrations_of([provenance]), _examples(path)
        models[name] = ServedModel(name, path, config, codec, directions, calibrations, examples)
    if not models:
        raise NmtError("there is no model to serve; give a checkpoint or --model NAME=CHECKPOINT")
    return models


def _examples(checkpoint: str) -> list[str]:
    """Returns two source sentences of the last validation of a checkpoint in its run folder, if there are any."""
    with suppress(NmtError):
        records = MetricsFile(Path(checkpoint).parent / METRICS).records()
        samples = next((record["samples"] for record in reversed(records) if record.get("samples")), ())
        # Those of a model of several languages have a direction, which the page may not translate at first.
        return [each["source"] for each in samples if "direction" not in each and 20 < len(each["source"]) < 80][:2]
    return []


def _named(values: Iterable[str], flag: str, kind: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the path in each value of a flag. Files of terms and memories may go without a name."""
    for value in values:
        name, equals, path = value.partition("=")
        if kind == "FILE" and not equals:
            name, path = Path(value).stem, value
        if not (name and path and name.isprintable()):
            raise NmtError(f"{flag} must be NAME={kind}, but is {value!r:.80}")
        yield name, path


def fitted(search: SearchConfig, path: ModelPath) -> SearchConfig:
    """Returns options of search whose lengths fit the positions that the models have learned."""
    learned = [model.config.learned_positions for model in path if model.config.learned_positions is not None]
    if not learned:
        return search
    positions = min(learned)
    longer = min(search.max_length_offset, positions // 2)
    longest = positions - max(longer + 1, WIDTH_MULTIPLE)  # EOS and padding need positions, too
    return replace(search, max_length_offset=longer, max_source_length=min(search.max_source_length, longest))


class Catalog:
    """What requests can name."""

    def __init__(self, models: Mapping[str, ServedModel], config: ServeConfig, engine: EngineConfig) -> None:
        self.models = models
        self.protected = Protected(engine.keep, engine.protect)
        # The models for each pair of languages. Models of one direction are preferred, and then those given earlier.
        self.paths: dict[tuple[str, str], ModelPath] = {}
        self.directions: list[Directions] = []
        bilingual: dict[tuple[str, str], ModelPath] = {}
        for model in sorted(models.values(), key=lambda model: len(model.pairs) > 1):
            self.directions += model.directions
            self.paths |= {pair: (model,) for pair in model.pairs if pair not in self.paths}
            if len(model.pairs) == 1:
                bilingual.setdefault(model.pairs[0], (model.directed(*model.pairs[0]),))
        for (source, between), (other, target) in product(bilingual, repeat=2) if config.pivot else ():
            if between == other and source != target and (source, target) not in self.paths:
                path = self.paths[source, target] = bilingual[source, between] + bilingual[other, target]
                names = [model.name for model in path]
                self.directions.append(Directions(source_langs=[source], target_langs=[target], models=names))
        self.sources, self.targets = ({pair[side] for pair in self.paths} for side in (0, 1))
        self.languages = sorted(self.sources | self.targets)
        self.glossaries: dict[str, Glossary] = {}
        for name, file in _named(config.glossary, "--glossary", "FILE"):
            if name in self.glossaries:
                raise NmtError(f"two glossaries are called {name}; give {file} another name")
            self.glossaries[name] = Glossary.read(file, *(model.codec for model in models.values()))
        self.corrections = None
        if config.corrections:
            self.corrections = Corrections(config.corrections, config.max_seconds, self.protected)
        self.memories: dict[str, tuple[Memory, ...]] = {}
        for value, file in _named(config.memory, "--memory", "FILE"):
            name, *languages = value.split(":")
            memory = open_memory(file, self._memory_languages(file, languages), languages, self.protected)
            self.memories[name] = (*self.memories.get(name, ()), memory)

    def _memory_languages(self, file: str, languages: Sequence[str]) -> tuple[str, str]:
        """Returns what the model for a pair of languages calls them. By default, it is the only pair."""
        direct = {pair for pair, path in self.paths.items() if len(path) == 1}
        meant = direct & {tuple(map(self.language, languages))} if languages else direct
        if len(meant) != 1:
            pairs = listed_codes(map(":".join, sorted(direct)), "GET /models")
            raise NmtError(f"--memory {file} has unclear languages; give NAME:SOURCE:TARGET={file} with {pairs}")
        config = self.path(None, *meant.pop())[0].codec.config
        return config.source_lang, config.target_lang

    def model(self, name: str | None) -> ServedModel:
        """Returns the model that a request names, or the only one."""
        if name is None and len(self.models) > 1:
            names = ", ".join(self.models)
            raise NmtError(f"model is missing; name one of {names}, or give source_lang and target_lang")
        return _entry(self.models, "model", next(iter(self.models)) if name is None else name)

    def path(self, model: str | None, source_lang: str | None, target_lang: str | None) -> ModelPath:
        """Returns the models for a request: the model that it names, or those for its languages."""
        if model is not None or (source_lang is None and target_lang is None):
            return (self.model(model).directed(None if source_lang == AUTO else source_lang, target_lang),)
        if source_lang is None or target_lang is None:
            missing = "source_lang" if source_lang is None else "target_lang"
            raise NmtError(f"{missing} is missing; source_lang and target_lang choose a model together")
        pair = self.language(source_lang), self.language(target_lang)
        if pair not in self.paths and pair[0] != pair[1]:
            pairs = listed_codes(map("-".join, self.paths), "GET /models")
            raise UnknownNameError(f"no model translates {'-'.join(pair)!r:.60}; this server translates {pairs}")
        path = self.paths.get(pair, ())
        return (path[0].directed(*pair),) if len(path) == 1 else path

    def glossary(self, name: str | None) -> Glossary | None:
        """Returns the glossary that a request names, if it names one."""
        return None if name is None else _entry(self.glossaries, "glossary", name)

    def memory(self, name: str | None, path: ModelPath = ()) -> tuple[Memory, ...]:
        """Returns the memories that a request names, if it names one. A single model must have the direction of one."""
        memories = () if name is None else _entry(self.memories, "memory", name)
        languages = [(model.codec.config.source_lang, model.codec.config.target_lang) for model in path]
        if memories and len(languages) == 1 and languages[0] not in [memory.languages for memory in memories]:
            known = listed_codes("-".join(map(self.language, memory.languages)) for memory in memories)
            asked = " into ".join(map(self.language, languages[0]))
            raise NmtError(f"the memory {name} is of {known}, not from {asked}; name another memory, or none")
        return memories

    def language(self, code: str) -> str:
        """Returns what this server calls the language of a request, or the language alone if it is not known."""
        try:
            return matching(code, self.languages)
        except NmtError:
            return base_language(code)

    @cached_property
    def _identifier(self) -> Identifier:
        return Identifier("the identification of languages")

    @cached_property
    def identified(self) -> list[str]:
        """The languages that can be identified; of a language in several scripts, the usual one."""
        return [lang for lang in self.languages if "-" not in lang and label_of(lang) in self._identifier.known]

    def identifies(self, model: str | None, source_lang: str | None) -> bool:
        """Returns whether the source language of a request is to be identified. A model of one needs no other."""
        return source_lang == AUTO and (model is None or len(self.model(model).pairs) > 1)

    def detections(self, text: str) -> list[Detection]:
        """Returns the languages of this server for a text, the most probable first."""
        if not self.identified:
            languages = listed_codes(self.languages, "GET /models")
            raise NmtError(f"the languages {languages} cannot be identified; name the source language")
        ranked = self._identifier.ranked(text, self.identified)
        return [Detection(language=language, probability=probability) for language, probability in ranked]

    def detected_path(self, text: str, model: str | None, target_lang: str | None) -> tuple[Detection, ModelPath]:
        """Returns the most probable language, or the first that can be translated if none is sure, and its models.

        If no language that can be identified is sure or can be translated, it is the only one of the others that can.
        """
        target, detections = self.language(target_lang or ""), self.detections(text)
        likeliest = detections[0]
        if likeliest.probability < _SURE:
            others = [Detection(language=lang, probability=0) for lang in self.languages if lang not in self.identified]
            known, unknown = (
                [each for each in group if (each.language, target) in self.paths] for group in (detections, others)
            )
            likeliest = [*known, *(unknown if len(unknown) == 1 else []), likeliest][0]
        is_translated = model is not None and likeliest.language == target
        return likeliest, () if is_translated else self.path(model, likeliest.language, target_lang)


def _entry(entries: Mapping[str, _Entry], kind: str, name: str) -> _Entry:
    """Returns the entry that a request names."""
    if name not in entries:
        names = ", ".join(entries) or "none"
        raise UnknownNameError(f"there is no {kind} {name!r:.60}; this server has {names}")
    return entries[name]
