"""Wrong command lines, odd values and a hostile environment end every command in one sentence."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import Field, fields
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, get_args
from unittest.mock import Mock

import forks
import pytest
import torch
import typer
from commands import failed, run

from nmt import config as configs
from nmt import console
from nmt.cli.app import app
from nmt.config import DataConfig, ModelConfig, SearchConfig, TrainConfig
from nmt.config.options import Config, flag_name
from nmt.errors import NmtError
from nmt.model.architectures import ARCHITECTURES

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "nowhere", "--arch=transformer_tiny", "--save-dir=run"]
PREPROCESS = ["preprocess", "--source-lang=en", "--target-lang=de", "--valid=v", "--dest=d"]
LONG = "x" * 5000

# Command lines that read the file or folder {}, and that fail because of it.
READERS = [
    "generate {}",
    "score --reference {}",
    "average-checkpoints {} --output=o",
    "train {} --arch=transformer_tiny --save-dir=r",
    "preprocess --source-lang=en --target-lang=de --train={} --valid=v --dest=d",
    "report {}",
    "attention {} --source=a --output=o.html",
    "export onnx {} --output=o",
    "serve {} --port=0",
    "serve model --port=0 --token-file={}",
    "trees words --like={}",
    "trees restore --words={}",
    "trees linearize --train={} --dest=d",
]
# Command lines that fail with the path {}, perhaps because of another file.
OTHERS = [
    "generate model --output={}",
    "average-checkpoints model --output={}",
    "preprocess --source-lang=en --target-lang=de --train=t --valid=v --dest={}",
]


def refused(*arguments: str) -> str:
    """Returns the message about a wrong command line, which is all of standard error and one line."""
    said = run(*arguments, code=2).stderr
    assert said.startswith("error: ")
    assert said.count("\n") == 1, said
    return said.removeprefix("error: ").removesuffix("\n")


@pytest.mark.parametrize("arguments, said", [
    ([*TRAIN, "--dropout", "abc"], "--dropout must be a number, but is 'abc'"),
    (["generate", "m", "--output", "--html"],
     "--output has no value, but is followed by --html; give one; see nmt generate --help"),
    ([*TRAIN, "--d-ff", "1.5"], "--d-ff must be a whole number, but is '1.5'"),
    ([*TRAIN, "--device", "tpu"], "--device must be one of auto, cpu, cuda, but is 'tpu'"),
    ([*PREPROCESS, "--train=t", "--weight=2", "--weight=x"], "--weight must be a number, but is 'x'"),
    (["architectures", "--vocab-size=-1"], "--vocab-size must be a whole number from 8 to 1,000,000, but is '-1'"),
    ([*TRAIN, "--dropuot", "1"], "No such option: --dropuot (Possible options: --dropout); see nmt train --help"),
    ([*TRAIN, "--epochs", "3"], "there is no --epochs; give --max-updates, a number of updates; see nmt train --help"),
    (["clean", "--source-lang=en", "--epochs=3"], "No such option: --epochs; see nmt clean --help"),
    (["generate", "m", "--lenpen=1"], "there is no --lenpen; give --alpha; see nmt generate --help"),
    ([*TRAIN, "x"], "Got unexpected extra argument(s) (x); see nmt train --help"),
    ([*TRAIN, "--dropout"], "Option '--dropout' requires an argument; see nmt train --help"),
    ([*TRAIN, "--dry-run=3"], "Option '--dry-run' does not take a value; see nmt train --help"),
    (["import", "fairseq", "m", "--codes"], "Option '--codes' requires an argument; see nmt import fairseq --help"),
    (
        ["train", "nowhere", "--save-dir=run"],
        "Missing one of --hours, --minutes, --arch, --init-from; see nmt train --help",
    ),
    (
        ["train", "nowhere"],
        "Missing options '--save-dir', one of --hours, --minutes, --arch, --init-from; see nmt train --help",
    ),
    (["preprocess", "--train=t"], "Missing options '--valid', '--dest'; see nmt preprocess --help"),
    (PREPROCESS, "Missing option '--train'; see nmt preprocess --help"),
    (["train", "--arch=a", "--save-dir=b"], "Missing argument 'DATA'; see nmt train --help"),
    (["trian"], "No such command 'trian'. Did you mean 'train'?; see nmt --help"),
    (["trees", "x"], "No such command 'x'; see nmt trees --help"),
])  # fmt: skip
def test_a_wrong_command_line_is_refused_in_one_sentence(arguments: list[str], said: str) -> None:
    assert refused(*arguments) == said


def test_a_value_that_another_one_replaces_is_named() -> None:
    repeated = "--glossary=a", "--glossary=b", "--beam=2", "--beam=3", "--input=a", "--input=b"
    said = run("generate", "nosuch", *repeated, code=1).stderr
    assert said.startswith("warning: --glossary is given 2 times; only the last one, b, counts\nerror: ")


def test_the_message_about_a_very_long_command_line_is_short() -> None:
    assert len(refused("generate", "m", "--workers", LONG)) < 200
    assert len(refused("architectures", *(f"file-{index}" for index in range(5000)))) < 1000


def test_help_wraps_its_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert b"The first rule that a pair breaks is the reason" in run("clean", "--help").stdout
    assert b"the best one that needs no repair is used." in run("trees", "restore", "--help").stdout


def test_help_breaks_no_name_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("train", "--help").stdout.decode().splitlines()
    words = {
        word.rstrip("|>").lstrip("<") for line in lines if line.startswith("│ ") for word in line[1:-1].split()[:3]
    }
    names = {flag_name(field.name) for config in (ModelConfig, TrainConfig) for field in fields(config)}
    assert names | {"--no-attention-biases", "scaled-dot-product", "inverse-sqrt", "decoder", "exact"} <= words
    assert max(map(len, lines)) == 80


def test_help_has_the_commands_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = run("--help").stdout.decode()
    places = [said.index(name) for name in ("─ Corpus", "│ split", "─ Training", "│ train ", "─ Translating", "│ serve",
                                            "─ Models", "│ import", "─ Measuring", "│ score", "Example: ")]  # fmt: skip
    assert places == sorted(places)


def test_a_command_without_arguments_shows_its_help() -> None:
    done = run("train", code=2)
    assert b"Usage" in done.stdout
    assert not done.stderr


def command_lines(command: Any, name: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """Yields a command line for every numeric option of every command. The value of that option is still to be added.

    The files that the command lines name do not exist.
    """
    for sub in getattr(command, "commands", {}).values():
        yield from command_lines(sub, (*name, sub.name))
    given = {
        p.opts[0]: "transformer_tiny" if p.name == "arch" else f"{p.name}-missing"
        for p in command.params
        if p.required or p.name in ("arch", "data")
    }
    words = [f"{flag}={value}" if flag.startswith("-") else value for flag, value in given.items()]
    for param in command.params:
        if param.type_descriptor.annotation in (int, float, list[int]):
            yield [*name, *words, param.opts[0]]


@pytest.mark.parametrize("value", ["", "-1", "nan", "1e300", "9" * 5000])
def test_odd_values_of_numeric_options_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.chdir(tmp_path)
    lines = list(command_lines(typer.main.get_command(app)))
    assert len(lines) > 90
    for line in lines:
        done = run(*line, value, code=None)
        assert done.code in (1, 2), line
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1, done.stderr
        assert value == "-1" or line[-1] in done.stderr, line


@pytest.mark.parametrize("name", [LONG, "loop", "file/x", "\udcff", "a\nb", "\x1b[1mred"])
@pytest.mark.parametrize("arguments", READERS + OTHERS)
def test_odd_names_are_printable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    message = failed(*(word.format(name) for word in arguments.split()), stdin=b"a\n")
    assert message.startswith("error: ")
    assert message.isprintable()


@pytest.mark.parametrize("arguments", READERS)
def test_a_closed_folder_is_named(unprivileged: Callable[[], AbstractContextManager[None]], arguments: str) -> None:
    # This run imports the modules. Without root's privileges, they may not be readable.
    failed(*arguments.format("missing").split(), stdin=b"a\n")
    with unprivileged():
        message = failed(*arguments.format("closed/x").split(), stdin=b"a\n")
    assert "closed/" in message
    assert "ermission" in message


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc, and Linux's limits on memory")
@pytest.mark.parametrize("command", ["generate", "rescore --source=s --target=t", "serve"])
def test_advice_about_a_folder_names_only_files_that_exist(tmp_path: Path, command: str) -> None:
    (tmp_path / "meta.json").write_text("{}")
    assert f"it has none; nmt train {tmp_path} --save-dir run" in failed(*command.split(), tmp_path, stdin=b"")
    (tmp_path / "best.safetensors").write_bytes(b"")
    assert f"such as {tmp_path}/best.safetensors" in failed(*command.split(), tmp_path, stdin=b"")


def test_running_out_of_memory_ends_in_one_sentence(tmp_path: Path) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(2**33)
    command = forks.run("score", "--reference=zeros", stdin=b"a\n", cwd=tmp_path, before=limit_memory, code=1)
    assert command.errors.startswith("error: memory ran out; ")


@pytest.mark.parametrize("fail, said", [
    (lambda *_: torch.empty(2**50), "memory ran out ("),
    (Mock(side_effect=RuntimeError("could not create a primitive")), "memory ran out ("),  # oneDNN's message
    (Mock(side_effect=OSError(12, "Cannot allocate memory")), "memory ran out ("),
    (Mock(side_effect=PermissionError(13, "No", "a", None, "b")), "a and b cannot be used (No); "),
])  # fmt: skip
def test_errors_of_the_system_end_in_one_sentence(monkeypatch: pytest.MonkeyPatch, fail: Any, said: str) -> None:
    monkeypatch.setattr("nmt.pages.report.read_runs", fail)
    assert failed("report", "run").startswith(f"error: {said}")


@pytest.mark.parametrize("bug", [RecursionError("maximum recursion depth exceeded"), OSError("of no system call")])
def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, bug: Exception) -> None:
    monkeypatch.setattr("nmt.pages.report.read_runs", Mock(side_effect=bug))
    with pytest.raises(type(bug)):
        run("report", "run")


def test_help_and_errors_can_be_printed_on_ascii_terminals() -> None:
    """The environment decides on the encoding when the interpreter starts, so this test starts two."""
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    nmt = f"'{sys.executable}' -m nmt"
    command = ["bash", "-c", f"{nmt} generate --help && {nmt} score --hypothesis ä --reference ä"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, timeout=600)
    assert done.returncode == 1
    assert "length) / 6)^?" in done.stdout.decode("ascii")
    assert done.stderr.decode("ascii").splitlines()[-1].startswith("error: ")


def close(*descriptors: int) -> None:
    """Closes standard streams, as the interpreter finds them if a shell has closed them."""
    for descriptor in descriptors:
        os.close(descriptor)
        name = ("stdin", "stdout", "stderr")[descriptor]
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)


@pytest.mark.parametrize("closed, arguments, code, said", [
    ((1,), ["--version"], 0, ""),
    ((0,), ["score", "--reference", ROOT / "README.md"], 1, "error: "),
    ((2,), ["score", "--reference", "nowhere"], 1, ""),
    ((1, 2), ["--version"], 0, ""),
])  # fmt: skip
def test_closed_streams_are_like_an_empty_device(
    closed: tuple[int, ...], arguments: list[str | Path], code: int, said: str
) -> None:
    command = forks.run(*arguments, before=partial(close, *closed), code=code)
    assert command.errors.startswith(said)
    assert command.errors.count("\n") == (1 if said else 0)
    assert not command.output


def test_a_stream_that_the_shell_closed_is_like_an_empty_device() -> None:
    """This test shows that a true interpreter starts like the forks above."""
    command = f"exec '{sys.executable}' -m nmt --version >&-"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_ends_in_one_sentence() -> None:
    with Path("/dev/full").open("wb") as full:
        command = forks.run("architectures", stdout=full.fileno(), code=1)
    assert command.errors.startswith("error: the system refused an operation (No space left on device)")
    assert command.errors.count("\n") == 1


@pytest.mark.usefixtures("printing")
def test_text_of_any_script_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "Bonjour\u00a0! \u4f60\u3000\u0645\u06cc\u200c\u062e \u0915\u094d\u200d\u0937"
    console.info(f"{text}\x1b\u202e")
    assert capsys.readouterr().err == f"{text}\\x1b\\u202e\n"


@pytest.mark.parametrize("flag", ["--save-dir", "--init-from", "--criterion", "--user-module"])
def test_an_empty_value_is_not_taken_for_a_missing_one(flag: str) -> None:
    assert f"{flag} is empty; give a value" in failed("train", "data", "--save-dir=run", f"{flag}=")


# Fields of configurations


GOOD: dict[type[Config], dict[str, Any]] = {
    ModelConfig: ARCHITECTURES["transformer_tiny"].to_dict(),
    TrainConfig: {"save_dir": "run"},
    DataConfig: {"source_lang": "en", "target_lang": "de", "train": ("t",), "valid": "v", "dest": "d"},
    SearchConfig: {},
    configs.PlanConfig: {},
    configs.RuntimeConfig: {},
    configs.EngineConfig: {},
    configs.ServeConfig: {},
    configs.ScoreConfig: {},
    configs.JobConfig: {},
    configs.RescoringFiles: {},
}
FIELDS = [pytest.param(config, f, id=f"{config.__name__}.{f.name}") for config in GOOD for f in fields(config)]
WRONG = [b"x", [], {}, {"a": 1}, object(), 1j, "a\0b", float("nan"), float("inf"), -(10**400), 10**400, ("a", 1)]


@pytest.mark.parametrize(("config", "declared"), FIELDS)
def test_each_field_refuses_wrong_values(config: type[Config], declared: Field[Any]) -> None:
    others = {int: [True, 1.0, "1"], float: [True, "1"], str: [1, True], bool: [0, 1, "yes"]}
    kind, *optional = get_args(declared.type) if isinstance(declared.type, UnionType) else (declared.type,)
    if optional and declared.name not in ("source_lang", "target_lang"):  # which the other languages need
        config(**GOOD[config] | {declared.name: None})
    for value in [*WRONG, *others.get(kind, [1, "other"]), *([] if optional else [None])]:
        with pytest.raises(NmtError) as error:
            config(**GOOD[config] | {declared.name: value})
        assert str(error.value).startswith(f"{flag_name(declared.name)} must ")
        assert "\n" not in str(error.value)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize("config, values, message", [
    (ModelConfig, {"dropout": 7}, "--dropout must be at least 0 and below 1, but is 7"),
    (ModelConfig, {"d_ff": 2**31 - 1}, "--d-ff must be at least 1 and at most 50000, but is 2147483647"),
    (ModelConfig, {"learned_positions": 2**31 - 1}, "--learned-positions must be at least 1 and at most 1000000"),
    (ModelConfig, {"sinusoids": "fairseq", "d_model": 2}, "--sinusoids fairseq needs a --d-model of at least 4"),
    (ModelConfig, {"norm": "middle"}, "--norm must be one of post, pre, but is 'middle'"),
    (TrainConfig, {"gpus": 1025}, "--gpus must be at least 1 and at most 1024, but is 1025"),
    (TrainConfig, {"rank_timeout": 1e300}, "--rank-timeout must be above 0 and at most 1000000, but is 1e+300"),
    (TrainConfig, {"batch_groups": 2**31 - 1}, "--batch-groups must be at least 1 and at most 10000"),
    (TrainConfig, {"ema": 1.0}, "--ema must be above 0 and below 1, but is 1.0"),
    (TrainConfig, {"valid_metric": ()}, "--valid-metric is empty; give a value or leave it out"),
    (TrainConfig, {"valid_metric": ("ter",)}, "--valid-metric must be one of bleu, chrf, paper-bleu, exact, nll, but"),
    (TrainConfig, {"seed": 10**400}, "--seed must be at most 2147483647, but is 1000"),
    (DataConfig, {"workers": 2**31 - 1}, "--workers must be at least 1 and at most 1024, but is 2147483647"),
    (DataConfig, {"weight": (1e9,)}, "--weight must be above 0 and at most 1000000, but is 1000000000.0"),
    (DataConfig, {"weight": (1, 0)}, "--weight must be above 0 and at most 1000000, but is 0"),
    (DataConfig, {"weight": (1, 2)}, "--weight must be given once for each of the 1 --train, but is 1 2"),
    (DataConfig, {"train": ("a", 3)}, "--train must be text, but is 3"),
    (DataConfig, {"test": "test"}, "--test must be a list in brackets, but is 'test'"),
    (DataConfig, {"tokenizer": "none", "normalize_punctuation": "source"},
     "--normalize-punctuation source needs --tokenizer moses; add it, or leave out --normalize-punctuation"),
    (DataConfig, {"encodings": 3},
     "--encodings 3 needs --subword-dropout or --subword-alpha; add one of them"),
    (DataConfig, {"sampled_side": "source"}, "--sampled-side source needs --subword-dropout or"),
    (DataConfig, {"subword_model": "a.model", "vocab_size": 8000},
     "--subword-model a.model does not work with --vocab-size"),
    (DataConfig, {"subword_model": "a.model", "subword_sample": 9},
     "--subword-model a.model does not work with --subword-sample 9; leave out one of them"),
    (configs.JobConfig, {"worker_cores": 2}, "--worker-cores 2 needs --cluster; add it"),
    (DataConfig, {"dest": "a\0b"}, r"--dest must not contain a NUL character, but is 'a\x00b'"),
    (SearchConfig, {"beam": 2**31 - 1}, "--beam must be at least 1 and at most 10000, but is 2147483647"),
    (SearchConfig, {"sample": True, "temperature": 0.0}, "--temperature must be above 0 and at most 1000, but is 0.0"),
    (SearchConfig, {"sample": True, "top_p": 0.0}, "--top-p must be above 0 and at most 1, but is 0.0"),
    (SearchConfig, {"sample": True, "top_p": 1.1}, "--top-p must be above 0 and at most 1, but is 1.1"),
    (SearchConfig, {"sample": True, "top_k": 0}, "--top-k must be at least 1, but is 0"),
    (SearchConfig, {"sample": True, "samples": 0}, "--samples must be at least 1 and at most 10000, but is 0"),
    (SearchConfig, {"sample": True, "seed": -1}, "--seed must be at least 0, but is -1"),
    (SearchConfig, {"sample": True, "n_best": 3}, "--n-best is 3, but --sample was given; use --samples 3 instead"),
    (SearchConfig, {"sample": True, "beam_groups": 2}, "--beam-groups 2 does not work with --sample; leave out"),
    (SearchConfig, {"sample": True, "beam": 8}, "--beam is 8, but --sample was given; use --samples 8"),
    (TrainConfig, {"criterion": "mine", "label_smoothing": 0.0},
     "--criterion mine does not work with --label-smoothing"),
    (ModelConfig, {"sinusoids": "fairseq", "learned_positions": 9}, "--sinusoids fairseq does not work with"),
    (DataConfig, {"weight": (2.0,)}, "--weight is about the shares of several --train, but there is one"),
    (DataConfig, {"temperature": 5.0}, "--temperature is about the shares of several --train, but there is one"),
    (configs.RescoringFiles, {"normalize": True, "output_format": "jsonl"}, "--normalize does not work with --out"),
    (SearchConfig, {"samples": 3}, "--samples 3 needs --sample; add it"),
    (SearchConfig, {"top_p": 0.5}, "--top-p 0.5 needs --sample; add it"),
    (SearchConfig, {"sample": True, "mbr": "chrf"}, "--mbr chrf needs --samples or --n-best; add one of them"),
    (SearchConfig, {"beam_groups": 3}, "--beam-groups must divide --beam (4), but is 3; change one of the two"),
    (SearchConfig, {"diversity": 0.9}, "--diversity 0.9 needs --beam-groups; add it"),
    (SearchConfig, {"diversity": -1.0, "beam_groups": 2}, "--diversity must be at least 0 and at most 1000, but is -1"),
    (SearchConfig, {"n_best": 5}, "--n-best must be at most --beam (4), but is 5"),
    (SearchConfig, {"alpha": 1e308}, "--alpha must be at least 0 and at most 10, but is 1e+308"),
    (SearchConfig, {"min_length": -1}, "--min-length must be at least 0 and at most 100000, but is -1"),
    (SearchConfig, {"no_repeat_ngram": 0}, "--no-repeat-ngram must be at least 1, but is 0"),
])  # fmt: skip
def test_messages_name_flag_range_and_value(config: type[Config], values: dict[str, Any], message: str) -> None:
    with pytest.raises(NmtError) as error:
        config(**GOOD[config] | values)
    assert message in str(error.value)


def test_whole_numbers_and_upper_limits_are_accepted() -> None:
    assert TrainConfig(save_dir="run", save_minutes=5).save_minutes == 5
    several = {"train": ("t", "u"), "weight": (1_000_000, 1)}
    assert DataConfig(**GOOD[DataConfig] | several).weight == (1_000_000, 1)
    longest = {"alignments": ("links",), "max_length": 65_535}
    assert DataConfig(**GOOD[DataConfig] | longest).max_length == 65_535


def test_items_of_lists_are_checked_on_the_command_line() -> None:
    data = ["--source-lang=en", "--target-lang=de", "--train=t", "--valid=v", "--dest=d"]
    assert "--weight must be above 0 and at most 1000000, but is -1.0" in failed("preprocess", *data, "--weight=-1")
    assert "--train must not contain a NUL character" in failed("preprocess", *data, "--train=a\0b")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_messages_that_nobody_can_read_do_not_end_the_work() -> None:
    """As in a terminal that was closed."""
    program = """
from nmt import console
with console.printing(), console.Progress("x", 3, "pair") as progress:
    console.info("a")
    progress.advance(1)
    console.warn("b")
print("done")
"""
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full)
    assert (done.stdout, done.returncode) == (b"done\n", 0)
