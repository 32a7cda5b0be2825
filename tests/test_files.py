"""Commands write their output completely or not at all, never over their input, and can write into devices."""

import os
import re
import shlex
import shutil
import signal
import stat
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import forks
import pytest
from commands import LANGS, TRAIN, failed, run

from nmt import signals
from nmt.cache import cached_folder
from nmt.errors import INTERRUPTED_EXIT_CODE, NmtError
from nmt.files import new_folder, output_file, replaced_file
from nmt.locks import LOCK


def test_an_output_replaces_the_earlier_file_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before")
    path.chmod(0o600)
    with pytest.raises(ZeroDivisionError), output_file(str(path)) as file:
        file.write("half")
        raise ZeroDivisionError
    assert path.read_text() == "before"
    with output_file(str(path)) as file:
        file.write("after ä")
        assert path.read_text() == "before"
    assert path.read_text() == "after ä"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_file_is_on_disk_before_it_has_its_name_and_the_name_is_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, a power failure could leave an empty file under the name."""
    path, steps = tmp_path / "out", []

    def record(handle: int) -> None:
        steps.append(("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file", path.exists()))

    monkeypatch.setattr(os, "fsync", record)
    with replaced_file(path, "advice") as file:
        file.write(b"content")
    assert steps == [("file", False), ("folder", True)]
    path.unlink()
    steps.clear()
    with new_folder(path, "--output") as folder:
        (folder / "model").write_text("content")
    assert steps == [("file", False), ("folder", False), ("folder", True)]


def test_an_output_is_written_through_a_link_to_the_longest_name_that_the_file_system_allows(tmp_path: Path) -> None:
    target = tmp_path / "folder" / ("x" * 255)
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "folder").mkdir()
    with output_file(str(tmp_path / "link")) as file:
        file.write("text")
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "text"


def test_devices_and_pipes_are_written_to(trained: Path, tmp_path: Path) -> None:
    generate = ["generate", trained / "run" / "best.safetensors", "--input", trained / "test.en", "--device=cpu"]
    run(*generate, "--output=/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(tmp_path / "pipe")
    copy = tmp_path / "copy"
    reader = threading.Thread(target=lambda: copy.write_bytes((tmp_path / "pipe").read_bytes()), daemon=True)
    reader.start()
    run(*generate, "--output", tmp_path / "pipe")
    reader.join(120)
    assert copy.read_bytes() == run(*generate).stdout


def test_checkpoints_have_names_in_safetensors(trained: Path, tmp_path: Path) -> None:
    for command in (
        ["average-checkpoints", trained / "run", "--last=2"],
        ["import", "huggingface", tmp_path / "nowhere"],  # before the model is read
    ):
        said = failed(*command, "--output", tmp_path / "model.pt")
        assert "model.pt is the name of another format; give a name that ends in .safetensors" in said
    assert not any(tmp_path.iterdir())


def test_an_output_must_not_be_the_input_under_any_name(trained: Path, tmp_path: Path) -> None:
    """The inputs are given through a symbolic link, and one output is a hard link to its input."""
    (tmp_path / "run").symlink_to(trained / "run")
    model, log, text = tmp_path / "run/average.safetensors", tmp_path / "run/metrics.jsonl", tmp_path / "text"
    text.write_text("a\n")
    os.link(text, tmp_path / "other")
    for arguments in (
        ["generate", model, "--output", trained / "run/average.safetensors"],
        ["generate", model, "--input", text, "--output", tmp_path / "other"],
        ["translate-file", text, "--format=txt", "--model", model, "--output", trained / "run/average.safetensors"],
        ["average-checkpoints", model, "--output", trained / "run/average.safetensors"],
        ["report", trained / "run", "--output", log],
        ["trees", "restore", "--sequences", text, "--words", text, "--output", text],
        ["trees", "restore", "--sequences", text, "--words", log, "--output", log],
    ):
        before = Path(str(arguments[-1])).read_bytes()
        assert "is the same file as the input" in failed(*arguments)
        assert Path(str(arguments[-1])).read_bytes() == before


_TRAINED = {"model": "run/average.safetensors", "text": "test.en", "pairs": "test", "log": "run/metrics.jsonl"}


@pytest.mark.parametrize("command", [
    "generate {model} --input {text} --output {missing}/test.en",
    "generate {model} --input {text} --output {missing}/run/average.safetensors",
    "generate {model} --input {text} --glossary {text} --output {missing}/test.en",
    "generate {model} --input {text} --memory {pairs} --output {missing}/test.de",
    "rescore {model} --source {text} --target {pairs}.de --output {missing}/test.de",
    "translate-file {text} --format txt --model {model} --output {missing}/test.en",
    "translate-file {text} {pairs}.de --format txt --model {model} --output {missing}/",
    "translate-file {log} --format txt --model {model} --memory {pairs} --output {missing}/test.de",
    "clean --train {pairs} --source-lang en --target-lang de --dest {missing}/test",
    "clean --train {pairs} --source-lang en --target-lang de --dest {missing}/new --rejected {missing}/test.de",
    "clean --train {pairs} --exclude {pairs} --source-lang en --dest {missing}/new --page {missing}/test.en",
    "average-checkpoints {model} --output {missing}/run/average.safetensors",
    "extend {model} --output {missing}/run/average.safetensors",
    "import fairseq {text} --dict {text} --codes {model} --output {missing}/run/average.safetensors",
    "export argos {model} --output {missing}/run/link.argosmodel",
    "report {log} --output {missing}/run/metrics.jsonl",
    "vocabulary-map {data} --output {missing}/data/meta.json",
    "trees restore --sequences {log} --words {text} --output {missing}/test.en",
    "trees restore --sequences {log} --trees '{pairs}.*' --output {missing}/test.de",
])  # fmt: skip
def test_no_command_writes_over_its_input_by_way_of_a_missing_folder(trained: Path, command: str) -> None:
    """The system finds no such file, but a path without its `missing/..` leads to the input."""
    names = {name: trained / path for name, path in _TRAINED.items()} | {"data": trained / "data"}
    argos = trained / "run/link.argosmodel"
    argos.unlink(missing_ok=True)
    os.link(names["model"], argos)
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    said = failed(*shlex.split(command.format(missing=trained / "missing" / "..", **names)))
    assert "is the same file as the input" in said
    assert {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()} == before


def test_the_base_of_a_checkpoint_is_an_input_of_its_average(trained: Path, tmp_path: Path) -> None:
    base = shutil.copy(trained / "run/average.safetensors", tmp_path / "base.safetensors")
    before = Path(base).read_bytes()
    tune = ["--init-from", base, "--lora=2", "--max-updates=10", "--valid-metric=nll"]
    run("train", trained / "data", "--save-dir", tmp_path / "tuned", *TRAIN[1:], *tune)
    assert "is the same file as the input" in failed(
        "average-checkpoints", tmp_path / "tuned", "--last=1", "--output", base
    )
    assert Path(base).read_bytes() == before


def test_a_new_folder_is_made_or_refused_by_way_of_a_missing_folder(trained: Path, tmp_path: Path) -> None:
    text = [f"--{name}={trained / name}" for name in ("train", "valid")]
    run("preprocess", *text, *LANGS, "--dest", tmp_path / "missing/../data", "--vocab-size=320", "--workers=1")
    assert "data" in run("info", tmp_path / "data").stdout.decode()
    (tmp_path / "empty").mkdir()
    for command in (
        ["preprocess", *text, *LANGS, "--dest", tmp_path / "missing/../data"],
        ["export", "huggingface", trained / _TRAINED["model"], "--output", tmp_path / "missing/../empty"],
    ):
        assert "already exists" in failed(*command)
    assert sorted(os.listdir(tmp_path)) == ["data", "empty"]


@pytest.mark.parametrize(("name", "reason"), [
    (".", "Is a directory"), ("/", "Is a directory"), ("{folder}/new/", "Is a directory"),
    ("{folder}/new/out", "No such file or directory|in a folder that does not exist"), ("", "is empty"),
])  # fmt: skip
@pytest.mark.parametrize("source", ["-", "{folder}/source"])
def test_an_output_that_is_empty_or_a_folder_or_in_none_is_refused(
    trained: Path, tmp_path: Path, source: str, name: str, reason: str
) -> None:
    (tmp_path / "source").write_text("a\n")
    files = ["--input", source.format(folder=tmp_path), "--output", name.format(folder=tmp_path)]
    assert re.search(reason, failed("generate", trained / "run/average.safetensors", *files, stdin=b"a\n"))
    assert os.listdir(tmp_path) == ["source"]


def test_a_missing_input_is_not_reported_as_a_fault_of_the_output(trained: Path, tmp_path: Path) -> None:
    files = ["--input", tmp_path / "nowhere", "--output", tmp_path / "out"]
    assert "nowhere does not exist" in failed("generate", trained / "run/average.safetensors", *files)
    assert not (tmp_path / "out").exists()


def test_an_output_that_takes_a_part_of_the_data_at_a_time_gets_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYTHONUNBUFFERED, standard output is such a file."""

    taken: list[bytes] = []

    def write(data: memoryview) -> int:
        taken.append(bytes(data[:3]))
        return len(taken[-1])

    narrow = SimpleNamespace(write=write, flush=lambda: None)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=narrow, fileno=lambda: 1))
    with output_file("-") as output:
        assert output.write("eleven byte") == 11
    assert taken == [b"ele", b"ven", b" by", b"te"]


def test_a_failed_start_leaves_no_run_folder(trained: Path, tmp_path: Path) -> None:
    arguments = ["train", trained / "data", "--arch=transformer_tiny", "--device-tokens=5", "--device=cpu"]
    assert "--device-tokens 5 is too small" in failed(*arguments, "--save-dir", tmp_path / "new" / "run")
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    failed(*arguments, "--save-dir", tmp_path / "old")
    assert list((tmp_path / "old").iterdir()) == []


def test_a_failed_export_leaves_no_new_folders(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export = ["export", "huggingface", trained / "run" / "average.safetensors", "--output"]
    (tmp_path / "old").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("nmt.interop.huggingface.marian_card", Mock(side_effect=NmtError("no card")))
        for place in ("a/b/c", "old/b/c", "a/../b/c"):
            assert "no card" in failed(*export, tmp_path / place)
            assert list(tmp_path.rglob("*")) == [tmp_path / "old"]
    run(*export, tmp_path / "a/b/c")
    assert (tmp_path / "a/b/c/config.json").exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    said = r"/dev/full cannot be written \(No space left on device\); choose another file"
    with pytest.raises(NmtError, match=said), output_file("/dev/full") as file:
        file.write("text")
    with pytest.raises(NmtError, match="nowhere/file cannot be"), replaced_file(tmp_path / "nowhere/file", "x"):
        pass


def test_a_reader_that_has_ended_ends_the_command_without_a_message(trained: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = forks.start("info", trained / "data", stdout=writer)
    os.close(writer)
    command.wait(1)
    assert command.errors == ""


def test_a_folder_of_the_cache_is_made_once_and_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for code, prepare in ((128 + signal.SIGTERM, signals.end_as_usual), (INTERRUPTED_EXIT_CODE, signals.end_resumably)):
        prepare()
        with pytest.raises(SystemExit) as ended:
            cached_folder("kind", ["key"], lambda _: os.kill(os.getpid(), signal.SIGTERM))
        signals.end_as_usual()
        assert ended.value.code == code and [path.name for path in (tmp_path / "nmt" / "kind").iterdir()] == [LOCK]
    made = cached_folder("kind", ["key"], lambda folder: (folder / "a").touch())
    assert cached_folder("kind", ["key"], Mock(side_effect=AssertionError)) == made and (made / "a").exists()
