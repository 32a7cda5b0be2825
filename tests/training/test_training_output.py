"""What a training prints, and what it leaves in the run folder besides checkpoints."""

import re
import shlex
import shutil
import signal
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock

import forks
import pytest
from commands import LANGS, SMALL, TRAIN, failed, records, run, same_weights, train

from nmt.config import TrainConfig
from nmt.console import clock
from nmt.errors import StoppedError
from nmt.model.architectures import ARCHITECTURES
from nmt.training import loop
from nmt.training.options import CONFIG, command_line, options_of, write_config

OPTIONS = ["--max-updates=4", "--save-updates=2", "--log-updates=2", "--valid-metric=nll"]


def test_durations_of_days_are_shown_in_hours() -> None:
    assert [clock(seconds) for seconds in (3723.4, 90_061, -1)] == ["1:02:03", "25:01:01", "0:00:00"]


def test_the_log_is_a_table_with_a_header_and_a_sample_at_each_validation(trained: Path) -> None:
    log = (trained / "train.log").read_text().splitlines()
    headers = [line for line in log if line.split()[:1] == ["update"]]
    rows = [line for line in log if re.match(r" +\d+ +\d+ ", line)]
    assert headers[0].split() == ["update", "epoch", "loss", "ppl", "lr", "norm", "tok/s", "elapsed", "left"]
    assert (len(headers), len(rows)) == (1, 4)  # the header is repeated once a screen
    assert {len(line) for line in headers + rows} == {len(headers[0])}
    assert sum(line.startswith("checkpoints are saved in ") for line in log) == 1
    assert [line for line in log if len(line) > 80 and "/trained" not in line] == []  # a path may be longer
    written = records(trained / "run", "train")
    assert [[float(cell) for cell in row.split()[:3]] for row in rows] == [
        [r["update"], r["epoch"] + 1, pytest.approx(r["loss"], abs=6e-4)] for r in written
    ]
    place = next(index for index, line in enumerate(log) if line.startswith("validation at update 20: nll "))
    first, second = records(trained / "run", "valid")
    assert f"ppl {first['ppl']:.2f}, BLEU {first['bleu']:.2f}, best so far (" in log[place]
    sample = first["samples"][0]
    for line, name in zip(log[place + 1 : place + 4], ("source", "reference", "output"), strict=True):
        assert sample[name].startswith(line[15:].removesuffix("…"))
    assert any(line.startswith(f"validation at update 40: nll {second['nll']:.3f}") for line in log)


def test_the_commands_that_a_finished_training_proposes_work(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    log = train(trained / "data", folder, "--max-updates=2", "--save-updates=1")
    assert "finished 2 updates after " in log
    (best,) = records(folder, "valid")
    assert f"best  {folder}/best.safetensors, of update 2: nll {best['nll']:.3f}, ppl {best['ppl']:.2f}, BLEU " in log
    commands = [line[12:] for line in log.replace(" \\\n", " ").splitlines() if line[12:].startswith("nmt ")]
    names = ["average-checkpoints", "generate", "score", "serve", "report"]
    assert [shlex.split(command)[1] for command in commands] == names
    assert f" --reference {trained}/data/test.de.txt " in " ".join(commands[2].split())
    for command in commands[:3]:
        run(*shlex.split(command)[1:])
    lowercase = f"--lowercase --vocab-size=330 --dest={tmp_path}/data --workers=1".split()
    run("preprocess", *LANGS, f"--train={trained}/train", f"--valid={trained}/valid", *lowercase)
    frozen = train(tmp_path / "data", tmp_path / "frozen", "--max-updates=1", "--freeze=encoder")
    assert re.search("nmt score [^!]* --lowercase\n", frozen)
    assert "warning: --freeze without --init-from keeps the random weights of the encoder" in frozen
    single = train(trained / "data", tmp_path / "single", "--max-updates=1", "--valid-metric=nll")
    assert "average" not in single and "nmt score " in single
    assert f"nmt generate {tmp_path}/single/best.safetensors " in " ".join(single.replace("\\\n", "").split())
    (valid,) = records(tmp_path / "single", "valid")
    assert len(valid["samples"]) == 8 and valid["bleu"] is None  # for the report


def test_the_options_in_the_run_folder_start_the_same_training(trained: Path, tmp_path: Path) -> None:
    train(trained / "data", tmp_path / "run", *OPTIONS, "--lr-scale=0.5")
    config = tmp_path / "run" / CONFIG
    options = tomllib.loads(config.read_text())
    assert (options["arch"], options["lr-scale"], options["d-model"]) == ("transformer_tiny", 0.5, 32)
    run("train", "--config", config, "--save-dir", tmp_path / "same")
    assert same_weights(*(tmp_path / folder / "snapshot-00000004.safetensors" for folder in ("run", "same")))
    (start,) = records(tmp_path / "run", "start")
    run(*shlex.split(start["command"])[1:], "--save-dir", tmp_path / "again", "--max-updates=2")
    assert records(tmp_path / "again", "train")[0]["loss"] == records(tmp_path / "run", "train")[0]["loss"]
    config.write_text(config.read_text().replace('"transformer_tiny"', '"transformer_x"'))
    assert "--arch transformer_x is unknown" in failed("train", "--config", config)


def test_any_path_comes_back_from_the_options_in_the_run_folder(tmp_path: Path) -> None:
    odd = 'a "b" \\ \x7f\x01 ü \udcff \n #'
    config = TrainConfig(save_dir=odd, arch="transformer_tiny", valid_metric=("nll", "bleu"), adam_epsilon=1e-9)
    tiny = ARCHITECTURES["transformer_tiny"]
    write_config(tmp_path, options_of(odd, tiny, config, tiny))
    options = tomllib.loads((tmp_path / CONFIG).read_bytes().decode(errors="surrogateescape"))
    assert (options["data"], options["save-dir"], options["valid-metric"]) == (odd, odd, ["nll", "bleu"])
    assert (options["adam-epsilon"], options["compile"], "lr" in options) == (1e-9, False, False)
    words = shlex.split(command_line(odd, ARCHITECTURES["transformer_tiny"], config))
    assert words == ["nmt", "train", odd, "--save-dir", odd, "--arch", "transformer_tiny",
                     "--valid-metric", "nll", "--valid-metric", "bleu"]  # fmt: skip


@pytest.mark.parametrize("text, said", [
    ("sed = 1", "has the unknown option 'sed' (perhaps seed is meant)"),
    ("minutes = 30", "has 'minutes'; give --minutes on the command line"),
    ("dry-run = true", "has 'dry-run'; give --dry-run on the command line"),
    ("[model]\nheads = 2", "has the unknown option 'model'"),
    ("data = 3", "data must be the name of a data folder in quotes, but is 3"),
    ("\ufeffbatch-tokens = -5", "--batch-tokens must be at least 1, but is -5"),
    ("seed = '1'", "--seed must be a whole number, but is '1'"),
    ("valid-metric = 'bleu'", "--valid-metric must be a list in brackets, but is 'bleu'"),
    ("seed = ", "is not TOML: "),
    ("seed = 1979-05-27", "--seed must be a whole number, but is "),
])  # fmt: skip
def test_wrong_files_of_options_are_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "options.toml"
    file.write_text(text)
    message = failed("train", "--config", file)
    assert f"--config {file}" in message and said in message


def test_a_single_file_of_options_is_read(tmp_path: Path) -> None:
    assert "cannot be read (No such file or directory)" in failed("train", f"--config={tmp_path}/options.toml")
    assert "cannot be read (Is a directory)" in failed("train", f"--config={tmp_path}")
    said = failed("train", "--config=a", "--config=b")
    assert "--config was given 2 times; give one file, and the other options as flags" in said


def test_the_log_says_how_a_training_ended(trained: Path, tmp_path: Path) -> None:
    (end,) = records(trained / "run", "end")
    assert (end["update"], end["outcome"], end["message"]) == (40, "finished", "")
    diverging = [*TRAIN, *SMALL, *OPTIONS, "--lr-scale=1e30", "--max-skipped-updates=3"]
    message = failed("train", trained / "data", "--save-dir", tmp_path, *diverging)
    assert "training diverged: --max-skipped-updates 3 in a row were skipped up to update 4, where the out" in message
    assert "lower learning rate (--lr-scale or --lr)" in message
    (end,) = records(tmp_path, "end")
    assert end["outcome"] == "failed" and end["message"] in message
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_stop_in_the_last_validation_resumes(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["train", trained / "data", "--save-dir", tmp_path / "run", *TRAIN, *SMALL, *OPTIONS]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "validate", Mock(side_effect=StoppedError))
        run(*command, code=75)
    assert "finished 4 updates" in run(*command).stderr
    assert [record["outcome"] for record in records(tmp_path / "run", "end")] == ["stopped", "finished"]
    said = run(*command).stderr
    assert "nothing to do" in said and "also with other options, give another --save-dir" in said


def test_a_run_folder_may_have_any_name(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = run("train", trained / "data", "--save-dir=-\udcff", *TRAIN, *SMALL, *OPTIONS).stderr
    assert "nmt report './-" in said
    run("report", "./-\udcff", "--output=page.html")
    assert len(records(tmp_path / "-\udcff", "start")) == 1


def test_the_help_shows_required_options_first_and_examples_last() -> None:
    shown = run("train", "--help").stdout.decode()
    assert re.findall(r"│[ *]+(--[a-z-]+)", shown)[:2] == ["--save-dir", "--arch"]
    assert shown.index("Examples:") > shown.index("Hardware")


def test_ctrl_c_in_a_dry_run_says_that_nothing_is_saved(trained: Path, tmp_path: Path) -> None:
    options = [*TRAIN, *SMALL, "--save-dir", tmp_path / "run", "--dry-run"]
    ctrl_c = forks.At("nmt.training.train.train_update", 2, forks.Interrupt(signal.SIGINT))
    ended = forks.run("train", trained / "data", *options, code=75, before=ctrl_c)
    assert "stopping; nothing is saved; a second signal stops at once" in ended.errors
    assert not (tmp_path / "run").exists()


def test_event_files_hold_the_metrics_without_repeated_updates(trained: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    folder = tmp_path / "run"
    for updates in (4, 6):
        train(trained / "data", folder, *OPTIONS, f"--max-updates={updates}", "--tensorboard")
        # So that the second training repeats updates from 2 on.
        (folder / "state-00000004.safetensors").unlink(missing_ok=True)
    events = accumulator.EventAccumulator(str(folder / "tensorboard")).Reload()
    for kind, name in (("train", "loss"), ("train", "target_tokens_per_second"), ("valid", "nll")):
        points = [(event.step, event.value) for event in events.Scalars(f"{kind}/{name}")]
        assert points == [(r["update"], pytest.approx(r[name], rel=1e-6)) for r in records(folder, kind)]


def test_event_files_that_cannot_be_written(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["train", trained / "data", "--save-dir", tmp_path / "run", *TRAIN, *SMALL, *OPTIONS, "--tensorboard"]
    summary_writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    with monkeypatch.context() as patch:
        patch.setattr(summary_writer, "add_scalar", Mock(side_effect=OSError(28, "No space left on device")))
        message = failed(*command)
    assert "run/tensorboard cannot be written (No space left on device)" in message
    shutil.rmtree(tmp_path / "run" / "tensorboard")
    (tmp_path / "run" / "tensorboard").touch()
    message = failed(*command, "--max-updates=6")
    assert "run/tensorboard cannot be written (" in message and "leave out --tensorboard" in message


def test_a_missing_tensorboard_is_named(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    arguments = ["train", trained / "data", "--save-dir", tmp_path / "run", *TRAIN, *SMALL, "--tensorboard"]
    assert "--tensorboard needs the package tensorboard" in failed(*arguments)
    assert not (tmp_path / "run").exists()
