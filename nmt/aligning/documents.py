"""Documents as sentences with their places, and which documents of two folders belong together."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from nmt import console
from nmt.documents.document import FORMATS, ReadOptions, format_of, read_document, suffix_of
from nmt.errors import NmtError
from nmt.files import identity, read_bytes
from nmt.text.codec import TextConfig
from nmt.text.languages import Identifier, label_of, look_swapped
from nmt.text.protected import PROTECTED
from nmt.translate.units import UnitMaker

_SAMPLE = 20  # sentences, the longest ones, from which the language is identified
_MOST_TIMES = 10  # so many times the length of a document is that of its translation

# The text processing of no model, which leaves text as it is.
_PLAIN: dict[str, Any] = {"source_tokenizer": "none", "target_tokenizer": "none", "normalize_punctuation": "none"}
_PLAIN |= {"lowercase": False, "subword": "bpe", "joint_vocab": True}


class Side(NamedTuple):
    """The sentences of a document.

    Attributes:
        path: the file.
        texts: each sentence, without line breaks and tabs.
        places: the number of its line in plain text, and else of its passage and of the sentence in it: `12.3`.
    """

    path: str
    texts: list[str]
    places: list[str]


def read_sides(paths: tuple[str, str], languages: tuple[str, str], form: str | None) -> tuple[Side, Side]:
    """Returns the sentences of two documents.

    Raises:
        NmtError: a document cannot be read or has no sentences, or the two cannot be translations of each other.
    """
    source, target = (_read(*side, form) for side in zip(paths, (languages, languages[::-1]), strict=True))
    names = f"{source.path} and {target.path}"
    if source.texts == target.texts:
        raise NmtError(f"{names} have the same text; give a document and its translation")
    lengths = [sum(map(len, side.texts)) for side in (source, target)]
    if max(lengths) > _MOST_TIMES * min(lengths):
        counts = " and ".join(console.counted(len(side.texts), "sentence") for side in (source, target))
        raise NmtError(f"{names} have {counts}, too different for a translation; give files that belong together")
    if look_swapped(source.texts, target.texts, *languages):
        raise NmtError(f"{names} are in the languages {languages[1]} and {languages[0]}; swap them")
    return source, target


def _read(path: str, languages: tuple[str, str], form: str | None) -> Side:
    """Returns a document in the first of two languages."""
    data = read_bytes(Path(path), "check the path")
    if data.startswith(b"%PDF-"):
        advice = "convert it to text, such as with pdftotext, or give the document that it was made from"
        raise NmtError(f"{path} is a PDF, which has places of characters, but no sentences; {advice}")
    form = form or format_of(path)
    document = read_document(data, form, ReadOptions(path, *languages, all=True))
    config = TextConfig(source_lang=languages[0], target_lang=languages[1], **_PLAIN)
    maker = UnitMaker(config, PROTECTED, cut="line" if form == "txt" else "sentence")
    texts, places, before = list[str](), list[str](), 0
    for unit in map(maker.complete, document.passages):
        for line, sentences in groupby(unit.sentences, key=lambda sentence: before + sentence.line + 1):
            for count, sentence in enumerate(sentences, 1):
                texts.append(" ".join(sentence.text.split()))
                places.append(f"{line}" if form == "txt" else f"{line}.{count}")
        before += len(unit.lines)
    if not texts:
        raise NmtError(f"{path} has no sentences; give a document with text")
    _check_language(path, languages[0], sorted(texts, key=len)[-_SAMPLE:])
    return Side(path, texts, places)


def _check_language(path: str, lang: str, texts: Sequence[str]) -> None:
    """Raises NmtError if no sentence is in the language, but most are in another one."""
    try:
        identifier = Identifier("nmt align")
    except NmtError:  # the package is not installed
        return
    labels = Counter(identifier.likeliest(text, 1)[0][0] for text in texts)
    likeliest, count = labels.most_common(1)[0]
    if label_of(lang) in identifier.known and not labels[label_of(lang)] and 2 * count > len(texts):
        raise NmtError(f"{path} is in the language {likeliest}, but must be in {lang}; give another file or language")


def document_pairs(source: str, target: str, languages: tuple[str, str]) -> list[tuple[str, str]]:
    """Returns the documents that belong together: two files, or those of two folders with the same name.

    The language may stand in the names, such as x.de.docx and x.fr.docx, or be that of a folder, such as de/x.docx
    and fr/x.docx. Both folders may be the same.

    Raises:
        NmtError: one is a file and the other a folder, or no file has a partner.
    """
    if os.path.isdir(source) != os.path.isdir(target):
        file, folder = (source, target) if os.path.isdir(target) else (target, source)
        raise NmtError(f"{folder} is a folder, but {file} is a file; give two files or two folders")
    if not os.path.isdir(source):
        return [(source, target)]
    are_same = identity(source) == identity(target)
    sources, targets = (_files(*side, are_same) for side in zip((source, target), languages, strict=True))
    pairs = [(path, targets[key]) for key, path in sources.items() if key in targets]
    if not pairs:
        names = f"x.{languages[0]}.docx and x.{languages[1]}.docx, or {languages[0]}/x.docx and {languages[1]}/x.docx"
        raise NmtError(f"no document in {source} has the name of one in {target}; call those that pair {names}")
    if alone := [path for key, path in [*sources.items(), *targets.items()] if (key in sources) != (key in targets)]:
        console.warn(f"{console.counted(len(alone), 'document')} without a partner: {console.listed(alone)}")
    return pairs


def _files(folder: str, lang: str, must_be_named: bool) -> dict[str, str]:
    """Returns the documents in a folder by their names without the language."""
    files: dict[str, str] = {}
    for path in sorted(Path(folder).rglob("*")):
        name = path.relative_to(folder).as_posix()
        key = re.sub(rf"(^|[/._-]){re.escape(lang)}(?=[/.])", r"\1", name)
        is_hidden = re.search(r"(^|/)\.", name)
        if path.is_file() and not is_hidden and suffix_of(name) in FORMATS and (key != name or not must_be_named):
            files.setdefault(key, str(path))
    return files
