"""The codec turns raw text into ids and back, and is stored in checkpoints as plain data."""

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
def test_decoding_restores_the_encoded_text(changes: dict[str, object]) -> None:
    text = ["Mulo (baki), 'kilo' & ba!", "", "Größe: 3,5 字."]
    expected = [line.lower() for line in text] if "lowercase" in changes else text
    assert codec(**changes).decode_target(codec(**changes).encode_target(text)) == expected


def test_each_side_uses_its_language_and_model() -> None:
    separate = codec(joint_vocab=False)
    assert separate.source.decode(separate.encode_source(["it's"])) == ["it 's"]
    assert separate.target.decode(separate.encode_target(["it's"])) == ["it ' s"]


def test_lowercasing_comes_after_tokenisation() -> None:
    lowercasing = codec(lowercase=True)
    # The tokeniser would split the stop from "mr.", which is not in its list of abbreviations.
    assert lowercasing.source.decode(lowercasing.encode_source(["Mr. 5."])) == ["mr. 5 ."]


@pytest.mark.parametrize("joint", [True, False])
def test_plain_data_restores_the_codec(joint: bool) -> None:
    original = codec(joint_vocab=joint)
    values = original.to_dict()
    assert all(isinstance(value, (str, bool, bytes, type(None))) for value in values.values())
    restored = TextCodec.from_dict(values, "here")
    text = [line for pair in PAIRS[:20] for line in pair]
    assert restored.config == original.config
    assert restored.encode_source(text) == original.encode_source(text)
    assert restored.encode_target(text) == original.encode_target(text)
    assert (restored.source is restored.target) == joint


@pytest.mark.parametrize("change, named", [
    ({"lowercase": None}, "lowercase"),
    ({"extra": 1}, "extra"),
    ({"tokenizer": "spacy"}, "tokenizer is 'spacy'"),
    ({"target_model": b"x"}, "contradicts"),
    ({"joint_vocab": False}, "contradicts"),
    ({"source_model": b"x"}, "sentencepiece"),
    ({"subword": "word"}, "subword is 'word'"),
])  # fmt: skip
def test_wrong_values_are_refused(change: dict[str, object], named: str) -> None:
    with pytest.raises(NmtError, match=rf"run/1\.pt .*{named}"):
        TextCodec.from_dict(codec().to_dict() | change, "run/1.pt")


def test_a_missing_value_is_refused() -> None:
    values = codec().to_dict()
    del values["source_lang"]
    with pytest.raises(NmtError, match="source_lang"):
        TextCodec.from_dict(values, "run/1.pt")
