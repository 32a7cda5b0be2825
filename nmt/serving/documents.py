"""Documents that clients upload: translated in the background, and kept in memory until they are downloaded."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

from nmt.config import SearchConfig
from nmt.documents.document import Document, ReadOptions, Sentences
from nmt.documents.formats import FORMATS, read_document, suffix_of
from nmt.errors import NmtError
from nmt.serving.guard import RETRY, UPLOADS, at_once, explained
from nmt.serving.service import AUTO, Path, Service, fitted
from nmt.text.glossary import Glossary
from nmt.text.languages import base_language
from nmt.translate.units import Sentence, Unit

# How long a document is kept after its translation has ended, and how many of these are kept.
_KEPT_SECONDS, _MOST_KEPT = 30 * 60, 32
# Sentences of a document that wait or are translated at a time. All documents together fill at most half of the queue.
_MOST_SENTENCES = 64
_Found = TypeVar("_Found")


@dataclass
class Uploaded:
    """A document.

    Attributes:
        name: of the file; when the document is done, of its translation.
        content: of the file, or of its translation.
        characters: of all sentences.
        sentences: the number of different sentences.
        done: how many of them are translated.
        error: why the document cannot be translated.
    """

    name: str
    content: bytes = field(repr=False)
    state: Literal["waiting", "translating", "done", "failed"] = "waiting"
    sentences: int = 0
    done: int = 0
    error: str = ""
    characters: int = 0
    started: float = 0.0

    def described(self) -> dict[str, Any]:
        """Returns what GET /documents/ID answers."""
        shown = {"state": self.state, "sentences": self.sentences, "done": self.done}
        return shown | ({"error": self.error} if self.error else {})

    def response(self) -> Response:
        """Returns the file for a download."""
        quoted = quote(self.name, safe="")
        name = f'filename="{self.name}"' if quoted == self.name else f"filename*=UTF-8''{quoted}"
        headers = {"Content-Disposition": f"attachment; {name}"}
        return Response(self.content, media_type="application/octet-stream", headers=headers)


class Documents:
    """The documents of a service, by ids that nobody can guess."""

    def __init__(self, service: Service) -> None:
        self._service, self._found = service, dict[str, Uploaded]()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Documents are read and written one at a time, so that requests find time and threads.
        self._thread = asyncio.Lock()
        most_waiting = service.config.max_waiting
        self._at_once = max(1, min(_MOST_SENTENCES, most_waiting // (2 * UPLOADS)))

    def add(
        self,
        name: str,
        content: bytes,
        model: str | None,
        source_lang: str | None,
        target_lang: str | None,
        glossary: str | None = None,
    ) -> str:
        """Begins to translate a document. Returns its id."""
        name = PurePath(name.replace("\\", "/")).name
        if not name.isprintable() or suffix_of(name) not in FORMATS:
            raise NmtError(f"{name!r:.80} has no known format; this server translates *.{', *.'.join(FORMATS)}")
        is_detected = source_lang == AUTO and model is None
        path = None if is_detected else self._service.path(model, source_lang, target_lang)
        terms = self._service.glossary(glossary)
        if len(self._tasks) >= UPLOADS:
            raise HTTPException(503, f"{UPLOADS} documents are being translated; try again later", RETRY)
        number, one = secrets.token_hex(32), Uploaded(name, content)
        self._found[number] = one
        self._tasks[number] = asyncio.create_task(self._translate(one, path, target_lang, terms))
        self._tasks[number].add_done_callback(lambda _: self._ended(number))
        return number

    def get(self, number: str) -> Uploaded:
        """Returns a document."""
        if number not in self._found:
            raise HTTPException(404, "there is no such document; it was deleted, downloaded, or never uploaded")
        return self._found[number]

    def take(self, number: str) -> Uploaded:
        """Returns a translated document, and forgets it."""
        one = self.get(number)
        if one.error:
            raise NmtError(one.error)
        if one.state != "done":
            raise HTTPException(503, "the document is not translated yet; try again later", RETRY)
        return self._found.pop(number)

    def delete(self, number: str) -> None:
        """Forgets a document, and stops its translation."""
        self.get(number).content = b""
        del self._found[number]
        if number in self._tasks:
            self._tasks[number].cancel()

    async def ended(self, number: str) -> Uploaded:
        """Waits until a document is done or has failed. If the caller is cancelled, the document is deleted."""
        try:
            await asyncio.wait([self._tasks[number]])
        except asyncio.CancelledError:
            self.delete(number)
            raise
        return self.get(number)

    def _ended(self, number: str) -> None:
        del self._tasks[number]
        if number in self._found:
            self._found[number] = self._found.pop(number)  # the order is that of completion
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._found.pop, number, None)
        kept = [other for other in self._found if other not in self._tasks]
        for other in kept[:-_MOST_KEPT]:
            del self._found[other]

    async def _translate(
        self, one: Uploaded, path: Path | None, target_lang: str | None, glossary: Glossary | None
    ) -> None:
        """Sets the state of a document until it is done or has failed."""
        try:
            if path is None:
                path = self._service.path(None, await self._detected(one), target_lang)
            if path:  # otherwise, the document is in the target language already
                one.content = await self._translated(one, path, glossary)
            name = PurePath(one.name)
            language = path[-1].codec.config.target_lang if path else base_language(target_lang or "")
            one.name, one.state = f"{name.stem}.{language}{name.suffix}", "done"
        except Exception as error:
            one.state, one.content, one.error = "failed", b"", explained(error)
            if not isinstance(error, NmtError | HTTPException):
                raise

    async def _detected(self, one: Uploaded) -> str:
        def read() -> str:
            document = read_document(one.content, suffix_of(one.name), ReadOptions(one.name, "", ""))
            return "\n".join(line for passage in document.passages for line in passage.unit.lines)

        text = await self._in_thread(read)
        (found,) = await self._service.detected([text[: self._service.config.max_characters]])
        return found[0].language

    async def _translated(self, one: Uploaded, path: Path, glossary: Glossary | None) -> bytes:
        source, target = path[0].codec, path[-1].codec
        limits = self._service.config
        beam = min(SearchConfig.beam, limits.max_beam)
        search = fitted(SearchConfig(beam=beam, batch_tokens=at_once(limits)), path)
        sentences = Sentences(source, target, keeps_phrases=self._service.can_require_phrases(search))
        options = ReadOptions(one.name, source.config.source_lang, target.config.target_lang)

        def read() -> Document:
            document = read_document(one.content, suffix_of(one.name), options)
            sentences.add(document)
            return document

        document = await self._in_thread(read)
        if len(path) > 1 and (sentences.has_markup or glossary):
            what, names = "markup" if sentences.has_markup else "a glossary", " and ".join(m.name for m in path)
            raise NmtError(f"{one.name} has {what}, which needs a single model, but {names} translate in turn")
        # Similar lengths are translated together.
        keys = sorted(sentences.translations, key=lambda key: len(key[0]) + sum(map(len, key[1])), reverse=True)
        one.state, one.sentences = "translating", len(keys)
        one.characters = sum(len(text) for text, _ in keys)
        one.started = asyncio.get_running_loop().time()
        search = replace(search, alignments=sentences.has_markup)
        while waiting := keys[one.done : one.done + self._at_once]:
            units = [(Unit(text), [Sentence(0, text, phrases)]) for text, phrases in waiting]
            try:
                translations = await self._service.translations(path, units, search, glossary, pieces=False)
            except HTTPException:  # the queue is full
                await asyncio.sleep(int(RETRY["Retry-After"]))
                continue
            best = [ranked[0]._replace(pieces=[], log_probs=[]) for (ranked,) in translations]
            sentences.translations.update(zip(waiting, best, strict=True))
            one.done += len(waiting)
        return await self._in_thread(partial(sentences.written, document))

    async def _in_thread(self, work: Callable[[], _Found]) -> _Found:
        async with self._thread:
            working = asyncio.create_task(asyncio.to_thread(work))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await asyncio.wait([working])  # a thread cannot be stopped, and the next document waits for it
                raise
