"""From a request to its answer: models, sentences, checks, and the answer of the workers."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from starlette.exceptions import HTTPException

from nmt.checkpoint_file import read_codec, read_model_config
from nmt.config import SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.model.architectures import parameter_count
from nmt.serving import schema
from nmt.serving.guard import check_text, search_config
from nmt.serving.scheduler import Item, Scheduler
from nmt.serving.workers import Alternatives, Attention, Score, Translate
from nmt.text.codec import TextCodec
from nmt.text.glossary import Glossary
from nmt.text.moses import base_language
from nmt.text.words import pharaoh
from nmt.translate import rescoring
from nmt.translate.formats import Pair, Rescored, Target, fields_of
from nmt.translate.requests import EncodedRequest, Hypothesis, Request, encode, with_terms


@dataclass(frozen=True)
class ServedModel:
    """A model that is served."""

    name: str
    path: str
    codec: TextCodec
    parameters: int

    def entry(self, engine: str) -> dict[str, Any]:
        """Returns what GET /models says about the model."""
        config = self.codec.config
        langs = {"source_lang": config.source_lang, "target_lang": config.target_lang}
        spaces = self.codec.target_has_spaces
        return {"name": self.name, **langs, "target_spaces": spaces, "parameters": self.parameters, "engine": engine}


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
    codec = read_codec(path)
    name = name or f"{codec.config.source_lang}-{codec.config.target_lang}"
    return ServedModel(name, path, codec, parameter_count(read_model_config(path), codec))


def chosen(models: Mapping[str, ServedModel], name: str | None) -> ServedModel:
    """Returns the model that a request names, or the only one."""
    if name is None and len(models) == 1:
        return next(iter(models.values()))
    if name is None:
        raise NmtError(f"model is missing; this server has {', '.join(models)}")
    if name not in models:
        raise HTTPException(404, f"there is no model {name!r:.60}; this server has {', '.join(models)}")
    return models[name]


class Sentence(NamedTuple):
    """A sentence of a text.

    Attributes:
        line: the number of its line in the text, from 0.
    """

    line: int
    text: str


def split(text: str, codec: TextCodec) -> list[Sentence]:
    """Returns the sentences of a text in the source language. Blank lines have none."""
    import sentencex

    language = base_language(codec.config.source_lang)
    found = []
    for number, line in enumerate(text.split("\n")):
        tags, rest = _tags_and_text(line, codec.config.tags)
        parts = [part.strip() for part in sentencex.segment(language, rest)]
        found += [Sentence(number, tags + part) for part in parts if part]
    return found


def lines(text: str) -> list[Sentence]:
    """Returns the lines of a text as its sentences. Blank lines have none."""
    return [Sentence(number, line) for number, line in enumerate(text.split("\n")) if line.strip()]


def joined(text: str, sentences: Sequence[Sentence], translations: Sequence[str], codec: TextCodec) -> str:
    """Returns the translation of a text, which has as many lines as the text."""
    of_lines: list[list[str]] = [[] for _ in range(text.count("\n") + 1)]
    for sentence, translation in zip(sentences, translations, strict=True):
        of_lines[sentence.line].append(translation)
    return "\n".join(map(codec.join_target, of_lines))


def _tags_and_text(line: str, tags: Sequence[str]) -> tuple[str, str]:
    """Returns the tags that a line begins with, each followed by a space, and the rest of the line."""
    found = ""
    while (words := line.split(maxsplit=1)) and words[0] in tags:
        found += f"{words[0]} "
        line = words[1] if len(words) > 1 else ""
    return found, line


_GREEDY = SearchConfig(beam=1)


class Service:
    """What the routes call. Answers are JSON values as `nmt.serving.schema` describes them."""

    def __init__(self, models: Mapping[str, ServedModel], scheduler: Scheduler, config: ServeConfig) -> None:
        self.models, self.scheduler, self.config = models, scheduler, config
        self.glossaries = _glossaries(config.glossary)

    async def translate(self, body: schema.TranslateBody) -> dict[str, Any]:
        """Returns the translations of the texts of a request."""
        texts = [body.source] if isinstance(body.source, str) else body.source
        phrases = chain.from_iterable(Request("", constraints=tuple(body.constraints)).alternatives)
        check_text([*texts, body.prefix, *phrases], self.config)
        search = search_config(body.model_extra or {}, self.config)
        model = chosen(self.models, body.model)
        if body.glossary not in (None, *self.glossaries):
            known = ", ".join(self.glossaries) or "none"
            raise HTTPException(404, f"there is no glossary {body.glossary!r:.60}; this server has {known}")
        glossary = self.glossaries[body.glossary] if body.glossary else None
        of_texts, encoded = await asyncio.to_thread(_prepared, model.codec, texts, body, search, glossary)
        items = [
            Item(Translate(model.name, search, body.pieces), line, max(1, line.width), len(line.parts) <= 1)
            for line in encoded
        ]
        found = iter(await self.scheduler.run(items))
        translations = [
            _translation(text, sentences, [next(found) for _ in sentences], model.codec, body.pieces)
            for text, sentences in zip(texts, of_texts, strict=True)
        ]
        return {"model": model.name, "translations": translations}

    async def score(self, body: schema.ScoreBody) -> dict[str, Any]:
        """Returns log P, pieces and alignments of the translations of a request."""
        check_text([text for pair in body.pairs for text in (pair.source, pair.target)], self.config)
        model = chosen(self.models, body.model)
        pairs = [Pair(pair.source, (Target(pair.target),)) for pair in body.pairs]
        encoded = await asyncio.to_thread(rescoring.encode, model.codec, pairs, 1)
        items = [Item(Score(model.name), line, line.tokens, False) for line in encoded]
        found = await self.scheduler.run(items)
        return {"model": model.name, "scores": [_scored(rescored) for rescored in found]}

    async def alternatives(self, body: schema.AlternativesBody) -> dict[str, Any]:
        """Returns what may follow a prefix."""
        check_text([body.source, body.prefix], self.config)
        model = chosen(self.models, body.model)
        request = Request(body.source, body.prefix)
        (line,) = await asyncio.to_thread(encode, model.codec, [request], 1, _GREEDY)
        if len(line.parts) != 1:
            raise NmtError("source must be a single sentence that is not empty and not too long")
        item = Item(Alternatives(model.name, body.count), line, line.width * body.count, False)
        (found,) = await self.scheduler.run([item])
        listed = [_alternative(model.codec, line, hypothesis) for hypothesis in found]
        # Several pieces can begin the same word. A piece that is only a space begins none.
        distinct = {alternative["prefix"]: alternative for alternative in reversed(listed) if alternative["word"]}
        return {"model": model.name, "alternatives": list(reversed(distinct.values()))}

    async def attention(self, body: schema.AttentionBody) -> dict[str, Any]:
        """Returns the attention weights of a sentence pair."""
        check_text([body.source, body.target], self.config)
        model = chosen(self.models, body.model)
        item = Item(Attention(model.name), (body.source, body.target), len(body.source), False)
        (found,) = await self.scheduler.run([item])
        return dict(found)


def _prepared(
    codec: Any, texts: Sequence[str], body: schema.TranslateBody, search: SearchConfig, glossary: Glossary | None
) -> tuple[list[list[Sentence]], list[EncodedRequest]]:
    """Returns the sentences of each text, and all of them as ids."""
    of_texts = [split(text, codec) if body.split else lines(text) for text in texts]
    count = sum(map(len, of_texts))
    if (body.prefix or body.constraints) and count != 1:
        raise NmtError(
            f"prefix and constraints need a source of one sentence, but it has {count}; "
            f"send its sentences one by one, or set split to false"
        )
    requests = [Request(s.text, body.prefix, tuple(body.constraints)) for text in of_texts for s in text]
    return of_texts, encode(codec, [with_terms(codec, request, glossary) for request in requests], 1, search)


def _translation(
    text: str, sentences: Sequence[Sentence], found: Sequence[Sequence[Hypothesis]], codec: TextCodec, pieces: bool
) -> dict[str, Any]:
    best = [hypotheses[0].text for hypotheses in found]
    described = [
        {"line": line, "source": source, "hypotheses": [_fields(hypothesis, codec, pieces) for hypothesis in of_it]}
        for (line, source), of_it in zip(sentences, found, strict=True)
    ]
    return {"text": joined(text, sentences, best, codec), "sentences": described}


def _fields(hypothesis: Hypothesis, codec: TextCodec, pieces: bool) -> dict[str, Any]:
    values = fields_of(hypothesis)
    if not pieces:
        return {name: value for name, value in values.items() if name not in ("log_prob", "pieces", "log_probs")}
    if hypothesis.alignment is None:
        return values
    segments, words = codec.target_segments(hypothesis.text, hypothesis.pieces)
    return values | {"segments": segments, "words": words}


def _scored(found: Rescored) -> dict[str, Any]:
    (pieces,), (log_probs,) = found.pieces, found.log_probs
    values = {"log_prob": sum(log_probs), "pieces": pieces, "log_probs": log_probs}
    return values | ({"alignment": pharaoh(found.alignments[0])} if found.alignments is not None else {})


def _alternative(codec: TextCodec, line: EncodedRequest, found: Hypothesis) -> dict[str, Any]:
    """Returns the word that begins or goes on behind the prefix; it is empty if nothing visible follows."""
    prefix = line.required.prefix
    (_, words), start = codec.target_segments(found.text, found.pieces), len(prefix)
    end = next((i for i in range(start + 1, len(words)) if words[i] != words[start]), len(words))
    shorter, longer = codec.decode_target([list(prefix), codec.target.ids(found.pieces)[:end]])
    added = longer.removeprefix(shorter).strip()
    return {
        "word": longer.split()[-1] if added and codec.target_has_spaces else added,
        "log_prob": sum(found.log_probs[start:end]),
        "prefix": codec.target_with(longer, line.given),
        "text": found.text,
    }
