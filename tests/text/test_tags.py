"""Tags at the beginning of source lines: one piece each, which tokenisation and sampling leave alone."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from checkpoints import eloquent_checkpoint, whole
from commands import LANGS, failed, run
from conftest import invented_pairs

from nmt.checkpoint import load_checkpoint, save_checkpoint
from nmt.config import DataConfig, SearchConfig
from nmt.data.encoder import Encoder
from nmt.data.folder import DataFolder
from nmt.data.raw_pairs import RawPairs
from nmt.text.protected import Protected
from nmt.translate.encoding import encode
from nmt.translate.units import Unit, UnitMaker

Write = Callable[[str, list[tuple[str, str]]], str]


@pytest.fixture
def corpora(write_corpus: Write) -> list[str]:
    first, second, valid = (write_corpus(f"of{pairs}", invented_pairs(pairs, pairs)) for pairs in (150, 60, 20))
    return [f"--train={first}", f"--train={second}", f"--valid={valid}"]


def preprocess(corpora: list[str], data: Path, *options: str) -> None:
    run("preprocess", *LANGS, *corpora, "--vocab-size=340", *options, f"--dest={data}")


@pytest.mark.parametrize("options", [
    [], ["--tokenizer=none"], ["--lowercase"], ["--separate-vocab"], ["--subword=unigram"], ["--subword=wordpiece"],
    ["--subword-dropout=0.3", "--encodings=2"],
])  # fmt: skip
def test_a_tagged_corpus_has_one_more_piece_a_sentence(corpora: list[str], tmp_path: Path, options: list[str]) -> None:
    preprocess(corpora, tmp_path / "data", *options, "--tag=", "--tag=<Bt>")
    data = DataFolder.open(tmp_path / "data")
    (tag,) = data.codec.source.ids(["<Bt>"])
    line = (tmp_path / "of60.en").read_text().splitlines()[0]
    split = data.split("train").in_epoch(1, 0)
    assert len(split) == 210
    for index in range(210):
        assert (split.source[index][0] == tag) == (index >= 150)
        assert tag not in split.source[index][1:]
        assert tag not in split.target[index]
    plain, *tagged = data.codec.encode_source([line, f"<Bt> {line}", "<Bt>", f"<Bt> <Bt> {line}"])
    assert tagged == [[tag, *plain], [tag], [tag, tag, *plain]]


@pytest.mark.parametrize("options", [["--augment"], ["--lower-capitals"], ["--lower-capitals", "--augment"]])
def test_tags_in_the_text_stay(write_corpus: Write, tmp_path: Path, options: list[str]) -> None:
    pairs = [(f"<2De> {source.upper()}", target.upper()) for source, target in invented_pairs(150)]
    tagged, other = write_corpus("tagged", pairs), write_corpus("other", invented_pairs(60, 60))
    corpora = [f"--train={tagged}", f"--train={other}", f"--valid={tagged}"]
    preprocess(corpora, tmp_path / "data", "--tag=", "--tag=<2De>", *options)
    data = DataFolder.open(tmp_path / "data")
    (tag,) = data.codec.source.ids(["<2De>"])
    train, valid = (data.split(name).in_epoch(1, 0) for name in ("train", "valid"))
    assert {ids[0] for ids in train.source} == {tag}
    assert list(map(list, valid.source)) == data.codec.encode_source([source for source, _ in pairs])


def test_a_checkpoint_knows_its_tags(corpora: list[str], tmp_path: Path) -> None:
    preprocess(corpora, tmp_path / "data", "--tag=<2de>", "--tag=<2fr>")
    model = tmp_path / "model.safetensors"
    save_checkpoint(eloquent_checkpoint(1, codec=DataFolder.open(tmp_path / "data").codec), model)
    codec = load_checkpoint(model).codec
    assert codec.config.tags == ("<2de>", "<2fr>")
    maker = UnitMaker(codec.config, Protected(), cut="sentence")
    sentences = maker.complete(Unit("<2fr> Ba de. Lo mu.")).sentences
    assert [sentence.raw for sentence in sentences] == ["<2fr> Ba de.", "<2fr> Lo mu."]
    pairs = b"<2fr> ba de\tab ed\n<2de> ba de\tab ed\nba de\tab ed\n"
    said = run("rescore", model, "--precision=fp32", "--output-format=jsonl", "--alignments", stdin=pairs).stdout
    scores = [json.loads(line)["rescored"] for line in said.splitlines()]
    assert len({rescored["log_prob"] for rescored in scores}) == 3
    assert all(rescored["alignment"] for rescored in scores)
    like = ["preprocess", *LANGS, *corpora, f"--like={model}", f"--dest={tmp_path}/more"]
    assert "does not know --tag <2es>; it knows <2de> <2fr>" in failed(*like, "--tag=<2es>", "--tag=")
    run(*like, "--tag=<2fr>", "--tag=")
    source = DataFolder.open(tmp_path / "more").split("train").source
    assert source[0][0] == codec.source.ids(["<2fr>"])[0]
    # A tag counts in the length of its source sentence, and not in that of the target.
    tagged = RawPairs(["Ba de.", "ba"], ["ba", "Ba de."], ["", ""], tag="<2fr>")
    limit = len(codec.encode_source(["Ba de."])[0])
    config = DataConfig(
        source_lang="ab", target_lang="cd", train=("train",), valid="valid", dest="data", max_length=limit
    )
    encoded = map(Encoder(codec, config), (tagged, tagged._replace(tag="")))
    assert [block.values["kept"] for block in encoded] == [1, 2]


@pytest.mark.parametrize("options, message", [
    (["--tag=bt", "--tag="], "--tag must be a word in angle brackets, such as <bt>, but is 'bt'"),
    (["--tag=<b t>", "--tag="], "--tag must be a word in angle brackets, such as <bt>, but is '<b t>'"),
    (["--tag=<s>", "--tag="], "--tag <s> is the name of a special piece; choose another"),
    (["--tag=<bt>"], "--tag must be given once for each of the 2 --train, but is <bt>"),
])  # fmt: skip
def test_wrong_tags_are_refused(corpora: list[str], tmp_path: Path, options: list[str], message: str) -> None:
    assert message in failed("preprocess", *LANGS, *corpora, *options, f"--dest={tmp_path}/data")


def test_a_subword_model_without_the_tags_is_refused(corpora: list[str], tmp_path: Path) -> None:
    preprocess(corpora, tmp_path / "data")
    model = [f"--subword-model={tmp_path}/data/subword.model", "--tag=<bt>", "--tag="]
    said = failed("preprocess", *LANGS, *corpora, *model, f"--dest={tmp_path}/other")
    assert "has no piece <bt>; leave out --tag" in said


def test_tags_do_not_count_for_filters_and_word_alignments(write_corpus: Write, tmp_path: Path) -> None:
    pairs = [("ba de ki", "ik ed ab"), ("", "lo"), ("lo mu", "um ol")] * 20
    prefix = write_corpus("linked", pairs)
    (tmp_path / "links").write_text("0-2 2-0\n\n0-1 1-0\n" * 20)
    run("preprocess", *LANGS, f"--train={prefix}", f"--valid={prefix}", f"--alignments={tmp_path}/links", "--tag=<bt>",
        "--vocab-size=290", f"--dest={tmp_path}/data")  # fmt: skip
    data = DataFolder.open(tmp_path / "data")
    split = data.split("train")
    assert len(split) == 40
    assert split.alignments is not None
    given = [{(0, 2), (2, 0)}, {(0, 1), (1, 0)}] * 20
    for index, (source, target) in enumerate([pairs[0], pairs[2]] * 20):
        words = data.codec.words("source", source, split.source[index][1:])
        target_words = data.codec.words("target", target, split.target[index])
        expected = {
            (i + 1, j) for i, a in enumerate(words) for j, b in enumerate(target_words) if (a, b) in given[index]
        }
        assert set(map(tuple, split.alignments[index].reshape(-1, 2).tolist())) == expected


def test_each_part_of_a_long_line_has_the_tag(corpora: list[str], tmp_path: Path) -> None:
    preprocess(corpora, tmp_path / "data", "--tag=<2de>", "--tag=<2fr>")
    codec = DataFolder.open(tmp_path / "data").codec
    lines = ["<2fr> " + "ba deki lo " * 20, "  <2de>\tba", "<2de>", " "]
    *parts, last = encode(codec, whole(codec, *lines), SearchConfig(max_source_length=15))
    (tag,) = codec.source.ids(["<2fr>"])
    assert [part.key for part in parts] == [(1, 0, n) for n in range(len(parts))]
    assert len(parts) > 2
    assert all(part.ids[0] == tag and len(part.ids) <= 15 for part in parts)
    text = [i for part in parts for i in part.ids[1:].tolist()]
    assert text == codec.encode_source(["ba deki lo " * 20])[0]
    assert last.key == (2, 0, 0)  # the other lines are blank
    assert last.ids.tolist() == [codec.source.ids(["<2de>"])[0], *codec.encode_source(["ba"])[0]]
