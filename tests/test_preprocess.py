"""`nmt preprocess` makes a data folder from text files, and can be interrupted at any time."""

import dataclasses
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import commands
import forks
import numpy as np
import pytest
import sentencepiece
import tasks
from conftest import invented_pairs
from forks import At

from nmt.config import DataConfig, JobConfig
from nmt.data import corpora, encoding
from nmt.data import preprocess as module
from nmt.data.folder import DataFolder
from nmt.data.preprocess import preprocess
from nmt.data.writer import Flat, flatten
from nmt.errors import NmtError
from nmt.text.subword import Subword

Run = Callable[..., DataFolder]
WriteCorpus = Callable[[str, list[tuple[str, str]]], str]


@pytest.fixture
def run(tiny_corpus: dict[str, str], tmp_path: Path) -> Run:
    """Returns a function that preprocesses the tiny corpus with changed options and opens the data folder."""

    def run_with(job: JobConfig | None = None, reopen: bool = True, **changes: Any) -> Any:
        options = {"source_lang": "en", "target_lang": "de", "dest": str(tmp_path / "data"), "vocab_size": 330}
        corpora = {"train": (tiny_corpus["train"],), "valid": tiny_corpus["valid"], "test": (tiny_corpus["test"],)}
        config = DataConfig(**{**options, **corpora, "workers": 1, **changes})
        preprocess(config, job)
        return DataFolder.open(config.dest) if reopen else None

    return run_with


def decoded(data: DataFolder, name: str) -> list[str]:
    target = data.split(name).target
    return data.codec.decode_target([target[i].tolist() for i in range(len(target))])


@pytest.mark.parametrize("changes", [
    {}, {"tokenizer": "none"}, {"subword": "unigram"}, {"subword": "wordpiece"}, {"joint_vocab": False},
])  # fmt: skip
def test_text_is_encoded_in_order(run: Run, changes: dict[str, Any]) -> None:
    data = run(**changes)
    lines = {"train": invented_pairs(300, 0), "valid": invented_pairs(20, 1), "test": invented_pairs(10, 2)}
    for name, pairs in lines.items():
        split = data.split(name)
        for side, encode in ((0, data.codec.encode_source), (1, data.codec.encode_target)):
            array = (split.source, split.target)[side]
            assert [array[i].tolist() for i in range(len(array))] == encode([pair[side] for pair in pairs])
        targets = [target for _, target in pairs]
        if changes.get("tokenizer") != "none":  # detokenising removes the space before "!"
            targets = [target.replace(" !", "!") for target in targets]
        assert decoded(data, name) == targets
    assert data.raw_lines("valid", "en") == [source for source, _ in lines["valid"]]
    assert data.raw_lines("test", "de") == [target for _, target in lines["test"]]
    assert (data.codec.source is data.codec.target) == changes.get("joint_vocab", True)
    assert len(data.codec.source) == len(data.codec.target) == 330
    assert not set(range(4)) & set(data.split("train").source.tokens.tolist())


def test_lowercasing_changes_the_data_but_not_the_raw_text(run: Run) -> None:
    data = run(lowercase=True, source_lang="de", target_lang="en")
    assert decoded(data, "train") == [source.lower() for source, _ in invented_pairs(300, 0)]
    assert data.raw_lines("valid", "en") == [source for source, _ in invented_pairs(20, 1)]


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
    assert len(data.split("valid")) == len(data.split("test")) == len(data.raw_lines("valid", "en")) == len(odd)
    assert data.split("valid").source.lengths[np.array([0, 2])].tolist() == [1, 1]
    said = " ".join(capsys.readouterr().err.split())
    assert "dropped 6 training pairs: 3 with an empty side, 1 longer than --max-length 50, 2 beyond" in said


def test_pairs_exactly_at_the_limits_are_kept(run: Run, write_corpus: WriteCorpus, tmp_path: Path) -> None:
    model = tmp_path / "characters.model"
    model.write_bytes(Subword.train(["a"], "bpe", 263).to_bytes())  # pieces: ▁a, ▁, a
    train = write_corpus("edges", [("a" * 4, "a"), ("a" * 5, "a a"), ("a a", "a a a a"), ("a", "a a a a")])
    data = run(train=(train,), subword_model=str(model), max_length=4, max_length_ratio=2.0)
    lengths = [np.asarray(side.lengths).tolist() for side in (data.split("train").source, data.split("train").target)]
    assert lengths == [[3], [5]]
    assert data.meta.splits["train"].dropped == {"empty": 0, "too_long": 1, "uneven": 2}


def test_dropping_all_pairs_is_an_error(run: Run, write_corpus: WriteCorpus, tmp_path: Path) -> None:
    train = write_corpus("uneven", [("ba de " * 20 * i, "lo") for i in range(1, 5)])
    with pytest.raises(
        NmtError, match=r"all 4 training pairs were dropped \(.* 3 longer than --max-length 100, 1 beyond"
    ):
        run(train=(train,), vocab_size=270, max_length=100)
    assert not list(tmp_path.glob("data*"))


def test_the_data_is_the_same_for_any_number_of_workers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "CHUNK_PAIRS", 50)
    monkeypatch.setattr(module, "_SHARD_PAIRS", 120)
    folders = [run(workers=workers, max_length=30, dest=str(tmp_path / f"of{workers}")).path for workers in (1, 2)]
    same_data(*folders)


def test_chunks_are_bounded_in_pairs_and_characters() -> None:
    pairs = [("a" * 400_000, "b" * 400_000, "0-0", "")] * 5 + [("a", "b", "", "<bt>")] * 4100
    chunks = list(corpora.chunked(pairs))
    assert [pair for chunk in chunks for pair in zip(*chunk[:4], strict=True)] == pairs
    assert [chunk.first for chunk in chunks] == [0, 2, 4, 2004, 4004]
    assert [len(chunk.source) for chunk in chunks] == [2, 2, 2000, 2000, 101]


@pytest.mark.parametrize("wanted", [0, 1, 7, 20])
def test_the_sample_is_uniform_and_has_the_requested_size(wanted: int) -> None:
    pairs = [(str(i), "") for i in range(20)]
    counts = [0] * 20
    for seed in range(500):
        sample = list(corpora.sample(pairs, 20, wanted, seed))
        assert len(sample) == wanted
        assert sample == sorted(sample, key=lambda pair: int(pair[0]))
        for source, _ in sample:
            counts[int(source)] += 1
    assert all(abs(count - 500 * wanted / 20) < 60 for count in counts)


def test_the_subword_model_is_trained_on_the_sample_only(run: Run, tmp_path: Path) -> None:
    whole = run(dest=str(tmp_path / "whole"), subword_sample=300)
    part = run(dest=str(tmp_path / "part"), subword_sample=40, vocab_size=330)
    assert whole.meta.fingerprint != part.meta.fingerprint
    with pytest.raises(NmtError, match="at most"):
        run(dest=str(tmp_path / "tiny"), subword_sample=1, vocab_size=400)
    again = run(dest=str(tmp_path / "again"), subword_sample=40, vocab_size=330)
    assert again.meta.fingerprint == part.meta.fingerprint


def test_a_given_subword_model_is_used(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = run(dest=str(tmp_path / "first"), vocab_size=300).path / "subword.model"
    data = run(subword_model=str(model), subword="wordpiece")
    assert len(data.codec.source) == 300
    assert data.codec.source.to_bytes() == model.read_bytes()
    assert data.codec.source.kind == "wordpiece"
    assert "warning" not in capsys.readouterr().err
    with pytest.raises(NmtError, match=r"--subword-model .*/nowhere cannot be read"):
        run(subword_model=str(tmp_path / "nowhere"), dest=str(tmp_path / "second"))
    with pytest.raises(NmtError, match=r"--subword-model .*meta\.json is not a sentencepiece model"):
        run(subword_model=str(tmp_path / "first" / "meta.json"), dest=str(tmp_path / "second"))


def test_a_subword_model_without_byte_fallback_gets_a_warning(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["ba de ki lo mu"]), model_writer=model, vocab_size=17, model_type="char",
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    (tmp_path / "their.model").write_bytes(model.getvalue())
    run(subword_model=str(tmp_path / "their.model"))
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("was trained without byte_fallback; characters that have no piece will be lost") == 1


def test_equal_text_on_both_sides_gets_a_warning(
    run: Run, write_corpus: WriteCorpus, capsys: pytest.CaptureFixture[str]
) -> None:
    run(valid=write_corpus("same", [(source, source) for source, _ in invented_pairs(5)]))
    said = " ".join(capsys.readouterr().err.split())
    assert "same.en and " in said
    assert said.count("contain the same text; check whether one is in the wrong language") == 1


def test_swapped_languages_get_a_warning(
    run: Run, write_corpus: WriteCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    english, german = "the dog and the cat of that man", "der Hund und die Katze von dem Mann"
    run(valid=write_corpus("right", [(english, german)] * 10))
    assert "looks like" not in capsys.readouterr().err
    run(valid=write_corpus("swapped", [(german, english)] * 10), dest=str(tmp_path / "other"))
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"swapped.en looks like de, and .*swapped.de looks like en; check whether --source-lang", said)


@pytest.mark.parametrize("spoilt, data, changes, message", [
    ("train.de", b"\xff\n" * 300, {}, r"train\.de, line 1: byte 1 \(0xff\) is not UTF-8"),
    ("test.de", b"ba\n" * 9, {}, r"test\.en has 10 lines but .*test\.de has 9"),
    ("valid.en", b"", {}, r"valid\.en has 0 lines but .*valid\.de has 20"),
    (None, b"", {"source_lang": "fr"}, r"neither .*train\.fr nor .*train\.fr\.gz exists"),
    (None, b"", {"vocab_size": 20_000}, r"--vocab-size is 20000, .* at most \d+ pieces"),
    (None, b"", {"vocab_size": 8}, r"--vocab-size is 8, .* need \d+; raise --vocab-size"),
])  # fmt: skip
def test_bad_input_is_refused_and_leaves_no_files(
    run: Run, tmp_path: Path, spoilt: str | None, data: bytes, changes: dict[str, Any], message: str
) -> None:
    if spoilt:
        (tmp_path / spoilt).write_bytes(data)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NmtError, match=message):
        run(**changes)
    assert sorted(tmp_path.iterdir()) == before


def test_an_empty_corpus_is_an_error(run: Run, write_corpus: WriteCorpus) -> None:
    with pytest.raises(NmtError, match=r"empty\.en and .*empty\.de have no lines"):
        run(valid=write_corpus("empty", []))


def test_the_data_folder_is_created_with_its_parents_but_never_overwritten(run: Run, tmp_path: Path) -> None:
    dest = tmp_path / "a" / "b" / "data"
    run(dest=str(dest))
    assert [path.name for path in dest.parent.iterdir()] == ["data"]
    with pytest.raises(NmtError, match=r"--dest .*/a/b/data already exists; remove it or choose another folder"):
        run(dest=str(dest))
    with pytest.raises(NmtError, match="--dest is empty; give the name of a new folder"):
        run(dest="")
    assert len(DataFolder.open(dest).split("train")) == 300


@pytest.fixture
def command(write_corpus: WriteCorpus, tmp_path: Path) -> list[str]:
    """Returns a command that preprocesses 2,500 pairs, which are enough for two workers."""
    train, valid = write_corpus("large", invented_pairs(2500)), write_corpus("v", invented_pairs(5))
    options = ["--source-lang=en", "--target-lang=de", f"--train={train}", f"--valid={valid}", "--vocab-size=330"]
    return ["preprocess", *options, f"--dest={tmp_path}/out/data", "--subword-sample=500"]


def test_the_command_does_not_import_torch(command: list[str], tmp_path: Path) -> None:
    shadow = tmp_path / "shadow" / "torch"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise SystemExit('torch was imported')")
    arguments, environment = [*command, "--workers=2"], os.environ | {"PYTHONPATH": str(shadow.parent)}
    done = subprocess.run([sys.executable, "-m", "nmt", *arguments], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    assert "train: 2,500 pairs, en " in done.stderr
    assert "vocabulary: 330 pieces, joint (bpe)" in done.stderr
    assert len(DataFolder.open(tmp_path / "out" / "data").split("train")) == 2500


@pytest.mark.parametrize(("number", "workers"), [
    (signal.SIGTERM, 1), (signal.SIGHUP, 1), (signal.SIGUSR1, 1), (signal.SIGINT, 2),
])  # fmt: skip
def test_a_signal_ends_the_command_without_traceback_or_files(
    command: list[str], tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    """All processes of the command get the signal, as from a terminal, when the first shard has been encoded."""
    stop = At("nmt.jobs.folder.JobFolder.add", do=partial(os.killpg, 0, number))
    process = forks.start(*command, f"--workers={workers}", before=stop, stderr=subprocess.PIPE)
    said = tasks.read_to_end(process.stderr)  # the workers have ended
    process.wait(75)
    assert "Traceback" not in said
    assert said.endswith("stopped; start the same command again\n")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def interrupted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupts preprocessing after it has finished 200 of 300 training pairs and encoded more."""
    monkeypatch.setattr(module, "_SHARD_PAIRS", 100)
    monkeypatch.setattr(corpora, "CHUNK_PAIRS", 30)
    calls = itertools.count(1)

    def flatten_or_interrupt(*arguments: Any) -> Flat:
        if next(calls) > 3 * 9:  # source, target and links of 9 chunks are complete
            raise KeyboardInterrupt
        return flatten(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(encoding, "flatten", flatten_or_interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(max_length=30)


@pytest.mark.usefixtures("interrupted")
def test_interrupted_preprocessing_resumes_and_gives_the_same_data(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {path.name for path in tmp_path.iterdir()} >= {"data.unfinished"}
    assert not (tmp_path / "data").exists()
    data = run(max_length=30)
    said = capsys.readouterr().err
    assert "resuming after 200 of 300 pairs" in said
    assert "Training" not in said
    assert "Checking" not in said
    run(max_length=30, dest=str(tmp_path / "whole"))
    same_data(tmp_path / "data", tmp_path / "whole")
    assert data.meta.splits["train"].pairs < 300
    assert not (tmp_path / "data.unfinished").exists()


def same_data(found: Path, expected: Path) -> None:
    files = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (found, expected)]
    metas = [json.loads(of_folder.pop("meta.json")) for of_folder in files]
    assert files[0] == files[1]
    assert metas[0]["splits"] == metas[1]["splits"]


@pytest.mark.usefixtures("interrupted")
def test_interrupted_work_with_other_options_text_or_files_is_not_resumed(
    run: Run, tiny_corpus: dict[str, str], tmp_path: Path
) -> None:
    unfinished = tmp_path / "data.unfinished"
    with pytest.raises(NmtError, match=r"data.unfinished belongs to .* whose --max-length is 30, but now it is 31"):
        run(max_length=31)
    for split, flag in (("train", "--train text in en"), ("test", r"content of .*test.en")):
        text = Path(f"{tiny_corpus[split]}.en")
        before = text.read_bytes()
        text.write_bytes(before.replace(b" ", b"", 1))
        with pytest.raises(NmtError, match=rf"data.unfinished belongs to an unfinished job whose {flag} is"):
            run(max_length=30)
        text.write_bytes(before)
    (unfinished / "average.safetensors").write_bytes(b"weeks of work")
    with pytest.raises(NmtError, match=r"data.unfinished/average.safetensors was not made by this command"):
        run(max_length=30)
    assert (unfinished / "average.safetensors").read_bytes() == b"weeks of work"
    (unfinished / "average.safetensors").unlink()
    model = (unfinished / "data" / "subword.model").read_bytes()
    (unfinished / "data" / "subword.model").write_text("x")
    with pytest.raises(NmtError, match=r"subword models in .* cannot be read \(.*; remove .*data.unfinished to start"):
        run(max_length=30)
    (unfinished / "data" / "subword.model").write_bytes(model)
    run(max_length=30)


@pytest.mark.usefixtures("interrupted")
def test_work_is_kept_if_the_finished_folder_cannot_be_renamed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> None:
        raise OSError(39, "Directory not empty")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", fails)
        with pytest.raises(
            NmtError, match=r"--dest .*data cannot be written \(Directory not empty\); move what is there"
        ):
            run(max_length=30)
    run(max_length=30)
    assert "resuming after 300 of 300 pairs" in capsys.readouterr().err
    assert not (tmp_path / "data.unfinished").exists()


def test_work_that_is_killed_goes_on_with_the_same_command(command: list[str], tmp_path: Path) -> None:
    for death in ("nmt.data.preprocess.check", "nmt.data.writer.StoreWriter.finish", "pathlib.Path.rename"):
        forks.run(*command, "--workers=1", before=At(death), code=-signal.SIGKILL)
        assert not (tmp_path / "out" / "data").exists()
        (tmp_path / "out" / "data.unfinished" / "data" / "valid.en.tokens").write_bytes(b"rubbish")
    found, whole = tmp_path / "out" / "data", tmp_path / "whole"
    for dest in (found, whole):
        commands.run(*command, "--workers=1", f"--dest={dest}")
    same_data(found, whole)
    assert list(found.parent.iterdir()) == [found]


def test_parts_of_the_training_text_are_merged(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(dest=str(tmp_path / "whole"), max_length=30).path
    monkeypatch.setattr(module, "_SHARD_PAIRS", 40)
    for options in (JobConfig(shard="2/3"), JobConfig(shard="1/3"), JobConfig(shard="3/3"), JobConfig(merge=True)):
        assert not (tmp_path / "data").exists()
        run(max_length=30, job=options, reopen=options.merge)
    same_data(tmp_path / "data", expected)
