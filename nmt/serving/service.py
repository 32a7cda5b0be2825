"""From a request to its answer: models, sentences, checks, and the answer of the workers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, product
from typing import Self, TypeVar

from starlette.exceptions import HTTPException

from nmt.checkpoint_format import latest, read_header, read_model
from nmt.config import EngineConfig, ModelConfig, SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.memories.files import open_memory
from nmt.memories.memory import AnyMemory, Memory
from nmt.model.transformer import can_join as model_can_join
from nmt.serving import schema, workers
from nmt.serving.corrections import CorrectionMemory, Corrections
from nmt.serving.scheduler import Item, Scheduler
from nmt.serving.schema import check_text, search_config
from nmt.serving.workers import Operation
from nmt.text.casing import upper
from nmt.text.codec import Direction, TextCodec
from nmt.text.glossary import Glossary
from nmt.text.icu import is_icu
from nmt.text.languages import Identifier, base_language, label_of, listed, matching, public_codes
from nmt.text.markup_reading import NO_RULES, ElementRules
from nmt.text.protected import Protected
from nmt.translate.encoding import WIDTH_MULTIPLE, EncodedSentence, by_sentence, encode
from nmt.translate.pairs import Pair, Target, encode_pairs
from nmt.translate.running_search import can_join
from nmt.translate.units import Sentence, Translation, Unit, Units, with_matches


@dataclass(frozen=True)
class ServedModel:
    """A model that is served.

    Attributes:
        last_trained: for a model of several languages, the directions of its last training.
    """

    name: str
    path: str
    config: ModelConfig
    codec: TextCodec
    last_trained: Sequence[tuple[str, str]] = ()

    @cached_property
    def directions(self) -> list[schema.Directions]:
        """What it translates."""
        config = self.codec.config
        public = public_codes(config.all_languages)
        if not config.trained:  # any direction
            trained = [each for each in self.last_trained if public.keys() >= set(each)]
            first = [[public[each[side]] for each in trained] for side in (0, 1)]
            source_langs, target_langs = (list(dict.fromkeys([*langs, *public.values()])) for langs in first)
            return [schema.Directions(source_langs=source_langs, target_langs=target_langs, models=[self.name])]
        of_sources: dict[str, list[str]] = {}
        for source, target in config.trained:
            of_sources.setdefault(public.get(source, source), []).append(public.get(target, target))
        return [schema.Directions(source_langs=[s], target_langs=t, models=[self.name]) for s, t in of_sources.items()]

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The languages of each direction."""
        return [pair for directions in self.directions for pair in directions.pairs]

    def towards(self, source_lang: str | None, target_lang: str | None) -> Self:
        """Returns the model for one of its directions. A model of two languages need not be told its direction."""
        config = self.codec.config
        if not config.languages:
            return self
        direction = config.direction(source_lang or "", target_lang or "")
        return replace(self, codec=self.codec.towards(direction))


def load_models(checkpoints: Sequence[str], named: Sequence[str]) -> dict[str, ServedModel]:
    """Returns the model of each checkpoint, by name."""
    models: dict[str, ServedModel] = {}
    for given, path in [*(_named(value, "--model", "CHECKPOINT") for value in named), *(("", p) for p in checkpoints)]:
        config, codec = read_model(path)
        name = given or f"{codec.config.source_lang}-{codec.config.target_lang}"
        if name in models:
            raise NmtError(f"{path} and {models[name].path} are both called {name}; give --model NAME={path}")
        trained = latest(read_header(path)[0]["provenance"]).get("directions", ()) if codec.config.languages else ()
        models[name] = ServedModel(name, path, config, codec, tuple(Direction(*each.split()) for each in trained))
    if not models:
        raise NmtError("there is no model to serve; give a checkpoint or --model NAME=CHECKPOINT")
    return models


def _named(value: str, flag: str, kind: str) -> tuple[str, str]:
    """Returns the name and the path of a flag."""
    name, _, path = value.partition("=")
    if not (name and path and name.isprintable()):
        raise NmtError(f"{flag} must be NAME={kind}, but is {value!r:.80}")
    return name, path


# Models that translate one after the other: one, two with a pivot language between them, or none if there is nothing
# to translate.
ModelPath = tuple[ServedModel, ...]


def fitted(search: SearchConfig, path: ModelPath) -> SearchConfig:
    """Returns options of search whose lengths fit the positions that the models have learned."""
    learned = [model.config.learned_positions for model in path if model.config.learned_positions is not None]
    if not learned:
        return search
    positions = min(learned)
    longer = min(search.max_length_offset, positions // 2)
    longest = positions - max(longer + 1, WIDTH_MULTIPLE)  # EOS and padding need positions, too
    return replace(search, max_length_offset=longer, max_source_length=min(search.max_source_length, longest))


_GREEDY = SearchConfig(beam=1)
# Characters of text that take less time than a thread needs to begin.
_SHORT = 1000
_Result = TypeVar("_Result")
# The source language of a request that asks the server to identify it.
AUTO = "auto"
# A text stays as it is if it is in the target language with at least this probability. Of 10,000 English strings of
# programs, 0.05 % stay with it in place of 1.8 %.
_SURE = 0.5


@dataclass(frozen=True)
class TranslatedText:
    """A text of a request, and the translations of its sentences.

    Attributes:
        translations: of each sentence, best first.
        path: the models that translated.
        detected: the source language, if the server identified it.
    """

    unit: Unit
    sentences: Sequence[Sentence]
    translations: Sequence[Sequence[Translation]]
    path: ModelPath
    detected: schema.Detection | None

    def text(self, rank: int = 0) -> str:
        """Returns the translation from those of the sentences of a rank, or the last of a sentence that has fewer."""
        if not self.path:
            return self.unit.source
        with_text_first = (sorted(ranked, key=lambda translation: not translation.text) for ranked in self.translations)
        chosen = [ranked[min(rank, len(ranked) - 1)] for ranked in with_text_first]
        return self.unit.translated(self.sentences, chosen, self.path[-1].codec)

    def answer(self, pieces: bool) -> schema.TextEntry:
        """Returns what the answer says about the text; with `pieces`, also about the pieces of its translations."""
        sentences = []
        for sentence, ranked in zip(self.sentences, self.translations, strict=True):
            entries = [schema.HypothesisEntry(**translation.fields()) for translation in ranked]
            for entry, translation in zip(entries, ranked, strict=True):
                if not pieces:
                    entry.log_prob = entry.pieces = entry.log_probs = None
                elif translation.alignment is not None and not translation.is_from_memory:
                    codec = self.path[-1].codec
                    entry.segments, entry.words = codec.target_segments(translation.text, translation.pieces)
            matches = [schema.MatchEntry(**match.fields()) for match in sentence.matches]
            sentences.append(
                schema.SentenceEntry(line=sentence.line, source=sentence.text, hypotheses=entries, memory=matches)
            )
        detected = self.detected.language if self.detected else None
        return schema.TextEntry(text=self.text(), sentences=sentences, detected=detected)


class Service:
    """What the routes call."""

    def __init__(
        self, models: Mapping[str, ServedModel], scheduler: Scheduler, config: ServeConfig, engine: EngineConfig
    ) -> None:
        self.models, self.scheduler, self.config, self.engine = models, scheduler, config, engine
        # Whether sentences can join running searches, if their models and options allow that.
        self._has_searches = engine.engine == "pytorch" and engine.vocabulary_map is None
        for model in models.values():
            model.codec.protected = Protected(engine.keep, engine.protect)
        self.glossaries: dict[str, Glossary] = {}
        for name, path in (_named(value, "--glossary", "FILE") for value in config.glossary):
            if name in self.glossaries:
                raise NmtError(f"two glossaries are called {name}; give {path} another name")
            self.glossaries[name] = Glossary.read(path)
        self.corrections = Corrections(config.corrections, config.max_seconds) if config.corrections else None
        # The models for each pair of languages. Models of one direction are preferred, and then those given earlier.
        self.paths: dict[tuple[str, str], ModelPath] = {}
        self.directions: list[schema.Directions] = []
        of_one: dict[tuple[str, str], ModelPath] = {}
        for model in sorted(models.values(), key=lambda model: len(model.pairs) > 1):
            self.directions += model.directions
            self.paths |= {pair: (model,) for pair in model.pairs if pair not in self.paths}
            if len(model.pairs) == 1:
                of_one.setdefault(model.pairs[0], (model.towards(*model.pairs[0]),))
        for (source, between), (other, target) in product(of_one, repeat=2) if config.pivot else ():
            if between == other and source != target and (source, target) not in self.paths:
                models_in_turn = self.paths[source, target] = of_one[source, between] + of_one[other, target]
                names = [model.name for model in models_in_turn]
                self.directions.append(schema.Directions(source_langs=[source], target_langs=[target], models=names))
        self.sources, self.targets = ({pair[side] for pair in self.paths} for side in (0, 1))
        self.languages = sorted(self.sources | self.targets)
        self.memories: dict[str, tuple[Memory, ...]] = {}
        for name, path in (_named(value, "--memory", "FILE") for value in config.memory):
            name, *pair = name.split(":")
            memory = open_memory(path, self._languages_of_memory(path, pair), pair)
            self.memories[name] = (*self.memories.get(name, ()), memory)

    def _languages_of_memory(self, path: str, pair: Sequence[str]) -> tuple[str, str]:
        """Returns the languages of the model for a pair of languages, by default for the only one."""
        direct = {pair for pair, models in self.paths.items() if len(models) == 1}
        chosen = direct & {tuple(map(self.language, pair))} if pair else direct
        if len(chosen) != 1:
            pairs = listed(map(":".join, sorted(direct)), "GET /models")
            raise NmtError(
                f"the languages of --memory {path} are not clear; give NAME:SOURCE:TARGET={path} with {pairs}"
            )
        config = self.path(None, *chosen.pop())[0].codec.config
        return config.source_lang, config.target_lang

    @cached_property
    def _identifier(self) -> Identifier:
        return Identifier("the identification of languages")

    @cached_property
    def identified(self) -> list[str]:
        """The languages that can be identified; of a language in several scripts, the usual one."""
        return [lang for lang in self.languages if "-" not in lang and label_of(lang) in self._identifier.known]

    def language(self, code: str) -> str:
        """Returns what this server calls the language of a request, or the language alone if it is not known."""
        try:
            return matching(code, self.languages)
        except NmtError:
            return base_language(code)

    async def detected(self, texts: Sequence[str]) -> list[list[schema.Detection]]:
        """Returns the languages of this server for each text, the most probable first."""
        check_text(texts, self.config)

        def likeliest(text: str) -> list[schema.Detection]:
            if not self.identified:
                languages = listed(self.languages, "GET /models")
                raise NmtError(f"the languages {languages} cannot be identified; name the source language")
            ranked = self._identifier.ranked(text, self.identified)
            return [schema.Detection(language=language, probability=probability) for language, probability in ranked]

        return await asyncio.to_thread(lambda: list(map(likeliest, texts)))

    def identifies(self, model: str | None, source_lang: str | None) -> bool:
        """Returns whether the source language of a request is to be identified. A model of one needs no other."""
        is_needed = model is None or len(self._model_named(model).pairs) > 1
        return source_lang == AUTO and is_needed

    async def likeliest(
        self, texts: Sequence[str], model: str | None, target_lang: str | None
    ) -> list[tuple[schema.Detection, ModelPath]]:
        """Returns the most probable language of each text, and the models for it.

        If no language is probable enough, the most probable one that can be translated counts.
        """
        target = self.language(target_lang or "")
        chosen = []
        for languages in await self.detected(texts):
            best = languages[0]
            if best.probability < _SURE:
                best = next((other for other in languages if (other.language, target) in self.paths), best)
            is_translated = model is not None and best.language == target
            chosen.append((best, () if is_translated else self.path(model, best.language, target_lang)))
        return chosen

    async def detect(self, body: schema.DetectBody) -> schema.DetectAnswer:
        """Returns the most probable language of each text."""
        texts = [body.source] if isinstance(body.source, str) else body.source
        return schema.DetectAnswer(detected=[likeliest for likeliest, *_ in await self.detected(texts)])

    async def translate(self, body: schema.TranslateBody) -> schema.TranslateAnswer:
        """Returns the translations of the texts of a request."""
        texts = await self.translated(body, offers=True)
        models = list(dict.fromkeys(model.name for text in texts for model in text.path))
        model = models[0] if len(models) == 1 else None
        entries = [text.answer(body.pieces) for text in texts]
        return schema.TranslateAnswer(model=model, models=models, translations=entries)

    async def translated(
        self, body: schema.TranslateBody, rules: ElementRules = NO_RULES, *, offers: bool = False
    ) -> list[TranslatedText]:
        """Returns each text of a request with the translations of its sentences.

        Args:
            rules: for elements of markup.
            offers: whether similar sentences of memories are needed.
        """
        sources = [body.source] if isinstance(body.source, str) else body.source
        common = Unit("", body.markup, body.prefix, tuple(body.constraints), rules=rules)
        check_text([*sources, body.prefix, *chain.from_iterable(common.alternatives)], self.config)
        search = search_config(body.model_extra or {}, self.config)
        if body.markup:
            search = replace(search, alignments=True)
        common = replace(common, lang="" if body.source_lang == AUTO else body.source_lang or "")
        units = [replace(common, source=source) for source in sources]
        if not (body.markup or body.prefix or body.constraints):
            units = [replace(unit, markup="icu") if is_icu(unit.source) else unit for unit in units]
        await _in_thread_if_long(sources, lambda: [unit.content for unit in units])  # raises what is wrong with markup
        chosen: Sequence[tuple[schema.Detection | None, ModelPath]]
        if self.identifies(body.model, body.source_lang):
            chosen = await self.likeliest(["\n".join(unit.lines) for unit in units], body.model, body.target_lang)
        else:
            chosen = [(None, self.path(body.model, body.source_lang, body.target_lang))] * len(units)
        texts: dict[int, TranslatedText] = {}
        for path in dict.fromkeys(path for _, path in chosen):
            indices = [i for i, (_, other) in enumerate(chosen) if other == path]
            of_path, options = [units[i] for i in indices], fitted(search, path)
            along = await self._translated_along(path, of_path, body, options, offers=offers)
            for i, (sentences, translations) in zip(indices, along, strict=True):
                texts[i] = TranslatedText(units[i], sentences, translations, path, chosen[i][0])
        return [texts[i] for i in range(len(units))]

    def _model_named(self, name: str | None) -> ServedModel:
        """Returns the model that a request names, or the only one."""
        names = ", ".join(self.models)
        if name is None and len(self.models) > 1:
            raise NmtError(f"model is missing; name one of {names}, or give source_lang and target_lang")
        if name is not None and name not in self.models:
            raise HTTPException(404, f"there is no model {name!r:.60}; this server has {names}")
        return self.models[name or names]

    def path(self, model: str | None, source_lang: str | None, target_lang: str | None) -> ModelPath:
        """Returns the models for a request: the model that it names, or those for its languages."""
        if model is not None or (source_lang is None and target_lang is None):
            return (self._model_named(model).towards(None if source_lang == AUTO else source_lang, target_lang),)
        if source_lang is None or target_lang is None:
            missing = "source_lang" if source_lang is None else "target_lang"
            raise NmtError(f"{missing} is missing; source_lang and target_lang choose a model together")
        pair = self.language(source_lang), self.language(target_lang)
        if pair not in self.paths and pair[0] != pair[1]:
            pairs = listed(map("-".join, self.paths), "GET /models")
            raise HTTPException(404, f"no model translates {'-'.join(pair)!r:.60}; this server translates {pairs}")
        path = self.paths.get(pair, ())
        return (path[0].towards(*pair),) if len(path) == 1 else path

    def _model(self, body: schema.ModelBody) -> ServedModel:
        """Returns the model for a request that only a single one can answer."""
        path = self.path(body.model, body.source_lang, body.target_lang)
        if len(path) != 1:
            names = " and ".join(model.name for model in path) or "no model"
            raise NmtError(f"this request needs a single model, but {names} would translate; name one")
        return path[0]

    async def _translated_along(
        self, path: ModelPath, units: Sequence[Unit], body: schema.TranslateBody, search: SearchConfig, *, offers: bool
    ) -> list[tuple[list[Sentence], list[list[Translation]]]]:
        """Returns the sentences of each unit, and their translations by the last model."""
        if not path:
            return [([], []) for _ in units]
        if len(path) > 1 and (body.prefix or body.constraints or body.glossary or body.memory or search.alignments):
            names = " and ".join(model.name for model in path)
            raise NmtError(
                f"prefix, constraints, glossaries, memories, markup and alignments need a single model, but {names} "
                f"translate in turn"
            )
        glossary = self.glossary(body.glossary)
        cutting = path[0].codec if body.split else None
        sentences = await _in_thread_if_long(
            [unit.source for unit in units], lambda: [unit.sentences(cutting) for unit in units]
        )
        count = sum(map(len, sentences))
        if (body.prefix or body.constraints) and count != 1:
            way_out = "send its sentences one by one, or set split to false" if count else "give it a sentence"
            raise NmtError(
                f"prefix and constraints need a source of one sentence, but it has {count or 'none'}; {way_out}"
            )
        with_sentences = list(zip(units, sentences, strict=True))
        along = await self.matched(path, with_sentences, self.memory(body.memory, path), offers=offers)
        sentences = [list(of_unit) for _, of_unit in along]
        translations = await self.translations(path, along, search, glossary, pieces=body.pieces)
        return list(zip(sentences, translations, strict=True))

    async def translations(
        self, path: ModelPath, units: Units, search: SearchConfig, glossary: Glossary | None, *, pieces: bool
    ) -> list[list[list[Translation]]]:
        """Returns the translations of each sentence of units by the last model, best first."""
        translations: list[list[list[Translation]]] = []
        for model in path:
            if translations:  # of the first model, which the second one translates
                units = [
                    (unit, [s._replace(text=best.text) for s, (best, *_) in zip(sentences, of_unit, strict=True)])
                    for (unit, sentences), of_unit in zip(units, translations, strict=True)
                ]
            is_last = model is path[-1]
            options = search if is_last else replace(search, n_best=1)
            texts = [sentence.text for _, sentences in units for sentence in sentences]
            encoded = await _in_thread_if_long(texts, partial(encode, model.codec, units, options, glossary))
            operation = Operation(workers.translate, model.name, (options, pieces and is_last))
            # A search that sentences join begins with BOS, and not with the token of a language.
            has_searches = self._has_searches and model_can_join(model.config) and not model.codec.given
            items = [
                Item(
                    operation,
                    sentence,
                    sentence.width,
                    joins=has_searches and can_join(sentence, options),
                    is_counted=sentence.key.part == 0,
                )
                for sentence in encoded
            ]
            results = await self.scheduler.run(items)
            ranked = zip(encoded, results, strict=True)
            together = partial(by_sentence, model.codec, units, ranked, aligned=options.alignments, glossary=glossary)
            translations = await _in_thread_if_long(texts, together)
        return translations

    async def matched(self, path: ModelPath, units: Units, memories: Sequence[Memory], *, offers: bool) -> Units:
        """Returns units whose sentences have the matches of memories; see `with_matches`."""
        languages = path[0].codec.config.source_lang, path[-1].codec.config.target_lang
        used: list[AnyMemory] = [*memories]
        if self.corrections:
            await asyncio.to_thread(self.corrections.refresh)
            pair = self.language(languages[0]), self.language(languages[1])
            used.insert(0, CorrectionMemory(self.corrections, pair, languages))
        if not used:
            return units
        matches = partial(with_matches, path[0].codec, memories=used, offers=offers, target_lang=languages[1])
        return await asyncio.to_thread(lambda: [(unit, matches(unit, sentences)) for unit, sentences in units])

    def memory(self, name: str | None, path: ModelPath = ()) -> tuple[Memory, ...]:
        """Returns the memories that a request names, if it names one. A single model must have the direction of one."""
        if name is not None and name not in self.memories:
            names = ", ".join(self.memories) or "none"
            raise HTTPException(404, f"there is no memory {name!r:.60}; this server has {names}")
        memories = self.memories[name] if name else ()
        languages = [(model.codec.config.source_lang, model.codec.config.target_lang) for model in path]
        if memories and len(languages) == 1 and languages[0] not in [memory.languages for memory in memories]:
            known = listed("-".join(map(self.language, memory.languages)) for memory in memories)
            asked = " into ".join(map(self.language, languages[0]))
            raise NmtError(f"the memory {name} is of {known}, not from {asked}; name another memory, or none")
        return memories

    def glossary(self, name: str | None) -> Glossary | None:
        """Returns the glossary that a request names, if it names one."""
        if name is not None and name not in self.glossaries:
            names = ", ".join(self.glossaries) or "none"
            raise HTTPException(404, f"there is no glossary {name!r:.60}; this server has {names}")
        return self.glossaries[name] if name else None

    async def score(self, body: schema.ScoreBody) -> schema.ScoreAnswer:
        """Returns log P, pieces and alignments of the translations of a request."""
        check_text([text for pair in body.pairs for text in (pair.source, pair.target)], self.config)
        model = self._model(body)
        pairs = [Pair(pair.source, (Target(pair.target),)) for pair in body.pairs]
        encoded = await asyncio.to_thread(encode_pairs, model.codec, pairs)
        operation = Operation(workers.score, model.name)
        results = await self.scheduler.run([Item(operation, pair, pair.tokens, False) for pair in encoded])
        scores = [schema.ScoreEntry(**score.fields()) for scores in results for score in scores]
        return schema.ScoreAnswer(model=model.name, scores=scores)

    async def alternatives(self, body: schema.AlternativesBody) -> schema.AlternativesAnswer:
        """Returns what may follow a prefix."""
        check_text([body.source, body.prefix], self.config)
        model = self._model(body)
        search = fitted(_GREEDY, (model,))
        unit = Unit(body.source, prefix=body.prefix)
        units = [(unit, [Sentence(0, body.source)])]
        encoded = await asyncio.to_thread(encode, model.codec, units, search)
        if len(encoded) != 1:
            raise NmtError("source must be a single sentence that is not empty and not too long")
        (sentence,) = encoded
        operation = Operation(workers.alternatives, model.name, (body.count, search))
        (translations,) = await self.scheduler.run([Item(operation, sentence, sentence.width * body.count, False)])
        listed = [_alternative(model.codec, sentence, translation) for translation in translations]
        ((kept,),) = by_sentence(model.codec, units, [(sentence, translations)], aligned=False)
        for alternative, translation in zip(listed, kept, strict=True):
            alternative.text = translation.text
        # Several pieces can begin the same word. A piece that is only a space begins none.
        distinct = {alternative.prefix: alternative for alternative in reversed(listed) if alternative.word}
        return schema.AlternativesAnswer(model=model.name, alternatives=list(reversed(distinct.values())))

    async def attention(self, body: schema.AttentionBody) -> schema.AttentionAnswer:
        """Returns the attention weights of a sentence pair."""
        check_text([body.source, body.target], self.config)
        model = self._model(body)
        operation = Operation(workers.attention, model.name)
        item = Item(operation, (body.source, body.target, model.codec.direction), len(body.source), False)
        (weights,) = await self.scheduler.run([item])
        return schema.AttentionAnswer(**weights)


async def _in_thread_if_long(texts: Sequence[str], work: Callable[[], _Result]) -> _Result:
    """Returns the result of work on texts. Work on long ones is done in a thread, so that other requests go on."""
    return work() if sum(map(len, texts)) <= _SHORT else await asyncio.to_thread(work)


def _alternative(codec: TextCodec, sentence: EncodedSentence, translation: Translation) -> schema.AlternativeEntry:
    """Returns the word that begins or goes on behind the prefix; it is empty if nothing visible follows."""
    prefix = sentence.required.prefix
    (_, words), start = codec.target_segments(translation.text, translation.pieces), len(prefix)
    end = next((i for i in range(start + 1, len(words)) if words[i] != words[start]), len(words))
    shorter, longer = codec.decode_target([list(prefix), codec.target.ids(translation.pieces)[:end]])
    added = longer.removeprefix(shorter).strip()
    word = longer.split()[-1] if added and codec.has_spaces("target") else added
    return schema.AlternativeEntry(
        word=upper(word, codec.config.target_lang) if sentence.given.in_capitals else word,
        log_prob=sum(translation.log_probs[start:end]),
        prefix=codec.target_with(longer, sentence.given),
        text=translation.text,
    )
