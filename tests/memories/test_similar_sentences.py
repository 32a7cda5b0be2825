"""Models that read the translations of similar sentences: in the training text, and from a memory."""

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import TEXT_CONFIG, WORDS, eloquent_checkpoint, generated, saved
from commands import failed, run

from nmt.config import SearchConfig
from nmt.data.folder import DataFolder
from nmt.memories.memory import Memory
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.protected import Protected
from nmt.text.subword import Subword
from nmt.text.text_config import SIMILAR_PIECE
from nmt.text.words import NO_WORD
from nmt.translate.encoding import encode
from nmt.translate.units import Unit, UnitMaker

PAIRS = [("learn some words from pieces", "lerne Wörter aus Teilen"), ("a few more", "ein paar mehr")]


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    subword = Subword.train([WORDS] * 5, "bpe", 301, marks=[SIMILAR_PIECE])
    config = TEXT_CONFIG.to_dict() | {"similar_piece": SIMILAR_PIECE}
    return TextCodec(type(TEXT_CONFIG)(**config), subword, subword)


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory.of(lambda: PAIRS, "pairs of the tests of similar sentences", ("en", "de"))


def training_text(folder: Path, *options: str) -> list[str]:
    """Returns the pieces of each training source, joined, of lines of which three are similar and one is not."""
    lines = {
        "en": ["the red lamp is on the table", "the red lamp is on a table", "the red lamp is on a stable", "so what"],
        "de": ["die Lampe steht auf dem Tisch", "sie steht auf einem Tisch", "sie steht auf einem Stall", "na und"],
    }
    for language, text in lines.items():
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in text * 6), encoding="utf-8")
    corpora = ["--source-lang=en", "--target-lang=de", f"--train={folder}/train", f"--valid={folder}/train"]
    run("preprocess", *corpora, "--vocab-size=320", f"--dest={folder}/data", *options)
    data = DataFolder.open(str(folder / "data"))
    (train, valid) = (
        ["".join(data.codec.source.pieces(split.source[n])).replace("▁", " ").strip() for n in range(24)]
        for split in map(data.split, ("train", "valid"))
    )
    assert valid == 6 * lines["en"]
    return train


def test_the_translation_of_the_most_similar_other_line_stands_behind_a_line(tmp_path: Path) -> None:
    assert training_text(tmp_path, "--similar=1") == 6 * [
        "the red lamp is on the table<similar> sie steht auf einem Tisch",
        "the red lamp is on a table<similar> sie steht auf einem Stall",
        "the red lamp is on a stable<similar> sie steht auf einem Tisch",
        "so what",
    ]


def test_a_share_of_the_lines_has_one_if_there_is_room(tmp_path: Path) -> None:
    lines = training_text(tmp_path, "--similar=0.5")
    counts = [sum(SIMILAR_PIECE in line for line in lines[n::4]) for n in range(4)]
    assert all(0 < count < 6 for count in counts[:3]) and counts[3] == 0
    (tmp_path / "short").mkdir()
    valid = DataFolder.open(str(tmp_path / "data")).split("valid")
    longest = max(len(side[n]) for side in (valid.source, valid.target) for n in range(4))
    lines = training_text(tmp_path / "short", "--similar=1", f"--max-length={longest}")
    assert len(lines) == 24 and not any(SIMILAR_PIECE in line for line in lines)


def encoded(codec: TextCodec, memory: Memory, text: str, target_lang: str = "", **search: int) -> tuple[str, list[int]]:
    """Returns the pieces of an encoded sentence, joined, and the words that they belong to."""
    direction = Direction("en", "de")
    maker = UnitMaker(codec.config, Protected(), direction, memories=[memory], target_lang=target_lang)
    (sentence,) = encode(codec, [maker.complete(Unit(text))], SearchConfig(alignments=True, **search))
    return "".join(codec.source.pieces(sentence.ids)).replace("▁", " ").strip(), list(sentence.words)


def test_a_sentence_has_the_translation_of_a_similar_one_behind_it(codec: TextCodec, memory: Memory) -> None:
    text, words = encoded(codec, memory, "learn a few words from pieces")
    translation = "".join(codec.target.pieces(*codec.encode_target([PAIRS[0][1]]))).replace("▁", " ")
    assert text == f"learn a few words from pieces<similar>{translation}"
    assert max(words) == 5 and words.count(NO_WORD) == 1 + len(*codec.encode_target([PAIRS[0][1]]))
    assert encoded(codec, memory, "pieces")[0] == "pieces"


def test_it_is_left_out_if_it_makes_the_sentence_too_long(codec: TextCodec, memory: Memory) -> None:
    text, words = encoded(codec, memory, "learn a few words from pieces", max_source_length=12)
    assert text == "learn a few words from pieces" and NO_WORD not in words


def test_the_first_of_two_models_does_not_read_translations_into_the_second_language(
    codec: TextCodec, memory: Memory
) -> None:
    second_memory = Memory(memory._folder, ("en", "fr"), memory.digest)
    assert encoded(codec, second_memory, "learn a few words from pieces", "fr")[0] == "learn a few words from pieces"


def test_translations_depend_on_a_memory(codec: TextCodec, tmp_path: Path) -> None:
    reader = saved(eloquent_checkpoint(1, codec=codec), tmp_path / "model.safetensors")
    (tmp_path / "memory.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in PAIRS), encoding="utf-8")
    lines = ["learn a few words from pieces", "some pieces", "a few more"]
    options = ["--precision=fp32", "--max-length-offset=12"]
    plain = generated(reader, lines, *options)
    read = generated(reader, lines, *options, "--memory", tmp_path / "memory.tsv")
    assert read[0]["hypotheses"] != plain[0]["hypotheses"] and read[0]["memory"][0]["target"] == PAIRS[0][1]
    assert read[1] == plain[1]
    assert read[2]["hypotheses"] == [{"text": "ein paar mehr", "origin": "memory"}]
    text = run("generate", reader, *options, "--memory", tmp_path / "memory.tsv", stdin=lines[0].encode()).stdout
    assert text.decode().strip() == read[0]["hypotheses"][0]["text"].strip()
    assert b"similar sentences of memories" in run("info", reader).stdout


@pytest.mark.parametrize("options, message", [
    (["--similar=0.5", "--separate-vocab"], "--separate-vocab"),
    (["--terms=0.1", "--alignments=x", "--separate-vocab"], "--separate-vocab"),
    (["--similar=0.5", "--augment"], "--augment"),
    (["--similar=0.5", "--like={separate}"], "--similar needs one vocabulary for both languages, but --like"),
    (["--similar=0.5", "--subword-model={data}/subword.model"], "has no piece <similar>; leave out --terms, --context"),
])  # fmt: skip
def test_what_stands_in_the_source_needs_its_pieces(options: list[str], message: str, tmp_path: Path) -> None:
    training_text(tmp_path)
    subword = Subword.train([WORDS] * 5, "bpe", 300)
    codec = TextCodec(replace(TEXT_CONFIG, joint_vocab=False), subword, subword)
    separate = saved(eloquent_checkpoint(1, codec=codec), tmp_path / "separate.safetensors")
    corpora = ["--source-lang=en", "--target-lang=de", f"--train={tmp_path}/train", f"--valid={tmp_path}/train"]
    arguments = [option.format(separate=separate, data=tmp_path / "data") for option in options]
    assert message in failed("preprocess", *corpora, f"--dest={tmp_path}/new", *arguments)
