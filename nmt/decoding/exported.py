"""Exports checkpoints for CTranslate2 into a cache, each of them once."""

import os
from pathlib import Path

from nmt import __version__
from nmt.checkpoint import Checkpoint
from nmt.errors import NmtError
from nmt.export import export_ctranslate2
from nmt.files import writing
from nmt.locks import LOCK, locked

_ADVICE = "set XDG_CACHE_HOME to a folder that can be written"
_PATIENCE_SECONDS = 600.0  # for the export of another process


def exported(checkpoint: Checkpoint, origin: str, digest: str) -> Path:
    """Returns the folder with a checkpoint in the format of CTranslate2, with weights in float32.

    Args:
        origin: the file name of the checkpoint, for messages.
        digest: SHA-256 of the file.

    Raises:
        NmtError: CTranslate2 is missing or does not support the model, or the cache cannot be written.
    """
    cache = _cache()
    with writing(cache, _ADVICE):
        cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"{digest}-{__version__}"
    busy = f"another process exports a model into {cache}; wait until it ends"
    with locked(cache / LOCK, busy, _ADVICE, patience=_PATIENCE_SECONDS):
        if not folder.exists():
            export_ctranslate2(checkpoint, origin, str(folder), "float32")
    return folder


def _cache() -> Path:
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError as error:
        raise NmtError(f"the cache of exported models has no place ({error}); {_ADVICE}") from error
    return Path(root) / "nmt" / "ctranslate2"
