"""What an unfinished job works on: its settings and its plan, which are kept in the job's folder."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from nmt import console
from nmt.errors import NmtError
from nmt.files import replaced_file
from nmt.jobs.plan import Plan, make_plan
from nmt.jobs.results import ADVICE

MANIFEST, OFFSETS = "manifest.json", "offsets.npy"
_FORMAT = "unfinished job of nmt"


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How a job begins.

    Attributes:
        segments: the files of the input; see `nmt.jobs.plan`.
        columns: what the files of a segment are, for messages.
        shard_rows: how many rows a shard should have.
        settings: what the result depends on besides the text of the input, by name.
        prepare: makes what all shards need, in the folder it is given. Returns plain data for `JobFolder.prepared`.
    """

    segments: Sequence[Sequence[str]]
    columns: Sequence[str]
    shard_rows: int
    settings: Mapping[str, Any]
    prepare: Callable[[Path, Plan], Any] = lambda _, __: None

    def settings_with(self, plan: Plan) -> dict[str, Any]:
        """Returns the settings and the digests of the input as plain data."""
        found: dict[str, Any] = {"--shard-lines": self.shard_rows}
        for number, files in enumerate(plan.segments, start=1):
            for column, file in zip(self.columns, files, strict=True):
                name = column if len(plan.segments) == 1 else f"{column} {number}"
                found[name] = f"SHA-256 {file.digest[:16]}…"
        as_read: dict[str, Any] = json.loads(json.dumps(found | dict(self.settings)))  # tuples become lists
        return as_read

    def plan(self, saved: Plan | None = None) -> Plan:
        """Returns the plan. The files are not read if they are those of `saved` and have not changed."""
        paths = [[os.path.abspath(path) for path in paths] for paths in self.segments]
        if saved is not None and paths == saved.paths and not saved.changed:
            return saved
        with console.Progress("Checking", None, "line", summary=False) as progress:
            return make_plan(self.segments, self.shard_rows, progress)


def prepared(path: Path, preparation: Preparation, data: Path) -> tuple[Plan, Any]:
    """Returns the plan of a job and what was prepared for it. Prepares the job if no earlier process has.

    Args:
        path: the folder of the job.
        data: the folder for what is prepared.

    Raises:
        NmtError: the input cannot be read, or the job has begun with other settings.
    """
    manifest = _read_manifest(path)
    if manifest is not None:
        plan = preparation.plan(_read_plan(path, manifest))
        _check(path, manifest["settings"], preparation.settings_with(plan))
        return plan, manifest["prepared"]
    plan = preparation.plan()
    found = preparation.prepare(data, plan)
    offsets = BytesIO()
    np.save(offsets, plan.offsets)
    manifest = {"settings": preparation.settings_with(plan), "plan": plan.to_dict(), "prepared": found}
    manifest |= {"format": _FORMAT, "offsets_sha256": sha256(offsets.getvalue()).hexdigest()}
    with replaced_file(path / OFFSETS, ADVICE) as file:
        file.write(offsets.getvalue())
    with replaced_file(path / MANIFEST, ADVICE) as file:
        file.write(json.dumps(manifest))
    return plan, found


def identity(folder: Path) -> str:
    """Returns what tells a job from any other."""
    return sha256((folder / MANIFEST).read_bytes()).hexdigest()


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT or not isinstance(manifest["settings"], dict):
            raise ValueError("it is not a manifest")
        return {name: manifest[name] for name in ("settings", "plan", "prepared", "offsets_sha256")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NmtError(f"{path / MANIFEST} is damaged ({error}); delete {path} and start again") from error


def _read_plan(path: Path, manifest: Mapping[str, Any]) -> Plan:
    try:
        offsets = (path / OFFSETS).read_bytes()
        if sha256(offsets).hexdigest() != manifest["offsets_sha256"]:
            raise ValueError("its SHA-256 is another one")
        return Plan.from_dict(manifest["plan"], np.load(BytesIO(offsets)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NmtError(f"{path / OFFSETS} is damaged ({error}); delete {path} and start again") from error


def _check(path: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in dict.fromkeys([*then, *now]):
        before, present = then.get(name, "not given"), now.get(name, "not given")
        if before != present:
            raise NmtError(
                f"{path} belongs to an unfinished job whose {name} is {_as_text(before)}, but now it is "
                f"{_as_text(present)}; start the same command as before, or delete that folder"
            )


def _as_text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
