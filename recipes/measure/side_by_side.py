"""The parts of side_by_side.sh and its runners that are not shell: pieces, a training with a time limit, the table.

python recipes/measure/side_by_side.py FUNCTION ARGUMENT...
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from sentencepiece import SentencePieceProcessor


def encode(text: str, folder: str) -> None:
    """Writes the files of `text` as subword pieces between spaces, and `vocabulary` with one piece on each line.

    The vocabulary has no symbols such as </s>, which each toolkit adds itself.
    """
    pieces = SentencePieceProcessor(model_file=f"{folder}/data/subword.model")
    ids = (i for i in range(len(pieces)) if not pieces.is_control(i) and not pieces.is_unknown(i))
    Path(folder, "vocabulary").write_text("".join(f"{pieces.id_to_piece(i)}\n" for i in ids), encoding="utf-8")
    for path in Path(text).iterdir():
        with path.open(encoding="utf-8") as lines, Path(folder, path.name).open("w", encoding="utf-8") as output:
            output.writelines(" ".join(pieces.encode(line.rstrip("\n"), out_type=str)) + "\n" for line in lines)


def decode(model: str) -> None:
    """Writes the text of each line of pieces on stdin."""
    pieces = SentencePieceProcessor(model_file=model)
    for line in sys.stdin:
        print(pieces.decode(line.split()).strip())


def train(minutes: str, signal_name: str, folder: str, *command: str) -> None:
    """Runs a training on one core, and ends it with the signal when the time since its start is over.

    With the signal `none`, the command keeps the time itself. Writes the output of the command to train.log in the
    folder, and to training.json its minutes, the minutes that it had the core, and its peak memory.
    """
    core = int(os.environ.get("CORE", max(os.sched_getaffinity(0))))
    os.sched_setaffinity(0, {core})
    # A job in the background of a shell ignores SIGINT, and so would the training.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    start = time.monotonic()
    with Path(folder, "train.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | threads)
        try:
            code = process.wait(None if signal_name == "none" else 60 * float(minutes))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.Signals[signal_name])
            process.wait()
            code = 0
    if code != 0:
        sys.exit(f"error: the training ended with exit code {code}; {folder}/train.log has its output")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    measured = {
        "minutes": (time.monotonic() - start) / 60,
        "cpu_minutes": (used.ru_utime + used.ru_stime) / 60,
        "memory_mib": used.ru_maxrss / 2**10,
    }
    Path(folder, "training.json").write_text(json.dumps(measured), encoding="utf-8")


def best(run: str, toolkit: str) -> None:
    """Prints the configuration of a toolkit that has the best BLEU on the odd lines with the first seed."""
    bleu = {
        configuration: _read(Path(run, f"{toolkit}-{configuration}-1", "choose.json"))["bleu"]
        for configuration in "123"
    }
    print(max(bleu, key=lambda configuration: bleu[configuration]["score"]))


def table(run: str) -> None:
    """Prints a row for each training. Only the chosen configurations, which have a second seed, get a test score."""
    print("| toolkit, configuration, seed | BLEU, odd lines | BLEU, even lines | chrF, even lines | updates ", end="")
    print("| target tokens | minutes | minutes of the core | memory, MiB |\n|" + "---|" * 9)
    scores = {}
    for folder in sorted(path.parent for path in Path(run).glob("*/choose.json")):
        toolkit, configuration, seed = folder.name.rsplit("-", 2)
        is_chosen = (folder / "test.json").exists()
        scores = _read(folder / ("test.json" if is_chosen else "choose.json"))
        result = _read(folder / "result.json")
        cells = [f"{toolkit}, {configuration}, {seed}", f"{_read(folder / 'choose.json')['bleu']['score']:.1f}"]
        for score in scores.values():
            interval = "{low:.1f} to {high:.1f}".format(**score["confidence"])
            cells.append(f"{score['score']:.1f} ({interval})" if is_chosen else "")
        cells += [f"{result['updates']:,}", f"{result['target_tokens']:,}"]
        cells += [f"{result[name]:.1f}" for name in ("minutes", "cpu_minutes")]
        print(f"| {' | '.join(cells)} | {result['memory_mib']:,.0f} |")
    print(*(f"{metric}: {score['signature']}" for metric, score in scores.items()), sep="\n")


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    functions = {function.__name__: function for function in (encode, decode, train, best, table)}
    functions[sys.argv[1]](*sys.argv[2:])
