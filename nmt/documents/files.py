"""Which documents a command reads, and which files it writes."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt.documents.formats import FORMATS, suffix_of
from nmt.errors import NmtError
from nmt.files import STDIO, refuse_inputs


class DocumentFile(NamedTuple):
    """A document, and the file that its translation is written to; `-` is a standard stream."""

    path: str
    output: str


def document_files(paths: Sequence[str], output: str | None, form: str | None, target_lang: str) -> list[DocumentFile]:
    """Returns the documents that arguments name, and their outputs.

    A folder stands for all files in it whose format is known, except for hidden ones.

    Args:
        output: a file, or a folder if there are several documents; by default a file beside the only document.
        form: the format of all files, if it is given.

    Raises:
        NmtError: an output is missing, names two documents, or would replace a document.
    """
    if len(paths) == 1 and not os.path.isdir(paths[0]):
        files = [DocumentFile(paths[0], _output_of(paths[0], output, target_lang))]
    else:
        files = list(_tree(paths, output, form))
    of_output: dict[str, str] = {}
    for file in files:
        if (other := of_output.setdefault(os.path.realpath(file.output), file.path)) != file.path:
            raise NmtError(f"{other} and {file.path} would both be written to {file.output}; translate them separately")
        refuse_inputs(file.output, [other.path for other in files], f"--output {file.output}")
    return files


def _output_of(path: str, output: str | None, target_lang: str) -> str:
    if output is None:
        name, suffix = os.path.splitext(path)
        return STDIO if path == STDIO else f"{name}.{target_lang}{suffix}"
    return os.path.join(output, os.path.basename(path)) if os.path.isdir(output) else output


def _tree(paths: Sequence[str], output: str | None, form: str | None) -> Iterator[DocumentFile]:
    """Yields documents that are written to a folder."""
    if output is None or output == STDIO or STDIO in paths or os.path.isfile(output):
        found = "- was given" if STDIO in (output, *paths) else f"--output is {output or 'missing'}"
        raise NmtError(f"several documents are translated into a folder, but {found}; give files and a new folder")
    for path in paths:
        if os.path.isdir(path) and Path(os.path.realpath(output)).is_relative_to(os.path.realpath(path)):
            raise NmtError(f"--output {output} is in the folder {path}, which is translated; choose another folder")
        for name in _inside(Path(path), form) if os.path.isdir(path) else [os.path.basename(path)]:
            yield DocumentFile(os.path.join(path, name) if os.path.isdir(path) else path, os.path.join(output, name))


def _inside(folder: Path, form: str | None) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if path.is_file() and not is_hidden and (form or suffix_of(path.name) in FORMATS):
            yield str(name)
