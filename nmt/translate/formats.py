"""Lines of input and output: text or JSON, with prefixes and constraints, and given translations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nmt.errors import NmtError
from nmt.jobs.plan import Row
from nmt.jobs.run import Place
from nmt.text.words import AlignedWords, pharaoh
from nmt.translate.requests import Hypothesis, Request


def parse_object(line: str, origin: str) -> dict[str, Any]:
    """Returns the object of a line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{origin} is not JSON ({error}); give one object on each line") from error
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        raise NmtError(f'{origin} has no text as its "source"; give objects such as {{"source": "…"}}')
    return value


@dataclass(frozen=True)
class LineFormat:
    """How the lines of input and output are written."""

    input: str = "text"
    output: str = "text"
    prefixes: bool = False
    constraints: bool = False

    def request(self, row: Row, place: Place) -> Request:
        """Returns what a row of the input asks for."""
        if self.input == "jsonl":
            return _from_json(parse_object(row[0], str(place)), str(place))
        phrases = row[-1].split("\t") if self.constraints else []
        prefix, constraints = row[1] if self.prefixes else "", tuple(phrase for phrase in phrases if phrase)
        return Request(row[0], prefix, constraints, place=str(place))

    def written(self, request: Request, hypotheses: Sequence[Hypothesis], outputs: int) -> str:
        """Returns the output for a request.

        The output is one JSON object with the fields of the input and the hypotheses, or `outputs` lines of text. A
        line without a hypothesis is blank.
        """
        if self.output == "jsonl":
            found = {"source": request.source, "hypotheses": [fields_of(h) for h in hypotheses]}
            return json.dumps({**request.others, **found}, ensure_ascii=False) + "\n"
        texts = [h.text if h.alignment is None else f"{h.text} ||| {pharaoh(h.alignment)}" for h in hypotheses]
        return "".join(text + "\n" for text in texts + [""] * (outputs - len(texts)))


def _from_json(value: Mapping[str, Any], origin: str) -> Request:
    prefix, constraints = value.get("prefix") or "", value.get("constraints") or []
    if not isinstance(prefix, str):
        raise NmtError(f'{origin}: "prefix" must be text, but is {prefix!r:.40}')
    listed = [c if isinstance(c, list) else [c] for c in constraints] if isinstance(constraints, list) else [[None]]
    if not all(isinstance(phrase, str) for phrases in listed for phrase in phrases):
        raise NmtError(f'{origin}: "constraints" must be a list of texts or of lists, but is {constraints!r:.40}')
    return Request(value["source"], prefix, tuple(constraints), value, origin)


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


class Rescored(NamedTuple):
    """Pieces of a given translation, natural log P of each and, last, of EOS, and the alignment if it was asked for."""

    pieces: list[str]
    log_probs: list[float]
    alignment: list[AlignedWords] | None = None


class Target(NamedTuple):
    """A given translation: raw text, and its pieces if they are given too."""

    text: str
    pieces: tuple[str, ...] | None = None


class Pair(NamedTuple):
    """A source line and its given translations.

    Attributes:
        others: the JSON object that the pair is from; empty if it is from text.
    """

    source: str
    targets: tuple[Target, ...]
    others: Mapping[str, Any] = {}


@dataclass(frozen=True)
class PairFormat:
    """How given translations and their scores are written."""

    input: str = "tsv"
    output: str = "text"
    normalize: bool = False

    def pair(self, row: Row, place: Place) -> Pair:
        """Returns the pair of a row of the input."""
        if self.input == "jsonl":
            value = parse_object(row[0], str(place))
            return Pair(value["source"], _targets(value, str(place)), value)
        fields = row if self.input == "files" else row[0].split("\t")
        if len(fields) != 2:
            raise NmtError(f"{place} has {len(fields) - 1} tabs; give source, a tab, target")
        return Pair(fields[0], (Target(fields[1]),))

    def written(self, pair: Pair, found: Sequence[Rescored]) -> str:
        """Returns the output for a pair.

        The output is one JSON object with the fields of the input and what was found for each translation, or a line of
        text. The line has log P of each translation, separated by tabs, and the alignments if there are any.
        """
        if self.output == "jsonl":
            return json.dumps(_with_found(pair, rescored_fields(found)), ensure_ascii=False) + "\n"
        texts = [
            f"{sum(one.log_probs) / (len(one.log_probs) if self.normalize else 1):.6f}"
            + ("" if one.alignment is None else f" ||| {pharaoh(one.alignment)}")
            for one in found
        ]
        return "\t".join(texts) + "\n"


def _targets(value: Mapping[str, Any], origin: str) -> tuple[Target, ...]:
    listed = value.get("hypotheses", [{"text": value.get("target")}])
    if not isinstance(listed, list) or not all(isinstance(h, dict) and isinstance(h.get("text"), str) for h in listed):
        raise NmtError(f'{origin} has neither a text as its "target" nor "hypotheses" with a "text" each; add one')
    return tuple(Target(h["text"], _pieces(h.get("pieces"), origin)) for h in listed)


def _pieces(pieces: Any, origin: str) -> tuple[str, ...] | None:
    if pieces is None:
        return None
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise NmtError(f'{origin}: "pieces" must be a list of texts, but is {pieces!r:.40}; mend it or leave it out')
    return tuple(pieces)


def rescored_fields(found: Sequence[Rescored]) -> list[dict[str, Any]]:
    """Returns what was found for each translation as JSON values."""
    return [
        {"log_prob": sum(one.log_probs), "pieces": one.pieces, "log_probs": one.log_probs}
        | ({} if one.alignment is None else {"alignment": pharaoh(one.alignment)})
        for one in found
    ]


def _with_found(pair: Pair, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the JSON object of a pair with `rescored` in the object itself, or in each of its hypotheses."""
    if "hypotheses" not in pair.others:
        return {"source": pair.source, "target": pair.targets[0].text, **pair.others, "rescored": found[0]}
    listed = [{**h, "rescored": f} for h, f in zip(pair.others["hypotheses"], found, strict=True)]
    return {**pair.others, "hypotheses": listed}
