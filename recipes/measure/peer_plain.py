"""Measures a plain training loop around torch.nn.Transformer, with the same data, batches and sizes as nmt train.

    python recipes/measure/peer_plain.py DATA --arch transformer_tiny --updates 30 [--bf16]

Prints target tokens per second and peak memory in MiB as JSON.
"""

import argparse
import json
import math
import resource
import time
from itertools import chain

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.data.batching import make_plan
from nmt.data.folder import DataFolder
from nmt.model.architectures import model_config
from nmt.text.subword import BOS, EOS, PAD

BATCH_TOKENS = 4096


class PlainTransformer(nn.Module):
    """torch.nn.Transformer with one embedding matrix, shared by both inputs and the output projection."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        d_model = config.d_model
        self.embedding = nn.Embedding(vocabulary, d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        layers = config.encoder_layers, config.decoder_layers
        self.transformer = nn.Transformer(d_model, config.heads, *layers, config.d_ff, config.dropout, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        angles = torch.arange(1024)[:, None] / 10000 ** (torch.arange(0, d_model, 2) / d_model)
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
    """Trains, and returns target tokens per second over the second half of the updates and peak memory in MiB."""
    data = DataFolder.open(data_folder)
    split = data.split("train")
    lengths = (split.source.lengths, split.target.lengths)
    plan = make_plan(lengths, batch_tokens=BATCH_TOKENS, groups=1, seed=1, epoch=0)
    model = PlainTransformer(model_config(arch), len(data.codec.target))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
    started = 0.0
    tokens = 0
    for update in range(updates):
        if update == updates // 2:
            started = time.perf_counter()
            tokens = 0
        for block in chain.from_iterable(plan.micro_batches(update, 2 * BATCH_TOKENS)):
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
    return {"speed": tokens / seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="data folder that nmt preprocess wrote")
    parser.add_argument("--arch", default="transformer_tiny")
    parser.add_argument("--updates", type=int, default=30)
    parser.add_argument("--bf16", action="store_true", help="use autocast to bfloat16")
    options = parser.parse_args()
    print(json.dumps(run_plain(options.data, options.arch, options.updates, options.bf16)))


if __name__ == "__main__":
    main()
