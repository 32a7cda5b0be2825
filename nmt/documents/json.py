"""JSON: the strings that are values. Keys, numbers and the layout of the file stay."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from nmt.documents.document import Document, ReadOptions, decoded, encoded, spliced
from nmt.documents.messages import Message
from nmt.errors import NmtError
from nmt.text.icu import parse_icu
from nmt.text.marked import Token
from nmt.text.words import has_letters

_TOKEN = re.compile(r'(?P<string>"(?:[^"\\]|\\.)*+")(?P<colon>\s*:)?|[{}\[\]]')


def read(data: bytes, options: ReadOptions) -> Document:
    """Returns the values in a file."""
    text = decoded(data, options)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NmtError(f"{options.name} is not JSON ({error}); correct it") from error
    places, chosen, left_out, unreached = dict[tuple[int, int], str](), dict[str, Message](), 0, list[int]()
    values = list(_values(text))
    is_arb = options.form == "arb"
    # If one string branches as messages of ICU do, all strings are such messages. Apostrophes do not quote in ARB.
    is_icu = not is_arb and any(parse_icu(string) for _, _, string, _ in values)
    locales = [(start, stop) for start, stop, _, keys in values if is_arb and keys == ["@@locale"]]
    for start, stop, string, keys in values:
        if has_letters(string):
            if not _is_chosen(string, keys, options.keys):
                left_out += 1
            elif re.search("[\ud800-\udfff\0]", string):
                unreached.append(text.count("\n", 0, start) + 1)
            else:
                places[start, stop] = string
                if string not in chosen:
                    chosen[string] = Message(string, options, is_icu=is_icu)
    to_ascii = text.isascii() and bool(re.search(r"(?<!\\)(?:\\\\)*\\u", text))

    def write(translations: Sequence[Sequence[Token]]) -> bytes:
        rest = iter(translations)
        new = {string: message.written(rest) for string, message in chosen.items()}
        changed = {span: new[string] for span, string in places.items() if new[string] != string}
        changed |= dict.fromkeys(locales, options.target_lang.replace("-", "_"))
        strings = {span: json.dumps(string, ensure_ascii=to_ascii) for span, string in changed.items()}
        return encoded(spliced(text, strings), data)

    passages = [unit for message in chosen.values() for unit in message.passages]
    obstacle = "a string there has NUL or half of a surrogate pair; correct it"
    skipped = +Counter({"with keys that are left out": left_out})
    return Document(passages, write, skipped, unreached=unreached, obstacle=obstacle)


def _values(text: str) -> Iterator[tuple[int, int, str, list[str]]]:
    """Yields each string that is a value: its begin and end, the string, and the keys of the objects around."""
    keys: list[str] = []  # the key in each object around; empty in arrays
    for token in _TOKEN.finditer(text):
        if token[0] in "{[":
            keys.append("")
        elif token[0] in "}]":
            keys.pop()
        elif token["colon"]:
            keys[-1] = json.loads(token["string"])
        else:
            yield *token.span("string"), json.loads(token["string"]), list(filter(None, keys))


def _is_chosen(value: str, keys: Sequence[str], chosen: str | None) -> bool:
    """Returns whether --keys chooses a value: patterns for the keys around it, those with `!` leave values out.

    Without patterns that choose, ids, types, and metadata such as those of ARB and JSON-LD are left out too.
    """
    path = f".{'.'.join(keys)}."
    patterns = [pattern.strip() for pattern in (chosen or "").split(",") if pattern.strip()]
    matching = {pattern for pattern in patterns if fnmatchcase(path, f"*.{pattern.removeprefix('!')}.*")}
    if any(pattern.startswith("!") for pattern in matching):
        return False
    if any(not pattern.startswith("!") for pattern in patterns):
        return bool(matching)
    is_name = keys[-1:] in (["id"], ["type"]) and not re.search(r"\s", value)
    return not is_name and not any(key.startswith(("@", "$")) for key in keys)
