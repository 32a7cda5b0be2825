"""Sentences end at spaces, and are joined with the spaces of the source."""

from dataclasses import replace
from itertools import pairwise

import pytest
from checkpoints import TEXT_CONFIG
from hypothesis import given
from hypothesis import strategies as st

from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.protected import Protected
from nmt.text.sentences import gaps_between, parts_of_long, sentence_spans
from nmt.text.subword import Subword


def sentences(line: str, lang: str = "en") -> list[str]:
    return [line[slice(*span)] for span in sentence_spans(line, lang, Protected().spans(line))]


@pytest.mark.parametrize("line, expected", [
    ("Call unittest.TestCase too. Next one!", ["Call unittest.TestCase too.", "Next one!"]),
    ("See https://x.org/a.B?c=D.E now. Then go.", ["See https://x.org/a.B?c=D.E now.", "Then go."]),
    ("ASP.NET is here. Run ./run.sh and README.TXT.", ["ASP.NET is here.", "Run ./run.sh and README.TXT."]),
    ("A sentence.[^1] Next.", ["A sentence.[^1] Next."]),
    ("Say {{ a. B }} again. Done.", ["Say {{ a. B }} again.", "Done."]),
    ("  One.  Two.\u00a0Three. ", ["One.", "Two.", "Three."]),
    ("Take vitamin A\u00a0. Or B\u202f. Now.", ["Take vitamin A\u00a0.", "Or B\u202f.", "Now."]),
    ("Mr. Smith lives. Really?", ["Mr. Smith lives.", "Really?"]),
    ("", []),
    ("  ", []),
])  # fmt: skip
def test_sentences_end_at_spaces(line: str, expected: list[str]) -> None:
    assert sentences(line) == expected


def test_languages_without_spaces_have_full_stops_of_their_own() -> None:
    assert sentences("你好。今天用ASP.NET吗？是。", "zh") == ["你好。", "今天用ASP.NET吗？", "是。"]


@given(st.text(alphabet="aB. !?\u00a0{}1。", max_size=40), st.sampled_from(["en", "de", "zh", "ja"]))
def test_sentences_and_the_gaps_between_them_are_the_line(line: str, lang: str) -> None:
    spans = sentence_spans(line, lang, Protected().spans(line))
    texts, gaps = [line[slice(*span)] for span in spans], gaps_between(line, spans, spaces=True)
    if lang in ("en", "de"):
        assert (
            "".join(a + b for a, b in zip(texts, [*gaps, ""], strict=True)) == line.strip()
            if texts
            else not line.strip()
        )
    assert all(text == text.strip() != "" for text in texts)


@pytest.mark.parametrize("lang, line, expected", [
    ("zh", "我们今天去学校。明天我们去公园玩。后天不去", "我们今天去学校。|明天我们去公园玩。后天不去"),
    ("zh", "价格是3.5元和4.25元或者6.125元吗不是的", None),
    ("en", "One two. three four five six seven", "One two.|three four|five six seven"),
])  # fmt: skip
def test_parts_of_long_lines_end_with_sentences_or_words(lang: str, line: str, expected: str | None) -> None:
    model = Subword.train([*line], "bpe", len(set(line)) + 270)
    codec = TextCodec(replace(TEXT_CONFIG, source_lang=lang), model, model)
    ids = codec.encode_source([line])[0]
    parts = [codec.decode_target([part.tolist()])[0] for part in parts_of_long(codec, ids, Direction(lang, "de"), 14)]
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")
    assert expected is None or "|".join(part.strip() for part in parts) == expected
    assert not any(before[-1:] == "." and after[:1].isdigit() for before, after in pairwise(parts))
