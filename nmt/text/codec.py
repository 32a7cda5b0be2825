"""Raw text to ids and back, for both languages: what has to travel with a model so that it can be used."""

import reprlib
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, fields
from typing import Any, Self, get_args

from nmt.config import SubwordKind, Tokenizer
from nmt.errors import NmtError
from nmt.text.subword import Subword

_CHOICES = {"tokenizer": get_args(Tokenizer), "subword": get_args(SubwordKind)}


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How raw text becomes pieces."""

    source_lang: str
    target_lang: str
    tokenizer: str
    lowercase: bool
    subword: str
    joint_vocab: bool

    @classmethod
    def from_dict(cls, values: Any, origin: str) -> Self:
        """Returns the configuration that plain data holds, which may be anything.

        Raises:
            NmtError: a field is missing, unknown, or not what it must be; names `origin` and the field.
        """
        declared = {f.name: f for f in fields(cls)}
        if not isinstance(values, dict) or values.keys() != declared.keys():
            found = sorted(map(str, values.keys() ^ declared.keys())) if isinstance(values, dict) else ["no fields"]
            raise _damaged(origin, ", ".join(found))
        for name, field in declared.items():
            if not _fits(field, values[name]):
                raise _damaged(origin, f"{name} is {reprlib.repr(values[name])}")
        return cls(**values)


def _fits(field: Field[Any], value: Any) -> bool:
    """Returns whether a field of TextConfig may have this value; languages are part of file names."""
    if not isinstance(value, field.type):  # type: ignore[arg-type]
        return False
    if field.name in _CHOICES:
        return value in _CHOICES[field.name]
    return field.type is bool or (value.isprintable() and value != "" and "/" not in value)


def _damaged(origin: str, found: str) -> NmtError:
    return NmtError(
        f"{origin} is damaged or was written by another version of nmt (text processing: {found}); make it anew"
    )


class Preparer:
    """Raw text of one language to what the subword model sees, and back."""

    def __init__(self, config: TextConfig, lang: str) -> None:
        self.lowercase = config.lowercase
        self._moses = None
        if config.tokenizer == "moses":
            from nmt.text.moses import Moses  # here, because its tables take 0.2 s to load

            self._moses = Moses(lang)

    def prepare(self, line: str) -> str:
        """Tokenised, then lowercased: abbreviations such as "Mr." are known by their capitals."""
        line = self._moses.tokenize(line) if self._moses else line
        return line.lower() if self.lowercase else line

    def restore(self, line: str) -> str:
        return self._moses.detokenize(line) if self._moses else line


class TextCodec:
    """Tokenisation and subwords of both languages; `source` is `target` where the vocabulary is joint."""

    def __init__(self, config: TextConfig, source: Subword, target: Subword) -> None:
        if config.joint_vocab and source is not target:
            raise ValueError("a joint vocabulary is one model")
        self.config, self.source, self.target = config, source, target
        self._source_text = Preparer(config, config.source_lang)
        self._target_text = Preparer(config, config.target_lang)

    def encode_source(self, lines: list[str]) -> list[list[int]]:
        """Raw source lines to ids, without BOS and EOS."""
        return self.source.encode([self._source_text.prepare(line) for line in lines])

    def encode_target(self, lines: list[str]) -> list[list[int]]:
        """Raw target lines to ids, without BOS and EOS."""
        return self.target.encode([self._target_text.prepare(line) for line in lines])

    def decode_target(self, ids: list[list[int]]) -> list[str]:
        """Ids to raw, detokenised target lines, none of which holds a line break."""
        return [self._target_text.restore(line) for line in self.target.decode(ids)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the configuration's fields, and the subword models as bytes (target None where joint)."""
        target = None if self.config.joint_vocab else self.target.to_bytes()
        return {**asdict(self.config), "source_model": self.source.to_bytes(), "target_model": target}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], origin: str) -> Self:
        """The inverse of `to_dict`.

        Raises:
            NmtError: a field is missing, unknown or of the wrong type, or a model is damaged; names `origin`.
        """
        models = {"source_model": bytes, "target_model": bytes | None}
        text = {name: values[name] for name in values if name not in models}
        config = TextConfig.from_dict(text, origin)
        wrong = [name for name, kind in models.items() if name not in values or not isinstance(values[name], kind)]
        if wrong or config.joint_vocab != (values["target_model"] is None):
            raise _damaged(origin, ", ".join(wrong) or "contradictory fields joint_vocab and target_model")
        source = Subword.from_bytes(values["source_model"], config.subword, origin)
        target = source if config.joint_vocab else Subword.from_bytes(values["target_model"], config.subword, origin)
        return cls(config, source, target)
