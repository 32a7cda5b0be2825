"""Subtitles: speakers, sounds, captions that roll, and encodings."""

import pytest
from translations import backwards, copied, texts, translated

from nmt.documents.document import Document, ReadOptions, read_document
from nmt.errors import NmtError

TIME = "1\n00:00:01,000 --> 00:00:02,000\n"


def read(text: str | bytes, form: str = "srt", source: str = "en") -> Document:
    data = text if isinstance(text, bytes) else text.encode()
    return read_document(data, form, ReadOptions("x", source, "de"))


@pytest.mark.parametrize("cue, passages, expected", [
    ("<i>- What?</i>\n<i>- No way</i>", ["What?", "No way"], "<i>- WHAT?</i>\n<i>- NO WAY</i>"),
    ("- Hi there. - Hello you.", ["Hi there.", "Hello you."], "- HI THERE. - HELLO YOU."),
    (">> Hi.\n>> JOHN: Hello", ["Hi.", "Hello"], ">> HI.\n>> JOHN: HELLO"),
    (">> Hi. >> Hello", ["Hi.", "Hello"], ">> HI. >> HELLO"),
    ("&gt;&gt; Hi", ["Hi"], "&gt;&gt; HI"),
    ("JOHN: Hi.\nDr. O'NEIL: Hello.", ["Hi.", "Hello."], "JOHN: HI.\nDr. O'NEIL: HELLO."),
    ("MAN #2 (V.O.): Hi", ["Hi"], "MAN #2 (V.O.): HI"),
    ("[JOHN]: Hi", ["Hi"], "[JOHN]: HI"),
    ("[Narrator]: Hi\n(Man on radio): Go", ["Hi", "Go"], "[Narrator]: HI\n(Man on radio): GO"),
    ("JOHN [off]: Hi\nDR. JONES (on phone): Go", ["Hi", "Go"], "JOHN [off]: HI\nDR. JONES (on phone): GO"),
    ("<b>JOHN:</b> Hi\n- <i>ANN:</i> Go", ["Hi", "Go"], "<b>JOHN:</b> HI\n- <i>ANN:</i> GO"),
    ("\nHi there", ["Hi there"], "\nHI THERE"),
    ("\n\nHi there\n\n2\n00:00:03,000 --> 00:00:04,000\n\nGo on.", ["Hi there Go on."],
     "\n\nHI THERE\n\n2\n00:00:03,000 --> 00:00:04,000\n\nGO ON."),
    ("Hi\n\nthere", ["Hi there"], "HI THERE"),
    ("MAN:\nHi there", ["Hi there"], "MAN:\nHI THERE"),
    ("John: Hi.\nMary: Hello.", ["John: Hi.", "Mary: Hello."], "JOHN: HI.\nMARY: HELLO."),
    ("[door opens]\nI am here", ["door opens", "I am here"], "[DOOR OPENS]\nI AM HERE"),
    ("<i>(sighs) Hi</i>", ["sighs", "Hi"], "<i>(SIGHS) HI</i>"),
    ("- [sighs] Hi\n- What?", ["sighs", "Hi", "What?"], "- [SIGHS] HI\n- WHAT?"),
    ("[door opens] JOHN: Hi", ["door opens", "Hi"], "[DOOR OPENS] JOHN: HI"),
    ("I think [sighs] you are", ["I think you are", "sighs"], "I THINK [SIGHS] YOU ARE"),
    ("He (as you know) left", ["He (as you know) left"], "HE (AS YOU KNOW) LEFT"),
    ("（door）ようこそ", ["door", "ようこそ"], "（DOOR）ようこそ"),
    ("♪ la la ♪\n♪ lu lu ♪", ["la la", "lu lu"], "♪ LA LA ♪\n♪ LU LU ♪"),
    ("I see - B, no: well -- yes", ["I see - B, no: well -- yes"], "I SEE - B, NO: WELL -- YES"),
    (" \n \u200b\nHi there", ["Hi there"], " \n \u200b\nHI THERE"),
    ("Hi there\n ", ["Hi there"], "HI THERE\n "),
])  # fmt: skip
def test_speakers_and_sounds_are_texts_of_their_own(cue: str, passages: list[str], expected: str) -> None:
    document = read(f"{TIME}{cue}\n")
    assert [text.replace("&gt;", ">") for text in texts(document)] == passages
    assert copied(document).decode() == f"{TIME}{cue}\n"
    assert translated(document).decode() == f"{TIME}{expected}\n"


VOICES = """WEBVTT

00:01.000 --> 00:02.000
<v Bob>Hi there.</v>
<v.loud Ann Lee>Hello <b>you</b>.</v>

00:02.000 --> 00:03.000
&gt;&gt; What? <v Ann>No.
"""


def test_an_empty_line_ends_a_cue_of_webvtt() -> None:
    source = "WEBVTT\n\n00:01.000 --> 00:02.000\nHello\n\nNOTE a b\n\nintro\n00:03.000 --> 00:04.000\n\nYou\n"
    assert translated(read(source, "vtt")).decode() == source.replace("Hello", "HELLO")


CUES = "1\n00:00:01,000 --> 00:00:02,000\nA dog runs.\n\n2\n00:00:03,000 --> 00:00:04,000\nIt is 42\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\r\r\n", "\r\r\r\n", "\n\n", "\r\n\r\n", "\r\r\n\n", "\n\r"])
@pytest.mark.parametrize("form, head", [("srt", ""), ("vtt", "WEBVTT\n\n")])
def test_line_ends_that_conversions_leave(form: str, head: str, end: str) -> None:
    source = f"{head}{CUES}".replace("\n", end)
    document = read(source, form)
    assert (texts(document), document.unreached) == (["A dog runs.", "It is 42"], [])
    assert copied(document).decode() == source
    assert translated(document).decode() == source.replace("A dog runs.", "A DOG RUNS.").replace("It is", "IT IS")


def test_a_number_above_a_blank_line_is_text_unless_it_is_that_of_the_next_cue() -> None:
    for digits, passage in {"2": "Room", "3": "Room 3", "1984": "Room 1984"}.items():
        cues = CUES.replace("A dog runs.\n\n2\n", f"Room\n{digits}\n\n").removesuffix("It is 42\n")
        assert texts(read(cues)) == [passage]


@pytest.mark.parametrize("times", [
    "00:00:03 --> 00:00:04", "0:0:3,5 --> 0:0:4,0", "00:00:03,000 -> 00:00:04,000", "00:00:03,95 --> 00:00:04,0:",
    "00: 00: 03,000 - -> 00: 00: 04,000", "00:00:03,000 –> 00:00:04,000", "00:00:03.000 → 00:00:04.000",
    "-00:00:03,000 --> 00:00:04,000", "00:03 --> 00:04", "00:00:03:00 --> 00:00:04:00",
])  # fmt: skip
@pytest.mark.parametrize("form, head", [("srt", ""), ("vtt", "WEBVTT\n\n")])
def test_times_that_other_programs_write(form: str, head: str, times: str) -> None:
    document = read(head + CUES.replace("00:00:03,000 --> 00:00:04,000", times), form)
    assert texts(document) == ["A dog runs.", "It is 42"]


@pytest.mark.parametrize("form, source, passages, lines", [
    ("srt", f"By A. Man\n\n{CUES}", ["A dog runs.", "It is 42"], [1]),
    ("vtt", f"WEBVTT\n\n{CUES}\nA cat\n\n7\nat 5 --> 6\nA bird\n", ["A dog runs.", "It is 42"], [11, 13]),
    ("vtt", f"WEBVTT\n\n{CUES}".replace("runs.", "runs.\n\nfast"), ["A dog runs.", "It is 42"], [7]),
    ("vtt", f"WEBVTT\n\n{CUES}".replace("dog", "d\0g"), ["It is 42"], [3]),
    ("vtt", f"WEBVTT - x\nKind: y\n\nNOTE a\nb\n\nSTYLE\n::cue {{}}\n\nREGION\nid:r\n\n{CUES}",
     ["A dog runs.", "It is 42"], []),
])  # fmt: skip
def test_text_without_times_is_not_reached(form: str, source: str, passages: list[str], lines: list[int]) -> None:
    document = read(source, form)
    assert (texts(document), document.unreached) == (passages, lines)
    assert translated(document).decode() == source.replace("A dog runs", "A DOG RUNS").replace("It is", "IT IS")


@pytest.mark.parametrize("form, source", [
    ("vtt", "WEBVTT\n\nA dog runs.\n"), ("vtt", "WEBVTT\n\n1\n00:01 until 00:02\nA dog\n"), ("vtt", "A dog runs."),
    ("srt", "{1}{25}A dog runs."), ("srt", "1\n2\n"),
])  # fmt: skip
def test_a_file_without_times_is_refused(form: str, source: str) -> None:
    with pytest.raises(NmtError, match=r"^x has no times such as 00:00:01,000 --> 00:00:04,000; is it a file of sub"):
        read(source, form)


def test_voices_of_webvtt() -> None:
    document = read(VOICES, "vtt")
    assert texts(document) == ["Hi there.", "Hello <g0>you</g0>.", "What?", "No."]
    expected = VOICES
    for text in ("Hi there.", "Hello", "you", "What?", "No."):
        expected = expected.replace(text, text.upper())
    assert translated(document).decode() == expected
    assert "<v Bob>there. Hi</v>\n" in translated(document, backwards).decode()


ROLLING = """WEBVTT

00:00.000 --> 00:02.000 align:start
 
hello<00:00.500><c> big</c><00:00.900><c> world</c>

00:02.000 --> 00:02.010
hello big world
 

00:02.010 --> 00:04.000
hello big world
we<00:02.500><c> go</c>

00:04.000 --> 00:04.010
we go
 

00:04.010 --> 00:06.000
we go
&gt;&gt; what<00:05.500><c> a day</c>
"""  # noqa: W293


def test_a_line_that_rolls_has_one_translation() -> None:
    document = read(ROLLING, "vtt")
    assert len(texts(document)) == 2  # the first two lines are one sentence
    assert copied(document).decode() == ROLLING
    expected = ROLLING
    for text in ("hello", "big", "world", "we", "go", "what", "a day"):
        expected = expected.replace(f"{text}<", f"{text.upper()}<").replace(f" {text}", f" {text.upper()}")
        expected = expected.replace(f"{text} ", f"{text.upper()} ")
    assert translated(document).decode() == expected


def test_two_lines_that_roll_in_srt() -> None:
    cues = ["Alpha beta.", "Alpha beta.\ngamma delta", "gamma delta\nepsilon zeta.", "epsilon zeta."]
    source = "\n".join(f"{TIME}{cue}\n" for cue in cues)
    document = read(source)
    assert texts(document) == ["Alpha beta.", "gamma delta epsilon zeta."]
    assert translated(document).decode() == "\n".join(f"{TIME}{cue.upper()}\n" for cue in cues)
    shown = [cue.strip().split("\n")[2:] for cue in translated(document, backwards).decode().split("\n\n")]
    assert shown[1][1] == shown[2][0] and len(shown[1]) == len(shown[2]) == 2


def test_what_webvtt_allows_stays() -> None:
    cues = ["<c.\n>x", "<c></>y", "<c></", "a\0b", "&nbsp;", "dog&nbsp;", "z", "AT&T <3"]
    source = "WEBVTT\n\n" + "\n".join(f"00:01.000 --> 00:02.000\n{cue}\n" for cue in cues)
    assert copied(read(source, "vtt")).decode() == source
    assert "a\0b" in translated(read(source, "vtt")).decode()


@pytest.mark.parametrize("source, text, encoding, written", [
    ("fr", "Ça va là", "cp1252", "cp1252"), ("ru", "Привет", "cp1251", "cp1251"), ("pl", "Żółć", "cp1250", "cp1250"),
    ("ja", "やあ", "cp932", "cp932"), ("fr", "Ça va là", "utf-16", "utf-16"), ("fr", "Ça va là", "utf-8", "utf-8"),
    ("fr", "ÿ là", "cp1252", "cp1252"),
])  # fmt: skip
def test_srt_keeps_its_encoding(source: str, text: str, encoding: str, written: str) -> None:
    data = f"{TIME}{text}\n".encode(encoding)
    assert copied(read(data, source=source)) == data
    assert translated(read(data, source=source)).decode(written) == f"{TIME}{text.upper()}\n"


def test_srt_becomes_utf_8_if_its_encoding_lacks_a_character() -> None:
    output = translated(read(f"{TIME}Ça\n".encode("cp1252"), source="fr"), lambda _: ("Ść", []))
    assert output == f"\ufeff{TIME}Ść\n".encode()


def test_webvtt_is_utf_8() -> None:
    with pytest.raises(NmtError) as error:
        read(VOICES.replace("Bob", "Zoë").encode("cp1252"), "vtt")
    assert "convert it, such as with iconv -f CP1252 -t UTF-8" in str(error.value)
