"""Messages of ICU, such as `{n, plural, one {# dog} other {# dogs}}`: what of them is syntax, and plural categories."""

import re
from typing import NamedTuple

from nmt.text.languages import base_language
from nmt.text.protected import Span

# The plural categories that languages have besides `other`, by the Common Locale Data Repository of Unicode. Some have
# `many` for millions only, which is left out.
_CATEGORIES = {
    "zero one two few many": "ar cy",
    "one two few many": "br ga mt",
    "one few many": "be cs lt pl ru sk uk",
    "one two few": "dsb gd hsb sl",
    "one few": "bs hr mo ro sh sr",
    "one two": "he iu se",
    "zero one": "lv prg",
    "": "bm bo dz hnj id ig ii ja jbo jv ko lo ms my nqo sah ses sg su th to vi wo yo zh",
}
_ARGUMENT = r"\{\s*[\w.-]+\s*,\s*(?P<kind>plural|selectordinal|select)\s*,(?:\s*offset:\s*\d+)?"
_BRANCH = r"\s*(?:=\d+|[\w-]+)\s*\{"
_STARTS = re.compile(_ARGUMENT)
_SYNTAX = re.compile(
    rf"(?P<open>{_ARGUMENT}{_BRANCH})|(?P<next>\}}{_BRANCH})|(?P<close>\}}\s*\}})"
    r"|\{[^{}]*\}|\{\{[^{}]*\}\}|(?P<kept>#|'[{}#|](?:[^']|'')*')|(?P<brace>[{}])"
)


class Message(NamedTuple):
    """The parts of a message that are not translated, in order. All other text is.

    Attributes:
        syntax: where a branch begins or ends.
        kept: the number, `#`, and quoted text.
        plurals: for each plural argument, inner ones first, the content of each branch by its name.
    """

    syntax: list[Span]
    kept: list[Span]
    plurals: list[dict[str, Span]]


def parsed_message(text: str) -> Message | None:
    """Returns the parts of a message with branches, or None for other text. What cannot be understood is syntax."""
    first = _STARTS.search(text)
    if not first:
        return None
    message, opened = Message([], [], []), list[tuple[str, dict[str, Span], str, int]]()
    for part in _SYNTAX.finditer(text, first.start()):
        if part["kept"] and opened:
            message.kept.append(part.span())
        elif part["brace"] or ((part["next"] or part["close"]) and not opened):
            return Message([(first.start(), len(text))], [], [])
        elif part["open"] or part["next"] or part["close"]:
            message.syntax.append(part.span())
            kind, branches = part["kind"] or "", dict[str, Span]()
            if not part["open"]:
                kind, branches, name, start = opened.pop()
                branches[name] = start, part.start()
            if part["close"]:
                message.plurals.extend([branches] if kind == "plural" else [])
            else:
                opened.append((kind, branches, part[0].rstrip("{ \n\r\t").split()[-1].lstrip("},"), part.end()))
    return Message([(first.start(), len(text))], [], []) if opened else message


def with_categories(text: str, lang: str) -> str:
    """Returns a message with the plural categories that a language has. The branch `other` is copied for new ones."""
    language = base_language(lang)
    needed = next((names for names, languages in _CATEGORIES.items() if language in languages.split()), "one").split()
    while True:
        hidden = re.sub(r"<[^<>]*>", lambda tag: "x" * len(tag[0]), text)  # tags may have braces
        message = parsed_message(hidden)
        for branches in message.plurals if message else ():
            # Where 1 has a branch of its own, the branch `one` is for numbers such as 21, as `other` is.
            missing = [name for name in needed if name not in branches and not (name == "one" and "=1" in branches)]
            if missing and "other" in branches:
                start, stop = branches["other"]
                place = text.rindex("other", 0, start)
                text = text[:place] + "".join(f"{name} {{{text[start:stop]}}} " for name in missing) + text[place:]
                break
        else:
            return text
