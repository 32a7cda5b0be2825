"""From a request to its answer: models, sentences, checks, and the answer of the workers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

from starlette.exceptions import HTTPException

from nmt.checkpoint_file import read_model
from nmt.config import EngineConfig, SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.model.architectures import parameter_count
from nmt.model.incremental import can_join as model_can_join
from nmt.serving import schema, workers
from nmt.serving.scheduler import Item, Scheduler
from nmt.serving.schema import check_text, search_config
from nmt.serving.workers import Advance, Each, Translate
from nmt.text.codec import TextCodec
from nmt.text.glossary import Glossary
from nmt.text.languages import Identifier, base_language, label_of
from nmt.translate import rescoring
from nmt.translate.formats import Pair, Target, fields_of, rescored_fields
from nmt.translate.requests import WIDTH_MULTIPLE, EncodedRequest, Hypothesis, Request, encode, padded_width, with_terms
from nmt.translate.texts import Sentence, Text, sentences_of
from nmt.translate.translator import can_join


@dataclass(frozen=True)
class ServedModel:
    """A model that is served.

    Attributes:
        has_searches: whether sentences can join a running search with this model.
        positions: how many positions it has learned; None if their number is not limited.
    """

    name: str
    path: str
    codec: TextCodec
    parameters: int
    has_searches: bool
    positions: int | None

    @property
    def pair(self) -> tuple[str, str]:
        """The languages without regions and scripts."""
        return base_language(self.codec.config.source_lang), base_language(self.codec.config.target_lang)

    def entry(self, engine: str) -> schema.ModelEntry:
        """Returns what GET /models says about the model."""
        return schema.ModelEntry(
            name=self.name,
            source_lang=self.codec.config.source_lang,
            target_lang=self.codec.config.target_lang,
            target_spaces=self.codec.target_has_spaces,
            parameters=self.parameters,
            engine=engine,
        )


def load_models(checkpoints: Sequence[str], named: Sequence[str]) -> dict[str, ServedModel]:
    """Returns the model of each checkpoint, by name."""
    found: dict[str, ServedModel] = {}
    for name, path in [*map(_named, named), *((None, path) for path in checkpoints)]:
        model = _load(name, path)
        if model.name in found:
            raise NmtError(
                f"{path} and {found[model.name].path} are both called {model.name}; give --model NAME={path}"
            )
        found[model.name] = model
    if not found:
        raise NmtError("there is no model to serve; give a checkpoint or --model NAME=CHECKPOINT")
    return found


def _named(given: str, form: str = "--model must be NAME=CHECKPOINT") -> tuple[str, str]:
    name, equals, path = given.partition("=")
    if not (name and equals and path and name.isprintable()):
        raise NmtError(f"{form}, but is {given!r:.80}")
    return name, path


def _glossaries(named: Sequence[str]) -> dict[str, Glossary]:
    """Returns the glossary of each NAME=FILE, by name."""
    found: dict[str, Glossary] = {}
    for name, path in (_named(given, "--glossary must be NAME=FILE") for given in named):
        if name in found:
            raise NmtError(f"two glossaries are called {name}; give {path} another name")
        found[name] = Glossary.read(path)
    return found


def _load(name: str | None, path: str) -> ServedModel:
    config, codec = read_model(path)
    name = name or f"{codec.config.source_lang}-{codec.config.target_lang}"
    parameters = parameter_count(config, codec)
    return ServedModel(name, path, codec, parameters, model_can_join(config), config.learned_positions)


# Models that translate one after the other: one, two with a pivot language between them, or none if there is nothing
# to translate.
Path = tuple[ServedModel, ...]


def fitted(search: SearchConfig, path: Path) -> SearchConfig:
    """Returns options of search whose lengths fit the positions that the models have learned."""
    positions = min((model.positions for model in path if model.positions is not None), default=None)
    if positions is None:
        return search
    longer = min(search.max_length_offset, positions // 2)
    longest = positions - max(longer + 1, WIDTH_MULTIPLE)  # EOS and padding need positions, too
    return replace(search, max_length_offset=longer, max_source_length=min(search.max_source_length, longest))


def _paths_of(models: Mapping[str, ServedModel], pivot: bool) -> dict[tuple[str, str], Path]:
    """Returns the models for each pair of languages. Models that were given earlier are preferred."""
    direct: dict[tuple[str, str], Path] = {}
    for model in models.values():
        direct.setdefault(model.pair, (model,))
    found = dict(direct)
    for (source, middle), first in direct.items() if pivot else ():
        for (other, target), second in direct.items():
            if middle == other and source != target:
                found.setdefault((source, target), first + second)
    return found


_GREEDY = SearchConfig(beam=1)
# Characters of text that take less time than a thread needs to begin.
_SHORT = 1000
_Result = TypeVar("_Result")
# The source language of a request that asks the server to identify it.
AUTO = "auto"


@dataclass(frozen=True)
class Translated:
    """The translation of a text.

    Attributes:
        found: the hypotheses of each sentence, best first.
        path: the models that translated.
        detected: the source language, if the server identified it.
    """

    source: Text
    sentences: Sequence[Sentence]
    found: Sequence[Sequence[Hypothesis]]
    path: Path
    detected: schema.Detection | None

    def text(self, rank: int = 0) -> str:
        """Returns the translation from the hypotheses of a rank, or from the last of a sentence that has fewer."""
        if not self.path:
            return self.source.source
        chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in self.found]
        return self.source.translated(zip(self.sentences, chosen, strict=True), self.path[-1].codec)

    def answer(self, pieces: bool) -> schema.Translation:
        """Returns what the answer says about the text."""
        sentences = [
            schema.Sentence(
                line=sentence.line,
                source=sentence.text,
                hypotheses=[_hypothesis_answer(h, self.path[-1].codec, pieces) for h in hypotheses],
            )
            for sentence, hypotheses in zip(self.sentences, self.found, strict=True)
        ]
        detected = self.detected.language if self.detected else None
        return schema.Translation(text=self.text(), sentences=sentences, detected=detected)


class Service:
    """What the routes call."""

    def __init__(
        self, models: Mapping[str, ServedModel], scheduler: Scheduler, config: ServeConfig, engine: EngineConfig
    ) -> None:
        self.models, self.scheduler, self.config, self.engine = models, scheduler, config, engine.engine
        # Whether sentences can join running searches, if their models and options allow that.
        self.has_searches = engine.engine == "pytorch" and engine.vocabulary_map is None
        self.longest_with_phrases = engine.longest_with_phrases
        self.glossaries = _glossaries(config.glossary)
        self.paths = _paths_of(models, config.pivot)
        self.languages = sorted({language for model in models.values() for language in model.pair})

    @cached_property
    def _identifier(self) -> Identifier:
        return Identifier("the identification of languages")

    async def detected(self, texts: Sequence[str]) -> list[list[schema.Detection]]:
        """Returns the languages of this server for each text, the most probable first."""
        check_text(texts, self.config)
        return await asyncio.to_thread(lambda: list(map(self._likeliest, texts)))

    def _likeliest(self, text: str) -> list[schema.Detection]:
        found = dict(reversed(self._identifier.likeliest(text, len(self._identifier.known))))
        probabilities = {lang: found.get(label_of(lang), 0.0) for lang in self.languages}
        served = [schema.Detection(language=lang, probability=p) for lang, p in probabilities.items()]
        known = [one for one in served if label_of(one.language) in self._identifier.known]
        if not known:
            raise NmtError(f"the languages {', '.join(self.languages)} cannot be identified; name the source language")
        return sorted(known, key=lambda one: -one.probability)

    async def detect(self, body: schema.DetectBody) -> schema.DetectAnswer:
        """Returns the most probable language of each text."""
        texts = [body.source] if isinstance(body.source, str) else body.source
        return schema.DetectAnswer(detected=[languages[0] for languages in await self.detected(texts)])

    async def translate(self, body: schema.TranslateBody) -> schema.TranslateAnswer:
        """Returns the translations of the texts of a request."""
        translated = await self.translated(body)
        models = list(dict.fromkeys(model.name for text in translated for model in text.path))
        model = models[0] if len(models) == 1 else None
        translations = [text.answer(body.pieces) for text in translated]
        return schema.TranslateAnswer(model=model, models=models, translations=translations)

    async def translated(self, body: schema.TranslateBody) -> list[Translated]:
        """Returns the translation of each text of a request."""
        sources = [body.source] if isinstance(body.source, str) else body.source
        phrases = chain.from_iterable(Request("", constraints=tuple(body.constraints)).alternatives)
        check_text([*sources, body.prefix, *phrases], self.config)
        search = search_config(body.model_extra or {}, self.config)
        if body.markup:
            search = replace(search, alignments=True)
        texts = await _done(sources, lambda: [Text.of(source, body.markup) for source in sources])
        if body.source_lang == AUTO and body.model is None:
            detected: Sequence[schema.Detection | None] = [
                found[0] for found in await self.detected([t.plain for t in texts])
            ]
        else:
            detected = [None] * len(texts)
        languages = [one.language if one else body.source_lang for one in detected]
        paths = [self.path(body.model, language, body.target_lang) for language in languages]
        found: dict[int, Translated] = {}
        for path in dict.fromkeys(paths):
            numbers = [number for number, other in enumerate(paths) if other == path]
            done = await self._along(path, [texts[number] for number in numbers], body, fitted(search, path))
            for number, (sentences, hypotheses) in zip(numbers, done, strict=True):
                found[number] = Translated(texts[number], sentences, hypotheses, path, detected[number])
        return [found[number] for number in range(len(texts))]

    def _model(self, name: str | None) -> ServedModel:
        """Returns the model that a request names, or the only one."""
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name is None:
            names = ", ".join(self.models)
            raise NmtError(f"model is missing; name one of {names}, or give source_lang and target_lang")
        if name not in self.models:
            raise HTTPException(404, f"there is no model {name!r:.60}; this server has {', '.join(self.models)}")
        return self.models[name]

    def path(self, model: str | None, source_lang: str | None, target_lang: str | None) -> Path:
        """Returns the models for a request: the model that it names, or those for its languages."""
        if model is not None or (source_lang is None and target_lang is None):
            return (self._model(model),)
        if source_lang is None or target_lang is None:
            missing = "source_lang" if source_lang is None else "target_lang"
            raise NmtError(f"{missing} is missing; source_lang and target_lang choose a model together")
        pair = base_language(source_lang), base_language(target_lang)
        if pair not in self.paths and pair[0] != pair[1]:
            pairs = ", ".join(map("-".join, self.paths))
            raise HTTPException(404, f"no model translates {'-'.join(pair)!r:.60}; this server translates {pairs}")
        return self.paths.get(pair, ())

    async def _along(
        self, path: Path, texts: Sequence[Text], body: schema.TranslateBody, search: SearchConfig
    ) -> list[tuple[list[Sentence], list[list[Hypothesis]]]]:
        """Returns the sentences of each text, and their hypotheses by the last model."""
        if not path:
            return [([], []) for _ in texts]
        if len(path) > 1 and (body.prefix or body.constraints or body.glossary or search.alignments):
            names = " and ".join(model.name for model in path)
            raise NmtError(
                f"prefix, constraints, glossaries, markup and alignments need a single model, but {names} translate "
                f"in turn"
            )
        glossary = self.glossary(body.glossary)
        longest = self.longest_with_phrases(search)
        plain = [text.source for text in texts]
        of_texts = await _done(plain, lambda: _sentences(path[0].codec, texts, longest, body))
        requests = [
            Request(s.text, body.prefix, (*body.constraints, *s.phrases)) for sentences in of_texts for s in sentences
        ]
        requests = [with_terms(path[-1].codec, one, glossary, search.max_source_length) for one in requests]
        found = iter(await self.hypotheses(path, requests, search, body.pieces))
        return [(sentences, [next(found) for _ in sentences]) for sentences in of_texts]

    async def hypotheses(
        self, path: Path, requests: Sequence[Request], search: SearchConfig, pieces: bool
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of models for sentences, best first."""
        *first, last = path
        for model in first:
            pivots = await self._search(model, requests, replace(search, n_best=1), pieces=False)
            requests = [Request(hypotheses[0].text) for hypotheses in pivots]
        return await self._search(last, requests, search, pieces)

    def glossary(self, name: str | None) -> Glossary | None:
        """Returns the glossary that a request names, if it names one."""
        if name is not None and name not in self.glossaries:
            known = ", ".join(self.glossaries) or "none"
            raise HTTPException(404, f"there is no glossary {name!r:.60}; this server has {known}")
        return self.glossaries[name] if name else None

    async def _search(
        self, model: ServedModel, requests: Sequence[Request], search: SearchConfig, pieces: bool
    ) -> list[list[Hypothesis]]:
        sources = [request.source for request in requests]
        encoded = await _done(sources, lambda: encode(model.codec, requests, 1, search))
        operation = Translate(model.name, search, pieces)
        running = Advance(operation) if self.has_searches and model.has_searches else None
        return await self.scheduler.run(
            [
                Item(
                    operation,
                    line,
                    tokens=max(1, sum(map(padded_width, line.parts))),
                    shares=len(line.parts) <= 1,
                    joins=running if can_join(line, search) else None,
                )
                for line in encoded
            ]
        )

    async def score(self, body: schema.ScoreBody) -> schema.ScoreAnswer:
        """Returns log P, pieces and alignments of the translations of a request."""
        check_text([text for pair in body.pairs for text in (pair.source, pair.target)], self.config)
        model = self._model(body.model)
        pairs = [Pair(pair.source, (Target(pair.target),)) for pair in body.pairs]
        encoded = await asyncio.to_thread(rescoring.encode, model.codec, pairs, 1)
        items = [Item(Each(model.name, workers.score), line, line.tokens, False) for line in encoded]
        found = await self.scheduler.run(items)
        scores = [schema.Scored(**fields) for rescored in found for fields in rescored_fields(rescored)]
        return schema.ScoreAnswer(model=model.name, scores=scores)

    async def alternatives(self, body: schema.AlternativesBody) -> schema.AlternativesAnswer:
        """Returns what may follow a prefix."""
        check_text([body.source, body.prefix], self.config)
        model = self._model(body.model)
        request = Request(body.source, body.prefix)
        search = fitted(_GREEDY, (model,))
        (line,) = await asyncio.to_thread(encode, model.codec, [request], 1, search)
        if len(line.parts) != 1:
            raise NmtError("source must be a single sentence that is not empty and not too long")
        item = Item(Each(model.name, workers.alternatives, (body.count, search)), line, line.width * body.count, False)
        (found,) = await self.scheduler.run([item])
        listed = [_alternative(model.codec, line, hypothesis) for hypothesis in found]
        # Several pieces can begin the same word. A piece that is only a space begins none.
        distinct = {alternative.prefix: alternative for alternative in reversed(listed) if alternative.word}
        return schema.AlternativesAnswer(model=model.name, alternatives=list(reversed(distinct.values())))

    async def attention(self, body: schema.AttentionBody) -> schema.AttentionAnswer:
        """Returns the attention weights of a sentence pair."""
        check_text([body.source, body.target], self.config)
        model = self._model(body.model)
        item = Item(Each(model.name, workers.attention), (body.source, body.target), len(body.source), False)
        (found,) = await self.scheduler.run([item])
        return schema.AttentionAnswer(**found)


async def _done(texts: Sequence[str], work: Callable[[], _Result]) -> _Result:
    """Returns the result of work on texts. Work on long ones is done in a thread, so that other requests go on."""
    return work() if sum(map(len, texts)) <= _SHORT else await asyncio.to_thread(work)


def _sentences(
    codec: TextCodec, texts: Sequence[Text], longest: int, body: schema.TranslateBody
) -> list[list[Sentence]]:
    of_texts = [list(sentences_of(text, codec, longest, split_lines=body.split)) for text in texts]
    count = sum(map(len, of_texts))
    if (body.prefix or body.constraints) and count != 1:
        way_out = "send its sentences one by one, or set split to false" if count else "give it a sentence"
        raise NmtError(f"prefix and constraints need a source of one sentence, but it has {count or 'none'}; {way_out}")
    return of_texts


def _hypothesis_answer(hypothesis: Hypothesis, codec: TextCodec, pieces: bool) -> schema.Hypothesis:
    answer = schema.Hypothesis(**fields_of(hypothesis))
    if not pieces:
        answer.log_prob = answer.pieces = answer.log_probs = None
    elif hypothesis.alignment is not None:
        answer.segments, answer.words = codec.target_segments(hypothesis.text, hypothesis.pieces)
    return answer


def _alternative(codec: TextCodec, line: EncodedRequest, found: Hypothesis) -> schema.Alternative:
    """Returns the word that begins or goes on behind the prefix; it is empty if nothing visible follows."""
    prefix = line.required.prefix
    (_, words), start = codec.target_segments(found.text, found.pieces), len(prefix)
    end = next((i for i in range(start + 1, len(words)) if words[i] != words[start]), len(words))
    shorter, longer = codec.decode_target([list(prefix), codec.target.ids(found.pieces)[:end]])
    added = longer.removeprefix(shorter).strip()
    word = longer.split()[-1] if added and codec.target_has_spaces else added
    return schema.Alternative(
        word=word.upper() if line.given.in_capitals else word,
        log_prob=sum(found.log_probs[start:end]),
        prefix=codec.target_with(longer, line.given),
        text=found.text,
    )
