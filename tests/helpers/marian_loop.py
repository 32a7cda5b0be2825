"""Models in the formats of Marian, and a loop in numpy that computes what Marian does from its own tensors."""

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

Array = np.ndarray
OPTIONS: dict[str, Any] = {
    "type": "transformer", "dim-emb": 16, "transformer-heads": 2, "transformer-dim-ffn": 24, "enc-depth": 2,
    "dec-depth": 2, "transformer-ffn-activation": "relu", "transformer-preprocess": '""',
    "transformer-postprocess": "dan", "transformer-postprocess-top": '""', "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "rnn", "dec-cell": "ssru", "tied-embeddings-all": "true",
    "tied-embeddings-src": "false", "tied-embeddings": "false", "output-omit-bias": "false",
}  # fmt: skip
SELF = {"transformer-decoder-autoreg": "self-attention", "dec-cell": "gru"}
OTHER_TEXT = "etwas ganz anderes, das man lernen kann"
SEPARATE = {"tied-embeddings-all": "false", "tied-embeddings": "true"}


@cache
def spm(size: int = 60, text: str = "some words to learn pieces from, and a few more words") -> bytes:
    """Returns a sentencepiece model whose first pieces are </s> and <unk>, as Marian trains it."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text] * 5), model_writer=model, vocab_size=size, hard_vocab_limit=False, eos_id=0,
        unk_id=1, bos_id=-1, pad_id=-1, minloglevel=2, num_threads=1,
    )  # fmt: skip
    return model.getvalue()


def pieces_of(model: bytes) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(len(processor))]


def random_tensors(options: Mapping[str, Any], sizes: Sequence[int]) -> dict[str, Array]:
    """Returns random tensors of a model, by the names that src/models/transformer.h of marian-dev gives them."""
    draw, d_model, d_ff = np.random.default_rng(1), options["dim-emb"], options["transformer-dim-ffn"]
    tensors: dict[str, Array] = {}

    def add(name: str, *shape: int, mean: float = 0) -> None:
        tensors[name] = (mean + draw.standard_normal(shape) * 0.3).astype(np.float32)

    def norm(prefix: str) -> None:
        add(f"{prefix}_ln_scale", 1, d_model, mean=1)
        add(f"{prefix}_ln_bias", 1, d_model)

    for side, depth in (("encoder", "enc-depth"), ("decoder", "dec-depth")):
        for layer in range(1, options[depth] + 1):
            prefix = f"{side}_l{layer}"
            is_recurrent = side == "decoder" and options["dec-cell"] == "ssru"
            for name in [*([] if is_recurrent else ["self"]), *(["context"] if side == "decoder" else [])]:
                for letter in "qkvo":
                    add(f"{prefix}_{name}_W{letter}", d_model, d_model)
                    add(f"{prefix}_{name}_b{letter}", 1, d_model)
                norm(f"{prefix}_{name}_Wo")
            if is_recurrent:
                add(f"{prefix}_rnn_W", d_model, d_model)
                add(f"{prefix}_rnn_Wf", d_model, d_model)
                add(f"{prefix}_rnn_bf", 1, d_model)
                norm(f"{prefix}_rnn_ffn")
            for index, inputs, outputs in ((1, d_model, d_ff), (2, d_ff, d_model)):
                add(f"{prefix}_ffn_W{index}", inputs, outputs)
                add(f"{prefix}_ffn_b{index}", 1, outputs)
            norm(f"{prefix}_ffn_ffn")
    if options["tied-embeddings-all"] == "true":
        add("Wemb", sizes[0], d_model)
    else:
        add("encoder_Wemb", sizes[0], d_model)
        add("decoder_Wemb", sizes[1], d_model)
    if options["output-omit-bias"] == "false":
        add("decoder_ff_logit_out_b", 1, sizes[1])
    return tensors


def binary(tensors: Mapping[str, Array], options: str, *, int8: bool = False) -> bytes:
    """Returns a binary model. With `int8`, the matrices in `tensors` become what is stored of them."""
    stored: list[tuple[str, int, tuple[int, ...], bytes]] = []
    for name, tensor in tensors.items():
        if int8 and name != "decoder_ff_logit_out_b" and len(tensor) > 1:
            factor = np.float32(127 / np.abs(tensor).max())
            numbers = np.rint(tensor * factor).astype(np.int8)
            tensor[:] = numbers / factor
            is_embedding = name.endswith("Wemb")
            content = (numbers if is_embedding else numbers.T).tobytes() + factor.tobytes()
            stored += [(name, 0x4101, tensor.shape, content), (f"{name}_QuantMultA", 0x404, (1, 1), b"\0" * 4)]
        else:
            stored.append((name, 0x404, tensor.shape, tensor.tobytes()))
    stored.append(("special:model.yml", 0x101, (len(options) + 1,), options.encode() + b"\0"))
    contents = [content + b"\0" * (-len(content) % 256) for *_, content in stored]
    parts = [struct.pack("<2Q", 1, len(stored))]
    headers = zip(stored, contents, strict=True)
    parts += [struct.pack("<4Q", len(n) + 1, kind, len(shape), len(c)) for (n, kind, shape, _), c in headers]
    parts += [name.encode() + b"\0" for name, *_ in stored]
    parts += [struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in stored]
    size = sum(map(len, parts)) + 8
    return b"".join([*parts, struct.pack("<Q", -size % 256), b"\0" * (-size % 256), *contents])


def as_yaml(options: Mapping[str, Any], sizes: Sequence[int]) -> str:
    return "".join(f"{name}: {value}\n" for name, value in options.items()) + f"dim-vocabs: [{sizes[0]}, {sizes[1]}]\n"


def write_model(
    folder: Path, changes: Mapping[str, Any], *, kind: str = "int8", models: Sequence[bytes] = ()
) -> "Loop":
    """Writes the folder of a random model, without a configuration, and returns the loop that computes it.

    Args:
        kind: `int8` or `float` for a binary model, or `npz`.
        models: the sentencepiece models of both sides.
    """
    folder.mkdir()
    options, models = OPTIONS | changes, models or [spm(), spm()]
    sizes = [len(pieces_of(model)) for model in models]
    tensors, text = random_tensors(options, sizes), as_yaml(options, sizes)
    if kind == "npz":
        # As in Marian, the text is an array of bytes.
        np.savez(
            folder / "model.npz", **tensors, **{"special:model.yml": np.frombuffer(text.encode() + b"\0", np.int8)}
        )
    else:
        (folder / "model.enpt.intgemm.bin").write_bytes(binary(tensors, text, int8=kind == "int8"))
    if models[0] == models[1]:
        (folder / "vocab.enpt.spm").write_bytes(models[0])
    else:
        (folder / "srcvocab.enpt.spm").write_bytes(models[0])
        (folder / "trgvocab.enpt.spm").write_bytes(models[1])
    return Loop(tensors, options, np.float64)


def shortlist(always: int, candidates: Sequence[Sequence[int]]) -> bytes:
    """Returns a binary shortlist: target ids that are candidates of each source id."""
    ids = [i for each in candidates for i in each]
    offsets = [0, *accumulate(map(len, candidates))]
    header = struct.pack("<6Q", 0xF11A48D5013417F5, 0, always, 50, len(offsets), len(ids))
    return header + struct.pack(f"<{len(offsets)}Q{len(ids)}I", *offsets, *ids)


def opus_folder(folder: Path, more_pieces: Sequence[str] = ()) -> "Loop":
    """Writes the folder of a model with a list of pieces, two sentencepiece models and a configuration of a decoder."""
    folder.mkdir()
    pieces = list(dict.fromkeys([*pieces_of(spm()), *pieces_of(spm(50, OTHER_TEXT)), *more_pieces]))
    options, sizes = OPTIONS | SELF, [len(pieces)] * 2
    tensors = random_tensors(options, sizes)
    text = as_yaml(options, sizes).encode()
    np.savez(folder / "opus.model1.npz", **tensors, **{"special:model.yml": np.frombuffer(text + b"\0", np.int8)})
    (folder / "opus.vocab.yml").write_text("".join(f"{json.dumps(p)}: {i}\n" for i, p in enumerate(pieces)))
    names = "models:\n  - /home/me/opus.model1.npz\nvocabs:\n  - ../opus.vocab.yml\n  - opus.vocab.yml\n"
    (folder / "decoder.yml").write_text(f"relative-paths: true\n{names}beam-size: 6\n")
    (folder / "source.spm").write_bytes(spm())
    (folder / "target.spm").write_bytes(spm(50, OTHER_TEXT))
    return Loop(tensors, options, np.float64)


@dataclass
class Loop:
    """Computes a model of Marian position by position. Sentences are lists of Marian's ids, without </s>."""

    tensors: Mapping[str, Array]
    options: Mapping[str, Any]
    kind: Any = np.float32

    def __post_init__(self) -> None:
        self.tensors = {name: tensor.astype(self.kind) for name, tensor in self.tensors.items()}
        self.width, self.heads = int(self.options["dim-emb"]), int(self.options["transformer-heads"])
        shared = self.options["tied-embeddings-all"] == "true"
        self.source, self.target = (
            self.tensors["Wemb" if shared else f"{side}_Wemb"] for side in ("encoder", "decoder")
        )

    def positions(self, first: int, count: int) -> Array:
        scales = self.width // 2
        angles = np.arange(first, first + count)[:, None] * 1e-4 ** (np.arange(scales) / (scales - 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(self.kind)

    def norm(self, x: Array, prefix: str) -> Array:
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)  # torch adds 1e-5, and Marian 1e-6
        return x * self.tensors[f"{prefix}_ln_scale"] + self.tensors[f"{prefix}_ln_bias"]

    def product(self, x: Array, prefix: str, letter: str) -> Array:
        return x @ self.tensors[f"{prefix}_W{letter}"] + self.tensors[f"{prefix}_b{letter}"]

    def by_head(self, x: Array, prefix: str, letter: str) -> Array:
        x = self.product(x, prefix, letter)
        return x.reshape(*x.shape[:2], self.heads, -1).swapaxes(1, 2)

    def attention(self, x: Array, keys: Array, values: Array, hidden: Array, prefix: str) -> Array:
        """Returns attention of the queries x, BTD, to keys and values by head; `hidden`, BS, says which are padding."""
        scores = self.by_head(x, prefix, "q") @ keys.swapaxes(2, 3) / np.sqrt(self.width / self.heads).astype(self.kind)
        scores = np.where(hidden[:, None, None], -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        attended = (weights / weights.sum(-1, keepdims=True)) @ values
        return self.product(attended.swapaxes(1, 2).reshape(x.shape), prefix, "o")

    def feed_forward(self, x: Array, prefix: str) -> Array:
        inner = np.maximum(self.product(x, prefix, "1"), 0)
        return self.norm(x + self.product(inner, prefix, "2"), f"{prefix}_ffn")

    def begin(self, sources: Sequence[Sequence[int]]) -> None:
        """Encodes sentences."""
        longest = max(map(len, sources)) + 1
        ids = np.array([[*source, 0, *[0] * (longest - 1 - len(source))] for source in sources])
        self.hidden = np.array([[i > len(source) for i in range(longest)] for source in sources])
        x = self.source[ids] * np.sqrt(self.width).astype(self.kind) + self.positions(0, longest)
        for layer in range(1, self.options["enc-depth"] + 1):
            prefix = f"encoder_l{layer}_self"
            y = self.attention(x, self.by_head(x, prefix, "k"), self.by_head(x, prefix, "v"), self.hidden, prefix)
            x = self.feed_forward(self.norm(x + y, f"{prefix}_Wo"), f"encoder_l{layer}_ffn")
        layers = range(1, self.options["dec-depth"] + 1)
        self.context = {i: [self.by_head(x, f"decoder_l{i}_context", each) for each in "kv"] for i in layers}
        self.states: dict[int, Any] = {}
        self.length = 0

    def step(self, last: Sequence[int] | None) -> Array:
        """Returns the logits BV of the next piece after the newest ones, None at the beginning."""
        x = np.zeros((len(self.hidden), 1, self.width), self.kind)
        if last is not None:
            x += self.target[np.array(last)][:, None] * np.sqrt(self.width).astype(self.kind)
        x = x + self.positions(self.length, 1)
        self.length += 1
        for i in self.context:
            x = self.recurrent(x, i) if self.options["dec-cell"] == "ssru" else self.self_attention(x, i)
            prefix = f"decoder_l{i}_context"
            y = self.attention(x, *self.context[i], self.hidden, prefix)
            x = self.feed_forward(self.norm(x + y, f"{prefix}_Wo"), f"decoder_l{i}_ffn")
        return x[:, 0] @ self.target.T + self.tensors.get("decoder_ff_logit_out_b", self.kind(0))

    def recurrent(self, x: Array, i: int) -> Array:
        prefix = f"decoder_l{i}_rnn"
        forget = 1 / (1 + np.exp(-self.product(x, prefix, "f")))
        state = forget * self.states.get(i, self.kind(0)) + (1 - forget) * (x @ self.tensors[f"{prefix}_W"])
        self.states[i] = state
        return self.norm(x + np.maximum(state, 0), f"{prefix}_ffn")

    def self_attention(self, x: Array, i: int) -> Array:
        prefix = f"decoder_l{i}_self"
        new = [self.by_head(x, prefix, each) for each in "kv"]
        old = self.states.get(i, [each[:, :, :0] for each in new])
        self.states[i] = keys, values = [np.concatenate(both, 2) for both in zip(old, new, strict=True)]
        hidden = np.zeros((len(x), self.length), bool)
        return self.norm(x + self.attention(x, keys, values, hidden, prefix), f"{prefix}_Wo")

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Array:
        """Returns the logits TV of the pieces of a target and of its </s>."""
        self.begin([source])
        return np.concatenate([self.step(last) for last in (None, *([piece] for piece in target))])

    def translate(self, sources: Sequence[Sequence[int]], more: int) -> list[list[int]]:
        """Returns greedy translations, which have at most so many pieces more than their source."""
        self.begin(sources)
        targets: list[list[int]] = [[] for _ in sources]
        ended, last = [False] * len(sources), None
        while not all(ended):
            last = self.step(last).argmax(-1).tolist()
            for b, piece in enumerate(last):
                ended[b] |= piece == 0 or len(targets[b]) > len(sources[b]) + more
                targets[b] += [] if ended[b] else [piece]
        return targets
