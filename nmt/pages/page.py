"""Self-contained HTML pages: a template beside this file, with style, common code and data put into it."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def page(template: str, title: str, data: Any) -> str:
    """The HTML page of `template`, report or attention, about `data`, which is plain and has no NaN.

    It needs no network and no server.
    """
    marks = {
        "title": escape(title),
        "style": (_FOLDER / "style.css").read_text(encoding="utf-8"),
        "common": (_FOLDER / "common.js").read_text(encoding="utf-8"),
        # "</script>" within a string would end the data.
        "data": json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
    }
    html = "".join((_FOLDER / f"{part}.html").read_text(encoding="utf-8") for part in ("head", template))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: marks[found[1]], html)
