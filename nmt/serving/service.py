"""How requests are done: a text becomes sentences, the workers compute, and the results become the answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from nmt.config import EngineConfig, SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.memories.memory import AnyMemory, Memory
from nmt.serving import schema, workers
from nmt.serving.catalog import AUTO, Catalog, ModelPath, ServedModel, fitted, model_names
from nmt.serving.corrections import CorrectionMemory
from nmt.serving.scheduler import Item, Scheduler
from nmt.serving.schema import TranslateBody, check_text, search_config
from nmt.serving.workers import Operation
from nmt.text.casing import upper
from nmt.text.codec import TextCodec
from nmt.text.directions import UNNAMED, Direction
from nmt.text.glossary import Glossary
from nmt.text.icu import parse_icu
from nmt.text.languages import has_spaces
from nmt.text.markup_reading import NO_RULES, ElementRules, parse
from nmt.text.words import one_line
from nmt.translate.confidence import valid_for
from nmt.translate.encoding import EncodedSentence, by_sentence, encode
from nmt.translate.pairs import Pair, Target, encode_pairs
from nmt.translate.running_search import can_join
from nmt.translate.units import Cut, Doubt, Sentence, Translation, Unit, UnitMaker

_GREEDY = SearchConfig(beam=1)
# Characters of texts that take less time than a thread needs to begin, and what counts for each text besides.
_SHORT, _CHARACTERS_PER_TEXT = 1000, 20
_Result = TypeVar("_Result")


@dataclass
class RequestedText:
    """A text of a request.

    Attributes:
        path: the models that translate it.
        detected: the source language, if the server identified it.
        translations: of each sentence, best first.
    """

    unit: Unit
    path: ModelPath
    detected: schema.Detection | None = None
    translations: Sequence[Sequence[Translation]] = ()

    def translation(self, rank: int = 0) -> str:
        """Returns the text from translations of a rank, or of each sentence that has fewer, from the last one."""
        if not self.path:
            return self.unit.source
        with_text_first = (sorted(ranked, key=lambda translation: not translation.text) for ranked in self.translations)
        chosen = [ranked[min(rank, len(ranked) - 1)] for ranked in with_text_first]
        return self.unit.translated(chosen, self.path[-1].codec.config.target_lang)

    def answer(self, *, pieces: bool) -> dict[str, Any]:
        """Returns the fields of `schema.TextEntry`; with `pieces`, also those about the pieces of translations."""
        sentences = []
        for sentence, ranked in zip(self.unit.sentences, self.translations, strict=True):
            hypotheses = [
                self._hypothesis(translation, pieces=pieces) | _terms(sentence, translation) for translation in ranked
            ]
            memory = {"memory": [match.fields() for match in sentence.matches]} if sentence.matches else {}
            sentences.append({"line": sentence.line, "source": sentence.raw, "hypotheses": hypotheses} | memory)
        detected = {"detected": self.detected.language} if self.detected else {}
        return {"text": self.translation(), "sentences": sentences} | detected

    def _hypothesis(self, translation: Translation, *, pieces: bool) -> dict[str, Any]:
        """Returns the fields of `schema.HypothesisEntry`."""
        fields = translation.fields()
        if not pieces:
            return {name: fields[name] for name in fields if name not in ("log_prob", "pieces", "log_probs")}
        if translation.origin != "model":
            return fields
        fields["log_prob"] = float(fields["log_prob"])  # the sum of no numbers is an int
        if translation.alignment is not None and translation.pieces:  # what has no letters is not translated
            codec = self.path[-1].codec
            segments, words = codec.target_segments(translation.text, translation.pieces, codec.config.target_lang)
            last = {name: fields.pop(name) for name in ("unmet", "doubts") if name in fields}
            fields |= {"segments": segments, "words": words} | last
        return fields


def _terms(sentence: Sentence, translation: Translation) -> dict[str, Any]:
    """Returns the field of `schema.HypothesisEntry` about the terms of a sentence, if it has any."""
    line = one_line(sentence.text)
    terms = [
        {"source": line[term.start : term.stop], "targets": term.forms, "used": term.form_in(translation.text)}
        for term in sentence.terms
    ]
    return {"terms": terms} if terms else {}


class Service:
    """What the routes call."""

    def __init__(
        self, models: Mapping[str, ServedModel], scheduler: Scheduler, config: ServeConfig, engine: EngineConfig
    ) -> None:
        self.catalog = Catalog(models, config, engine)
        self.scheduler, self.config, self.engine = scheduler, config, engine
        # Whether sentences can join running searches, if their models and options allow that.
        self._has_searches = engine.engine == "pytorch" and engine.vocabulary_map is None

    async def detect(self, body: schema.DetectBody) -> dict[str, Any]:
        """Returns the most probable language of each text."""
        texts = [body.source] if isinstance(body.source, str) else body.source
        if body.target_lang is None:
            languages = [likeliest for likeliest, *_ in await self.detections(texts)]
        else:
            check_text(texts, self.config)
            detected_path, target_lang = self.catalog.detected_path, body.target_lang
            paths = await asyncio.to_thread(lambda: [detected_path(text, None, target_lang) for text in texts])
            languages = [likeliest for likeliest, _ in paths]
        return {"detected": [language.model_dump() for language in languages]}

    async def detections(self, texts: Sequence[str]) -> list[list[schema.Detection]]:
        """Returns the languages of the server for each text, the most probable first."""
        check_text(texts, self.config)
        return await asyncio.to_thread(lambda: list(map(self.catalog.detections, texts)))

    async def translate(self, body: TranslateBody) -> dict[str, Any]:
        """Returns the translations of the texts of a request."""
        texts = await self.translated(body, offers=True)
        models = list(dict.fromkeys(model.name for text in texts for model in text.path))
        model = {"model": models[0]} if len(models) == 1 else {}
        is_long = are_long([text.unit.source for text in texts])
        answers = await in_thread_if(is_long, lambda: [text.answer(pieces=body.pieces) for text in texts])
        return model | {"models": models, "translations": answers}

    async def translated(
        self, body: TranslateBody, rules: ElementRules = NO_RULES, *, offers: bool = False
    ) -> list[RequestedText]:
        """Returns the texts of a request with their translations.

        Args:
            rules: for elements of markup.
            offers: whether similar sentences of memories are needed.
        """
        sources = [body.source] if isinstance(body.source, str) else body.source
        phrases = chain.from_iterable([each] if isinstance(each, str) else each for each in body.constraints)
        check_text([*sources, body.prefix, *phrases, *body.context], self.config)
        search = search_config(body.model_extra or {}, self.config)
        if body.markup:
            search = replace(search, alignments=True)
        is_long = are_long(sources)
        is_slow = is_long or self.catalog.identifies(body.model, body.source_lang)
        texts = await in_thread_if(is_slow, partial(self._texts, sources, body, rules))
        is_slow = is_long or body.memory is not None or self.catalog.corrections is not None
        for path in filter(None, dict.fromkeys(text.path for text in texts)):
            texts_of_path = [text for text in texts if text.path == path]
            work = partial(self._units, path, texts_of_path, body, search, offers=offers)
            units = await in_thread_if(is_slow, work)
            translations = await self.translations(path, units, fitted(search, path), pieces=body.pieces)
            for text, unit, ranked in zip(texts_of_path, units, translations, strict=True):
                text.unit, text.translations = unit, ranked
        return texts

    def _texts(self, sources: Sequence[str], body: TranslateBody, rules: ElementRules) -> list[RequestedText]:
        """Returns the texts of a request with the models for each. Raises NmtError if their markup is damaged."""
        lang = "" if body.source_lang == AUTO else body.source_lang or ""
        is_plain = not (body.markup or body.prefix or body.constraints)
        units = []
        for source in sources:
            unit = Unit(source, body.prefix, tuple(body.constraints), earlier=tuple(body.context))
            protected = self.catalog.protected
            if body.markup:
                unit = replace(unit, content=parse(source, body.markup, protected, lang, rules))
            elif is_plain and (message := parse_icu(source)):
                unit = replace(unit, content=message.content(protected), write=message.written)
            units.append(unit)
        if self.catalog.identifies(body.model, body.source_lang):
            texts = ["\n".join(unit.texts) for unit in units]
            chosen = [self.catalog.detected_path(text, body.model, body.target_lang) for text in texts]
            return [RequestedText(unit, path, detected) for unit, (detected, path) in zip(units, chosen, strict=True)]
        path = self.catalog.path(body.model, body.source_lang, body.target_lang)
        return [RequestedText(unit, path) for unit in units]

    def _units(
        self, path: ModelPath, texts: list[RequestedText], body: TranslateBody, search: SearchConfig, offers: bool
    ) -> list[Unit]:
        """Returns texts for the same models with their sentences."""
        if len(path) > 1 and (body.prefix or body.constraints or body.glossary or body.memory or search.alignments):
            needs = "prefix, constraints, glossaries, memories, markup and alignments need a single model"
            raise NmtError(f"{needs}, but {model_names(path)} translate in turn")
        glossary, memories = self.catalog.glossary(body.glossary), self.catalog.memory(body.memory, path)
        maker = self.maker(path, "sentence" if body.split else "line", memories, glossary, offers=offers)
        units = [maker.complete(text.unit) for text in texts]
        count = sum(len(unit.sentences) for unit in units)
        if (body.prefix or body.constraints) and count != 1:
            way_out = "send its sentences one by one, or set split to false" if count else "give it a sentence"
            raise NmtError(f"prefix and constraints need a source of one sentence, not {count or 'none'}; {way_out}")
        return units

    def maker(
        self,
        path: ModelPath,
        cut: Cut,
        memories: Sequence[Memory] = (),
        glossary: Glossary | None = None,
        *,
        offers: bool = False,
    ) -> UnitMaker:
        """Returns what makes units for models. Corrections are the first memory."""
        text, target_lang = path[0].codec.config, path[-1].codec.config.target_lang
        used: list[AnyMemory] = [*memories]
        if self.catalog.corrections:
            self.catalog.corrections.refresh()
            pair = self.catalog.language(text.source_lang), self.catalog.language(target_lang)
            used.insert(0, CorrectionMemory(self.catalog.corrections, pair, (text.source_lang, target_lang)))
        protected = self.catalog.protected
        return UnitMaker(text, protected, UNNAMED, cut, used, glossary, offers, target_lang)

    async def translations(
        self, path: ModelPath, units: Sequence[Unit], search: SearchConfig, *, pieces: bool
    ) -> list[list[list[Translation]]]:
        """Returns the translations of each sentence of units by the last model, best first."""
        translations: list[list[list[Translation]]] = []
        first_doubts: list[list[tuple[Doubt, ...]]] = []
        for model in path:
            if translations:  # of the first model, which the second one translates
                first_doubts = [[best.doubts for best, *_ in ranked] for ranked in translations]
                units = [
                    self._intermediate(unit, [best.text for best, *_ in ranked], model.codec.direction)
                    for unit, ranked in zip(units, translations, strict=True)
                ]
            is_last = model is path[-1]
            options = search if is_last else replace(search, n_best=1)
            is_long = are_long([sentence.text for unit in units for sentence in unit.sentences])
            encoded = await in_thread_if(is_long, partial(encode, model.codec, units, options))
            # A confidence of the second model alone would say nothing about what the first one gave it.
            calibrations = valid_for(self.engine, options, model.calibrations) if len(path) == 1 else {}
            log_probs = (pieces and is_last) or bool(calibrations)
            operation = Operation(workers.translate, model.name, (options, log_probs))
            items = [
                Item(
                    operation,
                    sentence,
                    sentence.width,
                    joins=self._has_searches and can_join(sentence, options, model.config, model.codec),
                    is_counted=sentence.key.part == 0,
                )
                for sentence in encoded
            ]
            ranked = zip(encoded, await self.scheduler.run(items), strict=True)
            together = partial(by_sentence, units, ranked, aligned=options.alignments, calibrations=calibrations)
            translations = await in_thread_if(is_long, together)
        for unit_doubts, ranked_sentences in zip(first_doubts, translations, strict=False):
            for doubts, each in zip(unit_doubts, ranked_sentences, strict=True):
                each[:] = [new._replace(doubts=tuple(dict.fromkeys([*doubts, *new.doubts]))) for new in each]
        return translations

    def _intermediate(self, unit: Unit, texts: Sequence[str], direction: Direction) -> Unit:
        """Returns a unit with the translations of its sentences, which the next model translates in a direction."""
        spans = [tuple(self.catalog.protected.spans(text)) for text in texts]
        sentences = [
            sentence._replace(text=text, tags=(), earlier=(), similar="", protected=protected)
            for sentence, text, protected in zip(unit.sentences, texts, spans, strict=True)
        ]
        return replace(unit, direction=direction, sentences=sentences)

    def _model(self, body: schema.ModelBody) -> ServedModel:
        """Returns the model for a request that only a single one can answer."""
        path = self.catalog.path(body.model, body.source_lang, body.target_lang)
        if len(path) != 1:
            names = model_names(path) or "no model"
            raise NmtError(f"this request needs a single model, but {names} would translate; name one")
        return path[0]

    async def score(self, body: schema.ScoreBody) -> dict[str, Any]:
        """Returns log P, pieces and alignments of the translations of a request."""
        check_text([text for pair in body.pairs for text in (pair.source, pair.target)], self.config)
        model = self._model(body)
        pairs = [Pair(p.source, (Target(p.target),), model.codec.direction) for p in body.pairs]
        encoded = await asyncio.to_thread(encode_pairs, model.codec, pairs)
        operation = Operation(workers.score, model.name)
        results = await self.scheduler.run([Item(operation, pair, pair.tokens, shares=False) for pair in encoded])
        return {"model": model.name, "scores": [score.fields() for scores in results for score in scores]}

    async def alternatives(self, body: schema.AlternativesBody) -> dict[str, Any]:
        """Returns what may follow a prefix."""
        check_text([body.source, body.prefix], self.config)
        model = self._model(body)
        search = fitted(_GREEDY, (model,))
        maker = UnitMaker(model.codec.config, self.catalog.protected)  # a memory would leave nothing to translate
        unit = await asyncio.to_thread(maker.complete, Unit(body.source, prefix=body.prefix))
        encoded = await asyncio.to_thread(encode, model.codec, [unit], search)
        if len(encoded) != 1:
            raise NmtError("source must be a single sentence that has letters and is not too long")
        (sentence,) = encoded
        operation = Operation(workers.alternatives, model.name, (body.count, search))
        (translations,) = await self.scheduler.run(
            [Item(operation, sentence, sentence.width * body.count, shares=False)]
        )
        ((final,),) = by_sentence([unit], [(sentence, translations)], aligned=False)
        alternatives = [
            _alternative(model.codec, sentence, translation, body.prefix) | {"text": result.text}
            for translation, result in zip(translations, final, strict=True)
        ]
        # Several pieces can begin the same word. A piece that is only a space begins none.
        distinct = {fields["prefix"]: fields for fields in reversed(alternatives) if fields["word"]}
        return {"model": model.name, "alternatives": list(reversed(distinct.values()))}

    async def attention(self, body: schema.AttentionBody) -> dict[str, Any]:
        """Returns the attention weights of a sentence pair."""
        check_text([body.source, body.target], self.config)
        model = self._model(body)
        operation = Operation(workers.attention, model.name)
        item = Item(operation, (body.source, body.target, model.codec.direction), len(body.source), shares=False)
        (weights,) = await self.scheduler.run([item])
        return dict(weights)


def are_long(texts: Sequence[str]) -> bool:
    """Returns whether work on texts takes so long that requests should not wait for it."""
    return sum(map(len, texts)) + _CHARACTERS_PER_TEXT * len(texts) > _SHORT


async def in_thread_if(is_slow: bool, work: Callable[[], _Result]) -> _Result:
    """Returns the result of work. Slow work is done in a thread, so that other requests go on."""
    return await asyncio.to_thread(work) if is_slow else work()


def _alternative(codec: TextCodec, sentence: EncodedSentence, translation: Translation, prefix: str) -> dict[str, Any]:
    """Returns the word behind a prefix; it is empty if nothing visible follows, or only the rest of an ended word."""
    prefix_ids = sentence.required.prefix
    start, lang = len(prefix_ids), sentence.direction.target
    _, words = codec.target_segments(translation.text, translation.pieces, lang)
    end = next((i for i in range(start + 1, len(words)) if words[i] != words[start]), len(words))
    shorter, longer = codec.decode_target([list(prefix_ids), codec.target.ids(translation.pieces)[:end]])
    added = longer.removeprefix(shorter)
    continues = prefix[-1:].isspace() and has_spaces(lang) and not added[:1].isspace()  # a word that a space has ended
    word = "" if continues else longer.split()[-1] if added.strip() and has_spaces(lang) else added.strip()
    return {
        "word": upper(word, lang) if sentence.given.in_capitals else word,
        "log_prob": sum(translation.log_probs[start:end]),
        "prefix": codec.target_with(longer, sentence.given, lang),
    }
