"""Lines of input and output of `nmt generate`: text or JSON, with prefixes and constraints."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.decoding.hypotheses import Hypothesis
from nmt.decoding.jsonl import parse_object
from nmt.decoding.requests import Request
from nmt.errors import NmtError
from nmt.jobs.plan import Row
from nmt.jobs.work import Place
from nmt.text.words import pharaoh


@dataclass(frozen=True)
class LineFormat:
    """How the lines of input and output are written.

    Attributes:
        input, output: `text` or `jsonl`.
        prefixes, constraints: whether text has a file of prefixes or of constraints beside it.
    """

    input: str = "text"
    output: str = "text"
    prefixes: bool = False
    constraints: bool = False

    def request(self, row: Row, place: Place) -> Request:
        """Returns what a row of the input asks for.

        Raises:
            NmtError: the row is no request; names its place.
        """
        if self.input == "jsonl":
            return _from_json(parse_object(row[0], str(place)), str(place))
        phrases = row[-1].split("\t") if self.constraints else []
        prefix, constraints = row[1] if self.prefixes else "", tuple(phrase for phrase in phrases if phrase)
        return Request(row[0], prefix, constraints, place=str(place))

    def written(self, request: Request, hypotheses: Sequence[Hypothesis], outputs: int) -> str:
        """Returns the output for a request: `outputs` lines of text, or one JSON object."""
        return as_json(request, hypotheses) if self.output == "jsonl" else as_text(hypotheses, outputs)


def _from_json(value: Mapping[str, Any], origin: str) -> Request:
    prefix, constraints = value.get("prefix") or "", value.get("constraints") or []
    if not isinstance(prefix, str):
        raise NmtError(f'{origin}: "prefix" must be text, but is {prefix!r:.40}')
    if not isinstance(constraints, list) or not all(isinstance(phrase, str) for phrase in constraints):
        raise NmtError(f'{origin}: "constraints" must be a list of texts, but is {constraints!r:.40}')
    return Request(value["source"], prefix, tuple(constraints), value, origin)


def as_text(hypotheses: Sequence[Hypothesis], outputs: int) -> str:
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
