"""Translations of a trained model of many languages, which end, are those of transformers and CTranslate2."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
import transformers  # loads its models only when a test uses one
from commands import run
from ctranslate2.converters import TransformersConverter
from multilingual import write_nllb
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("transformers")]
WORDS = ["ab", "ce", "di", "fo", "gu", "ha", "le", "mi", "no", "pu"]
DIRECTIONS = [("eng_Latn", "fra_Latn"), ("eng_Latn", "deu_Latn"), ("fra_Latn", "eng_Latn")]
LINES = 200


def source(draw: random.Random) -> list[str]:
    return draw.choices(WORDS, k=draw.randint(2, 8))


def translation(target: str, words: list[str]) -> list[str]:
    """Returns a translation into French (backwards), German (other words), or English (words twice, the first ones)."""
    if target == "fra_Latn":
        return words[::-1]
    if target == "deu_Latn":
        return [WORDS[(WORDS.index(word) + 1) % len(WORDS)] for word in words]
    return [word for word in words for _ in range(2)][: len(words)]


@dataclass(frozen=True)
class Trained:
    """A model in a folder, its checkpoint next to it, and the ids of the words and the languages."""

    folder: Path
    theirs: Any
    tokenizer: Any

    @property
    def path(self) -> Path:
        return self.folder.with_suffix(".safetensors")

    def ids(self, words: list[str], language: str) -> list[int]:
        """Returns the token of a language, and the ids of text, with EOS."""
        (token,) = self.tokenizer.convert_tokens_to_ids([language])
        return [token, *self.tokenizer(" ".join(words)).input_ids[1:]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Returns a model that has learnt a little, so that its outputs end, but not always as they should."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    sizes: dict[str, Any] = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 128)
    theirs = write_nllb(folder, **sizes, attention_dropout=0.0, activation_dropout=0.0)
    model = Trained(folder, theirs.train(), transformers.AutoTokenizer.from_pretrained(folder))
    for name, weight in theirs.named_parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        else:
            torch.nn.init.constant_(weight, float("norm.weight" in name))
    optimizer, draw = torch.optim.Adam(theirs.parameters(), lr=2e-3), random.Random(0)
    for _ in range(250):
        pairs = [(draw.choice(DIRECTIONS), source(draw)) for _ in range(32)]
        sources = [model.ids(words, direction[0]) for direction, words in pairs]
        targets = [[2, *model.ids(translation(target_lang, words), target_lang)] for (_, target_lang), words in pairs]
        source_BS, target_BT = (
            pad_sequence([torch.tensor(ids) for ids in side], batch_first=True, padding_value=1)
            for side in (sources, targets)
        )
        logits_BTV = theirs(source_BS, (source_BS != 1).long(), decoder_input_ids=target_BT[:, :-1]).logits
        loss = cross_entropy(logits_BTV[:, 1:].flatten(0, 1), target_BT[:, 2:].flatten(), ignore_index=1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    theirs.eval().save_pretrained(folder)
    run("import", "huggingface", folder, "--output", model.path)
    return model


def lines_of(direction: tuple[str, str]) -> list[list[str]]:
    draw = random.Random(str(direction))
    return [source(draw) for _ in range(LINES)]


def ours(model: Trained, direction: tuple[str, str], beam: int) -> list[str]:
    """Returns our translations of the lines."""
    options = ["--device=cpu", "--precision=fp32", f"--beam={beam}", "--alpha=0"]
    stdin = "".join(f"{' '.join(words)}\n" for words in lines_of(direction)).encode()
    source_lang, target_lang = direction
    done = run(
        "generate", model.path, "--source-lang", source_lang, "--target-lang", target_lang, *options, stdin=stdin
    )
    return done.stdout.decode().splitlines()


@torch.no_grad()
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("direction", DIRECTIONS, ids="-".join)
def test_translations_are_those_of_transformers(trained: Trained, direction: tuple[str, str], beam: int) -> None:
    ids = [torch.tensor(trained.ids(words, direction[0])) for words in lines_of(direction)]
    source_BS = pad_sequence(ids, batch_first=True, padding_value=1)
    (token,) = trained.tokenizer.convert_tokens_to_ids([direction[1]])
    options = {"num_beams": beam, "length_penalty": 0.0, "max_new_tokens": 60, "forced_bos_token_id": token}
    output = trained.theirs.generate(source_BS, attention_mask=(source_BS != 1).long(), **options)
    assert (output == 2).sum(1).min() > 1  # each translation begins and ends with EOS
    theirs = trained.tokenizer.batch_decode(output, skip_special_tokens=True)
    assert len(set(theirs)) > LINES // 2
    assert ours(trained, direction, beam) == theirs


@pytest.mark.parametrize("direction", DIRECTIONS, ids="-".join)
def test_ctranslate2_converts_an_exported_folder(trained: Trained, direction: tuple[str, str], tmp_path: Path) -> None:
    run("export", "huggingface", trained.path, "--output", tmp_path / "out")
    TransformersConverter(str(tmp_path / "out")).convert(str(tmp_path / "ct2"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    pieces = [
        tokenizer.convert_ids_to_tokens(Trained(tmp_path / "out", None, tokenizer).ids(words, direction[0]))
        for words in lines_of(direction)
    ]
    translator = ctranslate2.Translator(str(tmp_path / "ct2"))
    outputs = translator.translate_batch(pieces, target_prefix=[[direction[1]]] * LINES, beam_size=1)
    theirs = [tokenizer.convert_tokens_to_ids(output.hypotheses[0]) for output in outputs]
    assert ours(trained, direction, 1) == tokenizer.batch_decode(theirs, skip_special_tokens=True)
