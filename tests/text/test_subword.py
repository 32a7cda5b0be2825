"""Subword models restore the text that they encode, have the requested size, and refuse unusable models."""

import random
from collections.abc import Callable
from functools import cache

import pytest
from conftest import invented_pairs, other_model
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.errors import NmtError
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword

TEXT = [line for pair in invented_pairs(400) for line in pair]
SIZE = 400
SPECIAL = {PAD, UNK, BOS, EOS}

kinds = pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
kinds_and_characters = pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
any_line = st.text(st.characters(exclude_characters="\n▁", exclude_categories=["Cs"]))
words = st.sampled_from(TEXT[0].split() + TEXT[1].split() + ["quäx", "日本", "\0", "🦊", "<unk>"])
familiar = st.lists(words).map(" ".join)


@cache
def trained_on_text(kind: str) -> Subword:
    return Subword.train(TEXT, kind, SIZE)


def spaced(line: str) -> str:
    """Returns the line with single spaces between its words, which is what decoding gives."""
    return " ".join(word for word in line.split(" ") if word)


@kinds_and_characters
@settings(max_examples=50)
@given(lines=st.lists(any_line | familiar, max_size=4))
def test_any_text_round_trips_without_unknowns(kind: str, lines: list[str]) -> None:
    model = trained_on_text(kind)
    ids = model.encode(lines)
    assert not SPECIAL & {i for line in ids for i in line}
    assert model.decode(ids) == [spaced(line) for line in lines]


ODD_LINES = {
    "   ": "",
    " a \0  b\t\r\x0b\x0c\x85\u2028 ": "a \0 b\t\r\x0b\x0c\x85\u2028",
    "a▁b▁": "a b",
    "▁": "",
    "⁇ <unk> </s> <0x41>": "⁇ <unk> </s> <0x41>",
    "a\nb": "a b",
    "a\ud800b": "a\ufffdb",
    "\ufeffe\u0301": "\ufeffe\u0301",
    "dekimulo" * 1000: "dekimulo" * 1000,
    "baki Ξένος " * 2000: ("baki Ξένος " * 2000).strip(),
}


def test_char_has_a_piece_for_each_character() -> None:
    model = trained_on_text("char")
    assert model.pieces(model.encode(["um ol"])[0]) == ["▁", "u", "m", "▁", "o", "l"]
    assert len(model) == 4 + 256 + len(set("".join(TEXT)))  # the space is a piece, too


@kinds_and_characters
def test_odd_characters_and_long_lines_are_restored_or_replaced(kind: str) -> None:
    model = trained_on_text(kind)
    assert model.decode(model.encode(list(ODD_LINES))) == list(ODD_LINES.values())


@kinds_and_characters
@settings(max_examples=50)
@given(ids=st.lists(st.lists(st.integers(0, SIZE - 1) | st.integers(4, 260)), max_size=3))
def test_any_ids_decode_to_one_line_each(kind: str, ids: list[list[int]]) -> None:
    model = trained_on_text(kind)
    ids = [[i % len(model) for i in line] for line in ids]
    lines = model.decode(ids)
    assert len(lines) == len(ids)
    assert not any("\n" in line or "⁇" in line or "▁" in line for line in lines if "\ufffd" not in line)
    assert lines == model.decode([[BOS, PAD, *line, EOS, UNK] for line in ids])


def test_bytes_that_are_no_text_or_no_part_of_a_line_are_replaced() -> None:
    model = trained_on_text("bpe")
    cut, b = (model.encode([text])[0] for text in ("é", "b"))
    assert model.decode([cut[:-1] + b]) == ["\ufffd b"]
    byte = {piece: i for i, piece in enumerate(model.pieces(list(range(SIZE))))}
    assert model.decode([[byte[f"<0x{value:02X}>"] for value in "a▁b\nc".encode()]]) == ["a b c"]


@kinds
def test_training_gives_the_same_model_of_the_requested_size_which_bytes_restore(kind: str) -> None:
    model = trained_on_text(kind)
    assert (len(model), model.kind, model.has_bytes) == (SIZE, kind, True)
    pieces = model.pieces(model.encode([TEXT[0]])[0])
    assert "".join(pieces).replace("▁", " ").strip() == TEXT[0]
    assert sum(map(len, model.encode(TEXT))) < sum(map(len, TEXT)) / 2  # pieces are longer than characters
    assert Subword.train(iter(TEXT), kind, SIZE).to_bytes() == model.to_bytes()
    restored = Subword.from_bytes(model.to_bytes(), kind, "here")
    assert (restored.encode(TEXT), restored.kind, restored.to_bytes()) == (model.encode(TEXT), kind, model.to_bytes())


def test_only_very_rare_characters_become_bytes() -> None:
    lines = ["ba de ki lo mu"] * 6000 + ["Ö"] * 12 + ["字"]  # Ö is 1 character in 7,500, 字 1 in 90,000
    model = Subword.train(lines, "bpe", 280)
    assert [len(ids) for ids in model.encode(["Ö", "字"])] == [2, 4]  # ▁ and Ö; ▁ and three bytes


def test_training_uses_long_lines() -> None:
    assert len(Subword.train(["bakide " * 5000], "bpe", 270)) == 270


def greedy(pieces: dict[str, int], word: str) -> list[int]:
    """Returns the ids of a word by taking the longest piece that it begins with, again and again."""
    if not word:
        return []
    for end in range(len(word), 0, -1):
        if word[:end] in pieces:
            return [pieces[word[:end]], *greedy(pieces, word[end:])]
    return [pieces[f"<0x{byte:02X}>"] for byte in word[0].encode()] + greedy(pieces, word[1:])


def test_wordpiece_takes_the_longest_match() -> None:
    model = trained_on_text("wordpiece")
    pieces = {piece: i for i, piece in enumerate(model.pieces(list(range(SIZE)))) if i > EOS}
    draw = random.Random(3)
    words = [draw.choice(TEXT).split()[0] + draw.choice(["", "x", "ñ", "kilo"]) for _ in range(200)]
    assert model.encode(words) == [greedy(pieces, "▁" + word) for word in words]
    # The unigram model takes the most likely segmentation, which is a different one.
    assert model.encode(words) != Subword.from_bytes(model.to_bytes(), "unigram", "here").encode(words)


@kinds
def test_the_messages_about_the_vocabulary_name_the_largest_and_the_smallest_possible(kind: str) -> None:
    with pytest.raises(NmtError, match=r"--vocab-size is 30000, .* at most \d+ pieces; lower --vocab-size") as caught:
        Subword.train(TEXT, kind, 30000)
    largest = int(str(caught.value).split("at most ")[1].split()[0])
    assert len(Subword.train(TEXT, kind, largest)) == largest
    with pytest.raises(NmtError, match=r"100 pieces are too few, .* need \d+; give a larger --vocab-size") as caught:
        Subword.train(TEXT, kind, 100)
    assert 260 < int(str(caught.value).split("need ")[1].split(";")[0]) < 300


@kinds
@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_training_on_no_text_is_refused(kind: str, lines: list[str]) -> None:
    with pytest.raises(NmtError, match="is empty"):
        Subword.train(lines, kind, 300)


@pytest.mark.parametrize("error", [NmtError("from the corpus"), KeyboardInterrupt(), ValueError("a bug")])
def test_errors_while_reading_the_text_are_raised(error: BaseException) -> None:
    def lines() -> object:
        yield from TEXT
        raise error

    with pytest.raises(type(error)) as caught:
        Subword.train(lines(), "bpe", 300)  # type: ignore[arg-type]
    assert caught.value is error


NO_MODEL = r"run/average\.safetensors is not a sentencepiece model, or is damaged"


@pytest.mark.parametrize("change, message", [
    (lambda _: b"", NO_MODEL),
    (lambda _: bytes(100), NO_MODEL),
    (lambda good: good[:1000], NO_MODEL),
    (lambda good: good[:-3], NO_MODEL),
    (lambda _: other_model(pad_id=-1, unk_id=0, bos_id=1, eos_id=2),
     r"run/average\.safetensors has the ids -1, 0, 1, 2 for pad, unk, bos and eos instead"),
])  # fmt: skip
def test_unusable_models_are_named(change: Callable[[bytes], bytes], message: str) -> None:
    with pytest.raises(NmtError, match=message):
        Subword.from_bytes(change(trained_on_text("bpe").to_bytes()), "bpe", "run/average.safetensors")


@kinds
def test_a_model_without_bytes_drops_unknown_characters(kind: str) -> None:
    model = Subword.from_bytes(other_model(byte_fallback=False, vocab_size=60), kind, "here")
    assert not model.has_bytes
    ids = model.encode(["ba 字 ba"])
    assert ids[0].count(UNK) == 1
    assert model.decode(ids) == ["ba  ba"]


def test_sampling_without_bytes_has_one_unknown_piece_for_a_character() -> None:
    model = Subword.from_bytes(other_model(byte_fallback=False, vocab_size=60), "bpe", "here")
    assert model.sample(["ba 字 ba"], 0.0, [1]) == model.encode(["ba 字 ba"])


@kinds
def test_a_given_model_normalises_text_in_its_own_way(kind: str) -> None:
    model = Subword.from_bytes(other_model(normalization_rule_name="nmt_nfkc_cf"), kind, "here")
    assert model.encode(["BA ＤＥ ki"]) == model.encode(["ba de ki"])
