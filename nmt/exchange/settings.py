"""The settings of a model of another toolkit, and the checks that all imports share."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import NmtError


@dataclass(frozen=True)
class Settings:
    """The settings of a model by name. They are not trusted and may be any data.

    Attributes:
        path: the file that they are from, for messages.
    """

    values: Mapping[str, Any]
    path: Path

    def required(self, name: str) -> Any:
        """Returns a setting.

        Raises:
            NmtError: it is missing.
        """
        if name not in self.values:
            raise NmtError(f"{self.path} has no {name}, which a Transformer needs; download it again")
        return self.values[name]

    def of_both_sides(self, name: str) -> Any:
        """Returns a setting that encoder and decoder have.

        Raises:
            NmtError: it is missing, or the sides have different values.
        """
        encoder, decoder = (self.required(f"{side}_{name}") for side in ("encoder", "decoder"))
        if encoder != decoder:
            raise NmtError(
                f"{self.path} has different encoder_{name} and decoder_{name}, but nmt has one; use another model"
            )
        return encoder

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """Returns a setting that is one of `choices`. Without a default, it is required.

        Raises:
            NmtError: it is missing, or is something else.
        """
        value = self.required(name) if default is None else self.values.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.unknown(name)
        return value

    def unknown(self, name: str) -> NmtError:
        """Returns the error for a setting with a value that nmt does not have."""
        return NmtError(f"{self.path} has {name} {self.values[name]!r:.40}, which nmt does not have; use another model")

    def languages(self, given: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the languages by name.

        Args:
            given: `source_lang` and `target_lang`; None if the settings say which.

        Raises:
            NmtError: a language is missing or empty, or both are the same.
        """
        found: dict[str, str] = {}
        for name, given_lang in given.items():
            lang = self.values.get(name) if given_lang is None else given_lang
            if not isinstance(lang, str) or not lang:
                raise NmtError(
                    f"{self.path} does not say the {name.removesuffix('_lang')} language; "
                    f"give it with --{name.replace('_', '-')}"
                )
            found[name] = lang
        if len(set(found.values())) < len(found):
            raise NmtError(
                f"both languages are {found['source_lang']}; give others with --source-lang and --target-lang"
            )
        return found


def head_widths(d_model: Any, heads: Any, path: Path) -> dict[str, int]:
    """Returns d_model, the number of heads, and the widths of the keys and values of a head.

    Raises:
        NmtError: the heads do not divide d_model. The message names `path`.
    """
    if type(heads) is not int or type(d_model) is not int or heads < 1 or d_model % heads:
        raise NmtError(
            f"{path} has {heads!r:.20} heads, but their number must divide the width, {d_model!r:.20}; "
            f"use another model"
        )
    return {"d_model": d_model, "heads": heads, "d_k": d_model // heads, "d_v": d_model // heads}
