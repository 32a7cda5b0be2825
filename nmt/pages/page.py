"""Makes self-contained HTML pages from a template, common style and code, and data."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
STYLE = _FOLDER / "style.css"


def page(template: str, title: str, data: Any) -> str:
    """Returns an HTML page that needs no network and no server.

    Args:
        template: the name of the template, `report` or `attention`.
        title: the title of the page, as plain text.
        data: the content of the page, as JSON values without NaN.
    """
    contents = {
        "title": escape(title),
        "style": STYLE.read_text(encoding="utf-8"),
        "common": (_FOLDER / "common.js").read_text(encoding="utf-8"),
        # "</script>" in a string would end the script element.
        "data": json.dumps(data, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"),
    }
    html = "".join((_FOLDER / f"{part}.html").read_text(encoding="utf-8") for part in ("head", template))
    return re.sub(r"\{\{(\w+)\}\}", lambda placeholder: contents[placeholder[1]], html)
