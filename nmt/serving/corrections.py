"""Translations that people have corrected, in a file of JSON lines that several servers can share.

A line is a correction, or it takes one back by its id. Lines are only added, each in one write under a lock. A process
that is killed while it writes leaves a torn line at the end. The next writer ends that line, and readers skip it.
"""

import os
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from uuid import uuid4
from xml.etree import ElementTree

from pydantic import AwareDatetime, BaseModel, TypeAdapter

from nmt import __version__, console
from nmt.errors import NmtError
from nmt.files import Output, writing
from nmt.locks import locked
from nmt.serving.schema import Correction, CorrectionBody
from nmt.text.corpus import reading
from nmt.text.markup_writing import text_only

_ADVICE = "free some space, or give --corrections a file that can be written"
_START = b'{"id":'  # of the file


class TakenBack(BaseModel):
    """A record that takes a correction back."""

    taken_back: str  # its id
    time: AwareDatetime


_RECORD: TypeAdapter[Correction | TakenBack] = TypeAdapter(Correction | TakenBack)


class Corrections:
    """The corrections in a file, which is created if it is missing.

    Args:
        patience: how many seconds to wait while another process writes.

    Attributes:
        by_id: the corrections that were not taken back, the latest last.
        by_source: the same by their languages, and then by their normalised sources.
        skipped: the number of lines that are no records.
    """

    def __init__(self, path: str, patience: float) -> None:
        self._path, self._patience = Path(path), patience
        self._reading, self._writing = Lock(), Lock()
        self._forget()
        if self._path.exists():
            if not self._path.is_file():
                raise NmtError(f"--corrections {path} is a folder or a device; give the name of a file")
            with reading(path), self._path.open("rb") as file:
                if not _START.startswith(file.read(len(_START))):
                    raise NmtError(f"--corrections {path} is a file of another kind; give the name of a new file")
        with self._locked():
            pass

    def _forget(self) -> None:
        self._state: tuple[int, int, int] | None = None  # inode, size and time of the file when it was read last
        self._end = self._lines = self.skipped = 0
        self.by_id: dict[str, Correction] = {}
        self.by_source: dict[tuple[str, str], dict[str, dict[str, Correction]]] = {}

    def keep(self, body: CorrectionBody) -> Correction:
        """Stores a correction, and returns it with its id. One that is stored already is not stored twice."""
        with self._locked():
            latest = self.latest((body.source_lang, body.target_lang), body.source)
            if latest and (latest.source, latest.target) == (body.source, body.target):
                return latest
            correction = Correction(id=uuid4().hex, time=_now(), **body.model_dump())
            self._append(correction)
            return correction

    def take_back(self, correction_id: str) -> bool:
        """Takes a correction back. Returns whether there was one."""
        with self._locked():
            if correction_id not in self.by_id:
                return False
            self._append(TakenBack(taken_back=correction_id, time=_now()))
            return True

    def latest(self, languages: tuple[str, str], source: str) -> Correction | None:
        """Returns the latest correction of a sentence, if there is one."""
        corrections = self.by_source.get(languages, {}).get(normalised(source), {})
        return next(reversed(corrections.values()), None)

    def refresh(self) -> None:
        """Reads what any process has written since the last call."""
        with self._reading:
            try:
                status = self._path.stat()
            except FileNotFoundError:
                self._forget()
                return
            state = status.st_ino, status.st_size, status.st_mtime_ns
            if state == self._state:
                return
            if self._state is None or state[0] != self._state[0] or state[1] <= self._state[1]:
                self._forget()  # somebody has edited the file
            with self._path.open("rb") as file:
                file.seek(self._end)
                for line in file:
                    if not line.endswith(b"\n"):  # a process is writing it, or was killed
                        break
                    self._read(line)
            self._state = state

    def _read(self, line: bytes) -> None:
        """Reads the next line of the file."""
        self._end, self._lines = self._end + len(line), self._lines + 1
        try:
            record = _RECORD.validate_json(line)
        except ValueError:
            self.skipped += 1
            console.warn(
                f"{self._path}, line {self._lines} is no correction; it is skipped. If a process was killed while it "
                f"wrote the line, nothing else is lost"
            )
        else:
            if isinstance(record, Correction):
                self.by_id[record.id] = record
                self._same(record)[record.id] = record
            elif removed := self.by_id.pop(record.taken_back, None):
                del self._same(removed)[removed.id]

    def _same(self, correction: Correction) -> dict[str, Correction]:
        """Returns the corrections of the same sentence by their ids, the latest last."""
        of_pair = self.by_source.setdefault((correction.source_lang, correction.target_lang), {})
        return of_pair.setdefault(normalised(correction.source), {})

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock of the file. The block knows all records, and the file ends with a whole line."""
        busy = f"another process writes to {self._path} and does not end; find out which one has it open"
        with self._writing, locked(self._path, busy, _ADVICE, patience=self._patience):
            self.refresh()
            if self._state and self._end < self._state[1]:
                self._write(b"\n")
            yield

    def _append(self, record: BaseModel) -> None:
        self._write(record.model_dump_json().encode() + b"\n")

    def _write(self, data: bytes) -> None:
        with writing(self._path, _ADVICE), self._path.open("ab", buffering=0) as file:
            Output(file, self._path, _ADVICE).write(data)
            os.fsync(file.fileno())
        self.refresh()


def normalised(text: str) -> str:
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def tmx(corrections: Iterable[Correction]) -> bytes:
    """Returns corrections as TMX 1.4."""
    corrections = list(corrections)
    languages = {correction.source_lang for correction in corrections}
    document = ElementTree.Element("tmx", version="1.4")
    srclang = languages.pop() if len(languages) == 1 else "*all*"
    header = {"creationtool": "nmt", "creationtoolversion": __version__, "segtype": "sentence", "o-tmf": "nmt"}
    ElementTree.SubElement(document, "header", header, adminlang="en", srclang=srclang, datatype="plaintext")
    body = ElementTree.SubElement(document, "body")
    for correction in corrections:
        date = correction.time.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        unit = ElementTree.SubElement(body, "tu", tuid=correction.id, srclang=correction.source_lang, creationdate=date)
        sides = (correction.source_lang, correction.source), (correction.target_lang, correction.target)
        for language, text in sides:
            variant = ElementTree.SubElement(unit, "tuv", {"xml:lang": language})
            ElementTree.SubElement(variant, "seg").text = text_only(text)
    ElementTree.indent(document)
    return ElementTree.tostring(document, encoding="utf-8", xml_declaration=True)
