"""The parts of side_by_side.sh and its runners that are not shell: pieces, a training with a time limit, the table."""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import sentencepiece


def encode(model: Path) -> None:
    """Writes each line of stdin as subword pieces between spaces."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for line in sys.stdin:
        print(" ".join(pieces.encode(line.rstrip("\n"), out_type=str)))


def decode(model: Path) -> None:
    """Writes the text of each line of pieces on stdin. Special symbols are left out."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for line in sys.stdin:
        known = [piece for piece in line.split() if not pieces.is_control(pieces.piece_to_id(piece))]
        print(pieces.decode(known).strip())


def vocabulary(model: Path) -> None:
    """Writes the pieces, one on each line. Symbols such as </s>, which each toolkit adds itself, are left out."""
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    for piece_id in range(len(pieces)):
        if not pieces.is_control(piece_id) and not pieces.is_unknown(piece_id):
            print(pieces.id_to_piece(piece_id))


def train(minutes: float, signal_name: str, folder: Path, command: list[str]) -> None:
    """Runs a training on one core until the time is over, and then ends it with the signal.

    The time begins with the start of the command. With the signal `none`, the command keeps the time itself. Writes its
    output to train.log in the folder, and minutes and peak memory to training.json.
    """
    core = int(os.environ.get("CORE", max(os.sched_getaffinity(0))))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    start = time.monotonic()
    with (folder / "train.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | threads)
        os.sched_setaffinity(process.pid, {core})
        try:
            code = process.wait(None if signal_name == "none" else 60 * minutes)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.Signals[signal_name])
            process.wait()
            code = 0
    if code != 0:
        sys.exit(f"error: the training ended with exit code {code}; {folder}/train.log has its output")
    peak_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    measured = {"minutes": (time.monotonic() - start) / 60, "memory_mib": peak_kib / 2**10}
    (folder / "training.json").write_text(json.dumps(measured), encoding="utf-8")


def record(folder: Path, updates: int, target_tokens: int) -> None:
    """Writes result.json: the counts, and what `train` measured."""
    counts = {"updates": updates, "target_tokens": target_tokens}
    measured = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    (folder / "result.json").write_text(json.dumps(counts | measured), encoding="utf-8")


def best(run: Path, toolkit: str) -> None:
    """Prints the configuration that has the best BLEU on the odd lines with the first seed."""
    print(
        max(
            (1, 2, 3),
            key=lambda configuration: _scores(run / f"{toolkit}-{configuration}-1", "choose")["bleu"]["score"],
        )
    )


def table(run: Path) -> None:
    """Prints a row for each training, and the scores on the even lines for configurations that have a second seed."""
    print(
        "| toolkit, configuration, seed | BLEU, odd lines | BLEU, even lines | chrF, even lines | updates "
        "| target tokens | minutes | memory, MiB |\n|---|---|---|---|---|---|---|---|"
    )
    for folder in sorted(path.parent for path in run.glob("*/test.json")):
        toolkit, configuration, seed = folder.name.rsplit("-", 2)
        is_chosen = (run / f"{toolkit}-{configuration}-2").exists()
        scores = _scores(folder, "test")
        even = [_with_interval(scores[metric]) if is_chosen else "" for metric in ("bleu", "chrf")]
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        print(
            f"| {toolkit}, {configuration}, {seed} | {_scores(folder, 'choose')['bleu']['score']:.1f} "
            f"| {' | '.join(even)} | {result['updates']:,} | {result['target_tokens']:,} "
            f"| {result['minutes']:.1f} | {result['memory_mib']:,.0f} |"
        )
    print("\n".join(f"{name}: {score['signature']}" for name, score in scores.items()))


def _scores(folder: Path, part: str) -> dict:
    return json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))


def _with_interval(score: dict) -> str:
    return f"{score['score']:.1f} ({score['confidence']['low']:.1f} to {score['confidence']['high']:.1f})"


parser = argparse.ArgumentParser(description=__doc__)
commands = parser.add_subparsers(required=True)
for function, arguments in (
    (encode, {"model": Path}),
    (decode, {"model": Path}),
    (vocabulary, {"model": Path}),
    (train, {"minutes": float, "signal_name": str, "folder": Path}),
    (record, {"folder": Path, "updates": int, "target_tokens": int}),
    (best, {"run": Path, "toolkit": str}),
    (table, {"run": Path}),
):
    command_parser = commands.add_parser(function.__name__, help=function.__doc__)
    command_parser.set_defaults(function=function)
    for name, kind in arguments.items():
        command_parser.add_argument(name, type=kind)
    if function is train:
        command_parser.add_argument("command", nargs=argparse.REMAINDER)
options = vars(parser.parse_args())
options.pop("function")(**options)
