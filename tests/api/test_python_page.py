"""The examples of docs/python.md run as they are written, and have the types that they should."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkpoints import saved, small_checkpoint
from conftest import invented_pairs, write_pairs

import nmt

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "nmt")
    for seed, (name, size) in enumerate({"corpus": 300, "dev": 20}.items()):
        write_pairs(tmp_path / name, invented_pairs(size, seed))
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, names)
    assert len(BLOCKS) == 10
    printed = capfd.readouterr()
    assert printed.err == ""
    assert "--heads 5 does not divide --d-model 128" in printed.out
    assert not (tmp_path / "other").exists()
    assert "chrF2" in printed.out
    assert names["logits"].shape[2] == len(names["codec"].target)  # type: ignore[attr-defined]
    assert "wrote second" in caplog.text


def test_the_examples_have_the_types_that_they_should(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """A wrong option and two wrong types are the only errors.

    The cache lasts from one session to the next, because mypy reads PyTorch for many seconds.
    """
    program = tmp_path / "page.py"
    program.write_text(
        "\n".join(BLOCKS) + '\nnmt.train("data", save_dir=3, size=4)\nnmt.score(["a"], ["b"], metric="ter")\n'
    )
    cache = pytestconfig.rootpath / ".pytest_cache" / "mypy"
    options = ["--strict", "--config-file=", f"--cache-dir={cache}", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, program], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )  # fmt: skip
    errors = [re.sub(r".*error: ", "", line) for line in done.stdout.splitlines() if "error: " in line]
    assert [error.split("[")[-1] for error in errors] == ["call-arg]", "arg-type]", "arg-type]"], (
        done.stdout + done.stderr
    )


def test_public_names_are_listed_once_and_exist() -> None:
    for name in nmt.__all__:
        assert getattr(nmt, name) is not None
    assert set(nmt.__all__) == {"__version__", *nmt._MODULES}
    with pytest.raises(AttributeError, match="module 'nmt' has no attribute 'Trnslator'"):
        nmt.Trnslator  # noqa: B018


def test_preprocess_reads_corpus_files(tmp_path: Path) -> None:
    rows = [f"1\t{source}\t{target}\n" for source, target in invented_pairs(60)]
    (tmp_path / "pairs.tsv").write_text("".join(rows) + "0\tA\tB\n")
    write_pairs(tmp_path / "dev", invented_pairs(5, 1))
    data = nmt.preprocess(
        source_lang="en", target_lang="de", train=(str(tmp_path / "pairs.tsv"),), valid=str(tmp_path / "dev"),
        dest=str(tmp_path / "data"), columns="2,3,1", least_score=1, vocab_size=300,
    )  # fmt: skip
    assert json.loads((data / "meta.json").read_text())["splits"]["train"]["pairs"] == 60


def test_a_single_constraint_is_not_taken_for_its_letters() -> None:
    with pytest.raises(TypeError, match="constraints takes a list of phrases"):
        nmt.Unit("A dog runs.", constraints="Hund")


def test_files_may_be_paths(tmp_path: Path) -> None:
    first, second, valid = (Path(write_pairs(tmp_path / name, invented_pairs(20))) for name in ("a", "b", "c"))
    model, module = saved(small_checkpoint(0), tmp_path / "model.safetensors"), tmp_path / "mine.py"
    module.write_text("")
    langs: dict[str, Any] = {"source_lang": "en", "target_lang": "de", "valid": valid, "like": model}
    data = nmt.preprocess(**langs, train=[first, str(second)], test=(valid,), dest=tmp_path / "data")
    small: dict[str, Any] = {"device": "cpu", "max_updates": 1, "device_tokens": 2000, "valid_metric": ("nll",)}
    best = nmt.train(data, **small, init_from=model, save_dir=tmp_path / "run", user_module=module)
    assert best == tmp_path / "run" / "best.safetensors"
    runtime = nmt.RuntimeConfig(device="cpu", user_module=module)  # type: ignore[arg-type]
    assert runtime == nmt.RuntimeConfig(device="cpu", user_module=str(module))
    assert len(nmt.Translator.load(best, runtime=runtime).translate(["a"])) == 1
    with pytest.raises(nmt.OptionError, match="--train must be a list in brackets, but is"):
        nmt.preprocess(**langs, train=first, dest=tmp_path / "other")  # type: ignore[arg-type]
