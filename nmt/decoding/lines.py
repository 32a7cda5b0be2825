"""Lines of input and output of `nmt generate`: text or JSON, with prefixes and constraints."""

import json
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Literal

from nmt.decoding.alignment import pharaoh
from nmt.decoding.requests import Request
from nmt.decoding.translator import Hypothesis
from nmt.errors import NmtError
from nmt.text.corpus import STDIN, read_lines

Format = Literal["text", "jsonl"]


def read_requests(
    path: str, input_format: Format, prefixes: str | None = None, constraints: str | None = None
) -> Iterator[Request]:
    """Yields the requests of an input file.

    Args:
        prefixes: a file with the prefix of each line.
        constraints: a file with the constraints of each line, separated by tabs.

    Raises:
        NmtError: a file cannot be read, has another number of lines than the input, or a line is no request.
    """
    if input_format == "jsonl":
        for number, line in enumerate(read_lines(path), start=1):
            yield _from_json(line, f"{_name(path)}, line {number}")
        return
    begins, phrases = _beside(prefixes), _beside(constraints)
    for number, source in enumerate(read_lines(path), start=1):
        prefix, listed = (next(lines, None) for lines in (begins, phrases))
        if prefix is None or listed is None:
            short = prefixes if prefix is None else constraints
            raise NmtError(f"{short} has {number - 1:,} lines, but {_name(path)} has more; both must be line by line")
        yield Request(source, prefix, tuple(phrase for phrase in listed.split("\t") if phrase))
    for name, lines in ((prefixes, begins), (constraints, phrases)):
        if name and next(lines, None) is not None:
            raise NmtError(f"{name} has more lines than {_name(path)}; both must be line by line")


def _beside(path: str | None) -> Iterator[str]:
    return read_lines(path) if path else repeat("")


def _name(path: str) -> str:
    return "standard input" if path == STDIN else path


def _from_json(line: str, origin: str) -> Request:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{origin} is not JSON ({error}); give one object on each line") from error
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        raise NmtError(f'{origin} has no text as its "source"; give objects such as {{"source": "…"}}')
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
    values = {**request.others, "source": request.source, "hypotheses": [_fields(h) for h in hypotheses]}
    return json.dumps(values, ensure_ascii=False) + "\n"


def _fields(hypothesis: Hypothesis) -> dict[str, Any]:
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
