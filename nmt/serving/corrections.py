"""Translations that people have corrected, in a file of JSON lines that several servers can share.

Lines are only added, each in one write under a lock; a line with `taken_back` takes back the correction with its id.
A process that is killed while it writes leaves a torn line at the end. The next writer ends it, and readers skip it.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from threading import Lock
from uuid import uuid4

from nmt import console
from nmt.corpora.tmx import TmxUnit, tmx
from nmt.errors import NmtError, importing
from nmt.files import Output, writing
from nmt.locks import locked
from nmt.memories.matching import Match, exact_match, near_matches, normalised, normalised_parts, parts_of, rest
from nmt.memories.memory import ALIKE, LEAST, MOST
from nmt.serving.schema import Correction, CorrectionBody
from nmt.text.corpus import reading
from nmt.text.protected import PROTECTED, Protected

_ADVICE = "free some space, or give --corrections a file that can be written"
_START = b'{"source":'  # of the file


_normalised = cache(normalised)  # of the sources of corrections


class Corrections:
    """The corrections in a file, which is created if it is missing.

    Args:
        patience: how many seconds to wait while another process writes.
        protected: finds protected words.

    Attributes:
        skipped: the number of lines that are no records.
    """

    def __init__(self, path: str, patience: float, protected: Protected = PROTECTED) -> None:
        self._path, self._patience, self.protected = Path(path), patience, protected
        self._reading, self._writing = Lock(), Lock()
        self._forget()
        with importing("rapidfuzz", "--corrections", extra="memory"):
            import rapidfuzz  # noqa: F401
        if self._path.exists():
            with reading(f"--corrections {path}"), self._path.open("rb") as file:
                start = file.readline()[: len(_START)]  # a killed process may have written only a part of it
                if not _START.startswith(start.rstrip(b"\n")):
                    raise NmtError(f"--corrections {path} is a file of another kind; give the name of a new file")
        with self._locked():
            pass

    def _forget(self, change: str = "") -> None:
        """Forgets all corrections, of which a warning says what has happened to their file."""
        if change and self._by_id:
            console.warn(f"{self._path} {change}")
        self._inode = self._end = self._lines = self.skipped = 0
        self._by_id: dict[str, Correction] = {}
        # By their languages and sources without numbers and placeholders, and then by their ids. The latest is last.
        self._alike: dict[tuple[str, str, str], dict[str, Correction]] = {}

    def keep(self, body: CorrectionBody) -> Correction:
        """Stores a correction, and returns it with its id. The latest one of a sentence is not stored twice."""
        correction = Correction(id=uuid4().hex, time=_now(), **body.model_dump())
        with self._locked():
            alike = self._alike.get(self._key(body.source, body.source_lang, body.target_lang), {})
            same = [other for other in list(alike.values()) if normalised(other.source) == normalised(body.source)]
            if same and (same[-1].source, same[-1].target) == (body.source, body.target):
                return same[-1]
            self._write(correction.model_dump_json(exclude_defaults=True))
        return correction

    def take_back(self, correction_id: str) -> bool:
        """Takes a correction back. Returns whether there was one."""
        with self._locked():
            if correction := self._by_id.get(correction_id):
                undone = correction.model_copy(update={"time": _now(), "taken_back": True})
                self._write(undone.model_dump_json(exclude_defaults=True))
        return correction is not None

    def all(self) -> list[Correction]:
        """Returns the corrections that were not taken back, the latest last."""
        self.refresh()
        return list(self._by_id.values())

    def refresh(self) -> None:
        """Reads what any process has written since the last call. If the file cannot be read, what is known stays."""
        with self._reading:
            try:
                file = self._path.open("rb")
            except FileNotFoundError:
                self._forget("was removed, so there are no corrections")
                return
            except OSError as error:
                console.warn_once(f"{self._path} cannot be read ({error.strerror}); what was read before is still used")
                return
            with file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._end:
                    self._forget("was changed and is read again")
                self._inode = status.st_ino
                file.seek(self._end)
                for line in file:
                    if line.endswith(b"\n"):  # otherwise a process is writing it, or was killed
                        self._read(line)

    def _read(self, line: bytes) -> None:
        """Reads the next line of the file."""
        self._end, self._lines = self._end + len(line), self._lines + 1
        try:
            correction = Correction.model_validate_json(line)
        except ValueError:
            self.skipped += 1
            skipped = f"{self._path}, line {self._lines} is no correction and is skipped"
            console.warn(f"{skipped}; nothing else is lost if a process was killed while it wrote the line")
            return
        key = self._key(correction.source, correction.source_lang, correction.target_lang)
        alike = self._alike.setdefault(key, {})
        for corrections in (self._by_id, alike):
            corrections.pop(correction.id, None)
            if not correction.taken_back:
                corrections[correction.id] = correction

    def _key(self, source: str, source_lang: str, target_lang: str) -> tuple[str, str, str]:
        parts = normalised_parts(source, self.protected.spans(source), source_lang)
        return source_lang, target_lang, rest(parts)

    def pairs(self, languages: tuple[str, str], like: Sequence[str] | None = None) -> list[tuple[str, str]]:
        """Returns normalised sources of a direction, all or those `like` one but for values, with translations."""
        with self._reading:
            if like is not None:
                groups = [self._alike.get((*languages, rest(like)), {})]
            else:
                groups = [group for key, group in self._alike.items() if key[:2] == languages]
            latest = dict[str, str]()
            for each in chain.from_iterable(group.values() for group in groups):
                source = _normalised(each.source)
                latest.pop(source, None)  # so that the latest comes last
                latest[source] = each.target
            return list(latest.items())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock of the file. The block knows all records, and the file ends with a whole line."""
        busy = f"another process writes to {self._path} and does not end; find out which one has it open"
        with self._writing, locked(self._path, busy, _ADVICE, patience=self._patience):
            self.refresh()
            if self._path.stat().st_size > self._end:
                self._write("")
            yield

    def _write(self, line: str) -> None:
        with writing(self._path, _ADVICE), self._path.open("ab", buffering=0) as file:
            Output(file, self._path, _ADVICE).write(f"{line}\n")
            os.fsync(file.fileno())
        self.refresh()


@dataclass(frozen=True)
class CorrectionMemory:
    """Corrections of one direction as a memory; `pair` is what the server calls the languages of the models."""

    corrections: Corrections
    pair: tuple[str, str]
    languages: tuple[str, str]

    def exact(self, sentence: Sequence[str]) -> Match | None:
        """Returns the latest correction that translates a sentence, given in parts, perhaps with other values."""
        text = "".join(sentence)
        pairs = sorted(self.corrections.pairs(self.pair, like=sentence), key=lambda pair: pair[0] == text)
        spans, (source_lang, target_lang) = self.corrections.protected.spans, self.languages
        in_parts = (
            (parts_of(source, spans(source), source_lang), parts_of(target, spans(target), target_lang))
            for source, target in pairs[: -ALIKE - 1 : -1]
        )
        return next(filter(None, (exact_match(sentence, *pair, self.languages) for pair in in_parts)), None)

    def near(self, sentence: str) -> list[Match]:
        """Returns the corrections whose sources are most similar to a normalised sentence."""
        return near_matches(sentence, self.corrections.pairs(self.pair), LEAST, MOST)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def memory_of(corrections: Sequence[Correction]) -> str:
    """Returns corrections as a translation memory, TMX 1.4."""
    sources = {correction.source_lang for correction in corrections}
    units = list[TmxUnit]()
    for each in corrections:
        time = f"{each.time.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        attributes = {"tuid": each.id, "srclang": each.source_lang, "creationdate": time}
        units.append(TmxUnit((each.source_lang, each.target_lang), (each.source, each.target), attributes))
    return "".join(tmx(units, sources.pop() if len(sources) == 1 else "*all*"))
