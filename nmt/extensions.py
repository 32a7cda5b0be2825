"""What a user's own module adds (--user-module): architectures, criteria, and scorers of search."""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.model.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.search.api import Scorer
    from nmt.text.codec import TextCodec

    # Gets the logits NV of all tokens that are not padding, in fp32, and their labels N. Returns the summed loss.
    Criterion = Callable[[Tensor, Tensor], Tensor]
    # Makes a scorer for a model with this text processing.
    MakeScorer = Callable[[TextCodec], Scorer]

_T = TypeVar("_T")
CRITERIA: "dict[str, Criterion]" = {}
SCORERS: "dict[str, MakeScorer]" = {}
_loaded: set[Path] = set()


def register_architecture(name: str, config: ModelConfig) -> None:
    """Makes an architecture available as `nmt train --arch NAME`.

    Raises:
        NmtError: there is an architecture of this name already.
    """
    _add(ARCHITECTURES, name, config)


def register_criterion(name: str) -> "Callable[[Criterion], Criterion]":
    """Returns a decorator that makes a loss available as `nmt train --criterion NAME`.

    The loss gets the logits of target tokens in fp32, of shape (tokens, vocabulary), and their labels, of shape
    (tokens,); padding is left out. It returns the sum of the losses of the tokens, a scalar.

    Raises:
        NmtError: there is a loss of this name already.
    """
    return lambda criterion: _add(CRITERIA, name, criterion)


def register_scorer(name: str) -> "Callable[[MakeScorer], MakeScorer]":
    """Returns a decorator that makes a scorer available as `nmt generate --scorer NAME`.

    The decorated function gets the text processing of a model and returns a `Scorer`, which is called at each step
    with the ids so far, behind BOS or the token of the target language, of shape (sentences, hypotheses,
    positions), and the log P of the next piece,
    of shape (sentences, hypotheses, vocabulary). It returns the log P that search uses, of the same shape.

    Raises:
        NmtError: there is a scorer of this name already.
    """
    return lambda scorer: _add(SCORERS, name, scorer)


def _add(registry: dict[str, Any], name: str, value: _T) -> _T:
    if name in registry:
        raise NmtError(f"{name} is registered already; give it another name")
    registry[name] = value
    return value


def entry(registry: dict[str, _T], name: str, flag: str) -> _T:
    """Returns what a registry has under a name, which the user gave by `flag`."""
    if name not in registry:
        known = f"--user-module registers {', '.join(registry)}" if registry else "no --user-module registers one"
        raise NmtError(f"{flag} {name} is unknown; {known}")
    return registry[name]


def load(path: str | None) -> None:
    """Runs a user's module, once in a process."""
    if path is None or (file := Path(path).resolve()) in _loaded:
        return
    spec = spec_from_file_location(f"nmt_user_{file.stem}", file)
    if file.suffix != ".py" or spec is None or spec.loader is None:
        raise NmtError(f"--user-module {path} is not a Python file; give a file whose name ends in .py")
    if not file.is_file():
        raise NmtError(f"--user-module {path} is not a file; check the path")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError, SyntaxError) as error:
        raise NmtError(f"--user-module {path} cannot be loaded ({error}); correct the module") from error
    _loaded.add(file)
