"""The models that are served, as the main process sees them: names, text processing and sizes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.checkpoint_file import read_codec, read_shapes
from nmt.errors import NmtError
from nmt.serving.limits import Refused
from nmt.text.codec import TextCodec


@dataclass(frozen=True)
class Model:
    """A model that is served."""

    name: str
    codec: TextCodec
    parameters: int

    def entry(self, engine: str) -> dict[str, Any]:
        """Returns what GET /models says about the model."""
        config = self.codec.config
        langs = {"source_lang": config.source_lang, "target_lang": config.target_lang}
        spaces = self.codec.target_has_spaces
        return {"name": self.name, **langs, "target_spaces": spaces, "parameters": self.parameters, "engine": engine}


def load_models(checkpoints: Sequence[str], named: Sequence[str]) -> dict[str, tuple[str, Model]]:
    """Returns the path and the model of each checkpoint, by name.

    Args:
        checkpoints: files whose models are named after their languages.
        named: files with the names of their models, such as `en-de=run/average.safetensors`.

    Raises:
        NmtError: there is no checkpoint, one cannot be read, or two have the same name.
    """
    found: dict[str, tuple[str, Model]] = {}
    for name, path in [*map(_named, named), *((None, path) for path in checkpoints)]:
        model = _load(name, path)
        if model.name in found:
            raise NmtError(f"{path} and {found[model.name][0]} are both called {model.name}; give --model NAME={path}")
        found[model.name] = path, model
    if not found:
        raise NmtError("there is no model to serve; give a checkpoint or --model NAME=CHECKPOINT")
    return found


def _named(given: str) -> tuple[str | None, str]:
    name, equals, path = given.partition("=")
    if not (name and equals and path and name.isprintable()):
        raise NmtError(f"--model must be NAME=CHECKPOINT, but is {given!r:.80}")
    return name, path


def _load(name: str | None, path: str) -> Model:
    codec = read_codec(path)
    parameters = sum(map(math.prod, read_shapes(path).values()))
    return Model(name or f"{codec.config.source_lang}-{codec.config.target_lang}", codec, parameters)


def chosen(models: Mapping[str, Model], name: str | None) -> Model:
    """Returns the model that a request names, or the only one.

    Raises:
        Refused: there is no such model, or several if none is named.
    """
    if name is None and len(models) == 1:
        return next(iter(models.values()))
    if name is None:
        raise NmtError(f"model is missing; this server has {', '.join(models)}")
    if name not in models:
        raise Refused(404, f"there is no model {name!r:.60}; this server has {', '.join(models)}")
    return models[name]
