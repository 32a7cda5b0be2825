"""Earlier sentences as context: in the training text, in lines by command, and in documents."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from checkpoints import TEXT_CONFIG, WORDS, eloquent_checkpoint, saved, small_checkpoint, two_models
from commands import failed, run
from servers import serving

from nmt.config import DataConfig, SearchConfig
from nmt.data.encoder import Encoder, columns_of
from nmt.data.folder import DataFolder
from nmt.data.raw_pairs import RawPairs
from nmt.documents.document import ReadOptions
from nmt.documents.sentences import Sentences
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.protected import Protected
from nmt.text.subword import Subword
from nmt.text.text_config import CONTEXT_PIECE
from nmt.text.words import NO_WORD
from nmt.translate.encoding import encode
from nmt.translate.units import Unit, UnitMaker

LINES = [f"line {index} has a few words" for index in range(1, 30)]


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    subword = Subword.train([WORDS] * 5, "bpe", 301, marks=[CONTEXT_PIECE])
    config = TEXT_CONFIG.to_dict() | {"context": 2, "context_piece": CONTEXT_PIECE}
    return TextCodec(type(TEXT_CONFIG)(**config), subword, subword)


@pytest.fixture(scope="module")
def reader(codec: TextCodec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a model that reads context and whose translations depend on it."""
    folder = tmp_path_factory.mktemp("reader")
    return saved(eloquent_checkpoint(1, codec=codec), folder / "model.safetensors")


def test_earlier_lines_of_a_document_stand_behind_a_line(tmp_path: Path) -> None:
    lines = [*LINES[:12], "", *LINES[12:]]
    for suffix in ("en", "de"):
        (tmp_path / f"train.{suffix}").write_text("".join(f"{line}\n" for line in lines))
    corpora = ["--source-lang=en", "--target-lang=de", f"--train={tmp_path}/train", f"--valid={tmp_path}/train"]
    run("preprocess", *corpora, "--context=2", "--vocab-size=300", f"--dest={tmp_path}/data")
    data = DataFolder.open(str(tmp_path / "data"))
    (mark,) = data.codec.source.ids([CONTEXT_PIECE])
    counts = [0, 0, 0]
    for index in range(len(LINES)):
        ids = data.split("train").source[index].tolist()
        cuts = [-1, *(i for i, id_ in enumerate(ids) if id_ == mark), len(ids)]
        parts = data.codec.source.decode([ids[a + 1 : b] for a, b in pairwise(cuts)])
        assert parts[::-1] == LINES[index - len(parts) + 1 : index + 1]
        assert not 12 <= index < 12 + len(parts) - 1  # a blank line begins another document
        counts[len(parts) - 1] += 1
    assert min(counts) > 2
    assert mark not in data.split("valid").source[5].tolist()


@pytest.mark.parametrize("tag", ["", "<bt>"])
def test_a_line_with_its_context_and_tag_has_at_most_max_length_pieces(tag: str) -> None:
    subword = Subword.train([WORDS] * 5, "bpe", 302, tags=["<bt>"], marks=[CONTEXT_PIECE])
    changed = {"context": 1, "context_piece": CONTEXT_PIECE, "tags": ("<bt>",)}
    codec = TextCodec(type(TEXT_CONFIG)(**TEXT_CONFIG.to_dict() | changed), subword, subword)
    alone = len(codec.encode_source(["a few words"])[0]) + bool(tag)
    longest = 2 * alone + 1 - bool(tag)  # as long as a line and its context
    options = {"source_lang": "en", "target_lang": "de", "train": ("x",), "valid": "x", "dest": "x", "context": 1}
    pairs = RawPairs(["a few words"] * 20, ["words"] * 20, [""] * 20, tag=tag)
    for most, lengths in ((longest, {alone, longest}), (longest - 1, {alone})):
        source, *_ = columns_of(Encoder(codec, DataConfig(**options, max_length=most))(pairs))
        assert set(source.lengths.tolist()) == lengths


def test_a_unit_has_its_context_behind_its_sentences(codec: TextCodec) -> None:
    maker = UnitMaker(codec.config, Protected(), Direction("en", "de"), "sentence")
    unit = maker.complete(Unit("some words. a few more.", earlier=("learn pieces", "from words", "and more")))
    first, second = encode(codec, [unit], SearchConfig(alignments=True))
    texts = [codec.source.pieces(sentence.ids) for sentence in (first, second)]
    spelt = ["".join(pieces).replace("▁", " ").replace("<0x2E>", ".") for pieces in texts]
    assert spelt == [
        " some words.<context> and more<context> from words",
        " a few more.<context> some words.<context> and more",
    ]
    assert max(first.words) == 1
    assert first.words[0] == 0
    assert first.words.index(NO_WORD) == list(first.ids).index(codec.source.ids(["<context>"])[0])


def test_info_says_that_a_model_reads_context(reader: Path) -> None:
    assert b"up to 2 earlier lines as context" in run("info", reader).stdout


def test_lines_depend_on_earlier_ones_up_to_a_blank_line(reader: Path, tmp_path: Path) -> None:
    lines = [*LINES[:3], "", *LINES[:3], LINES[2]]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    alone = run("generate", reader, "--input", tmp_path / "text").stdout.splitlines()
    output = run("generate", reader, "--input", tmp_path / "text", "--context").stdout.splitlines()
    assert alone[:3] == alone[4:7] and alone[6] == alone[7]
    assert output[:3] == output[4:7] and output[0] == alone[0]
    assert output[2] != alone[2]
    objects = [json.dumps({"source": LINES[2], "context": context}) for context in (LINES[:2], [], LINES[:1])]
    written = run("generate", reader, "--input-format=jsonl", stdin="\n".join(objects).encode()).stdout.splitlines()
    assert written[:2] == [output[2], alone[2]]
    pairs = [json.loads(line) | {"target": "words"} for line in objects]
    lines = "\n".join(map(json.dumps, pairs)).encode()
    scores = run("rescore", reader, "--input-format=jsonl", stdin=lines).stdout.splitlines()
    (score,) = run("rescore", reader, stdin=f"{LINES[2]}\twords\n".encode()).stdout.splitlines()
    assert len(set(scores)) == 3 and abs(float(scores[1]) - float(score)) < 1e-4


@pytest.mark.parametrize("options", [["--shard-lines=2"], ["--shard-lines=7", "--workers=2"]])
def test_shards_and_workers_change_no_byte(reader: Path, tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in LINES))
    for output, more in (("one", []), ("two", options)):
        run("generate", reader, "--input", tmp_path / "text", "--output", tmp_path / output, "--context", *more)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_the_sentences_of_a_document_have_context(codec: TextCodec) -> None:
    direction = Direction("en", "de")
    maker = UnitMaker(codec.config, Protected(), direction, "sentence")
    options = ReadOptions("", *direction, False, Protected(), ())
    sentences = Sentences(maker, options, has_known=False)
    sentences.read("\n\n".join([*LINES[:3], LINES[2]]).encode(), "txt", "text.txt")
    assert [sentence.earlier for sentence in sentences.distinct] == [
        (), tuple(LINES[:1]), tuple(LINES[:2]), tuple(LINES[1:3])
    ]  # fmt: skip


def test_context_ends_at_the_first_of_two_models(codec: TextCodec, tmp_path: Path) -> None:
    config = type(TEXT_CONFIG)(**codec.config.to_dict())
    first = eloquent_checkpoint(1, codec=TextCodec(config, codec.source, codec.source))
    _, second = two_models(tmp_path)
    reader = saved(first, tmp_path / "reader.safetensors")
    with serving(reader, second, "--device=cpu") as server:
        lines = ["a few words", "some more pieces"]
        middle = [
            each["hypotheses"][0]["text"]
            for each in server.translate("\n".join(lines), target_lang="de", source_lang="en")["translations"][0][
                "sentences"
            ]
        ]
        alone = server.translate(middle, source_lang="de", target_lang="fr", split=False)["translations"]
        both = server.translate("\n".join(lines), source_lang="en", target_lang="fr")["translations"][0]["text"]
    assert both.splitlines() == [each["text"] for each in alone]


def test_a_model_without_context_says_so(tmp_path: Path) -> None:
    model = saved(small_checkpoint(1), tmp_path / "model.safetensors")
    message = "has not learnt to read --context; train it with nmt preprocess --context"
    assert message in failed("generate", model, "--context", stdin=b"a\n")
