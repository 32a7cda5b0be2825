"""Translates HTML and XML with a model of this toolkit."""

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from nmt.config import SearchConfig
from nmt.text.markup import Unit, parse
from nmt.translate.requests import Request
from nmt.translate.translator import Translator


def translate_markup(
    translator: Translator,
    text: str,
    markup: Literal["html", "xml"],
    search: SearchConfig,
    blocks: Collection[str] | None = None,
) -> str:
    """Returns the translation of a fragment of HTML or XML, as `nmt.text.markup.parse` explains.

    Tags are put where the model's alignments are. A model without `--guided-alignment` aligns by the attention of its
    last decoder layer, which makes more errors.
    """
    parts = parse(text, markup, blocks)
    requests = [Request(unit.source, constraints=unit.phrases) for unit in parts if isinstance(unit, Unit)]
    found = iter(translator.hypotheses(requests, replace(search, alignments=True)))
    for i, part in enumerate(parts):
        if isinstance(part, Unit):
            best, *_ = next(found)
            parts[i] = part.restored(best.text, best.alignment or ())
    return "".join(map(str, parts))
