"""Compares the speed and memory of this toolkit with other software, each in a separate process.

Prints medians and ratios. compare_peers.sh prepares the data and models and runs this script.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path

RECIPES = Path(__file__).parent
CORES = 2
# The same as in peer_plain.py. This script does not import that one, because it imports torch: the peak memory of a
# child process includes the memory of the process that it was forked from.
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Contender:
    """A command that prints its speed and memory as JSON.

    Attributes:
        ours: whether benchmark.py writes the JSON; otherwise one of the peer_*.py scripts does, in another format.
    """

    name: str
    command: list[str]
    ours: bool = False

    def measure(self) -> tuple[float, float]:
        """Runs the command and returns its speed and its peak memory in MiB."""
        done = subprocess.run(self.command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(self.command)} failed:\n{done.stderr}")
        report = json.loads(done.stdout)
        if not self.ours:
            return report["speed"], report["memory"]
        memory = next(figure for name, figure in report["figures"].items() if "memory" in name)
        return report["figures"]["speed"]["median"], memory["median"]


def our_command(name: str, *options: str | Path) -> Contender:
    command = [sys.executable, str(RECIPES / "benchmark.py"), *map(str, options), "--json"]
    return Contender(name, command, ours=True)


def peer_script(name: str, script: str, *options: str | Path) -> Contender:
    return Contender(name, [sys.executable, str(RECIPES / script), *map(str, options)])


def training(run: Path, arch: str, updates: int) -> list[Contender]:
    options = [run / "data", "--arch", arch, "--updates", str(updates)]
    batches = [f"--batch-tokens={BATCH_TOKENS}", "--batch-groups=1"]
    ours = ["train", "--arch", arch, "--data", run / "data", *batches, f"--updates={updates // 2}", "--repeats=1"]
    return [
        peer_script("torch.nn.Transformer loop, fp32", "peer_plain.py", *options),
        peer_script("torch.nn.Transformer loop, bf16", "peer_plain.py", *options, "--bf16"),
        our_command("nmt train", *ours, "--device=cpu"),
    ]


def decoding(text: Path, checkpoint: Path, exported: Path) -> list[Contender]:
    peers = [
        peer_script(
            f"CTranslate2 {kind}, {workers} x {CORES // workers}, batch {batch}", "peer_ctranslate2.py",
            exported, text, "--type", kind, "--workers", str(workers), "--threads", str(CORES // workers),
            "--batch", str(batch),
        )
        for kind, workers, batch in product(["float32", "int8"], [2, 1], [32, 64])
    ]  # fmt: skip
    ours = [
        our_command(
            f"nmt generate, {workers} x {CORES // workers}, {batch} tokens", "generate", "--device=cpu",
            "--checkpoint", checkpoint, "--input", text, "--workers", str(workers), "--batch-tokens", str(batch),
            "--repeats=3",
        )
        for workers, batch in product([2, 1], [2048, 4096])
    ]  # fmt: skip
    return peers + ours


def compare(title: str, unit: str, contenders: list[Contender], repeats: int, against: str) -> None:
    """Measures all contenders in turn, `repeats` times, and prints a table of their medians.

    The ratios are relative to the fastest contender whose name begins with `against`.
    """
    measurements: dict[str, list[tuple[float, float]]] = {contender.name: [] for contender in contenders}
    for _ in range(repeats):
        for contender in contenders:
            measurements[contender.name].append(contender.measure())
    medians = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)] for name, rows in measurements.items()
    }
    speed, memory = max(values for name, values in medians.items() if name.startswith(against))
    print(f"\n{title}, median of {repeats}; ratios to the fastest {against}")
    for name, values in medians.items():
        speed_ratio, memory_ratio = values[0] / speed, values[1] / memory
        print(f"{name:40} {values[0]:10,.0f} {unit}  {speed_ratio:5.2f}x", end="")
        print(f"   {values[1]:7,.0f} MiB  {memory_ratio:5.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="run folder of recipes/multi30k.sh")
    parser.add_argument("--only", choices=["train", "decode"], help="measure only training, or only translation")
    parser.add_argument("--repeats", type=int, default=3, help="times that each contender is measured")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    if options.only != "decode":
        for arch, updates in (("transformer_base", 12), ("transformer_tiny", 30)):
            contenders = training(options.run, arch, updates)
            title = f"Training {arch}, {BATCH_TOKENS} padded tokens a side"
            compare(title, "tok/s", contenders, options.repeats, "torch.nn.Transformer loop, fp32")
    if options.only != "train":
        for name, lines in (("model", 1000), ("base", 200)):
            checkpoint = options.run / name / "average.safetensors"
            with tempfile.TemporaryDirectory() as folder:
                exported = Path(folder) / "exported"
                text = (options.run / "data" / "test.en.txt").read_text(encoding="utf-8")
                (Path(folder) / "text").write_text("".join(text.splitlines(keepends=True)[:lines]), encoding="utf-8")
                export = ["-m", "nmt", "export", "ctranslate2", "--output"]
                command = [sys.executable, *export, str(exported), str(checkpoint)]
                subprocess.run(command, check=True)
                contenders = decoding(Path(folder) / "text", checkpoint, exported)
                title = f"Translating {lines:,} lines of test.en.txt with {checkpoint}, beam 4"
                compare(title, "sentences/s", contenders, options.repeats, "CTranslate2 float32")


if __name__ == "__main__":
    main()
