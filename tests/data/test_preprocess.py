"""`nmt preprocess` makes a data folder from text files, and can be interrupted at any time."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import commands
import forks
import numpy as np
import pytest
import tasks
from checkpoints import TEXT_CONFIG
from conftest import SIZES, invented_pairs, other_model
from forks import At
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import DataConfig, JobConfig
from nmt.data import codec, encoder, raw_pairs
from nmt.data import preprocess as module
from nmt.data.arrays import TokenArray
from nmt.data.augmentation import augmented, in_title_case, with_typing_errors, without_final_punctuation
from nmt.data.folder import DataFolder
from nmt.data.preprocess import preprocess
from nmt.data.raw_pairs import RawPairs, augmented_pairs
from nmt.errors import NmtError, StoppedError
from nmt.jobs.stream import Execution
from nmt.text.languages import look_swapped
from nmt.text.subword import Subword

pytestmark = pytest.mark.usefixtures("printing")
Run = Callable[..., DataFolder]
WriteCorpus = Callable[[str, list[tuple[str, str]]], str]


@pytest.fixture
def run(tiny_corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that preprocesses the tiny corpus in the working folder and opens the data folder."""
    monkeypatch.chdir(tmp_path)

    def run_with(job: JobConfig | None = None, reopen: bool = True, **changes: Any) -> Any:
        options = {"source_lang": "en", "target_lang": "de", "dest": "data"}
        size = {} if "subword_model" in changes else {"vocab_size": 330}
        corpora = {"train": (tiny_corpus["train"],), "valid": tiny_corpus["valid"], "test": (tiny_corpus["test"],)}
        config = DataConfig(**{**options, **size, **corpora, "workers": 1, **changes})
        preprocess(config, Execution(job or JobConfig()))
        return DataFolder.open(config.dest) if reopen else None

    return run_with


def tokens(sentences: TokenArray) -> list[list[int]]:
    return [sentences[i].tolist() for i in range(len(sentences))]


def decoded(data: DataFolder, name: str) -> list[str]:
    return data.codec.decode_target(tokens(data.split(name).target))


def same_data(data: Path | str, expected: Path | str) -> None:
    files = [{path.name: path.read_bytes() for path in Path(folder).iterdir()} for folder in (data, expected)]
    metas = [json.loads(contents.pop("meta.json")) for contents in files]
    assert files[0] == files[1]
    assert metas[0]["splits"] == metas[1]["splits"]


def warnings(capsys: pytest.CaptureFixture[str]) -> str:
    """Returns what was written to standard error, without line breaks."""
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("changes", [
    {}, {"tokenizer": "moses"}, {"subword": "unigram"}, {"subword": "wordpiece"}, {"joint_vocab": False},
    {"subword": "char"},
])  # fmt: skip
def test_text_is_encoded_in_order(run: Run, changes: dict[str, Any]) -> None:
    data = run(**changes)
    for seed, (name, size) in enumerate(SIZES.items()):
        source, target = map(list, zip(*invented_pairs(size, seed), strict=True))
        assert tokens(data.split(name).source) == data.codec.encode_source(source)
        assert tokens(data.split(name).target) == data.codec.encode_target(target)
        if name != "train":
            assert data.raw_lines(name) == (source, target)
        assert decoded(data, name) == target
    assert (data.codec.source is data.codec.target) == changes.get("joint_vocab", True)
    assert len(data.codec.source) == len(data.codec.target) <= 330
    assert not set(range(4)) & set(data.split("train").source.tokens.tolist())


def test_lowercasing_changes_the_data_but_not_the_raw_text(run: Run) -> None:
    data = run(lowercase=True, source_lang="de", target_lang="en")
    assert decoded(data, "train") == [source.lower() for source, _ in invented_pairs(300, 0)]
    assert data.raw_lines("valid")[1] == [source for source, _ in invented_pairs(20, 1)]


def test_several_corpora_follow_one_another(run: Run, tiny_corpus: dict[str, str]) -> None:
    data = run(train=(tiny_corpus["train"], tiny_corpus["test"]), test=(tiny_corpus["test"], tiny_corpus["valid"]))
    assert list(data.meta.splits) == ["train", "valid", "test", "test1"]
    assert data.meta.splits["train"].corpora == [tiny_corpus["train"], tiny_corpus["test"]]
    assert decoded(data, "train")[300:] == decoded(data, "test")
    assert len(data.split("test1")) == 20


def test_empty_long_and_uneven_training_pairs_are_dropped_and_counted(
    run: Run, write_corpus: WriteCorpus, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = invented_pairs(200)
    odd = [("", "ba"), ("ba", " \t"), ("", ""), ("ba " * 60, "de " * 60), ("ba " * 30, "de"), ("de", "ba " * 30)]
    train = write_corpus("odd", kept[:100] + odd + kept[100:])
    valid = write_corpus("oddvalid", odd)
    data = run(train=(train,), valid=valid, test=(valid,), max_length=50, max_length_ratio=9.0)
    assert len(data.split("train")) == 200
    assert data.meta.splits["train"].dropped == {"empty": 3, "too_long": 1, "uneven": 2}
    assert data.meta.options["max_length"] == 50
    assert set(data.meta.options) == {field.name for field in dataclasses.fields(DataConfig)}
    assert np.max(data.split("train").source.lengths) <= 51
    assert len(data.split("valid")) == len(data.split("test")) == len(data.raw_lines("valid")[0]) == len(odd)
    assert data.split("valid").source.lengths[np.array([0, 2])].tolist() == [1, 1]
    assert "6 training pairs: 3 with an empty side, 1 longer than --max-length 50, 2 beyond" in warnings(capsys)


def test_pairs_exactly_at_the_limits_are_kept(run: Run, write_corpus: WriteCorpus, tmp_path: Path) -> None:
    model = tmp_path / "characters.model"
    model.write_bytes(Subword.train(["a"], "bpe", 263).to_bytes())  # pieces: ▁a, ▁, a
    train = write_corpus("edges", [("a" * 4, "a"), ("a" * 5, "a a"), ("a a", "a a a a"), ("a", "a a a a")])
    data = run(train=(train,), subword_model=str(model), max_length=4, max_length_ratio=2.0)
    lengths = [np.asarray(side.lengths).tolist() for side in (data.split("train").source, data.split("train").target)]
    assert lengths == [[3], [5]]
    assert data.meta.splits["train"].dropped == {"empty": 0, "too_long": 1, "uneven": 2}


def test_chunks_are_bounded_in_pairs_and_characters() -> None:
    pairs = [("a" * 400_000, "b" * 400_000, "0-0")] * 5 + [("a", "b", "")] * 4100
    chunks = list(raw_pairs.raw_pairs(pairs))
    assert [pair for chunk in chunks for pair in zip(*chunk[:3], strict=True)] == pairs
    assert [chunk.first for chunk in chunks] == [0, 2, 4, 2004, 4004]
    assert [len(chunk.source) for chunk in chunks] == [2, 2, 2000, 2000, 101]


@pytest.mark.parametrize("wanted", [0, 1, 7, 20])
def test_the_sample_is_uniform_and_has_the_requested_size(wanted: int) -> None:
    pairs = [(str(i), "") for i in range(20)]
    counts = [0] * 20
    for seed in range(500):
        sample = list(codec.sample(pairs, 20, wanted, seed))
        assert len(sample) == wanted
        assert sample == sorted(sample, key=lambda pair: int(pair[0]))
        for source, _ in sample:
            counts[int(source)] += 1
    assert all(abs(count - 500 * wanted / 20) < 60 for count in counts)


def test_the_subword_model_is_trained_on_the_sample_only(run: Run) -> None:
    samples = {"whole": 300, "part": 40, "again": 40}
    whole, part, repetition = (run(dest=dest, subword_sample=size).meta.fingerprint for dest, size in samples.items())
    assert whole != part == repetition
    with pytest.raises(NmtError, match="at most"):
        run(subword_sample=1, vocab_size=400)


def test_a_given_subword_model_is_used_and_should_have_byte_fallback(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    model = run(dest="first", vocab_size=300).path / "subword.model"
    data = run(subword_model=str(model), subword="wordpiece")
    assert len(data.codec.source) == 300
    assert data.codec.source.to_bytes() == model.read_bytes()
    assert data.codec.source.kind == "wordpiece"
    assert "warning" not in capsys.readouterr().err
    Path("their.model").write_bytes(other_model(byte_fallback=False))
    run(subword_model="their.model", dest="theirs")
    assert warnings(capsys).count("without byte_fallback; characters that have no piece will be lost") == 1


def test_equal_text_on_both_sides_or_in_two_corpora_and_swapped_languages_get_a_warning(
    run: Run, write_corpus: WriteCorpus, tiny_corpus: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english, german = "the dog and the cat of that man", "der Hund und die Katze von dem Mann"
    right, swapped = (english, german), (german, english)
    for name, pair in {"same": ("ba", "ba"), "right": right, "copy": right, "swapped": swapped}.items():
        write_corpus(name, [pair] * 10)
    run(train=(tiny_corpus["train"], "copy"), valid="right", test=("same", "swapped"))
    said = warnings(capsys).replace(f"{tmp_path}/", "")
    assert said.count("same.en and same.de have the same text; check whether one is in a wrong language") == 1
    assert "swapped.en looks like de, and swapped.de looks like en; check whether --source-lang" in said
    assert look_swapped([german] * 10, [english] * 10, "en-GB", "deu_Latn")
    assert not look_swapped([english] * 10, [german] * 10, "en-GB", "deu_Latn")
    assert "--valid right has the same text as --train copy, so it measures no quality" in said
    assert said.count("warning: --valid") == said.count("warning: same.en") == said.count("warning: swapped.en") == 1


@pytest.mark.parametrize("spoilt, changes, message", [
    ({"train.de": b"\xff\n" * 300}, {}, r"train\.de, line 1: byte 1 \(0xff\) is not UTF-8"),
    ({"test.de": b"ba\n" * 9}, {}, r"test\.en has 10 lines but .*test\.de has 9"),
    ({"valid.en": b"", "valid.de": b""}, {}, r"valid\.en and .*valid\.de have no lines"),
    ({"train.de": b"ba " * 101 + b"\n" * 300}, {"max_length": 100},
     r"all 300 training pairs were dropped \(299 with an empty side, 1 longer than --max-length 100, 0 beyond"),
    ({}, {"source_lang": "fr"}, r"neither .*train\.fr nor .*train\.fr\.gz exists"),
    ({}, {"vocab_size": 20_000}, r"--vocab-size is 20000, .* at most \d+ pieces"),
    ({}, {"vocab_size": 8}, r"8 pieces are too few, .* need \d+; give a larger --vocab-size"),
    ({}, {"subword_model": "nowhere"}, "--subword-model nowhere cannot be read"),
    ({}, {"subword_model": "test.en"}, r"--subword-model test\.en is not a sentencepiece model"),
    ({}, {"dest": "test.en"}, r"--dest test\.en already exists; remove it or choose another folder"),
    ({}, {"dest": ""}, "--dest is empty; give a value"),
])  # fmt: skip
def test_bad_input_is_refused_and_leaves_no_files(
    run: Run, tmp_path: Path, spoilt: dict[str, bytes], changes: dict[str, Any], message: str
) -> None:
    for name, data in spoilt.items():
        (tmp_path / name).write_bytes(data)
    contents = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(NmtError, match=message):
        run(**changes)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == contents


def test_a_subword_model_of_another_kind_is_refused(run: Run) -> None:
    run()
    run(dest="pieces", subword="unigram")
    with pytest.raises(NmtError, match=r"--subword-model data/subword\.model is not a unigram model"):
        run(dest="other", subword="unigram", subword_model="data/subword.model")
    with pytest.raises(NmtError, match=r"pieces/subword\.model is a unigram model; give --subword unigram"):
        run(dest="other", subword_model="pieces/subword.model")


def test_held_out_text_in_the_training_text_is_said(
    run: Run, write_corpus: WriteCorpus, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [
        *invented_pairs(60),
        ("The museum opens at nine o'clock on days in summer.", "Ja."),
        ("Two of them.", "Zwei von ihnen."),
    ]
    held_out = [
        ("THE MUSEUM OPENS AT TEN O'CLOCK ON DAYS IN SUMMER", "Nein."),
        ("TWO OF THEM", "Zwei von ihnen!"),
        ("Four.", "Vier."),
    ]
    train, valid, test = (write_corpus(f"c{n}", each) for n, each in enumerate((pairs, held_out, held_out[2:])))
    run(train=(train,), valid=valid, test=(test,))
    said = warnings(capsys)
    assert "valid: 1 of 3 pairs have a side that is in the training text, and 1 more have a similar one; drop" in said
    assert f"nmt clean --exclude {valid}" in said
    assert "test: 0 of 1 pair have a side that is in the training text, and 0 more have a similar one" in said


@pytest.fixture
def command(write_corpus: WriteCorpus, tmp_path: Path) -> list[str]:
    """Returns a command that preprocesses 2,500 pairs, which are enough for two workers."""
    train, valid = write_corpus("large", invented_pairs(2500)), write_corpus("v", invented_pairs(5))
    options = ["--source-lang=en", "--target-lang=de", f"--train={train}", f"--valid={valid}", "--vocab-size=330"]
    return ["preprocess", *options, f"--dest={tmp_path}/a/b/data", "--subword-sample=500"]


def test_the_command_does_not_import_torch(command: list[str], tmp_path: Path) -> None:
    shadow = tmp_path / "shadow" / "torch"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise SystemExit('torch was imported')")
    arguments, environment = [*command, "--workers=2"], os.environ | {"PYTHONPATH": str(shadow.parent)}
    done = subprocess.run([sys.executable, "-m", "nmt", *arguments], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "train: 2,500 pairs, en " in done.stderr
    assert "vocabulary: 330 pieces, joint (bpe)" in done.stderr
    assert len(DataFolder.open(tmp_path / "a/b/data").split("train")) == 2500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_ends_the_command_without_files(command: list[str], tmp_path: Path, number: signal.Signals) -> None:
    """All processes of the command get the signal, as from a terminal, when the first shard has been encoded."""
    stop = At("nmt.jobs.run.JobFolder.add", do=partial(os.killpg, 0, number))
    process = forks.start(*command, "--workers=2", before=stop, stderr=subprocess.PIPE)
    said = tasks.read_to_end(process.stderr)  # the workers have ended
    process.wait(75)
    assert "Traceback" not in said
    assert said.endswith("stopped; start the same command again\n")
    assert not (tmp_path / "a").exists()


@pytest.fixture
def interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupts preprocessing after it has finished 200 of 300 training pairs and encoded more."""
    monkeypatch.setattr(module, "_SHARD_PAIRS", 100)
    monkeypatch.setattr(raw_pairs, "CHUNK_PAIRS", 30)
    complete = [DEFAULT] * 3 * 9  # source, target and links of 9 chunks
    with monkeypatch.context() as patched, pytest.raises(StoppedError):
        patched.setattr(encoder, "flatten", Mock(wraps=encoder.flatten, side_effect=[*complete, KeyboardInterrupt]))
        run(max_length=30)


@pytest.mark.usefixtures("interrupted")
def test_interrupted_work_gives_the_same_data(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (tmp_path / "data.unfinished").exists() and not (tmp_path / "data").exists()
    data = run(max_length=30)
    said = capsys.readouterr().err
    assert "resuming after 200 of 300 pairs" in said
    assert "Training" not in said and "Checking" not in said
    same_data("data", run(max_length=30, dest="whole").path)
    assert data.meta.splits["train"].pairs < 300
    assert not (tmp_path / "data.unfinished").exists()


@pytest.mark.usefixtures("interrupted")
def test_interrupted_work_with_other_options_or_text_is_not_resumed(run: Run) -> None:
    with pytest.raises(NmtError, match=r"data.unfinished belongs to .* --max-length was 30 and is now 31"):
        run(max_length=31)
    for split, flag in (("train", "--train text in en"), ("test", r"content of .*test.en")):
        text = Path(f"{split}.en")
        content = text.read_bytes()
        text.write_bytes(content.replace(b" ", b"", 1))
        with pytest.raises(
            NmtError, match=rf"data.unfinished belongs to an unfinished job of another command, in which {flag} was"
        ):
            run(max_length=30)
        text.write_bytes(content)
    run(max_length=30)


@pytest.mark.usefixtures("interrupted")
def test_work_is_kept_if_renaming_fails(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "rename", Mock(side_effect=OSError(39, "Directory not empty")))
        with pytest.raises(NmtError, match=r"--dest data cannot be written \(Directory not empty\); move what is"):
            run(max_length=30)
    run(max_length=30)
    assert "resuming after 300 of 300 pairs" in capsys.readouterr().err
    assert not (tmp_path / "data.unfinished").exists()


def test_work_that_is_killed_goes_on_with_the_same_command(command: list[str], tmp_path: Path) -> None:
    for death in ("nmt.data.preprocess.check_pairs", "nmt.data.preprocess.complete", "pathlib.Path.rename"):
        forks.run(*command, "--workers=1", before=At(death), code=-signal.SIGKILL)
        assert not (tmp_path / "a/b/data").exists()
        (tmp_path / "a/b/data.unfinished/data/valid.en.tokens").write_bytes(b"rubbish")
    data, whole = tmp_path / "a/b/data", tmp_path / "whole"
    for dest in (data, whole):
        commands.run(*command, "--workers=1", f"--dest={dest}")
    same_data(data, whole)
    assert list(data.parent.iterdir()) == [data]


def test_neither_workers_nor_parts_change_the_data(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(dest="whole", max_length=30).path
    monkeypatch.setattr(raw_pairs, "CHUNK_PAIRS", 30)
    monkeypatch.setattr(module, "_SHARD_PAIRS", 40)
    same_data(run(dest="by-two", max_length=30, workers=2).path, expected)
    for options in (JobConfig(shard="2/3"), JobConfig(shard="1/3"), JobConfig(shard="3/3"), JobConfig(merge=True)):
        assert not (tmp_path / "data").exists()
        run(max_length=30, job=options, reopen=options.merge)
    same_data("data", expected)


# `--augment`: which pairs change and how, and that shards do not matter


PAIR = ("I don't know the old man.", "Ich kenne den alten Mann nicht.")
CHANGED = {
    ("I DON'T KNOW THE OLD MAN.", "ICH KENNE DEN ALTEN MANN NICHT."): "capitals",
    ("I Don't Know The Old Man.", "Ich Kenne Den Alten Mann Nicht."): "title",
    ("I don't know the old man", "Ich kenne den alten Mann nicht"): "punctuation",
    PAIR: "nothing",
}


def kind(pair: tuple[str, str]) -> str:
    if pair in CHANGED:
        return CHANGED[pair]
    if pair[1] == PAIR[1]:
        return "typing errors"
    assert pair[0] == pair[1]
    return "noise"


def test_pairs_change_as_often_as_the_help_says() -> None:
    """A binomial count is within five standard deviations of its mean, and these draws are always the same."""
    draws = 40_000
    counts = Counter(kind(augmented(PAIR, 1, position)) for position in range(draws))
    shares = {"capitals": 0.07, "title": 0.05, "typing errors": 0.05, "punctuation": 0.2, "noise": 0.0005}
    for name, share in shares.items():
        assert counts[name] == pytest.approx(draws * share, abs=5 * (draws * share * (1 - share)) ** 0.5), name
    assert augmented(PAIR, 1, 7) == augmented(PAIR, 1, 7)
    assert [augmented(PAIR, 1, n) for n in range(50)] != [augmented(PAIR, 2, n) for n in range(50)]


@given(st.text(max_size=60), st.integers())
def test_typing_errors_keep_the_words_apart_and_change_few_letters(line: str, seed: int) -> None:
    noisy_line = with_typing_errors(line, random.Random(seed))
    assert noisy_line.count(" ") == line.count(" ")
    errors = 1 + line.count(" ") // 8
    assert abs(len(noisy_line) - len(line)) <= errors
    kept = sum((Counter(line) & Counter(noisy_line)).values())
    assert kept >= len(line) - 2 * errors
    assert [c for c in noisy_line if not c.isalpha()] == [c for c in line if not c.isalpha()]


@pytest.mark.parametrize("line, expected", [
    ("It ends.", "It ends"),
    ("Fini\u00a0!", "Fini"),
    ("終わり。", "終わり"), ("میں جانتا ہوں۔", "میں جانتا ہوں"), ("أين؟", "أين"),
    ("Mr. X", "Mr. X"),
    ("Come at 8 p.m.", "Come at 8 p.m."),
    ("¿Qué? Nada.", "¿Qué? Nada"),
    ("¿Qué?", "Qué"),
    ("Pero ¿qué?", "Pero qué"),
    ("¿Qué? ¿Sí?", "¿Qué? Sí"),
    ("¿¡ Qué !?", "Qué"),
    ("...", "..."),
    ("", ""),
])  # fmt: skip
def test_only_final_punctuation_is_dropped(line: str, expected: str) -> None:
    assert without_final_punctuation(line) == expected
    assert in_title_case(line).lower() == line.lower()


def test_title_case_begins_behind_quotation_marks_and_brackets() -> None:
    assert in_title_case("say “yes, i do” (to «\u00a0l'ami\u00a0»)") == "Say “Yes, I Do” (To «\u00a0L'ami\u00a0»)"
    assert in_title_case("it's 'quoted'  text") == "It's 'Quoted'  Text"


def test_both_sides_or_none_lose_their_final_punctuation() -> None:
    pairs = [("Come at 8 p.m.", "Komm um 20 Uhr."), ("Come at 8.", "Komm um 8.")]
    variants = [{augmented(pair, 1, position) for position in range(200)} for pair in pairs]
    assert [any(target.endswith(("Uhr", "8")) for _, target in outcomes) for outcomes in variants] == [False, True]


def test_shards_do_not_matter_and_validation_does_not_change(trained: Path, tmp_path: Path) -> None:
    command = ["preprocess", "--source-lang=en", "--target-lang=de", f"--train={trained}/train", "--vocab-size=400",
               f"--valid={trained}/valid"]  # fmt: skip
    commands.run(*command, f"--dest={tmp_path}/plain", "--workers=1")
    commands.run(*command, f"--dest={tmp_path}/one", "--augment", "--workers=1")
    commands.run(*command, f"--dest={tmp_path}/two", "--augment", "--workers=2", "--shard-lines=70")
    stored = [{p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("plain", "one", "two")]
    plain_files, whole_files, sharded_files = ({n: b for n, b in files.items() if n != "meta.json"} for files in stored)
    assert whole_files == sharded_files
    assert whole_files["train.en.tokens"] != plain_files["train.en.tokens"]
    assert whole_files["valid.en.txt"] == plain_files["valid.en.txt"]
    assert b'"augment": true' in (tmp_path / "one" / "meta.json").read_bytes()


def test_pairs_whose_words_change_places_lose_their_alignment() -> None:
    rows = ["I saw a dog in a park", "Ich sah einen Hund in einem Park", "0-0 1-1 2-2 3-3 4-4 5-5 6-6"]
    changed_pairs = augmented_pairs(RawPairs(*(4000 * [text] for text in rows)), 1, TEXT_CONFIG)
    pairs = enumerate(zip(changed_pairs.source, changed_pairs.target, strict=True))
    wrong = [i for i, (source, target) in pairs if len(source.split()) != 7 or source == target]
    assert wrong
    assert [i for i, line in enumerate(changed_pairs.alignments) if not line] == wrong
