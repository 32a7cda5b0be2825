"""Raw text to ids and back, and the plain data that a checkpoint carries."""

import dataclasses

import pytest
from conftest import invented_pairs

from nmt.errors import NmtError
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.subword import Subword

PAIRS = invented_pairs(300)
CONFIG = TextConfig(
    source_lang="en", target_lang="de", tokenizer="moses", lowercase=False, subword="bpe", joint_vocab=True
)
MODEL = Subword.train([line for pair in PAIRS for line in pair], "bpe", 350)
OTHER = Subword.train([target for _, target in PAIRS], "bpe", 330)


def codec(**changes: object) -> TextCodec:
    config = dataclasses.replace(CONFIG, **changes)  # type: ignore[arg-type]
    return TextCodec(config, MODEL, MODEL if config.joint_vocab else OTHER)


@pytest.mark.parametrize("changes", [{}, {"tokenizer": "none"}, {"joint_vocab": False}, {"lowercase": True}])
def test_text_comes_back(changes: dict[str, object]) -> None:
    text = ["Mulo (baki), 'kilo' & ba!", "", "Größe: 3,5 字."]
    expected = [line.lower() for line in text] if "lowercase" in changes else text
    assert codec(**changes).decode_target(codec(**changes).encode_target(text)) == expected


def test_each_side_uses_its_language_and_model() -> None:
    one = codec(joint_vocab=False)
    assert one.source.decode(one.encode_source(["it's"])) == ["it 's"]
    assert one.target.decode(one.encode_target(["it's"])) == ["it ' s"]


def test_lowercasing_comes_after_tokenisation() -> None:
    one = codec(lowercase=True)
    assert one.source.decode(one.encode_source(["Mr. 5."])) == ["mr. 5 ."]  # "mr." is no abbreviation


@pytest.mark.parametrize("joint", [True, False])
def test_plain_data_restores_the_codec(joint: bool) -> None:
    one = codec(joint_vocab=joint)
    values = one.to_dict()
    assert all(isinstance(value, (str, bool, bytes, type(None))) for value in values.values())
    again = TextCodec.from_dict(values, "here")
    text = [line for pair in PAIRS[:20] for line in pair]
    assert again.config == one.config
    assert again.encode_source(text) == one.encode_source(text)
    assert again.encode_target(text) == one.encode_target(text)
    assert (again.source is again.target) == joint


@pytest.mark.parametrize("change, named", [
    ({"lowercase": None}, "lowercase"),
    ({"extra": 1}, "extra"),
    ({"tokenizer": "spacy"}, "tokenizer is 'spacy'"),
    ({"target_model": b"x"}, "contradicts"),
    ({"joint_vocab": False}, "contradicts"),
    ({"source_model": b"x"}, "sentencepiece"),
    ({"subword": "word"}, "subword is 'word'"),
])  # fmt: skip
def test_bad_data_is_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(NmtError, match=rf"run/1\.pt .*{named}"):
        TextCodec.from_dict(codec().to_dict() | change, "run/1.pt")


def test_missing_data_is_refused() -> None:
    values = codec().to_dict()
    del values["source_lang"]
    with pytest.raises(NmtError, match="source_lang"):
        TextCodec.from_dict(values, "run/1.pt")
