"""The files that a case damages, and the commands that it then runs.

Every case has its own folder with corpus/, data/, trees/, run/, average.safetensors and some files of the user. All
paths are relative to that folder.
"""

import hashlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

import nmt
from nmt.cli.app import main
from nmt.data.folder import DataFolder
from nmt.training.records import MetricsFile

SIZES = {"train": 200, "valid": 6, "test": 8}
_SYLLABLES = ("ba", "de", "ki", "lo", "mu", "na", "po", "ra", "si", "tu", "ve", "zo", "ä", "ß")
_TREE = "( (S (NP-SBJ (NNS {})) (VP (VBP see) (NP (NNS {}))) (. .)))"

MODEL = (
    "--arch=transformer_tiny", "--d-model=32", "--d-ff=64", "--heads=2", "--d-k=16", "--d-v=16", "--encoder-layers=1",
    "--decoder-layers=1", "--precision=fp32", "--device=cpu",
)  # fmt: skip
BATCHES = ("--batch-tokens=800", "--batch-groups=2", "--device-tokens=800")
TRAINING = (*MODEL, *BATCHES, "--warmup-updates=20", "--valid-updates=12", "--save-updates=12", "--log-updates=12")
PREPROCESS = ("preprocess", "--source-lang=en", "--target-lang=de", "--valid=corpus/valid", "--vocab-size=330")
SEARCH = ("--max-length-offset=10", "--precision=fp32")


@dataclass(frozen=True)
class Command:
    """A command and its result.

    Attributes:
        arguments: the arguments of `nmt`.
        result: reads the output as plain data; raises an exception if the output is incomplete.
        changes: the folder that the command may change; "" if it may only create files.
    """

    arguments: tuple[str, ...]
    result: Callable[[], object]
    changes: str = ""

    def made(self) -> object:
        """Runs the command, which must succeed, and returns its result."""
        _succeed(*self.arguments)
        return self.result()


def run(arguments: tuple[str, ...]) -> int:
    """Runs `nmt` in this process and returns its exit code."""
    sys.argv = ["nmt", *arguments]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _succeed(*arguments: str) -> None:
    if code := run(arguments):
        raise RuntimeError(f"{arguments} ended with exit code {code}")


def set_up() -> None:
    """Creates the undamaged files in the working folder."""
    _write_corpora()
    _succeed(*PREPROCESS, "--train=corpus/train", "--test=corpus/test", "--dest=data", "--workers=1")
    _succeed("trees", "linearize", "--train=corpus/trees.mrg", "--dest=trees")
    _succeed("train", "data", "--save-dir=run", "--max-updates=24", *TRAINING)
    _succeed("average-checkpoints", "run", "--last=2", "--output=average.safetensors")
    _succeed("generate", "average.safetensors", "--input=corpus/test.en", "--output=corpus/test.out", *SEARCH)
    _write_user_files()


def _write_corpora() -> None:
    draw = Random(0)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(100)]
    Path("corpus").mkdir()
    for name, size in SIZES.items():
        lines = [" ".join(draw.choices(words, k=draw.randint(2, 12))) for _ in range(size)]
        Path(f"corpus/{name}.en").write_text("".join(f"{line.capitalize()}.\n" for line in lines), encoding="utf-8")
        Path(f"corpus/{name}.de").write_text("".join(f"{line[::-1]} !\n" for line in lines), encoding="utf-8")
    trees = [_TREE.format(*draw.choices(words, k=2)) for _ in range(SIZES["test"])]
    Path("corpus/trees.mrg").write_text("".join(f"{tree}\n" for tree in trees), encoding="utf-8")


def _write_user_files() -> None:
    """Creates files and folders of the user. Some look like unfinished output of the toolkit."""
    Path("treasure").mkdir()
    Path("treasure/notes.txt").write_text("a year's work\n")
    Path("treasure/.lock").touch()
    Path("linked.unfinished").symlink_to("treasure")
    Path("theirs.unfinished").mkdir()
    Path("theirs.unfinished/.lock").touch()
    Path("theirs.unfinished/notes.txt").write_text("another year's work\n")
    Path("locked").mkdir()
    Path("locked/.lock").symlink_to("../treasure/notes.txt")


def _lines(path: str) -> Callable[[], list[str]]:
    return lambda: Path(path).read_bytes().decode().split("\n")


def _weights(path: Path | str) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(nmt.load_checkpoint(path).weights.items()):
        numbers = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode() + numbers.tobytes())
    return digest.hexdigest()


def _trained(folder: str) -> Callable[[], list[object]]:
    """Returns a function that reads the weights of the newest checkpoint and the record of the last validation."""

    def result() -> list[object]:
        newest = max(Path(folder).glob("snapshot-*.safetensors"))
        records = MetricsFile(Path(folder, "metrics.jsonl")).records()
        *_, last = (record for record in records if record["kind"] == "valid")
        return [newest.name, _weights(newest), last["update"], last["nll"], last["bleu"]]

    return result


def _data() -> list[str]:
    """Returns digests of the data folder's files. meta.json is left out, because it contains the folder's name."""
    DataFolder.open("new")
    files = [path for path in Path("new").iterdir() if path.name != "meta.json"]
    return [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in sorted(files)]


def is_strict_json(text: str) -> bool:
    """Returns whether the text is JSON without NaN and Infinity, which Python accepts and browsers refuse."""
    constants: list[str] = []
    json.loads(text, parse_constant=constants.append)
    return not constants


def page_is_whole(path: str) -> Callable[[], bool]:
    """Returns a function that checks whether a page is complete and its data are valid."""

    def result() -> bool:
        html = Path(path).read_text()
        found = re.search('<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
        return bool(found) and is_strict_json(found[1]) and html.rstrip().endswith("</html>")

    return result


COMMANDS = {
    "preprocess": Command((*PREPROCESS, "--train=corpus/train", "--dest=new", "--workers=1"), _data),
    "train": Command(("train", "data", "--save-dir=new", "--max-updates=12", *TRAINING), _trained("new")),
    "train for longer": Command(("train", "data", "--save-dir=new", "--max-updates=60", *TRAINING), _trained("new")),
    "resume": Command(("train", "data", "--save-dir=run", "--max-updates=28", *TRAINING), _trained("run"), "run"),
    "average": Command(
        (
            "average-checkpoints",
            "run/snapshot-00000012.safetensors",
            "run/snapshot-00000024.safetensors",
            "--output=mean.safetensors",
        ),
        lambda: _weights("mean.safetensors"),
    ),
    "generate": Command(
        ("generate", "average.safetensors", "--input=corpus/test.en", "--output=out", "--output-format=jsonl", *SEARCH),
        _lines("out"),
    ),
    "generate text": Command(
        ("generate", "average.safetensors", "--input=corpus/test.en", "--output=out", *SEARCH), _lines("out")
    ),
    "attention": Command(
        ("attention", "average.safetensors", "--source=Bade.", "--output=page.html", "--target=edab"),
        _lines("page.html"),
    ),
    "report": Command(("report", "run", "--output=page.html"), page_is_whole("page.html")),
}

# The result of each command with undamaged files. hostile.py fills this table before the first case.
undamaged: dict[str, object] = {}
