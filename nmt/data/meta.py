"""Reads and writes meta.json, the description of a data folder."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nmt import __version__
from nmt.data.epochs import Mixture
from nmt.errors import NmtError

SCHEMA_VERSION = 2
META = "meta.json"


@dataclass(frozen=True)
class FileMeta:
    """The size of a file in bytes, and the SHA-256 of its content."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitMeta:
    """The description of a split.

    Attributes:
        source_encodings, target_encodings: how many encodings each sentence has.
        corpora: the prefixes of the files that it was made from.
        dropped: the numbers of training pairs that were dropped, by reason.
        mixture: the corpora and their shares of an epoch; None if an epoch has each pair once.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    source_encodings: int = 1
    target_encodings: int = 1
    corpora: Sequence[str] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    mixture: Mixture | None = None


@dataclass(frozen=True)
class Meta:
    """The content of meta.json.

    Attributes:
        text: `TextConfig` as plain data.
        splits: the splits by name.
        files: all other files of the folder by name.
        options: the options of `nmt preprocess`, as a record of how the data was made.
    """

    text: dict[str, Any]
    splits: dict[str, SplitMeta]
    files: dict[str, FileMeta]
    options: Mapping[str, Any]
    nmt_version: str = __version__
    schema_version: int = SCHEMA_VERSION

    @property
    def fingerprint(self) -> str:
        """A hash of all that training depends on, which does not depend on where and when the data was made."""
        files = {name: file.sha256 for name, file in self.files.items()}
        mixtures = {name: split.mixture and asdict(split.mixture) for name, split in self.splits.items()}
        return _hash([self.schema_version, self.text, files, mixtures])


def read_meta(folder: Path) -> Meta:
    """Returns the content of the meta.json of a data folder.

    Raises:
        NmtError: the folder is not a data folder or has another schema version, or meta.json is damaged.
    """
    path = folder / META
    try:
        content = json.loads(path.read_bytes())
        version = content["schema_version"]
        if version == SCHEMA_VERSION and content.pop("sha256") == _hash(content):
            return _meta(content)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not os.path.exists(folder):
            raise NmtError(f"{folder} does not exist; make it with nmt preprocess --dest {folder}") from error
        raise NmtError(
            f"{folder} is not a data folder (it has no {META}); give a folder that nmt preprocess made"
        ) from error
    except OSError as error:
        raise NmtError(f"{path} cannot be read ({error.strerror}); check it and its permissions") from error
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise NmtError(f"{path} is damaged ({error!r:.80}); run nmt preprocess again") from error
    if version != SCHEMA_VERSION:
        raise NmtError(
            f"{folder} has schema version {version!r:.20}, but this nmt reads version {SCHEMA_VERSION}; "
            f"run nmt preprocess again, or use the version of nmt that made it"
        )
    raise NmtError(
        f"{path} is damaged or was edited: it does not have the SHA-256 that it records; run nmt preprocess again"
    )


def _meta(content: dict[str, Any]) -> Meta:
    splits = {name: _split(**split) for name, split in content.pop("splits").items()}
    files = {name: FileMeta(**file) for name, file in content.pop("files").items()}
    return Meta(splits=splits, files=files, **content)


def _split(mixture: dict[str, Any] | None, **values: Any) -> SplitMeta:
    return SplitMeta(**values, mixture=Mixture(*map(tuple, mixture.values())) if mixture else None)


def write_meta(meta: Meta) -> bytes:
    """Returns the content of meta.json. A byte that is not UTF-8, which the name of a file may have, becomes "?"."""
    content = json.loads(json.dumps(asdict(meta), ensure_ascii=False).encode(errors="replace"))
    return json.dumps({"sha256": _hash(content), **content}, indent=1, ensure_ascii=False).encode()


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
