"""PO: which messages are translated, how they are written, and that damaged files give one sentence."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from translations import backwards, copied, damaged, in_text, repeated, shuffled, texts, translated

from nmt.documents.document import Document, ReadOptions, read_document
from nmt.errors import NmtError

HEADER = r"""# A comment of the file
msgid ""
msgstr ""
"Project-Id-Version: x 1\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

"""


def document(
    content: str | bytes, target: str = "de", *, translate_all: bool = False, header: str = HEADER
) -> Document:
    data = content if isinstance(content, bytes) else (header + content).encode()
    return read_document(data, "po", ReadOptions("x.po", "en", target, translate_all))


def entry(msgid: str, flags: str = "", msgstr: str = "") -> str:
    return (f"#, {flags}\n" if flags else "") + str(polib.POEntry(msgid=msgid, msgstr=msgstr)) + "\n"


def written(data: bytes) -> Any:
    return polib.pofile(data.decode())


def written_msgstr(msgid: str, flags: str = "", translation: Any = None) -> str:
    read = document(entry(msgid, flags))
    return str(written(translated(read, translation) if translation else translated(read))[0].msgstr)


MESSAGES = r"""# of the translator
#. of the programmer
#: a.c:12 b.c:7
#, c-format
#| msgctxt "old context"
#| msgid "an old message"
msgctxt "menu"
msgid "Open %s"
msgstr ""

msgid "Close"
msgstr "Schließen"

#, fuzzy
msgid "Save"
msgstr "Speichern?"

msgid "One file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

msgid "a dog"
msgid_plural "dogs"
msgstr[0] "ein Hund"
msgstr[1] ""

#~ msgid "gone"
#~ msgstr "weg"
"""


def test_messages_without_translation_are_translated_and_fuzzy() -> None:
    read = document(MESSAGES)
    assert texts(read) == [
        'Open <x0 translate="no">%s</x0>',
        "One file",
        '<x0 translate="no">%d</x0> files',
        "a dog",
        "dogs",
    ]
    assert read.skipped == {"translated already": 2}
    opened, closed, saved, files, dogs, gone = written(translated(read))
    assert (opened.msgstr, opened.flags) == ("OPEN %s", ["fuzzy", "c-format"])
    assert (opened.msgctxt, opened.previous_msgctxt, opened.previous_msgid) == ("menu", "old context", "an old message")
    assert (opened.tcomment, opened.comment) == ("of the translator", "of the programmer")
    assert opened.occurrences == [("a.c", "12"), ("b.c", "7")]
    assert (closed.msgstr, closed.fuzzy, saved.msgstr) == ("Schließen", False, "Speichern?")
    assert (files.msgstr_plural, files.fuzzy) == ({0: "ONE FILE", 1: "%d FILES"}, True)
    assert dogs.msgstr_plural == {0: "ein Hund", 1: "DOGS"}
    assert (gone.obsolete, gone.msgid, gone.msgstr) == (True, "gone", "weg")


def test_only_newlines_end_lines() -> None:
    """msgfmt --check accepts these characters, which str.splitlines takes for line breaks."""
    data = (HEADER + entry("one\u2028two\u0085end")).replace("\n", "\r\n").encode()
    output = translated(read := document(data))
    assert texts(read) == ["one\u2028two\u0085end"]
    assert output.count(b"\n") == output.count(b"\r\n") > 10


def test_all_messages_can_be_translated_anew() -> None:
    messages = written(translated(document(MESSAGES, translate_all=True)))
    assert [message.msgstr for message in messages[:3]] == ["OPEN %s", "CLOSE", "SAVE"]
    assert messages[4].msgstr_plural == {0: "A DOG", 1: "DOGS"}
    assert all(message.fuzzy for message in messages[:5]) and not messages[5].fuzzy


UNUSUAL = r"""# of the translator, which is longer than the lines of most programs, so that others wrap it to two
msgid   "kept"
  msgstr "as it  is"

#, c-format
#| msgid "before"
msgid "with two " "strings"
msgstr ""

#~| msgid "older"
#~ msgid "gone"
#~ msgstr "weg"

msgid "unfinished
msgstr ""

msgctxt "x"
msgid ""
"First.\n"
"Second.\n"
msgstr ""
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_translations_are_written(newline: str) -> None:
    data = (HEADER.replace("Plural-Forms", "Language: de\\nPlural-Forms") + UNUSUAL).replace("\n", newline).encode()
    read = document(data)
    damaged_line = data[: data.index(b"unfinished")].count(b"\n") + 1
    assert (read.skipped, read.unreached) == ({"translated already": 1}, [damaged_line])
    expected = (
        data.decode().replace("#, c-format", "#, fuzzy, c-format").replace("msgctxt", f"#, fuzzy{newline}msgctxt")
    )
    parts = re.split(r'(?<=strings")\r?\nmsgstr ""|(?<=Second\.\\n")\r?\nmsgstr ""', expected)
    lines = ['msgstr "WITH TWO STRINGS"', newline.join(['msgstr ""', '"FIRST.\\n"', '"SECOND.\\n"'])]
    assert translated(read).decode() == newline.join([parts[0], lines[0] + parts[1], lines[1] + parts[2]])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_stays(encoding: str) -> None:
    data = (HEADER + entry("é")).encode(encoding)
    assert translated(document(data))[:3] == data[:3]
    assert 'msgstr "É"' in translated(document(data)).decode(encoding)


def test_a_file_without_new_translations_stays() -> None:
    data = b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n\nmsgid "a"\nmsgstr "b"'
    assert translated(document(data)) == data


@pytest.mark.parametrize("forms, expected", [
    ('msgstr[0]\n""\nmsgstr[1] ""', 'msgstr[0] "ONE"\nmsgstr[1] "MANY"'),
    ('msgstr[0]\n"eins"\nmsgstr[1] ""', 'msgstr[0]\n"eins"\nmsgstr[1] "MANY"'),
    ('msgstr[0]\n"eins"\nmsgstr[1]\n"viele"', 'msgstr[0]\n"eins"\nmsgstr[1]\n"viele"'),
    ('msgstr[0] ""', 'msgstr[0] "ONE"\nmsgstr[1] "MANY"'),
    ('msgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""', 'msgstr[0] "ONE"\nmsgstr[1] "MANY"'),
])  # fmt: skip
def test_plural_forms_keep_their_lines(forms: str, expected: str) -> None:
    message = 'msgid "one"\nmsgid_plural "many"\n'
    output = translated(document(f"{message}{forms}\n")).decode()
    assert output.endswith(f"{message}{expected}\n")


def test_a_form_for_several_numbers_has_the_placeholders_of_the_plural() -> None:
    header = HEADER.replace("nplurals=2; plural=(n != 1);", "")
    message = 'msgid "One file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
    for target, first in {"de": "ONE FILE", "fr": "%d FILES", "ru": "%d FILES"}.items():
        assert written(translated(document(message, target, header=header)))[0].msgstr_plural[0] == first


@pytest.mark.parametrize("width", [60, 200])
def test_long_translations_are_wrapped_where_the_file_does_so(width: int) -> None:
    other = str(polib.POEntry(msgid="other words " * 20, msgstr="x")) if width == 60 else ""
    other = other or f'msgid "{"other words " * 20}"\nmsgstr "x"\n'
    long = "many words\u3000and\u00a0more " * 10
    output = translated(document(f'{other}\nmsgid "short"\nmsgstr ""\n'), plain=str.upper).decode()
    assert 'msgstr "SHORT"' in output
    output = document(f'{other}\nmsgid "short"\nmsgstr ""\n').write([in_text(long)]).decode()
    assert (f'msgstr "{long}"' in output) == (width == 200)
    assert written(output.encode())[1].msgstr == long


@pytest.mark.parametrize("target, expected", [
    ("de", "{n, plural, one {# DOG} other {DOGS}} BARK"),
    ("ja", "{n, plural, one {# DOG} other {DOGS}} BARK"),
    ("pl", "{n, plural, one {# DOG} few {DOGS} many {DOGS} other {DOGS}} BARK"),
])  # fmt: skip
def test_messages_of_icu(target: str, expected: str) -> None:
    read = document(entry("{n, plural, one {# dog} other {dogs}} bark"), target)
    assert written(translated(read))[0].msgstr == expected


@pytest.mark.parametrize("msgid", [
    "a %(two  spaces)s b", "a %(two\nlines)s b", "a { name } b",
    "a {\u00a0name\u00a0} b", "a {{ two\nlines }} b", "a {% if x %} b", "a %{user} b",
    "a #{user} b", "a %lld b", "a $t(x.y) b", "a :name b", "a $NAME$ b", "a %name% b", "a __x__ b", "a @:key b",
    "a <%= x %> b", "a [0,1] b|c", "a  b", "a %H:%M b", "One.  Two.", "a %_d %^B b",
    "a {n, select, x {<i t=\"{url}\">b''c</i>} other {c}}",
])  # fmt: skip
def test_only_text_changes(msgid: str) -> None:
    expected = re.sub(r"\b[abc]\b|One|Two", lambda word: word[0].upper(), msgid)
    assert written_msgstr(msgid) == expected
    assert written(copied(document(entry(msgid))))[0].msgstr == msgid


def test_everything_else_stays() -> None:
    source = polib.pofile(HEADER + MESSAGES)
    catalog = written(copied(document(MESSAGES)))
    assert catalog.header == source.header == "A comment of the file"
    for old, new in zip(source, catalog, strict=True):
        new.msgstr, new.msgstr_plural, new.flags = old.msgstr, old.msgstr_plural, old.flags
        assert str(new) == str(old)


@pytest.mark.parametrize("target, header, forms", [
    ("de", "nplurals=2; plural=(n != 1);", ["ONE", "MANY"]),
    ("de", "nplurals=INTEGER; plural=EXPRESSION;", ["ONE", "MANY"]),
    ("de", "nplurals=2; plural=exit(1);", ["ONE", "MANY"]),
    ("de", "nplurals=2; plural=n%0;", ["ONE", "MANY"]),
    ("ja", "", ["MANY"]),
    ("pt-BR", "", ["ONE", "MANY"]),
    ("pl", "", ["ONE", "MANY", "MANY"]),
    ("cs", "nplurals=4; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;", ["ONE", "MANY", "MANY", "MANY"]),
    ("ar", "", ["MANY", "ONE", "MANY", "MANY", "MANY", "MANY"]),
])  # fmt: skip
def test_plural_forms_are_those_of_the_header_or_the_language(target: str, header: str, forms: list[str]) -> None:
    own = HEADER.replace("nplurals=2; plural=(n != 1);", header)
    read = document('msgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\nmsgstr[1] ""\n', target, header=own)
    catalog = written(translated(read))
    assert list(catalog[0].msgstr_plural.values()) == forms
    assert f"nplurals={len(forms)};" in catalog.metadata["Plural-Forms"]


@pytest.mark.parametrize("old, target, new", [
    ("", "pt-BR", "pt_BR"), ("Language: de_AT\\n", "de", "de_AT"), ("Language: fr\\n", "de", "de"),
])  # fmt: skip
def test_the_header_names_the_language_and_the_encoding(old: str, target: str, new: str) -> None:
    header = f'msgid ""\nmsgstr ""\n"{old}"\n"Content-Type: text/plain; charset=CHARSET\\n"\n\n'
    metadata = written(translated(document(entry("dog"), target, header=header))).metadata
    assert metadata["Language"] == new
    assert metadata["Content-Type"] == "text/plain; charset=UTF-8"


@pytest.mark.parametrize("translation, encoding", [("CAFÉ", "ISO-8859-1"), ("カフェ", "UTF-8")])
def test_the_encoding_stays_if_it_has_the_characters(translation: str, encoding: str) -> None:
    data = (HEADER.replace("UTF-8", "ISO-8859-1") + "# é\n" + entry("a café")).encode("iso-8859-1")
    output = document(data).write([in_text(translation)]).decode(encoding)
    assert f"charset={encoding}" in output and "# é\n" in output and f'msgstr "{translation}"' in output


@pytest.mark.parametrize("msgid, flags, passages", [
    ("Read %(n)s of {m} at 5 %", "", [
        'Read <x0 translate="no">%(n)s</x0> of <x1 translate="no">{m}</x1> at 5 %'
    ]),
    ("%ld of 100%%", "c-format", ['<x0 translate="no">%ld</x0> of 100%']),
    ("%ld of 100%%d", "c-format", ['<x0 translate="no">%ld</x0> of 100<x1 translate="no">%%</x1>d']),
    ("a 100%%", "", ["a 100%%"]),
    ("a | b", "", ["a | b"]),
    ("Use <code>a b</code> now", "", ['Use <x0 translate="no">a b</x0> now']),
    ("~A of ~%", "lisp-format", ['<x0 translate="no">~A</x0> of <x1 translate="no">~%</x1>']),
    ("%<n>d of %|1$s|", "ruby-format", ['<x0 translate="no">%&lt;n&gt;d</x0> of <x1 translate="no">%|1$s|</x1>']),
    ("%[1]s of %v", "go-format", ['<x0 translate="no">%[1]s</x0> of <x1 translate="no">%v</x1>']),
    ("%0:s of %vd", "object-pascal-format", ['<x0 translate="no">%0:s</x0> of <x1 translate="no">%vd</x1>']),
    ("{n:{w}} 5%d", "python-brace-format", ['<x0 translate="no">{n:{w}}</x0> 5%d']),
    ("%-5d of %ld", "no-c-format", ['<x0 translate="no">%-5d</x0> of <x1 translate="no">%ld</x1>']),
    ("Copy %1 to %n", "qt-format", ['Copy <x0 translate="no">%1</x0> to <x1 translate="no">%n</x1>']),
    ("a <b>big</b> dog", "", ["a <g0>big</g0> dog"]),
    ("in <file> &amp; x < y", "", [
        'in <x0 translate="no">&lt;file&gt;</x0> <x1 translate="no">&amp;</x1> x &lt; y'
    ]),
    ("One.<br>Two <img src='x'>.", "", ["One.", "Two <x0/>."]),
    ("<p>One.</p><p>Two.</p>", "", ["One.", "Two."]),
    ("a non-:const:`None` value", "", ['a non-<x0 translate="no">:const:`None`</x0> value']),
    ("See ``a b`` and :ref:`x`", "", [
        'See <x0 translate="no">``a b``</x0> and <x1 translate="no">:ref:`x`</x1>'
    ]),
    ("\n one\n two.\n\nThree\n", "", ["one<x0/> two.", "Three"]),
    ("Usage:\n -a  does it\n -b  is it", "", ["Usage:", "-a<x0/> does it", "-b<x0/> is it"]),
    ("one\n\ntwo", "", ["one", "two"]),
    ("form\x0c feed", "", ["form<x0/> feed"]),
    ("a\tb", "", ["a", "b"]),
    ("<0>big</0> dog", "", ["<g0>big</g0> dog"]),
    ("See https://x.org/a_(b) and a@b.org", "", [
        'See <x0 translate="no">https://x.org/a_(b)</x0> and <x1 translate="no">a@b.org</x1>'
    ]),
    ("<a>Home</a><a href='x'>About us</a>", "", ["Home", "About us"]),
    ("the <p><a>Home</a><a>About us</a></p>", "", ["the ", "Home", "About us"]),
    ("in <m><a>Home</a><a>About us</a></m>", "", ["in <g0><g1>Home</g1><x2/> <g3>About us</g3></g0>"]),
    ("s<em>an</em><b>d</b>", "", ["s<g0>an</g0><g1>d</g1>"]),
    ("a <!-- b --> c", "", ["a <x0/> c"]),
    ("%d%%", "c-format", []),
])  # fmt: skip
def test_placeholders_tags_and_lines(msgid: str, flags: str, passages: list[str]) -> None:
    read = document(entry(msgid, flags))
    assert texts(read) == passages
    assert written(copied(read))[0].msgstr == msgid


@pytest.mark.parametrize("msgid, flags, expected", [
    ("\n  Red %s\n", "c-format", "\n  RED %s\n"),
    ("one\ntwo\n\n  - three", "", "ONE\nTWO\n\n  - THREE"),
    ("<b>big</b> <a href='%s'>dog</a>", "c-format", "<b>BIG</b> <a href='%s'>DOG</a>"),
    ("<p>A &amp; c<br/>b</p>\n", "", "<p>A &amp; C<br/>B</p>\n"),
    ('say "x"\t\\ y', "", 'SAY "X"\t\\ Y'),
    ("name\t\tvalue\t\nend", "", "NAME\t\tVALUE\t\nEND"),
])  # fmt: skip
def test_translations_keep_what_is_not_text(msgid: str, flags: str, expected: str) -> None:
    assert written_msgstr(msgid, flags) == expected


@pytest.mark.parametrize(
    "before, repeated, flags", [("a", " ", ""), ("<", "a", ""), ("%", "0", "c-format"), (":", "a:", "")]
)
def test_long_messages_are_read_in_linear_time(before: str, repeated: str, flags: str) -> None:
    """With quadratic time, each would take minutes."""
    assert len(document(entry(f"{before}{repeated * 100_000}b", flags)).passages) == 1


def test_deeply_nested_tags() -> None:
    msgid = "<b>" * 2000 + "x" + "</b>" * 2000
    assert written(copied(document(entry(msgid))))[0].msgstr == msgid


def test_placeholders_without_a_name_keep_their_order() -> None:
    assert written_msgstr("%d of %s is %(x)s", "python-format", backwards) == "%(x)s is %d of %s"
    assert written_msgstr("%1 of %2", "qt-format", backwards) == "%2 of %1"


def test_tags_with_placeholders_are_written_once() -> None:
    for tag, count in {"<a href='%s'>": 1, "<b>": 2}.items():
        read = document(entry(f"{tag}one two{'</a>' if '%' in tag else '</b>'} three", "c-format"))
        assert written(read.write([repeated(read.passages[0])]))[0].msgstr.count(tag) == count


def test_tags_follow_their_words() -> None:
    assert written_msgstr("the <b>big</b> dog %s", "c-format", backwards) == "%s dog <b>big</b> the"


@pytest.mark.parametrize("data, message", [
    (b"", "x.po has no messages; is it a PO file?"),
    (b"msgid \"a\nmsgstr \"\"\nfoo", "x.po is not a PO file (line 1 is damaged); correct it"),
    (b'msgid "a"\nmsgstr ""\n\nfoo', "x.po is not a PO file (line 4 is damaged); correct it"),
    (HEADER.encode() + b'msgid "caf\xe9"\nmsgstr ""\n', "x.po is not in UTF-8, as its header says"),
    (b"\xde\x12\x04\x95" + bytes(40), "x.po is not in utf-8"),
])  # fmt: skip
def test_damaged_files_give_one_sentence(data: bytes, message: str) -> None:
    with pytest.raises(NmtError) as caught:
        document(data)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@pytest.mark.parametrize("message, line", [
    ('msgid "dog\nmsgstr ""\n', 4), ('msgid "dog"\n\n# c\n#~ msgid "x"\n', 4), ('msgid "a"\nmsgid "b"\nmsgstr ""\n', 5),
    ('# c\nmsgid "dog"\nmsgstr[0] ""\nmsgstr[1] ""\n', 5), ('msgid "dog"\nmsgstr ""\nmsgstr ""\n', 6),
])  # fmt: skip
def test_a_message_that_cannot_be_read_is_said_with_its_line(message: str, line: int) -> None:
    read = document(f'msgid "cat"\nmsgstr ""\n\n{message}'.encode())
    assert (texts(read), read.skipped, read.unreached) == (["cat"], {}, [line])
    assert read.left(b"").startswith(f"1 passage from line {line} stays as it is, because the file is damaged there")


def test_the_name_of_another_file_is_no_po_file(tmp_path: Path) -> None:
    (tmp_path / "other.po").write_text(HEADER + MESSAGES, encoding="utf-8")
    with pytest.raises(NmtError, match=r"^x.po is not a PO file \(line 1 is damaged\)"):
        document(f"{tmp_path}/other.po".encode())


words = st.sampled_from(
    ["dog", "%s", "%(a)d", "<b>", "</b>", "<br>", "<file>", "&amp;", "\n", "\n\n", " ", "{x}", "<", "A."]
)


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(words, min_size=1), seed=st.integers(0, 10**6))
def test_whatever_the_translation_no_placeholder_is_lost(parts: list[str], seed: int) -> None:
    msgid = "".join(parts)
    read = document(entry("x" + msgid, "python-format"))
    assert written(copied(read))[0].msgstr == "x" + msgid
    msgstr = written(translated(read, shuffled(seed)))[0].msgstr
    for kept in ("%s", "%(a)d", "<br>", "\n"):
        assert msgstr.count(kept) >= msgid.count(kept)


places = st.lists(st.tuples(st.integers(0, 999), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(damages=places, stop=st.integers(0, 999))
def test_random_damage_gives_messages_or_one_sentence(damages: Any, stop: int) -> None:
    try:
        read = document(damaged((HEADER + MESSAGES).encode(), damages)[:stop])
    except NmtError as error:
        assert "\n" not in str(error)
        return
    translated(read)


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="msgfmt of gettext is not installed")
@pytest.mark.parametrize("target", ["de", "ja", "ar", "pl", "lt", "sl"])
def test_gettext_accepts_the_file(target: str, tmp_path: Path) -> None:
    header = HEADER.replace("nplurals=2; plural=(n != 1);", "")
    (tmp_path / "x.po").write_bytes(
        translated(document(MESSAGES + "\n" + entry("\nx %d\n", "c-format"), target, header=header))
    )
    command = ["msgfmt", "--check-format", "--check-domain", "--use-fuzzy", "--output-file=/dev/null", "x.po"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("msgid, flags, expected", [
    ("%n of %L1 and %L2", "qt-format", "%L2 and %L1 of %n"), ("%1s of %2s", "qt-format", "%2s of %1s"),
    ("%s of %vd", "perl-format", "%s of %vd"), ("%s of %d", "c-format", "%s of %d"),
    ("on %B %d, %Y at %H", "python-format", "%H at %Y %d, %B on"), ("%H:%M on %A", "", "%A on %H:%M"),
    ("%Y and %m", "no-c-format", "%m and %Y"), ("%0:s of %1:d", "object-pascal-format", "%1:d of %0:s"),
    ("~A of ~D", "lisp-format", "~A of ~D"),
])  # fmt: skip
def test_only_placeholders_without_a_name_keep_their_order(msgid: str, flags: str, expected: str) -> None:
    assert written_msgstr(msgid, flags, backwards) == expected


@pytest.mark.parametrize("msgid, flags, translation, expected", [
    ("Open it 100%% now", "c-format", "Öffne zu 100 % jetzt", "Öffne zu 100 %% jetzt"),
    ("It is 100%%", "python-format", "Es ist %% und 5%", "Es ist %% und 5%%"),
    ("It is half", "php-format", "Es sind 50 %", "Es sind 50 %%"),
    ("It is half", "", "Es sind 50 %", "Es sind 50 %"),
    ("It is half", "qt-format", "Es sind 50 %", "Es sind 50 %"),
    ("It is half", "python-brace-format", "Es sind 50 %", "Es sind 50 %"),
])  # fmt: skip
def test_a_percent_sign_of_a_translation_is_no_placeholder(
    msgid: str, flags: str, translation: str, expected: str
) -> None:
    assert written_msgstr(msgid, flags, lambda _: (translation, [])) == expected
