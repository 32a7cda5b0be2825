"""Raw text to ids and back, for both languages: what has to travel with a model so that it can be used."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from nmt.errors import NmtError
from nmt.text.subword import Subword

TOKENIZERS = ("moses", "none")


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How raw text becomes pieces."""

    source_lang: str
    target_lang: str
    tokenizer: str
    lowercase: bool
    subword: str
    joint_vocab: bool


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
        expected = {f.name: f.type for f in fields(TextConfig)} | {"source_model": bytes, "target_model": bytes | None}
        wrong = sorted(set(expected) ^ set(values)) or [
            name
            for name, kind in expected.items()
            if not isinstance(values[name], kind)  # type: ignore[arg-type]
        ]
        wrong = wrong or [name for name in ("source_lang", "target_lang") if not _is_suffix(values[name])]
        if wrong or values["tokenizer"] not in TOKENIZERS or values["joint_vocab"] != (values["target_model"] is None):
            raise NmtError(
                f"{origin} was written by another version of nmt or is damaged "
                f"(text processing: {', '.join(wrong) or 'contradictory fields'}); make it anew"
            )
        config = TextConfig(**{f.name: values[f.name] for f in fields(TextConfig)})
        source = Subword.from_bytes(values["source_model"], config.subword, origin)
        target = source if config.joint_vocab else Subword.from_bytes(values["target_model"], config.subword, origin)
        return cls(config, source, target)


def _is_suffix(lang: str) -> bool:
    """Whether a language can be the suffix of a file in any folder."""
    return lang.isprintable() and lang != "" and "/" not in lang
