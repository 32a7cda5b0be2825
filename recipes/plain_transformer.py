"""How fast `nmt train` is beside the loop one would write with torch.nn.Transformer: same data, batches and sizes.

    python recipes/plain_transformer.py DATA --arch transformer_tiny --updates 30 --repeats 3

runs the two in turn, each in a process of its own, and prints target tokens a second and peak memory.
"""

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.data.batching import make_plan
from nmt.data.store import DataFolder
from nmt.registry import model_config
from nmt.text.subword import BOS, EOS, PAD

BATCH_TOKENS = 4096


class PlainTransformer(nn.Module):
    """torch.nn.Transformer between one shared embedding and a softmax over its rows."""

    def __init__(self, c: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, c.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=c.d_model**-0.5)
        self.transformer = nn.Transformer(
            c.d_model, c.heads, c.encoder_layers, c.decoder_layers, c.d_ff, c.dropout, batch_first=True
        )
        self.dropout = nn.Dropout(c.dropout)
        angles = torch.arange(1024)[:, None] / 10000 ** (torch.arange(0, c.d_model, 2) / c.d_model)
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), -1).flatten(1))

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.positions[: tokens.shape[1]])  # type: ignore[index]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = source == PAD
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return hidden @ self.embedding.weight.T


def padded(sentences: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(s) for s in sentences], batch_first=True, padding_value=PAD)


def run_plain(data_folder: str, arch: str, updates: int, bf16: bool) -> dict[str, float]:
    """Trains for some updates; target tokens a second of the later half, and peak memory in MiB."""
    data = DataFolder.open(data_folder)
    split = data.split("train")
    lengths = (split.source.lengths + 1, split.target.lengths + 1)
    plan = make_plan(*lengths, batch_tokens=BATCH_TOKENS, groups=1, seed=1, epoch=0)
    model = PlainTransformer(model_config(arch), len(data.codec.target))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    started, tokens = 0.0, 0
    for update in range(updates):
        if update == updates // 2:
            started, tokens = time.perf_counter(), 0
        for block in chain.from_iterable(plan.micro_batches(update, BATCH_TOKENS)):
            source = padded([[*split.source[i].tolist(), EOS] for i in block])
            target = padded([[BOS, *split.target[i].tolist(), EOS] for i in block])
            labels = target[:, 1:]
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                logits = model(source, target[:, :-1])
                loss = nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1
                )
            loss.backward()
            tokens += int((labels != PAD).sum())
        optimizer.step()
        optimizer.zero_grad()
    seconds = time.perf_counter() - started
    return {"tok/s": tokens / seconds, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def run_nmt(data_folder: str, arch: str, updates: int) -> dict[str, float]:
    """The same with `nmt train`, from its own metrics.jsonl."""
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "arch": arch, "save-dir": folder, "batch-tokens": BATCH_TOKENS, "device-tokens": BATCH_TOKENS,
            "batch-groups": 1, "max-updates": updates, "log-updates": updates // 2, "valid-updates": updates,
        }  # fmt: skip
        flags = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", "nmt", "train", data_folder, *flags, "--no-valid-bleu", "--device=cpu"]
        subprocess.run(command, check=True, capture_output=True)
        records = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
        last = [r for r in records if r["kind"] == "train"][-1]
        return {"tok/s": last["target_tokens_per_second"], "MiB": last["peak_memory_mib"]}


def in_a_process(loop: str, options: argparse.Namespace) -> dict[str, float]:
    """`run_plain` in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, __file__, options.data, f"--arch={options.arch}", f"--updates={options.updates}"]
    done = subprocess.run([*command, f"--loop={loop}"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def compare(options: argparse.Namespace) -> None:
    loops = {
        "torch.nn.Transformer, fp32": lambda: in_a_process("fp32", options),
        "torch.nn.Transformer, bf16": lambda: in_a_process("bf16", options),
        "nmt train": lambda: run_nmt(options.data, options.arch, options.updates),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in loops}
    for _ in range(options.repeats):
        for name, loop in loops.items():
            found[name].append(loop())
    medians = {name: {k: statistics.median(r[k] for r in runs) for k in runs[0]} for name, runs in found.items()}
    base = medians["torch.nn.Transformer, fp32"]
    print(f"{options.arch}, {BATCH_TOKENS} padded tokens a side, median of {options.repeats}")
    for name, m in medians.items():
        ratio, share = m["tok/s"] / base["tok/s"], m["MiB"] / base["MiB"]
        print(f"{name:28} {m['tok/s']:8,.0f} tok/s  {ratio:5.2f}x   {m['MiB']:6,.0f} MiB  {share:5.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data folder that nmt preprocess wrote")
    parser.add_argument("--arch", default="transformer_tiny")
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--loop", choices=["fp32", "bf16"], help="only this plain loop; prints JSON")
    options = parser.parse_args()
    if options.loop:
        print(json.dumps(run_plain(options.data, options.arch, options.updates, options.loop == "bf16")))
    else:
        compare(options)


if __name__ == "__main__":
    main()
