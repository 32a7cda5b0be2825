"""Reads and checks meta.json, the description of a data folder."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.data.plain import COUNT, NUMBER, POSITIVE, SHA256, TEXT, Each, Kind, Schema, first_problem, parse_json
from nmt.data.regular import open_regular
from nmt.errors import NmtError

SCHEMA_VERSION = 1
META = "meta.json"

_SPLIT_NAME = Kind(lambda name: bool(re.fullmatch("train|valid|test[0-9]*", name)), "train, valid, test, test1, …")
_SPLIT: Schema = {
    "pairs": COUNT,
    "source_tokens": COUNT,
    "target_tokens": COUNT,
    "source_sha256": SHA256,
    "target_sha256": SHA256,
    "source_offsets_sha256?": SHA256,
    "target_offsets_sha256?": SHA256,
    "source_text_sha256?": SHA256,
    "target_text_sha256?": SHA256,
    "source_encodings?": POSITIVE,
    "target_encodings?": POSITIVE,
    "mixture?": {"pairs": [POSITIVE], "shares": [NUMBER]},
    "links?": COUNT,
    "links_sha256?": SHA256,
    "links_offsets_sha256?": SHA256,
    "dropped?": Each(TEXT, COUNT),
}
# Every part that is read, except `text`, which TextConfig checks.
_SCHEMA: Schema = {
    "vocab_sizes": {"source": POSITIVE, "target": POSITIVE},
    "subword_sha256": {"source": SHA256, "target": SHA256},
    "splits": Each(_SPLIT_NAME, _SPLIT),
    "options?": {"max_length?": POSITIVE},
}


def hash_keys(side: str) -> tuple[str, str, str]:
    """Returns the keys under which a split has the SHA-256 of one side's tokens, offsets and raw text.

    The alignments are the side "links", which has no raw text.
    """
    return f"{side}_sha256", f"{side}_offsets_sha256", f"{side}_text_sha256"


def read_meta(folder: Path) -> dict[str, Any]:
    """Returns the content of a data folder's meta.json. All parts but `text` are checked.

    Raises:
        NmtError: the folder is not a data folder or has another schema version, or meta.json is damaged.
    """
    path = folder / META
    try:
        with open_regular(path) as file:
            meta = parse_json(file.read())
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.exists(folder):
            raise NmtError(f"{folder} does not exist; make it with nmt preprocess --dest {folder}") from error
        raise NmtError(
            f"{folder} is not a data folder (it has no {META}); give a folder that nmt preprocess made"
        ) from error
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); check it and its permissions") from error
    except ValueError as error:
        raise NmtError(f"{path} is damaged ({error}); run nmt preprocess again") from error
    _require(meta, {"schema_version": COUNT}, path)
    if (version := meta["schema_version"]) != SCHEMA_VERSION:
        raise NmtError(
            f"{folder} has schema version {version}, but this nmt reads version {SCHEMA_VERSION}; "
            f"run nmt preprocess again, or use the version of nmt that made it"
        )
    _require(meta, _SCHEMA, path)
    return dict(meta)


def _require(meta: Any, schema: Schema, path: Path) -> None:
    if problem := first_problem(meta, schema):
        raise NmtError(f"{path} is damaged ({problem}); run nmt preprocess again")


def fingerprint(meta: Mapping[str, Any]) -> str:
    """Returns a hash of all that training depends on, which does not depend on where the data was made."""
    keys = ("source_sha256", "target_sha256", "links_sha256", "mixture")
    hashes = {name: [split[key] for key in keys if key in split] for name, split in meta["splits"].items()}
    identity = [meta["schema_version"], meta["text"], meta["subword_sha256"], hashes]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
