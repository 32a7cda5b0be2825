"""Documents as sentences with their places, and which documents of two folders belong together."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from nmt import console
from nmt.documents.document import BILINGUAL, ReadOptions, documents_in, format_of, read_document
from nmt.errors import NmtError, importing
from nmt.files import identity, read_bytes
from nmt.text.languages import Identifier, label_of
from nmt.text.marked import MarkedText
from nmt.text.protected import PROTECTED, spans_in
from nmt.text.sentences import sentence_spans
from nmt.text.words import one_line

# The longest sentences, from which the language is identified, and how many letters they need for that.
_SAMPLE, _LEAST_LETTERS = 20, 30
_MOST_TIMES = 10  # so many times the length of a document is that of its translation


class Side(NamedTuple):
    """The sentences of a document.

    Attributes:
        path: the file.
        texts: each sentence, without line breaks and tabs.
        places: the number of its line in plain text, and else of its passage and of the sentence in it: `12.3`.
        unread: which texts of the document were not read, and why; empty if all were.
    """

    path: str
    texts: Sequence[str] = ()
    places: Sequence[str] = ()
    unread: str = ""


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
        counts = " and ".join(console.counted(length, "character") for length in lengths)
        raise NmtError(f"{names} have {counts}, too different for a translation; give files that belong together")
    return source, target


def _read(path: str, languages: tuple[str, str], form: str | None) -> Side:
    """Returns a document in the first of two languages."""
    form = form or format_of(path)
    if form in BILINGUAL:
        raise NmtError(f"{path} has its translations beside its text; give it to nmt clean or preprocess as --train")
    document = read_document(read_bytes(Path(path), "check the path"), form, ReadOptions(path, *languages, all=True))
    texts, places = list[str](), list[str]()
    for place, line in enumerate((line for unit in document.passages for line in unit.lines), 1):
        sentences = [line] if isinstance(line, str) and form == "txt" else _sentences(line, languages[0])
        sentences = [one_line(sentence) for sentence in sentences if sentence.strip()]
        texts += sentences
        places += [f"{place}" if form == "txt" else f"{place}.{i}" for i in range(1, len(sentences) + 1)]
    if not texts:
        raise NmtError(f"{path} has no sentences; give a document with text")
    _check_language(path, languages[0], sorted(texts, key=len)[-_SAMPLE:])
    unread = [f"{count:,} {reason}" for reason, count in document.skipped.items()]
    if document.unreached:
        passages = console.counted(len(document.unreached), "passage")
        unread.append(f"{passages} from line {min(document.unreached):,}, because {document.obstacle}")
    return Side(path, texts, places, ", ".join(unread))


def _sentences(passage: str | MarkedText, lang: str) -> list[str]:
    """Returns the sentences of a passage. A line break ends a sentence, and what stays is not divided."""
    text = passage if isinstance(passage, str) else passage.source
    protected = list(PROTECTED.spans(passage)) if isinstance(passage, str) else passage.protected
    sentences = list[str]()
    for begin, end in (line.span() for line in re.finditer("[^\n]+", text)):
        with importing("sentencex", "nmt align", extra="documents"):
            spans = sentence_spans(text[begin:end], lang, spans_in(protected, begin, end))
        sentences += [text[begin + start : begin + stop] for start, stop in spans]
    return sentences


def _check_language(path: str, lang: str, texts: Sequence[str]) -> None:
    """Raises NmtError if no sentence is in the language, but most are in another one. Short ones say little."""
    try:
        identifier = Identifier("nmt align")
    except NmtError:  # the package is not installed
        return
    long_texts = [text for text in texts if sum(map(str.isalpha, text)) >= _LEAST_LETTERS]
    labels = Counter(identifier.likeliest(text, 1)[0][0] for text in long_texts)
    likeliest, count = labels.most_common(1)[0] if labels else ("", 0)
    if label_of(lang) in identifier.known and not labels[label_of(lang)] and 2 * count > len(long_texts):
        raise NmtError(f"{path} is in the language {likeliest}, but must be in {lang}; give another file or language")


def document_pairs(source: str, target: str, languages: tuple[str, str], form: str | None) -> list[tuple[str, str]]:
    """Returns the documents that belong together: two files, or those of two folders with the same name.

    The language may stand in the names, such as x.de.docx and x.fr.docx, or be that of a folder, such as de/x.docx
    and fr/x.docx. Both folders may be the same.

    Raises:
        NmtError: one is a file and the other a folder, or no file has a partner.
    """
    if os.path.isdir(source) != os.path.isdir(target):
        raise NmtError(
            f"of {source} and {target}, one is a folder, and the other is not; give two files or two folders"
        )
    if not os.path.isdir(source):
        return [(source, target)]
    is_one_folder = identity(source) == identity(target)
    target = source if is_one_folder else target
    documents = {folder: documents_in(folder, form) for folder in dict.fromkeys((source, target))}
    sides: list[dict[str, str]] = [{}, {}]
    for files, folder, lang in zip(sides, (source, target), languages, strict=True):
        for name in documents[folder]:
            key, count = re.subn(rf"(^|[/._-]){re.escape(lang)}(?=[/.])", r"\1", name.as_posix())
            if count or not is_one_folder:
                files.setdefault(key, os.path.join(folder, name))
    sources, targets = sides
    pairs = [(sources[key], targets[key]) for key in sources if key in targets]
    paired = {*chain.from_iterable(pairs)}
    if not is_one_folder:  # an equal name may end as the language is called, such as log-in.html
        for name in sorted({*documents[source]} & {*documents[target]}):
            pair = os.path.join(source, name), os.path.join(target, name)
            pairs += [] if paired & {*pair} else [pair]
    if not pairs:
        names = f"x.{languages[0]}.docx and x.{languages[1]}.docx, or {languages[0]}/x.docx and {languages[1]}/x.docx"
        raise NmtError(f"no document in {source} has the name of one in {target}; call those that pair {names}")
    paths = {os.path.join(folder, name) for folder, names in documents.items() for name in names}
    unpaired = sorted(paths - {*chain.from_iterable(pairs)})
    with_language = {*sources.values(), *targets.values()}
    if alone := [path for path in unpaired if path in with_language]:
        listed = console.listed(alone, len(alone))
        console.warn(f"{console.counted(len(alone), 'document')} without a partner: {listed}")
    if left_out := [path for path in unpaired if path not in with_language]:
        reason = f"whose names have no language, or that of another one: {console.listed(left_out, len(left_out))}"
        console.warn(f"{console.counted(len(left_out), 'document')} left out, {reason}")
    return pairs
