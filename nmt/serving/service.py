"""From a request to its answer: checks, encodes, waits for the workers, and puts the answer together."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.config import SearchConfig, ServeConfig
from nmt.errors import NmtError
from nmt.serving import schema
from nmt.serving.limits import check_constraints, check_text, search_config
from nmt.serving.models import Model, chosen
from nmt.serving.pages import Drawings
from nmt.serving.scheduler import Item, Scheduler
from nmt.serving.sentences import Sentence, joined, lines, split
from nmt.serving.tasks import Alternatives, Draw, Score, Translate
from nmt.text.words import pharaoh
from nmt.translate import rescoring
from nmt.translate.formats import Pair, Rescored, Target, fields_of
from nmt.translate.requests import Encoded, Hypothesis, Request, encode

_GREEDY = SearchConfig(beam=1)


class Service:
    """What the routes call. Answers are JSON values as `nmt.serving.schema` describes them."""

    def __init__(self, models: Mapping[str, Model], scheduler: Scheduler, config: ServeConfig) -> None:
        self.models, self.scheduler, self.config = models, scheduler, config
        self.drawings = Drawings()

    async def translate(self, body: schema.TranslateBody) -> dict[str, Any]:
        """Returns the translations of the texts of a request.

        Raises:
            NmtError: the request asks for something impossible, or for too much.
        """
        texts = [body.source] if isinstance(body.source, str) else body.source
        check_text([*texts, body.prefix, *body.constraints], self.config)
        check_constraints(body.constraints)
        search = search_config(body.model_extra or {}, self.config)
        model = chosen(self.models, body.model)
        of_texts, encoded = await asyncio.to_thread(_prepared, model.codec, texts, body, search)
        items = [
            Item(Translate(model.name, search, body.pieces), line, max(1, line.width), len(line.parts) <= 1)
            for line in encoded
        ]
        found = iter(await self.scheduler.run(items))
        translations = [
            _translation(text, sentences, [next(found) for _ in sentences], model, search, body.pieces)
            for text, sentences in zip(texts, of_texts, strict=True)
        ]
        return {"model": model.name, "translations": translations}

    async def score(self, body: schema.ScoreBody) -> dict[str, Any]:
        """Returns log P, pieces and links of the translations of a request."""
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
        listed = [_alternative(model, line, hypothesis) for hypothesis in found]
        # Several pieces can begin the same word. A piece that is only a space begins none.
        distinct = {alternative["prefix"]: alternative for alternative in reversed(listed) if alternative["word"]}
        return {"model": model.name, "alternatives": list(reversed(distinct.values()))}

    async def attention(self, body: schema.AttentionBody) -> dict[str, Any]:
        """Returns the address of a page that shows the attention weights of a sentence pair."""
        check_text([body.source, body.target], self.config)
        model = chosen(self.models, body.model)
        item = Item(Draw(model.name), (body.source, body.target), len(body.source), False)
        (page,) = await self.scheduler.run([item])
        return {"url": self.drawings.add(page)}


def _prepared(
    codec: Any, texts: Sequence[str], body: schema.TranslateBody, search: SearchConfig
) -> tuple[list[list[Sentence]], list[Encoded]]:
    """Returns the sentences of each text, and all of them as ids."""
    of_texts = [split(text, codec) if body.split else lines(text) for text in texts]
    count = sum(map(len, of_texts))
    if (body.prefix or body.constraints) and count != 1:
        raise NmtError(
            f"prefix and constraints need a source of one sentence, but it has {count}; "
            f"send its sentences one by one, or set split to false"
        )
    requests = [Request(s.text, body.prefix, tuple(body.constraints)) for text in of_texts for s in text]
    return of_texts, encode(codec, requests, 1, search)


def _translation(
    text: str,
    sentences: Sequence[Sentence],
    found: Sequence[Sequence[Hypothesis]],
    model: Model,
    search: SearchConfig,
    pieces: bool,
) -> dict[str, Any]:
    best = [hypotheses[0].text for hypotheses in found]
    return {
        "text": joined(text, sentences, best, model.codec),
        "sentences": [
            {
                "line": sentence.line,
                "source": sentence.text,
                "hypotheses": [_fields(h, model, search, pieces) for h in of_it],
            }
            for sentence, of_it in zip(sentences, found, strict=True)
        ],
    }


def _fields(hypothesis: Hypothesis, model: Model, search: SearchConfig, pieces: bool) -> dict[str, Any]:
    values = fields_of(hypothesis)
    if not pieces:
        return {name: value for name, value in values.items() if name not in ("log_prob", "pieces", "log_probs")}
    if not search.alignments:
        return values
    segments, words = model.codec.target_segments(hypothesis.text, hypothesis.pieces)
    return values | {"segments": segments, "words": words}


def _scored(found: Rescored) -> dict[str, Any]:
    (pieces,), (log_probs,) = found.pieces, found.log_probs
    values = {"log_prob": sum(log_probs), "pieces": pieces, "log_probs": log_probs}
    return values | ({"alignment": pharaoh(found.alignments[0])} if found.alignments is not None else {})


def _alternative(model: Model, line: Encoded, found: Hypothesis) -> dict[str, Any]:
    """Returns the word that begins or goes on behind the prefix; it is empty if nothing visible follows."""
    prefix = line.required.prefix
    (_, words), start = model.codec.target_segments(found.text, found.pieces), len(prefix)
    end = next((i for i in range(start + 1, len(words)) if words[i] != words[start]), len(words))
    ids = model.codec.target.ids(found.pieces)
    shorter, longer = model.codec.decode_target([list(prefix), ids[:end]])
    return {
        "word": _last_word(longer, longer.removeprefix(shorter), model),
        "log_prob": sum(found.log_probs[start:end]),
        "prefix": model.codec.target_with(longer, line.given),
        "text": found.text,
    }


def _last_word(text: str, added: str, model: Model) -> str:
    """Returns the last word of a text to which something was added, or nothing if only spaces were added."""
    if not added.strip() or not model.codec.target_has_spaces:
        return added.strip()
    return text.split()[-1]
