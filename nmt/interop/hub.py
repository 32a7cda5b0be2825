"""Published models by name: each is downloaded and imported once, into the user's cache."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha1
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.request import urlopen

from nmt import __version__, console
from nmt.cache import cached_folder
from nmt.checkpoint_format import SCHEMA_VERSION, SUFFIX
from nmt.config import SelectionConfig
from nmt.config.options import Config
from nmt.errors import NmtError, importing, naming
from nmt.files import digest_of, replaced_file

_NAME = re.compile(r"(?:firefox:[A-Za-z-]+|[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@[\w./-]+)?", re.ASCII)
# Extensions of checkpoint files. Names of published models do not end in them.
_FILES = SUFFIX, ".pt", ".pth", ".bin", ".ckpt", ".npz"
# The files of a model on Hugging Face's hub: those of its settings and text, and its weights, the preferred ones first.
_CONFIG = "config.json"
_TEXT = (
    "generation_config.json", "tokenizer_config.json", "tokenizer.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "target_vocab.json", "source.spm", "target.spm", "sentencepiece.bpe.model",
    "tokenization_small100.py",
)  # fmt: skip
_WEIGHTS = (
    r"model(-\d+-of-\d+)?[.]safetensors([.]index[.]json)?",
    r"pytorch_model(-\d+-of-\d+)?[.]bin([.]index[.]json)?",
)
# The index of Firefox's models, see https://remote-settings.readthedocs.io, and their licence.
_FIREFOX, _RECORDS = "https://firefox.settings.services.mozilla.com/v1/", "buckets/main/collections/translations-models"
_FIREFOX_LICENCE = "MPL-2.0"
_FILE_TYPES = {"model", "vocab", "srcvocab", "trgvocab"}  # of the types in Mozilla's index
_TIMEOUT_SECONDS = 30


class _Release(NamedTuple):
    """A published model as it is at a revision; `write` writes its checkpoint to a file."""

    revision: str
    write: Callable[[Path], None]


def checkpoint_file(name: str) -> str:
    """Returns the path of the checkpoint of a published model, which is downloaded and imported the first time.

    Args:
        name: NAMESPACE/NAME of a model on Hugging Face's hub, or firefox:SOURCE-TARGET, and @REVISION if it is not
            to be the newest one. Any other text is a path, and so is NAMESPACE/NAME if a folder NAMESPACE lies
            here. Paths are returned as they are.

    Raises:
        NmtError: the model cannot be downloaded, or nmt cannot represent it.
    """
    model, _, revision = name.partition("@")
    is_path = os.path.exists(name) or name.endswith(_FILES) or not _NAME.fullmatch(name)
    if is_path or (os.path.isdir(os.path.dirname(name)) and not revision):
        return name
    released = _released_by_firefox if model.startswith("firefox:") else _released_on_hub
    file = re.sub(r"^.*[:/]", "", model) + SUFFIX

    def imported(release: _Release) -> Path:
        key = [model, release.revision, SCHEMA_VERSION]
        return cached_folder("models", key, lambda folder: release.write(folder / file)) / file

    def write(folder: Path) -> None:
        release = released(model, revision)
        imported(release)  # before the revision is noted, so that a failure does not hide a newer one
        (folder / "revision").write_text(release.revision)

    noted = (cached_folder("revisions", [name, SCHEMA_VERSION], write) / "revision").read_text()
    return str(imported(_Release(noted, lambda path: released(model, noted).write(path))))


def with_files(value: Any) -> Any:
    """Returns a value with each name of a published model replaced by its checkpoint file."""
    if isinstance(value, Config):
        names = value.checkpoint_options()
        return replace(value, **{name: with_files(getattr(value, name)) for name in names})  # type: ignore[type-var]
    if isinstance(value, list | tuple):
        return type(value)(map(checkpoint_file, value))
    return value and checkpoint_file(value)


def check_push(repository: str) -> None:
    """Raises NmtError if nothing can be uploaded under this name, or without a token."""
    with importing("huggingface_hub", "--push", extra="huggingface"):
        from huggingface_hub import get_token
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise NmtError(f"--push {repository} is no name of a model on Hugging Face's hub; give NAMESPACE/NAME")
    if get_token() is None:
        raise NmtError(f"--push {repository} needs a token of Hugging Face's hub; run hf auth login first")


def upload(folder: str, repository: str) -> None:
    """Uploads an exported folder to Hugging Face's hub, with the token of `hf auth login` or of HF_TOKEN."""
    with _on_hub(repository, "--push", f"upload {folder} with hf upload when the network works") as api:
        address = api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message=f"Export of nmt {__version__}")
    console.info(f"uploaded {folder} to {address}")


@contextmanager
def _on_hub(repository: str, user: str = "", by_hand: str = "") -> Iterator[Any]:
    """Yields the functions of the hub, and turns their errors into sentences.

    Args:
        user: the flag that needs the hub; by default, it is a name in place of a checkpoint.
        by_hand: what else to do if the network does not work; by default, how to download.
    """
    user = user or f"{repository} is no file here, and a model of that name"
    with importing("huggingface_hub", user, extra="huggingface"):
        from httpx2 import HTTPError
        from huggingface_hub import HfApi, errors
    try:
        yield HfApi(library_name="nmt", library_version=__version__)
    except errors.GatedRepoError as error:
        advice = f"accept its terms on https://huggingface.co/{repository}, run hf auth login, and try again"
        raise NmtError(f"{repository} is only for users whom its owner has let in; {advice}") from error
    except errors.RevisionNotFoundError as error:
        raise NmtError(f"{repository} does not have this revision; give a branch, a tag or a commit of it") from error
    except (HTTPError, OSError, ValueError) as error:
        status = error.response.status_code if isinstance(error, errors.HfHubHTTPError) else None
        if status in (401, 404):  # the hub does not tell strangers which private models exist
            problem = f"{repository} is neither a file here nor a model that Hugging Face's hub shows you"
            raise NmtError(f"{problem}; check the name, or run hf auth login if the model is private") from error
        if status == 403:
            advice = "run hf auth login with a token that may use it"
            raise NmtError(f"Hugging Face's hub refuses {repository} (status {status}); {advice}") from error
        raise NmtError(_unreachable(repository, error.__cause__ or error, by_hand)) from error


def _unreachable(name: str, error: BaseException, by_hand: str = "") -> str:
    reason = " ".join(str(error).split()) or type(error).__name__
    download = f"download its files on another machine (hf download {name} --local-dir FOLDER) and run nmt import"
    if name.startswith("firefox:"):
        download = "download its files on another machine, as docs/models.md says, and run nmt import marian"
    advice = by_hand or f"run the same command when the network works, or {download}"
    return f"{name} cannot be reached ({reason:.200}); {advice}"


def _released_on_hub(repository: str, revision: str) -> _Release:
    with _on_hub(repository) as api:
        model = api.model_info(repository, revision=revision or None, files_metadata=True, timeout=_TIMEOUT_SECONDS)
    return _Release(model.sha, partial(_import_from_hub, model))


def _import_from_hub(model: Any, path: Path) -> None:
    """Downloads the files that nmt needs of a model, smallest first, and writes its checkpoint."""
    from nmt.checkpoint import save_checkpoint
    from nmt.interop.huggingface import import_huggingface, read_settings

    files = {file.rfilename: file for file in model.siblings}
    weights = next(filter(None, ([name for name in files if re.fullmatch(p, name)] for p in _WEIGHTS)), [])
    if _CONFIG not in files or not weights:
        missing = "weights in model.safetensors or pytorch_model.bin" if _CONFIG in files else _CONFIG
        raise NmtError(f"{model.id} has no {missing}; choose a model of the kind marian or m2m_100")
    folder = _downloaded(model, files[_CONFIG]).parent
    with naming(model.id):
        _, kind = read_settings(folder)  # refuses other models before their weights are downloaded
    needed = [files[name] for name in (*_TEXT, *sorted(weights)) if name in files]
    size = sum(file.size for file in needed if not (folder / file.rfilename).exists())
    growth = 2 if kind == "marian" else 1  # those of MarianMT get 32 bits, and others keep their type
    _check_space(model.id, {folder: size, path.parent: growth * sum(files[name].size for name in weights)})
    licence = (model.card_data or {}).get("license") or "not stated"
    console.info(f"downloading {model.id}, {size / 1e6:,.1f} MB; licence: {licence}; huggingface.co/{model.id}")
    for file in needed:
        _downloaded(model, file)
    with naming(model.id):
        checkpoint = import_huggingface(str(folder), dict.fromkeys(("source_lang", "target_lang")), SelectionConfig())
    imported = {"format": "huggingface", "folder": model.id, "revision": model.sha, "license": licence}
    save_checkpoint(replace(checkpoint, provenance=checkpoint.provenance | {"imported": imported}), path)


def _downloaded(model: Any, file: Any) -> Path:
    """Returns a file of a model in the cache of huggingface_hub. A damaged one is downloaded once more."""
    for again in (False, True):
        with _on_hub(model.id) as api:
            path = Path(api.hf_hub_download(model.id, file.rfilename, revision=model.sha, force_download=again))
        if file.lfs:
            is_whole = digest_of(str(path)) == file.lfs.sha256
        else:
            content = path.read_bytes()
            is_whole = sha1(b"blob %d\0" % len(content) + content).hexdigest() == file.blob_id  # git's name of a file
        if is_whole:
            return path
    path.resolve().unlink()
    raise NmtError(f"{model.id}: {file.rfilename} arrived damaged twice; try again later, or from another network")


def _check_space(name: str, bytes_of: dict[Path, int]) -> None:
    """Raises an error if folders do not have room for so many bytes each."""
    for folder in bytes_of:
        alike = [each for each in bytes_of if each.stat().st_dev == folder.stat().st_dev]
        needed, free = sum(bytes_of[each] for each in alike), shutil.disk_usage(folder).free
        if needed > free:
            places = " and ".join(map(str, alike))
            problem = f"{name} needs {needed / 1e9:,.2f} GB in {places}, but {free / 1e9:,.2f} GB are free there"
            raise NmtError(f"{problem}; free some, or set HF_HUB_CACHE and XDG_CACHE_HOME to folders on another disk")


def _released_by_firefox(name: str, version: str) -> _Release:
    """Returns the newest model that all users of Firefox get for a direction, or the one of a version."""
    records = _index(name, f"{_RECORDS}/records", "data")
    public = [record for record in records if not record.get("filter_expression")]
    directions = {f"{record['fromLang']}-{record['toLang']}" for record in public}
    own = [each for each in public if name == f"firefox:{each['fromLang']}-{each['toLang']}"]
    versions = {each["version"] for each in own if version in ("", each["version"])}
    if not versions:
        known = console.listed(sorted(directions if not own else {each["version"] for each in own}), 200)
        raise NmtError(f"Mozilla's index has no {name}{version and '@'}{version}; it has {known}")
    # Versions are such as 1.0 and, before a release, 1.0a2.
    newest = max(versions, key=lambda each: ("a" not in each, [int(n) for n in re.findall(r"\d+", each)]))
    files = [each["attachment"] for each in own if each["version"] == newest and each["fileType"] in _FILE_TYPES]
    languages = own[0]["fromLang"], own[0]["toLang"]
    return _Release(newest, partial(_import_from_firefox, name, newest, languages, files))


def _import_from_firefox(name: str, version: str, languages: tuple[str, str], files: Sequence[Any], path: Path) -> None:
    from nmt.interop.marian import import_marian

    address = _index(name, "", "capabilities")["attachments"]["base_url"]
    size = sum(file["size"] for file in files)
    console.info(f"downloading {name}, version {version}, {size / 1e6:,.1f} MB; licence: {_FIREFOX_LICENCE}")
    with TemporaryDirectory(dir=path.parent) as folder:
        for file in files:
            target = Path(folder, Path(file["filename"]).name)
            target.write_bytes(_fetched(name, address + file["location"]))
            if digest_of(str(target)) != file["hash"]:
                raise NmtError(f"{name}: {target.name} arrived damaged; run the same command again")
        with naming(name), replaced_file(path, "free some space") as output:
            write_model, _ = import_marian(folder, *languages, f"{name}@{version}")
            write_model(output)


def _index(name: str, path: str, key: str) -> Any:
    """Returns what is under a key of a JSON object on Mozilla's server."""
    try:
        return json.loads(_fetched(name, _FIREFOX + path))[key]
    except (ValueError, LookupError, TypeError) as error:
        problem = f"{_FIREFOX}{path} has no {key} in JSON, so it is no longer the index that nmt knows"
        raise NmtError(f"{problem}; download the files of {name} as docs/models.md says") from error


def _fetched(name: str, address: str) -> bytes:
    try:
        with urlopen(address, timeout=_TIMEOUT_SECONDS) as response:
            content: bytes = response.read()
    except (OSError, HTTPException) as error:
        raise NmtError(_unreachable(name, error)) from error
    return content
