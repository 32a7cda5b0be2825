"""`nmt train`, `average-checkpoints` and `generate` as a user runs them, on a small corpus."""

import json
import os
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import forks
import pytest
import torch
from commands import SMALL, TRAIN, failed, records, run, same_weights, train, weights
from conftest import invented_pairs

import nmt
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.loader import MicroBatch
from nmt.model import transformer
from nmt.model.cache import DecoderCache
from nmt.model.masks import Layout
from nmt.model.transformer import Transformer
from nmt.training import loop
from nmt.training import update as update_module
from nmt.training.state import Training


def translated(trained: Path, *options: str | Path, stdin: bytes = b"") -> list[str]:
    """Returns the lines that `nmt generate` writes with the best checkpoint."""
    return run("generate", trained / "run" / "best.safetensors", *options, stdin=stdin).stdout.decode().split("\n")[:-1]


def test_a_run_folder_has_checkpoints_states_and_records(trained: Path) -> None:
    run_folder = trained / "run"
    numbered = {"snapshot": [10, 20, 30, 40], "state": [20, 40]}  # the state of update 10 was removed
    expected = {f"{kind}-{n:08d}.safetensors" for kind, updates in numbered.items() for n in updates}
    assert {path.name for path in run_folder.glob("*-*")} == expected
    assert {path.name for path in run_folder.iterdir()} >= {"best.safetensors", "metrics.jsonl"}
    train_records = records(run_folder, "train")
    assert [r["update"] for r in train_records] == [10, 20, 30, 40]
    assert train_records[-1]["nll"] < train_records[0]["nll"]
    assert train_records[-1]["flops"] > train_records[0]["flops"] > 0
    valid_records = records(run_folder, "valid")
    assert [r["update"] for r in valid_records] == [20, 40]
    sample = valid_records[-1]["samples"][0]
    assert (sample["source"], sample["reference"]) == invented_pairs(20, seed=1)[0]
    (start,) = records(run_folder, "start")
    assert (start["model"]["d_model"], start["options"]["batch_tokens"]) == (32, 800)
    checkpoint = nmt.load_checkpoint(run_folder / "snapshot-00000040.safetensors")
    assert checkpoint.training == nmt.load_checkpoint(run_folder / "best.safetensors").training == {}
    assert (checkpoint.provenance["options"]["batch_tokens"], checkpoint.provenance["update"]) == (800, 40)


def test_updates_after_the_last_state_are_repeated_with_the_same_weights(trained: Path, tmp_path: Path) -> None:
    """If training was killed before it saved its state at update 40, it and metrics.jsonl go back to update 20."""
    shutil.copytree(trained / "run", tmp_path / "run")
    for name in ("state-00000040.safetensors", "snapshot-00000040.safetensors"):
        (tmp_path / "run" / name).unlink()
    # A forked command computes with one thread, as the commands that made `trained` did.
    command = ["train", trained / "data", f"--save-dir={tmp_path}/run", *TRAIN, *SMALL, "--max-updates=40"]
    log = forks.run(*command).errors
    assert "resumed from" in log and "after update 20" in log
    assert same_weights(*(folder / "run" / "snapshot-00000040.safetensors" for folder in (trained, tmp_path)))
    logs = [records(folder / "run", "train", "valid") for folder in (trained, tmp_path)]
    expected, rows = ([(r["kind"], r["update"], r["nll"]) for r in log] for log in logs)
    assert rows == expected
    assert [r["update"] for r in records(tmp_path / "run", "start")] == [0, 20]
    assert "nothing to do" in run(*command).stderr


def test_a_dry_run_says_what_training_takes_and_writes_nothing(trained: Path, tmp_path: Path) -> None:
    options = [*TRAIN, *SMALL, "--max-updates=2000", "--save-updates=300", "--keep-best=3", "--dry-run"]
    log = run("train", trained / "data", f"--save-dir={tmp_path}/run", *options).stderr
    log = " ".join(log.split())
    parameters = records(trained / "run", "start")[0]["parameters"]
    assert f"{parameters:,} parameters" in log
    weights, state = (f"{parameters * size / 2**20:,.0f} MiB" for size in (4, 12))
    assert f"7 checkpoints of {weights} and 2 training states of {state}" in log
    plan = ["joint", "updates an epoch", "padding", "source and", "FLOP", "epochs", "MiB per process"]
    assert all(part in log for part in (*plan, "in total with 4 best checkpoints", "nothing was written"))
    assert "warning" not in log
    assert not list(tmp_path.iterdir())


def test_a_dry_run_says_how_long_an_update_takes(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A micro-batch takes half a second or a minute here, and an update has two."""

    def timed(*arguments: Any) -> tuple[None, float]:
        stream, count = arguments[1:3]
        return None, seconds * sum(len(update.batches) for update in islice(stream, count))

    monkeypatch.setattr("nmt.training.train.timed_updates", timed)
    command = "train", trained / "data", f"--save-dir={tmp_path}/run", *TRAIN, *SMALL, "--device-tokens=500"
    for seconds, updates, total_time in (
        (0.5, 20, "2[0-9] seconds"),
        (60.0, 40, "1.[0-9] hours"),
        (60.0, 9000, "1[0-9] days"),
    ):
        log = run(*command, "--dry-run", f"--max-updates={updates}").stderr
        assert re.search(f"  in total  {total_time} without validation, ", log), log
        (duration,) = re.findall(r" update .* TFLOP, (.*) s\n", log)
        assert float(duration) == pytest.approx(2 * seconds, rel=0.2)


@pytest.mark.parametrize("options, message", [
    (["--max-updates=30000"], "--max-updates 30,000 is 3,000 epochs of 300 pairs; a corpus of this size needs fewer"),
    (["--max-updates=100", "--warmup-updates=400"], "--warmup-updates 400 is more than --max-updates 100"),
])  # fmt: skip
def test_an_odd_schedule_gets_a_warning(trained: Path, tmp_path: Path, options: list[str], message: str) -> None:
    log = train(trained / "data", tmp_path / "run", *options, "--dry-run")
    assert f"warning: {message}" in " ".join(log.split())


def test_the_size_of_micro_batches_does_not_change_the_weights(trained: Path, tmp_path: Path) -> None:
    """Rounding changes a weight by 2e-7 or less, and an update changes most weights by more than 1e-4."""
    options = ["--max-updates=3", "--dropout=0", "--valid-metric=nll", "--lr-scale=0.1", "--clip-norm=0.5"]
    train(trained / "data", tmp_path / "whole", *options)
    train(trained / "data", tmp_path / "cut", *options, "--device-tokens=150")
    whole, cut = (weights(tmp_path / name / "snapshot-00000003.safetensors") for name in ("whole", "cut"))
    assert all(torch.allclose(whole[name], cut[name], rtol=0, atol=5e-6) for name in whole)


def test_training_in_bf16_saves_checkpoints_at_intervals_of_time(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait for an update takes a minute here, and a validation takes an hour."""
    minutes, validate = [0.0], loop.validate

    def taking(time: float, value: Any) -> Any:
        minutes[0] += time
        return value

    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: 60 * minutes[0]))
    monkeypatch.setattr("nmt.training.update._readable_later", lambda flag: lambda: taking(1, bool(flag)))
    monkeypatch.setattr(loop, "validate", lambda *arguments: taking(60, validate(*arguments)))
    flags = [flag for flag in TRAIN if not flag.startswith("--save-updates")]
    options = ["--max-updates=10", "--precision=bf16", "--save-minutes=2", "--valid-metric=nll", "--valid-updates=5"]
    run("train", trained / "data", f"--save-dir={tmp_path}", *flags, *SMALL, *options)
    snapshots = sorted(tmp_path.glob("snapshot-*.safetensors"))
    assert [int(path.stem[-2:]) for path in snapshots] == [3, 6, 10]  # the wait before a state at 8 does not count
    rounded, exact = (records(folder, "train")[0]["nll"] for folder in (tmp_path, trained / "run"))
    assert rounded == pytest.approx(exact, rel=0.01)
    assert rounded != exact


AWKWARD = [b"", b"   ", b"\x00", b"\xc2\xa0", "naïve ☃ 漢字 \u2028 \x85 \x0c".encode(), b"a" * 3000, b"- ?", b""]


def test_every_input_line_gives_one_output_line(trained: Path) -> None:
    lines = [*AWKWARD, b" ".join([b"ba"] * 10_000), b"Ba de ki."]
    done = run("generate", trained / "run" / "best.safetensors", "--max-length-offset=5", stdin=b"\n".join(lines))
    output = done.stdout.decode().split("\n")
    assert len(output) == len(lines) + 1
    assert [output[i] for i in (0, 1, 7)] == ["", "", ""]
    assert "--max-source-length" in done.stderr
    # A line has the same translation by itself as among other lines.
    assert translated(trained, "--max-length-offset=5", stdin=lines[-1]) == [output[-2]]


@pytest.mark.parametrize("options", [["--n-best=3"], ["--sample", "--samples=3"]])
def test_several_translations_are_written_as_text_and_as_jsonl(trained: Path, options: list[str]) -> None:
    source = b"Ba de ki.\n\nLo mu.\n"
    text = translated(trained, *options, "--max-length-offset=5", stdin=source)
    assert len(text) == 9 and text[3:6] == ["", "", ""]
    jsonl = translated(trained, *options, "--max-length-offset=5", "--output-format=jsonl", stdin=source)
    entries = [json.loads(line) for line in jsonl]
    assert [line["source"] for line in entries] == source.decode().split("\n")[:-1]
    assert [[h["text"] for h in line["hypotheses"]] for line in entries] == [text[:3], [""], text[6:]]
    assert len(set(text[:3])) > 1
    scores = [h["score"] for h in entries[0]["hypotheses"]]
    is_sampled = "--sample" in options
    assert is_sampled or scores == sorted(scores, reverse=True)
    assert (translated(trained, *options, "--max-length-offset=5", "--seed=2", stdin=source) != text) == is_sampled


def test_an_ensemble_of_equal_models_translates_like_one_model(trained: Path, tmp_path: Path) -> None:
    source, output = f"--input={trained}/test.en", tmp_path / "out.de"
    translated(trained, trained / "run" / "best.safetensors", source, f"--output={output}")
    assert output.read_text().splitlines() == translated(trained, source)


def translator_and_lines(trained: Path) -> tuple[nmt.Translator, list[str]]:
    translator = nmt.Translator.load(trained / "run" / "best.safetensors", runtime=RuntimeConfig(device="cpu"))
    return translator, (trained / "test.en").read_text().splitlines()


def test_the_python_interface_translates_like_the_command(trained: Path) -> None:
    translator, lines = translator_and_lines(trained)
    assert translator.translate(lines) == translated(trained, f"--input={trained}/test.en")
    assert translator.translate([]) == []
    with pytest.raises(TypeError, match="take a list of lines"):
        translator.translate("ba")  # type: ignore[arg-type]
    (hypotheses,) = translator.hypotheses(lines[:1], SearchConfig(n_best=2))
    assert len(hypotheses) == 2


@pytest.mark.usefixtures("printing")
def test_batches_are_halved_if_memory_runs_out(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    translator, lines = translator_and_lines(trained)
    expected = translator.translate(lines)
    sizes = []  # sentences of each batch

    def start(model: Transformer, ids_N: torch.Tensor, source: Layout, beam: int) -> DecoderCache:
        sizes.append(len(source.lengths_B))
        if sizes[-1] > room:
            raise torch.OutOfMemoryError("CUDA out of memory (not really)")
        return transformer.start(model, ids_N, source, beam)

    room = 1
    monkeypatch.setattr("nmt.translate.pytorch_engine.start", start)
    assert translator.translate(lines) == expected
    assert max(sizes) > 1
    assert "sentences at once, which are now translated in two halves" in capfd.readouterr().err
    room = 0
    with pytest.raises(nmt.NmtError, match=r"for a single sentence of .* pieces; lower --max-source-length"):
        translator.translate(lines[:1])


def test_a_reader_that_ends_early_ends_the_command_quietly(trained: Path) -> None:
    """This is `nmt generate … | head`. The interpreter must not complain either, when it closes standard output."""
    generate = ["generate", trained / "run" / "best.safetensors", f"--input={trained}/test.en"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "nmt", *generate], stdout=writer, stderr=subprocess.PIPE, timeout=300)
    os.close(writer)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr and b"rror" not in done.stderr


def test_architectures_are_listed() -> None:
    table = run("architectures").stdout.decode()
    assert all(name in table for name in ("transformer_base", "transformer_big", "transformer_parsing", "63.0M"))


@pytest.mark.parametrize("options, message", [
    (["--arch=transfomer_bas"], "did you mean transformer_base"),
    (["--arch=rnn"], "--arch rnn is unknown; `nmt architectures` lists nmt's own"),
    (["--d-model=33"], "--d-model must be even"),
    (["--alignment-weight=1"], "--alignment-weight is 1, but needs --guided-alignment; add it"),
    (["--heads=3"], "--heads 3 does not divide --d-model 128; change one of them, or give --d-k and --d-v"),
    (["--lr-scale=inf"], "--lr-scale must be a finite number, but is inf"),
    (["--d-model=50000", "--d-ff=50000", "--encoder-layers=999"], "parameters does not fit into memory; choose a"),
    (["--device=cuda", "--gpus=99"], "--gpus is 99, but torch sees"),
    (["--device=auto", "--gpus=99"], "--gpus is 99, but torch sees"),
    pytest.param(["--device=cuda"], "--device is cuda, but torch sees no GPU",
                 marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")),
])  # fmt: skip
def test_wrong_training_options_are_refused(trained: Path, tmp_path: Path, options: list[str], message: str) -> None:
    assert message in failed("train", trained / "data", f"--save-dir={tmp_path}/run", *TRAIN, *options)


def test_data_and_run_folders_that_do_not_match_the_options_are_refused(trained: Path, tmp_path: Path) -> None:
    def refused(data: Path, folder: str | Path, *options: str) -> str:
        return failed("train", data, f"--save-dir={folder}", *TRAIN, *SMALL, *options)

    assert "none" in refused(tmp_path / "none", tmp_path / "run")
    for option in ("--d-ff=65", "--batch-tokens=900", "--seed=2"):
        message = refused(trained / "data", trained / "run", option)
        assert f"cannot be resumed: {option.split('=')[0]} was " in message
    (tmp_path / "file").touch()
    assert "--save-dir" in refused(trained / "data", tmp_path / "file")
    assert "is the data folder; choose another folder" in refused(trained / "data", f"{trained}/data/.")


def test_folders_with_too_few_checkpoints_to_average_are_refused(trained: Path, tmp_path: Path) -> None:
    output = f"--output={tmp_path}/a.safetensors"
    few = failed("average-checkpoints", trained / "run", "--last=9", output)
    assert "holds 4 checkpoints, but --last is 9; give a smaller --last, or let nmt train write checkpoints" in few
    none = failed("average-checkpoints", trained / "data", output)
    assert "data holds no checkpoints; give the --save-dir of a training" in none
    assert not any(tmp_path.iterdir())


def test_updates_without_numbers_are_skipped(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add, calls = update_module.add_gradient, iter(range(100))

    def add_nan_once(training: Training, batch: MicroBatch, weight: float) -> tuple[torch.Tensor, torch.Tensor]:
        is_third = weight > 0 and next(calls) == 2  # the check of the memory has the weight 0
        return add(training, batch, float("nan") if is_third else weight)

    monkeypatch.setattr(update_module, "add_gradient", add_nan_once)
    options = ["--max-updates=4", "--save-updates=1", "--log-updates=4"]
    log = train(trained / "data", tmp_path, "--valid-metric=nll", *options)
    assert "update 3 was skipped: its loss or gradient is not finite (1 in a row)" in log
    assert "  1 update skipped" in log
    second, fourth = (weights(tmp_path / f"snapshot-{n:08d}.safetensors") for n in (2, 4))
    assert not (tmp_path / "snapshot-00000003.safetensors").exists()  # no checkpoint is saved after a skipped update
    assert all(tensor.isfinite().all() for tensor in fourth.values())
    assert any(not torch.equal(second[name], fourth[name]) for name in second)
    (record,) = records(tmp_path, "train")
    assert record["skipped_updates"] == 1 and 4 < record["nll"] < 7


def test_resume_changed_resumes_with_other_options(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    options = ["--max-updates=42", "--batch-tokens=700", "--dropout=0.2", "--valid-metric=nll", "--resume-changed"]
    finished = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    command = "train", trained / "data", f"--save-dir={tmp_path}/run", *TRAIN, *SMALL
    said = failed(*command, "--max-updates=40", "--seed=2", "--resume-changed")
    assert said.endswith("choose another --save-dir, because its 40 updates are done and nothing is left to train")
    assert finished == {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    log = train(trained / "data", tmp_path / "run", *options)
    assert "changed option: --max-updates was 40 and is now 42" in log
    assert "warning: resuming although --dropout was 0.1 and is now 0.2" in log
    assert "warning: resuming although --batch-tokens was 800 and is now 700" in log
    assert same_weights(trained / "run" / "best.safetensors", tmp_path / "run" / "best.safetensors.earlier")
    states = trained / "run" / "state-00000040.safetensors", tmp_path / "run" / "state-00000042.safetensors"
    old_counters, new_counters = (nmt.load_checkpoint(path).training["counters"] for path in states)
    assert (new_counters["epoch"], new_counters["update_in_epoch"]) == (old_counters["epoch"] + 1, 2)
    wider = [f"--save-dir={tmp_path}/run", *TRAIN, *SMALL, "--d-ff=65", "--resume-changed"]
    message = failed("train", trained / "data", *wider)
    assert "--d-ff was 64 and is now 65" in message
    assert message.endswith("choose another --save-dir, because the weights of one model do not fit the other")


def test_standard_output_that_cannot_be_written_is_named(trained: Path) -> None:
    with open("/dev/full", "wb") as full:
        generate = ["generate", trained / "run" / "best.safetensors", f"--input={trained}/test.en"]
        said = forks.run(*generate, stdout=full.fileno(), code=1).errors
    assert "error: standard output cannot be written (No space left on device)" in said
    assert "Traceback" not in said
