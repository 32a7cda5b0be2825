"""Translations that people have corrected, in a file of JSON lines that several servers can share.

Lines are only added, each in one write under a lock; a line with `taken_back` takes back the correction with its id.
A process that is killed while it writes leaves a torn line at the end. The next writer ends it, and readers skip it.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from uuid import uuid4
from xml.sax.saxutils import escape, quoteattr

from nmt import __version__, console
from nmt.errors import NmtError, importing
from nmt.files import Output, writing
from nmt.locks import locked
from nmt.memories.matching import Match, exact_match, near_matches, normalised, rest, split
from nmt.memories.memory import ALIKE, LEAST, MOST
from nmt.serving.schema import Correction, CorrectionBody
from nmt.text.corpus import reading
from nmt.text.markup_writing import text_only

_ADVICE = "free some space, or give --corrections a file that can be written"
_START = b'{"source":'  # of the file


class Corrections:
    """The corrections in a file, which is created if it is missing.

    Args:
        patience: how many seconds to wait while another process writes.

    Attributes:
        skipped: the number of lines that are no records.
    """

    def __init__(self, path: str, patience: float) -> None:
        self._path, self._patience = Path(path), patience
        self._reading, self._writing, self._is_unreadable = Lock(), Lock(), False
        self._forget()
        with importing("rapidfuzz", "--corrections", "'attention-nmt[memory]'"):
            import rapidfuzz  # noqa: F401
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
        self._by_id: dict[str, Correction] = {}
        # By their languages, and as a memory compares sources: first without numbers and placeholders.
        self._alike: dict[tuple[str, str], dict[str, dict[str, dict[str, Correction]]]] = {}

    def keep(self, body: CorrectionBody) -> Correction:
        """Stores a correction, and returns it with its id. The latest one of a sentence is not stored twice."""
        correction = Correction(id=uuid4().hex, time=_now(), **body.model_dump())
        with self._locked():
            with self._reading:
                latest = next(reversed(self._same(correction).values()), None)
            if latest and (latest.source, latest.target) == (body.source, body.target):
                return latest
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
        with self._reading, ExitStack() as open_file:
            state, file = None, None
            try:
                if self._path.exists():
                    status = self._path.stat()
                    state = status.st_ino, status.st_size, status.st_mtime_ns
                    file = None if state == self._state else open_file.enter_context(self._path.open("rb"))
            except OSError as error:
                if not self._is_unreadable:
                    console.warn(f"{self._path} cannot be read ({error.strerror}); what was read before is still used")
                self._is_unreadable = True
                return
            self._is_unreadable = False
            if state == self._state:
                return
            if not (state and self._state and state[0] == self._state[0] and state[1] > self._state[1]):
                if self._by_id:  # somebody has removed or edited the file
                    change = "was changed and is read again" if state else "was removed, so there are no corrections"
                    console.warn(f"{self._path} {change}")
                self._forget()
            if file:
                file.seek(self._end)
                for line in file:
                    if line.endswith(b"\n"):  # otherwise a process is writing it, or was killed
                        self._read(line)
            self._state = state

    def _read(self, line: bytes) -> None:
        """Reads the next line of the file."""
        self._end, self._lines = self._end + len(line), self._lines + 1
        try:
            correction = Correction.model_validate_json(line)
        except ValueError:
            self.skipped += 1
            console.warn(
                f"{self._path}, line {self._lines} is no correction and is skipped; nothing else is lost if a process "
                f"was killed while it wrote the line"
            )
            return
        for corrections in (self._by_id, self._same(correction)):
            corrections.pop(correction.id, None)
            if not correction.taken_back:
                corrections[correction.id] = correction

    def _same(self, correction: Correction) -> dict[str, Correction]:
        """Returns the corrections of the same sentence by their ids, the latest last."""
        source, languages = normalised(correction.source), (correction.source_lang, correction.target_lang)
        alike = self._alike.setdefault(languages, {}).setdefault(rest(split(source, languages[0])), {})
        return alike.setdefault(source, {})

    def pairs(self, languages: tuple[str, str], like: str | None = None) -> list[tuple[str, str]]:
        """Returns the normalised sources of a direction and their translations.

        Args:
            like: only sources that are like this one, but perhaps with other numbers and placeholders.
        """
        with self._reading:
            alike = self._alike.get(languages, {})
            groups = alike.values() if like is None else [alike.get(rest(split(like, languages[0])), {})]
            same = ((source, [*each.values()]) for group in groups for source, each in group.items())
            return [(source, corrections[-1].target) for source, corrections in same if corrections]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock of the file. The block knows all records, and the file ends with a whole line."""
        busy = f"another process writes to {self._path} and does not end; find out which one has it open"
        with self._writing, locked(self._path, busy, _ADVICE, patience=self._patience):
            self.refresh()
            if self._state and self._end < self._state[1]:
                self._write("")
            yield

    def _write(self, line: str) -> None:
        with writing(self._path, _ADVICE), self._path.open("ab", buffering=0) as file:
            Output(file, self._path, _ADVICE).write(f"{line}\n")
            os.fsync(file.fileno())
        self.refresh()


@dataclass(frozen=True)
class CorrectionMemory:
    """The corrections of one direction as a memory.

    Attributes:
        pair: the languages as the server calls them.
        languages: as the models call them.
    """

    corrections: Corrections
    pair: tuple[str, str]
    languages: tuple[str, str]

    def exact(self, sentence: str) -> Match | None:
        """Returns the latest correction whose target translates a sentence, perhaps with other numbers."""
        sentence = normalised(sentence)
        pairs = self.corrections.pairs(self.pair, like=sentence)
        same = [pair for pair in pairs if pair[0] == sentence] or pairs[: -ALIKE - 1 : -1]
        return next(filter(None, (exact_match(sentence, *pair, self.languages) for pair in same)), None)

    def near(self, sentence: str) -> list[Match]:
        """Returns the corrections whose sources are most similar to a sentence."""
        return near_matches(normalised(sentence), self.corrections.pairs(self.pair), LEAST, MOST)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def tmx(corrections: Iterable[Correction]) -> str:
    """Returns corrections as a translation memory, TMX 1.4."""
    units, languages = "", set[str]()
    for each in corrections:
        languages.add(each.source_lang)
        sides = (each.source_lang, each.source), (each.target_lang, each.target)
        units += f"<tu tuid={quoteattr(each.id)} srclang={quoteattr(each.source_lang)} creationdate="
        units += f'"{each.time.astimezone(UTC):%Y%m%dT%H%M%SZ}">'
        for language, text in sides:
            units += f"<tuv xml:lang={quoteattr(language)}><seg>{escape(text_only(text))}</seg></tuv>"
        units += "</tu>\n"
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4"><header creationtool="nmt" creationtoolversion="{__version__}" segtype="sentence" o-tmf="nmt"
adminlang="en" srclang={quoteattr(languages.pop() if len(languages) == 1 else "*all*")} datatype="plaintext"/><body>
{units}</body></tmx>
"""
