"""Text in which elements of HTML stand for the inline markup of another format, so that they travel with words."""

import re
from collections.abc import Callable
from html import escape

_ELEMENT = re.compile(r"<(g)(\d+)>|<(/g)(\d+)>|<(x)(\d+)/>|<(code) id=(\d+)>.*?</code>", re.DOTALL)


class Inline:
    """A text with inline markup, which is added from left to right.

    Elements g stand for pairs of markup, x for other markup, and code for text that stays as it is.
    """

    def __init__(self) -> None:
        self.starts: list[str] = []
        self._ends: dict[int, str] = {}
        self._parts: list[str] = []
        self._open: list[tuple[str, int, int]] = []  # name, place in `_parts`, number

    @property
    def html(self) -> str:
        """The text as HTML."""
        return "".join(self._parts)

    def text(self, html: str) -> None:
        """Adds text, escaped as in HTML."""
        self._parts.append(html)

    def leaf(self, raw: str, shown: str = "") -> None:
        """Adds markup that is no pair, or stands for text that stays as it is."""
        number = len(self.starts)
        self.starts.append(raw)
        self._parts.append(f"<code id={number}>{escape(shown, quote=False)}</code>" if shown else f"<x{number}/>")

    def start(self, raw: str, name: str) -> None:
        """Adds markup that begins a pair, if its end follows."""
        self._open.append((name, len(self._parts), len(self.starts)))
        self.leaf(raw)

    def end(self, raw: str, name: str) -> None:
        """Adds markup that ends the innermost pair of this name, if there is one."""
        if all(opened != name for opened, *_ in self._open):
            self.leaf(raw)
            return
        while (found := self._open.pop())[0] != name:
            pass
        _, place, number = found
        self._parts[place] = f"<g{number}>"
        self._parts.append(f"</g{number}>")
        self._ends[number] = raw

    @property
    def is_open(self) -> bool:
        """Whether the end of a pair is missing."""
        return bool(self._open)

    def written(self, html: str, text: Callable[[str], str], markup: Callable[[str], str] = str) -> str:
        """Returns a translation with the markup of the format.

        Args:
            text: writes text between the markup, which is escaped as in HTML.
            markup: writes markup.
        """
        parts = []
        place = 0
        for match in _ELEMENT.finditer(html):
            kind, number = filter(None, match.groups())
            parts.append(text(html[place : match.start()]))
            parts.append(markup((self._ends if kind == "/g" else self.starts)[int(number)]))
            place = match.end()
        return "".join([*parts, text(html[place:])])
