"""Lines of input and output: text or JSON, with prefixes and constraints, and given translations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from nmt.errors import NmtError, naming
from nmt.jobs.plan import Row
from nmt.jobs.stream import Place
from nmt.text.words import AlignedWords, pharaoh
from nmt.translate.records import ScoredLine, TranslatedLine
from nmt.translate.units import Unit


def parse_object(line: str, place: str) -> dict[str, Any]:
    """Returns the object of a line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{place} is not JSON ({error}); give one object on each line") from error
    if not isinstance(value, dict) or not isinstance(value.get("source"), str):
        raise NmtError(f'{place} has no text as its "source"; give objects such as {{"source": "…"}}')
    return value


@dataclass(frozen=True)
class LineFormat:
    """How the lines of input and output are written.

    Attributes:
        input: `sentence` is a sentence of a document, followed by the places of what stays, such as `4-9`.
    """

    input: Literal["text", "jsonl", "html", "sentence"] = "text"
    output: Literal["text", "jsonl"] = "text"
    prefixes: bool = False
    constraints: bool = False

    def unit(self, row: Row, place: Place) -> Unit:
        """Returns the unit in a row of the input."""
        name = str(place)
        if self.input == "jsonl":
            fields = parse_object(row[0], name)
            prefix, constraints = fields.get("prefix") or "", fields.get("constraints") or []
            if not isinstance(prefix, str):
                raise NmtError(f'{name}: "prefix" must be text, but is {prefix!r:.40}')
            if not isinstance(constraints, list) or not all(
                isinstance(phrase, str) for c in constraints for phrase in (c if isinstance(c, list) else [c])
            ):
                raise NmtError(f'{name}: "constraints" must be a list of texts or of lists, but is {constraints!r:.40}')
            return Unit(fields["source"], prefix=prefix, constraints=tuple(constraints), place=name, fields=fields)
        if self.input == "html":
            unit = Unit(row[0], "html", place=name)
            with naming(name):
                unit.content  # noqa: B018 (raises the error in it)
            return unit
        if self.input == "sentence":
            kept = tuple((int(start), int(stop)) for start, _, stop in (span.partition("-") for span in row[1:]))
            return Unit(row[0], kept=kept, place=f"the sentence {row[0]:.80}")
        phrases = row[-1].split("\t") if self.constraints else []
        prefix, constraints = row[1] if self.prefixes else "", tuple(phrase for phrase in phrases if phrase)
        return Unit(row[0], prefix=prefix, constraints=constraints, place=name)

    def written(self, line: TranslatedLine, outputs: int) -> str:
        """Returns the output for a line.

        The output is one JSON object with the fields of the input and the hypotheses, or `outputs` lines of text. A
        line without a translation is blank.
        """
        if self.output == "jsonl":
            hypotheses = [translation.fields() for translation in line.translations]
            fields = {**line.fields, "source": line.source, "hypotheses": hypotheses}
            return json.dumps(fields, ensure_ascii=False) + "\n"
        texts = [_aligned(translation.text, translation.alignment) for translation in line.translations]
        return "".join(text + "\n" for text in texts + [""] * (outputs - len(texts)))


def _aligned(text: str, alignment: Sequence[AlignedWords] | None) -> str:
    return text if alignment is None else f"{text} ||| {pharaoh(alignment)}"


class Target(NamedTuple):
    """A given translation: raw text, and its pieces if they are given too."""

    text: str
    pieces: tuple[str, ...] | None = None


class Pair(NamedTuple):
    """A source line and its given translations.

    Attributes:
        fields: the JSON object that the pair is from; empty if it is from text.
    """

    source: str
    targets: tuple[Target, ...]
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class PairFormat:
    """How given translations and their scores are written."""

    input: Literal["tsv", "jsonl", "files"] = "tsv"
    output: Literal["text", "jsonl"] = "text"
    normalize: bool = False

    def pair(self, row: Row, place: Place) -> Pair:
        """Returns the pair of a row of the input."""
        if self.input == "jsonl":
            fields = parse_object(row[0], str(place))
            return Pair(fields["source"], _targets(fields, str(place)), fields)
        texts = row if self.input == "files" else row[0].split("\t")
        if len(texts) != 2:
            raise NmtError(f"{place} has {len(texts) - 1} tabs; give source, a tab, target")
        return Pair(texts[0], (Target(texts[1]),))

    def written(self, line: ScoredLine) -> str:
        """Returns the output for a line.

        The output is one JSON object with the fields of the input and the scores, as `rescored` in the object itself or
        in each of its hypotheses, or a line of text. The line has log P of each translation, separated by tabs, and the
        alignments if there are any.
        """
        if self.output == "jsonl":
            scores = [score.fields() for score in line.scores]
            if "hypotheses" in line.fields:
                hypotheses = zip(line.fields["hypotheses"], scores, strict=True)
                fields = {**line.fields, "hypotheses": [{**h, "rescored": score} for h, score in hypotheses]}
            else:
                fields = {"source": line.source, "target": line.targets[0], **line.fields, "rescored": scores[0]}
            return json.dumps(fields, ensure_ascii=False) + "\n"
        texts = [
            _aligned(f"{score.log_prob / (score.tokens if self.normalize else 1):.6f}", score.alignment)
            for score in line.scores
        ]
        return "\t".join(texts) + "\n"


def _targets(fields: Mapping[str, Any], place: str) -> tuple[Target, ...]:
    listed = fields.get("hypotheses", [{"text": fields.get("target")}])
    if not isinstance(listed, list) or not all(isinstance(h, dict) and isinstance(h.get("text"), str) for h in listed):
        raise NmtError(f'{place} has neither a text as its "target" nor "hypotheses" with a "text" each; add one')
    for pieces in (h.get("pieces") for h in listed):
        if pieces is not None and not (isinstance(pieces, list) and all(isinstance(piece, str) for piece in pieces)):
            raise NmtError(f'{place}: "pieces" must be a list of texts, but is {pieces!r:.40}; mend it or leave it out')
    return tuple(Target(h["text"], tuple(h["pieces"]) if h.get("pieces") is not None else None) for h in listed)
