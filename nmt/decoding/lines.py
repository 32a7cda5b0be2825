"""Lines of input and output of `nmt generate`: text or JSON, with prefixes and constraints."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from nmt.config import TranslationFiles
from nmt.decoding.hypotheses import Hypothesis
from nmt.decoding.jsonl import read_objects
from nmt.decoding.requests import Request
from nmt.errors import NmtError
from nmt.text.corpus import name_of, read_lines
from nmt.text.links import pharaoh


def read_requests(files: TranslationFiles) -> Iterator[Request]:
    """Yields the requests of the input: JSON lines, or text with its prefixes and constraints.

    Raises:
        NmtError: a file cannot be read, has another number of lines than the input, or a line is no request.
    """
    if files.input_format == "jsonl":
        for value, origin in read_objects(files.input):
            yield _from_json(value, origin)
    else:
        yield from _from_text(files)


def _from_text(files: TranslationFiles) -> Iterator[Request]:
    name = name_of(files.input)
    prefixes, constraints = _beside(files.prefixes), _beside(files.constraints)
    for number, source in enumerate(read_lines(files.input), start=1):
        prefix, phrases = next(prefixes, None), next(constraints, None)
        if prefix is None or phrases is None:
            short = files.prefixes if prefix is None else files.constraints
            raise NmtError(f"{short} has {number - 1:,} lines, but {name} has more; both must be line by line")
        yield Request(source, prefix, tuple(phrase for phrase in phrases.split("\t") if phrase))
    for path, lines in ((files.prefixes, prefixes), (files.constraints, constraints)):
        if path and next(lines, None) is not None:
            raise NmtError(f"{path} has more lines than {name}; both must be line by line")


def _beside(path: str | None) -> Iterator[str]:
    return read_lines(path) if path else repeat("")


def _from_json(value: Mapping[str, Any], origin: str) -> Request:
    prefix, constraints = value.get("prefix") or "", value.get("constraints") or []
    if not isinstance(prefix, str):
        raise NmtError(f'{origin}: "prefix" must be text, but is {prefix!r:.40}')
    if not isinstance(constraints, list) or not all(isinstance(phrase, str) for phrase in constraints):
        raise NmtError(f'{origin}: "constraints" must be a list of texts, but is {constraints!r:.40}')
    return Request(value["source"], prefix, tuple(constraints), value)


def as_text(_: Request, hypotheses: Sequence[Hypothesis], outputs: int) -> str:
    """Returns `outputs` lines of text; lines for which there is no hypothesis are blank."""
    texts = [h.text if h.alignment is None else f"{h.text} ||| {pharaoh(h.alignment)}" for h in hypotheses]
    return "".join(text + "\n" for text in texts + [""] * (outputs - len(texts)))


def as_json(request: Request, hypotheses: Sequence[Hypothesis]) -> str:
    """Returns one line with a JSON object: the fields of the input, and the hypotheses."""
    values = {**request.others, "source": request.source, "hypotheses": [fields_of(h) for h in hypotheses]}
    return json.dumps(values, ensure_ascii=False) + "\n"


def fields_of(hypothesis: Hypothesis) -> dict[str, Any]:
    """Returns a hypothesis as JSON values."""
    values = {
        "text": hypothesis.text,
        "score": hypothesis.score,
        "log_prob": hypothesis.log_prob,
        "pieces": hypothesis.pieces,
        "log_probs": hypothesis.log_probs,
    }
    if hypothesis.alignment is not None:
        values["alignment"] = pharaoh(hypothesis.alignment)
    return values | ({"unmet": True} if hypothesis.unmet else {})
