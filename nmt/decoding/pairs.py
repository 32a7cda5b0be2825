"""Given translations to score: read from two files, from tab-separated text, or from JSON lines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nmt.decoding.jsonl import parse_object
from nmt.errors import NmtError
from nmt.jobs.plan import Row
from nmt.jobs.work import Place
from nmt.text.words import Link, pharaoh


class Rescored(NamedTuple):
    """The target pieces of each translation of a line, natural log P of each piece, and links between words.

    The last log P of a translation is that of EOS. `alignments` is None if it was not asked for.
    """

    pieces: list[list[str]]
    log_probs: list[list[float]]
    alignments: list[list[Link]] | None


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
    """How given translations and their scores are written.

    Attributes:
        input: `tsv`, `jsonl`, or `files` for a source and a target file.
        output: `text` or `jsonl`.
        normalize: whether log P in text is divided by the number of pieces.
    """

    input: str = "tsv"
    output: str = "text"
    normalize: bool = False

    def pair(self, row: Row, place: Place) -> Pair:
        """Returns the pair of a row of the input.

        Raises:
            NmtError: the row is no pair; names its place.
        """
        if self.input == "jsonl":
            value = parse_object(row[0], str(place))
            return Pair(value["source"], _targets(value, str(place)), value)
        fields = row if self.input == "files" else row[0].split("\t")
        if len(fields) != 2:
            raise NmtError(f"{place} has {len(fields) - 1} tabs; give source, a tab, target")
        return Pair(fields[0], (Target(fields[1]),))

    def written(self, pair: Pair, found: Rescored) -> str:
        """Returns the output for a pair."""
        if self.output == "jsonl":
            return as_json(pair, *found)
        return as_text(found.log_probs, found.alignments, self.normalize)


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


def as_text(log_probs: Sequence[Sequence[float]], alignments: Sequence[Sequence[Link]] | None, normalize: bool) -> str:
    """Returns log P of a line's translations, tab-separated; divided by the number of pieces if asked for.

    Links follow log P after `|||`.
    """
    values = [f"{sum(found) / (len(found) if normalize else 1):.6f}" for found in log_probs]
    if alignments is not None:
        values = [f"{value} ||| {pharaoh(links)}" for value, links in zip(values, alignments, strict=True)]
    return "\t".join(values) + "\n"


def as_json(
    pair: Pair,
    pieces: Sequence[Sequence[str]],
    log_probs: Sequence[Sequence[float]],
    alignments: Sequence[Sequence[Link]] | None,
) -> str:
    """Returns one line with a JSON object: the fields of the input, and what was found for each translation."""
    found: list[dict[str, Any]] = [
        {"log_prob": sum(values), "pieces": list(named), "log_probs": list(values)}
        for named, values in zip(pieces, log_probs, strict=True)
    ]
    for values, links in zip(found, alignments or ()):  # noqa: B905 (alignments may be missing)
        values["alignment"] = pharaoh(links)
    return json.dumps(_with_found(pair, found), ensure_ascii=False) + "\n"


def _with_found(pair: Pair, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the JSON object of a pair with `rescored` in the object itself, or in each of its hypotheses."""
    if "hypotheses" not in pair.others:
        return {"source": pair.source, "target": pair.targets[0].text, **pair.others, "rescored": found[0]}
    listed = [{**h, "rescored": f} for h, f in zip(pair.others["hypotheses"], found, strict=True)]
    return {**pair.others, "hypotheses": listed}
