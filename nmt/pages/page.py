"""Makes self-contained HTML pages from a template, common style and code, and data."""

import json
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
STYLE = _FOLDER / "style.css"


def page(template: str, title: str, data: Any) -> str:
    """Returns an HTML page that needs no network and no server."""
    # "</script>" in a string would end the script element.
    values = {"title": escape(title), "data": data_as_text(data).replace("<", "\\u003c")}
    return _filled("head.html", values) + _filled(f"{template}.html", values)


def data_as_text(data: Any) -> str:
    """Returns the content of a page as JSON."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _filled(name: str, values: Mapping[str, str]) -> str:
    """Returns a file of this folder. Each {{name}} in it becomes a value, or another file of this folder."""
    text = (_FOLDER / name).read_text(encoding="utf-8")
    return re.sub(r"\{\{([\w.-]+)\}\}", lambda m: values[m[1]] if m[1] in values else _filled(m[1], values), text)
