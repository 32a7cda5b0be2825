"""Small checkpoints that several tests use, and their translations."""

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import run

from nmt.checkpoint import Checkpoint, build_model, load_checkpoint, new_model, save_checkpoint
from nmt.checkpoint_format import read_file, write_file
from nmt.config import ModelConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.files import Output
from nmt.text.codec import TextCodec
from nmt.text.markup_reading import parse
from nmt.text.protected import Protected
from nmt.text.subword import EOS, Subword
from nmt.text.text_config import Placement, TextConfig
from nmt.translate.encoding import by_sentence, encode
from nmt.translate.translator import Translator
from nmt.translate.units import Unit, UnitMaker

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2, d_k=4, d_v=4, dropout=0.1)
ELOQUENT = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=32, d_ff=32, heads=2, d_k=16, d_v=16, dropout=0.1)
FP32 = RuntimeConfig(device="cpu", precision="fp32")
TEXT_CONFIG = TextConfig(
    source_lang="en", target_lang="de", source_tokenizer="none", target_tokenizer="none", normalize_punctuation="both",
    lowercase=False, subword="bpe", joint_vocab=True,
)  # fmt: skip
WORDS = "some words to learn pieces from, and a few more words"


@cache
def small_codec(**changes: Any) -> TextCodec:
    subword = Subword.train([WORDS] * 5, "bpe", 300)
    return TextCodec(replace(TEXT_CONFIG, **changes), subword, subword)


@cache
def multilingual_codec(
    placement: Placement, directions: tuple[str, ...] = (), languages: tuple[str, ...] = ("en", "de", "fr")
) -> TextCodec:
    """Returns a codec for English, German and French, whose tokens are <2en>, <2de> and <2fr>, or other languages."""
    pieces = tuple(f"<2{lang}>" for lang in languages)
    subword = Subword.train([WORDS] * 5, "bpe", 297 + len(pieces), marks=pieces)
    options: dict[str, Any] = {
        "source_lang": "mul",
        "target_lang": "mul",
        "languages": languages,
        "language_pieces": pieces,
    }
    return TextCodec(replace(TEXT_CONFIG, placement=placement, directions=directions, **options), subword, subword)


def small_checkpoint(seed: int, config: ModelConfig = CONFIG, codec: TextCodec | None = None) -> Checkpoint:
    """Returns a checkpoint with random weights."""
    torch.manual_seed(seed)
    codec = codec or small_codec()
    weights = new_model(config, codec).state_dict()
    return Checkpoint(config, codec, weights, {"update": seed}, {"counters": {"update": seed}})


def saved(checkpoint: Checkpoint, path: Path) -> Path:
    """Writes a checkpoint and returns the path."""
    save_checkpoint(checkpoint, path)
    return path


def refused(path: Path) -> str:
    """Returns the error message about a checkpoint that cannot be used, which is one line and names the file."""
    with pytest.raises(NmtError) as error:
        build_model(load_checkpoint(path), path)
    message = str(error.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 10_000
    return message


@dataclass(frozen=True)
class Trap:
    """An object whose unpickling makes a folder."""

    path: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def change(content: dict[Any, Any], path: str, value: Any) -> None:
    """Sets the value at a path of nested dicts, such as splits/train/pairs, or removes it if the value is Ellipsis."""
    *parents, last = [int(key) if key.isdigit() else key for key in path.split("/")]
    for parent in parents:
        content = content[parent]
    content[last] = value
    if value is ...:
        del content[last]


def edit(path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], object]) -> None:
    """Changes the document and the tensors of a checkpoint file, and writes it with a SHA-256 that is right."""
    document, mapped = read_file(path)
    tensors = {name: tensor.numpy().copy() for name, tensor in mapped.items()}
    change(document, tensors)
    with path.open("wb") as file:
        write_file(Output(file, path, ""), document, tensors)


@cache
def chinese_codec(**changes: Any) -> TextCodec:
    """Returns a codec whose target language has no spaces between words."""
    lines = ["我们学习一些词语和更多片段。", "一些词语", "更多片段", WORDS] * 5
    subword = Subword.train(lines, "bpe", 310)
    return TextCodec(replace(TEXT_CONFIG, target_lang="zh", **changes), subword, subword)


def eloquent_checkpoint(
    seed: int, ending: float = 4, codec: TextCodec | None = None, config: ModelConfig = ELOQUENT
) -> Checkpoint:
    """Returns a model with random weights, whose translations are words and differ from sentence to sentence.

    Args:
        ending: the larger, the more translations end before their maximum length.
    """
    torch.manual_seed(seed)
    codec = codec or small_codec()
    untrained = new_model(config, codec).state_dict()
    weights = {name: weight * (3 if weight.dim() > 1 else 1) for name, weight in untrained.items()}
    pieces = codec.target.pieces(list(range(len(codec.target))))
    within_words = [not piece.startswith("▁") or piece == "▁" for piece in pieces]
    weights["target_embedding.weight"][torch.tensor(within_words)] *= 0.2
    weights["target_embedding.weight"][EOS] *= ending
    return Checkpoint(config, codec, weights, {})


def sure_checkpoint(seed: int) -> Checkpoint:
    """Returns an eloquent model that gives other translations than its own much lower probabilities."""
    checkpoint = eloquent_checkpoint(seed, ending=12)
    weights = checkpoint.weights | {"target_embedding.weight": checkpoint.weights["target_embedding.weight"] * 3}
    return replace(checkpoint, weights=weights)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the checkpoint of a model most of whose translations end by themselves."""
    return saved(eloquent_checkpoint(3, ending=12), tmp_path_factory.mktemp("model") / "model.safetensors")


@pytest.fixture(name="cache")
def exported_models(model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of the exported models of --engine ctranslate2, which tests with one model share."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(model.parent))
    return model.parent / "nmt" / "ctranslate2"


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run" / "best.safetensors", runtime=FP32)


def two_models(folder: Path, german: str = "de") -> list[Path]:
    """Saves a model from English to German, and one from German, under this code, to French."""
    subword = small_codec().source
    french = TextCodec(replace(TEXT_CONFIG, source_lang=german, target_lang="fr"), subword, subword)
    checkpoints = [eloquent_checkpoint(2), eloquent_checkpoint(3, codec=french)]
    return [saved(checkpoint, folder / f"{index}.safetensors") for index, checkpoint in enumerate(checkpoints)]


def some_sentences(count: int, seed: int) -> list[str]:
    """Returns random sentences of the words that the subword model of `small_codec` has seen."""
    draw = random.Random(seed)
    words = ["some", "words", "to", "learn", "pieces", "from", "and", "a", "few", "more"]
    return [" ".join(draw.choices(words, k=draw.randint(1, 14))) for _ in range(count)]


def generated(model: Path, lines: list[str], *options: str | Path) -> list[dict[str, Any]]:
    """Returns what `nmt generate` writes for each line, on the CPU."""
    command = ["generate", model, "--device=cpu", "--output-format=jsonl", *options]
    stdin = "".join(f"{line}\n" for line in lines).encode()
    return [json.loads(line) for line in run(*command, stdin=stdin).stdout.splitlines()]


def whole(codec: TextCodec, *lines: str | Unit) -> list[Unit]:
    """Returns lines as units with a single sentence each."""
    maker = UnitMaker(codec.config, Protected())
    return [maker.complete(line if isinstance(line, Unit) else Unit(line)) for line in lines]


def translated_html(translator: Translator, source: str, search: SearchConfig) -> str:
    """Returns the translation of a fragment of HTML, each unit as one sentence."""
    codec, search = translator.codec, replace(search, alignments=True)
    maker = UnitMaker(codec.config, Protected(), cut="line")
    unit = maker.complete(Unit(source, content=parse(source, "html", Protected())))
    encoded = encode(codec, [unit], search)
    ranked = translator.engine.translate(encoded, search, log_probs=False) if encoded else []
    (rankings,) = by_sentence([unit], zip(encoded, ranked, strict=True), aligned=True)
    return unit.translated([best for best, *_ in rankings], unit.direction.target)
