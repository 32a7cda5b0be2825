"""Documents that clients upload: translated in the background, and kept in memory until they are downloaded."""

import asyncio
import math
import secrets
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import Field
from starlette.responses import Response

from nmt.documents.document import FORMATS, ReadOptions, read_document, suffix_of
from nmt.documents.sentences import Sentences, sentence_unit
from nmt.errors import NmtError
from nmt.serving.answers import explained
from nmt.serving.catalog import ModelPath, fitted, model_names
from nmt.serving.errors import RETRY_SECONDS, OverloadedError, UnknownNameError
from nmt.serving.schema import ConfidenceEntry, DocumentFields, DocumentStateAnswer, check_text, search_config
from nmt.serving.service import Service
from nmt.translate.confidence import valid_for
from nmt.translate.units import Sentence, Translation, Unit

# Documents that may be uploaded, and be translated, at the same time.
UPLOADS = 8
# How long a document is kept after its translation has ended, and how many of these are kept.
_KEPT_SECONDS, _MOST_KEPT = 30 * 60, 32
# Sentences of a document that wait or are translated at a time. All documents fill at most half of the queue.
_MOST_SENTENCES = 64
# The sentences of a document whose confidence is listed.
_LEAST_CONFIDENT = 20
_Result = TypeVar("_Result")
# What a route of a download declares.
_FILE = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
DOWNLOAD: dict[str, Any] = {"response_class": Response, "responses": {200: _FILE}}
# The seconds that a sentence of a document takes, until the first ones were translated.
_PACE = 0.1


class UploadedDocument(DocumentStateAnswer):
    """A document, and how far its translation is."""

    name: str  # of the file; when the document is done, of its translation, like the content
    content: bytes = Field(repr=False)
    characters: int = 0  # of all different sentences
    started: float = 0.0  # when its translation began, on a clock without a date

    @property
    def seconds_remaining(self) -> int:
        """How long the translation will take, rounded up."""
        pace = (time.monotonic() - self.started) / self.done if self.done else _PACE
        return math.ceil(pace * (self.sentences - self.done))

    def count(self, sentence: Sentence, translation: Translation) -> None:
        """Counts a sentence that is translated, and the terms of the glossary that its translation has."""
        self.done += 1
        self.from_memory += translation.origin == "memory"
        self.terms += sum(term.form_in(translation.text) is not None for term in sentence.terms)
        confidence, doubts = translation.confidence, translation.reasons
        if doubts or (confidence is not None and translation.origin == "model"):
            values: dict[str, Any] = {"source": sentence.text, "target": translation.text, "doubts": doubts}
            entry = ConfidenceEntry(**values, confidence=confidence)
            ranked = sorted([*self.least_confident, entry], key=lambda each: (not each.doubts, each.confidence or 0))
            self.least_confident = ranked[:_LEAST_CONFIDENT]

    def response(self) -> Response:
        """Returns the file for a download."""
        quoted = quote(self.name, safe="")
        name = f'filename="{self.name}"' if quoted == self.name else f"filename*=UTF-8''{quoted}"
        headers = {"Content-Disposition": f"attachment; {name}"}
        return Response(self.content, media_type="application/octet-stream", headers=headers)


class DocumentStore:
    """The documents of a service, by ids that nobody can guess."""

    def __init__(self, service: Service) -> None:
        self._service, self._catalog = service, service.catalog
        self._documents: dict[str, UploadedDocument] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Documents are read and written one at a time, so that requests find time and threads.
        self._thread = asyncio.Lock()
        self._at_once = max(1, min(_MOST_SENTENCES, service.config.max_waiting // (2 * UPLOADS)))

    def add(self, content: bytes, fields: DocumentFields) -> str:
        """Begins to translate a document. Returns its id."""
        name = PurePath(fields.name.replace("\\", "/")).name
        if any(unicodedata.category(character) == "Cc" for character in name):
            raise NmtError(f"{name!r:.80} has a control character in its name; give the file another name")
        if suffix_of(name) not in FORMATS:
            known = f"*.{', *.'.join(FORMATS)}"
            raise NmtError(f"{name!r:.80} has no known file extension; this server translates {known}")
        path, catalog = None, self._catalog
        if not catalog.identifies(fields.model, fields.source_lang):
            path = catalog.path(fields.model, fields.source_lang, fields.target_lang)
        catalog.glossary(fields.glossary), catalog.memory(fields.memory, path or ())  # raise errors
        if len(self._tasks) >= UPLOADS:
            raise OverloadedError(f"{UPLOADS} documents are being translated; try again later")
        document_id = secrets.token_hex(32)
        progress: dict[str, Any] = {"state": "waiting", "sentences": 0, "done": 0}
        document = UploadedDocument(name=name, content=content, **progress)
        self._documents[document_id] = document
        self._tasks[document_id] = asyncio.create_task(self._translate(document, path, fields))
        self._tasks[document_id].add_done_callback(lambda _: self._ended(document_id))
        return document_id

    def get(self, document_id: str) -> UploadedDocument:
        """Returns a document."""
        if document_id not in self._documents:
            raise UnknownNameError("there is no such document; it was deleted, downloaded, or never uploaded")
        return self._documents[document_id]

    def take(self, document_id: str) -> UploadedDocument:
        """Returns a translated document, and forgets it."""
        document = self.get(document_id)
        if document.error:
            raise NmtError(document.error)
        if document.state != "done":
            raise OverloadedError("the document is not translated yet; try again later")
        return self._documents.pop(document_id)

    def delete(self, document_id: str) -> None:
        """Forgets a document, and stops its translation."""
        self.get(document_id).content = b""
        del self._documents[document_id]
        if document_id in self._tasks:
            self._tasks[document_id].cancel()

    async def ended(self, document_id: str) -> UploadedDocument:
        """Waits until a document is done or has failed. If the caller is cancelled, the document is deleted."""
        try:
            await asyncio.wait([self._tasks[document_id]])
        except asyncio.CancelledError:
            self.delete(document_id)
            raise
        return self.get(document_id)

    def _ended(self, document_id: str) -> None:
        del self._tasks[document_id]
        if document_id in self._documents:
            self._documents[document_id] = self._documents.pop(document_id)  # the order is that of completion
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._documents.pop, document_id, None)
        ended = [other for other in self._documents if other not in self._tasks]
        for oldest in ended[:-_MOST_KEPT]:
            del self._documents[oldest]

    async def _translate(self, document: UploadedDocument, path: ModelPath | None, fields: DocumentFields) -> None:
        """Sets the state of a document until it is done or has failed. Without a path, the language is detected."""

        def plain_text() -> str:
            parsed = read_document(document.content, suffix_of(document.name), ReadOptions(document.name, "", ""))
            text = "\n".join(line for passage in parsed.passages for line in passage.texts)
            text = text[: self._service.config.max_characters]
            check_text([text], self._service.config)
            return text

        try:
            if path is None:
                text, detected_path = await self._in_thread(plain_text), self._catalog.detected_path
                _, path = await asyncio.to_thread(detected_path, text, fields.model, fields.target_lang)
            language = self._catalog.language(fields.target_lang or "")
            if path:  # otherwise, the document is in the target language already
                document.content = await self._translated(document, path, fields)
                language = path[-1].codec.config.target_lang
            name = PurePath(document.name)
            document.name, document.state = f"{name.stem}.{language}{name.suffix}", "done"
        except Exception as error:
            document.state, document.content, document.error = "failed", b"", explained(error).detail
            if not isinstance(error, NmtError):
                raise

    async def _translated(self, document: UploadedDocument, path: ModelPath, fields: DocumentFields) -> bytes:
        """Translates a document in slices of its sentences, so that other requests get their turns."""
        glossary, memories = self._catalog.glossary(fields.glossary), self._catalog.memory(fields.memory, path)
        source_lang, target_lang = path[0].codec.config.source_lang, path[-1].codec.config.target_lang
        search = fitted(search_config({}, self._service.config), path)
        calibrated = valid_for(self._service.engine, search, path[0].calibrations) if len(path) == 1 else {}
        if fields.doubtful and str(path[0].codec.direction) not in calibrated:
            missing = f"doubtful needs the confidence of translations, which {model_names(path)} does not give"
            raise NmtError(f"{missing}; leave it out, or ask the person who runs the server for a calibrated model")
        maker = self._service.maker(path, "sentence", memories, glossary)
        options = ReadOptions(
            document.name, source_lang, target_lang, protected=maker.protected, doubtful=fields.doubtful
        )
        sentences = Sentences(maker, options, has_known=bool(memories or glossary or self._catalog.corrections))
        name, content = document.name, document.content
        parsed = await self._in_thread(partial(sentences.read, content, suffix_of(name), name))
        document.left = parsed.left(content)
        if len(path) > 1 and (sentences.has_markup or glossary or memories):
            chosen = "the chosen glossary" if glossary else "the chosen memory"
            needed = "its markup" if sentences.has_markup else chosen
            advice = "give plain text" if sentences.has_markup else "choose none"
            needs = f"{needed} needs a single model, but {model_names(path)} translate in turn"
            raise NmtError(f"{document.name} is not translated: {needs}; {advice}")
        # Similar lengths are translated together.
        different = sorted(sentences.distinct, key=lambda sentence: len(sentence.text), reverse=True)
        document.state, document.sentences = "translating", len(different)
        document.characters, document.started = sum(len(each.text) for each in different), time.monotonic()
        search = replace(search, alignments=sentences.has_markup)
        while waiting := different[document.done : document.done + self._at_once]:

            def matched(waiting: Sequence[Sentence] = waiting) -> list[Unit]:
                maker = self._service.maker(path, "unit", memories, glossary, offers=parsed.offer is not None)
                # A place would have the text of the sentence, which messages must not show.
                return [replace(sentence_unit(sentence, maker), place="") for sentence in waiting]

            try:
                units = await asyncio.to_thread(matched)
                translations = await self._service.translations(path, units, search, pieces=False)
            except OverloadedError:  # the queue is full
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for sentence, unit, ((best, *_),) in zip(waiting, units, translations, strict=True):
                (complete,) = unit.sentences
                document.count(complete, sentences.set_translation(sentence, best, complete.matches))
        content, _ = await self._in_thread(partial(sentences.written, parsed))
        return content

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        async with self._thread:
            working = asyncio.create_task(asyncio.to_thread(work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await asyncio.wait([working])  # a thread cannot be stopped, and the next document waits for it
                raise
