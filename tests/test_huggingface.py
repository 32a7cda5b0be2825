"""MarianMT models come in and go out: transformers computes the same ids, logits, losses and translations."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run
from marian import mixed_lines, write_model
from transformers import LogitsProcessor, LogitsProcessorList, MarianMTModel, MarianTokenizer

import nmt
from nmt.config import RuntimeConfig, SearchConfig
from nmt.text.subword import BOS, EOS, PAD

FP32 = RuntimeConfig(device="cpu", precision="fp32")
SHAPES: dict[str, dict[str, Any]] = {
    "Opus-MT": {"activation_function": "swish", "scale_embedding": True},
    "gelu, separate embeddings": {
        "activation_function": "gelu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
    },
    "relu, separate vocabularies, spare ids": {
        "activation_function": "relu",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": False,
        "separate_vocabs": True,
        "spare_ids": 5,
    },
    "embeddings not scaled": {
        "activation_function": "silu",
        "scale_embedding": False,
        "d_model": 20,
        "encoder_layers": 3,
    },
}


@dataclass(frozen=True)
class Imported:
    """A random model of transformers, and the checkpoint that `nmt import` made of it."""

    folder: Path
    theirs: MarianMTModel

    @cached_property
    def tokenizer(self) -> MarianTokenizer:
        return MarianTokenizer.from_pretrained(self.folder / "marian")

    @cached_property
    def ours(self) -> nmt.Translator:
        return nmt.Translator.load(self.folder / "model.pt", runtime=FP32)

    @cached_property
    def vocabularies(self) -> list[dict[str, int]]:
        """The ids of both sides, with the names that nmt gives to special and spare ids."""
        names = ["vocab.json", "target_vocab.json" if self.tokenizer.separate_vocabs else "vocab.json"]
        config = self.theirs.config
        extra = {"<s>": config.decoder_start_token_id} | {f"<unused {i}>": i for i in range(config.vocab_size)}
        return [json.loads((self.folder / "marian" / name).read_text()) | extra for name in names]

    def source_ids(self, ours: list[int]) -> list[int]:
        """Returns the ids of transformers for ours."""
        return [self.vocabularies[0][piece] for piece in self.ours.codec.source.pieces(ours)]

    def target_ids(self, ours: list[int]) -> list[int]:
        """Returns the ids of transformers for ours."""
        return [self.vocabularies[1][piece] for piece in self.ours.codec.target.pieces(ours)]


@pytest.fixture(params=SHAPES)
def imported(request: pytest.FixtureRequest, tmp_path: Path) -> Imported:
    model = write_model(tmp_path / "marian", **SHAPES[request.param])
    run("import", "huggingface", tmp_path / "marian", "--output", tmp_path / "model.pt")
    return Imported(tmp_path, model)


LINES = [
    *mixed_lines(990, seed=3),
    *(
        ">>fra<< abc",
        ">>fra<<abc",
        "abc >>fra<<",
        ">>deu<< abc",
        ">>fra",
        "",
        " ",
        "ภาษาไทย abc",
        "ქართული",
        "a\udc80b",
    ),
]


class ForcedEnd(LogitsProcessor):
    """Ends an output at its greatest length, with the log P of EOS; transformers' own rule counts it as 0."""

    def __init__(self, length: int, eos: int) -> None:
        self.length, self.eos = length, eos

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] < self.length:
            return scores
        return torch.full_like(scores, -torch.inf).index_copy(1, torch.tensor([self.eos]), scores[:, [self.eos]])


@pytest.mark.parametrize("imported", ["Opus-MT", "relu, separate vocabularies, spare ids"], indirect=True)
def test_text_has_the_ids_of_marians_tokenizer(imported: Imported) -> None:
    codec, tokenizer = imported.ours.codec, imported.tokenizer
    lines = [line.replace("\udc80", "\ufffd") for line in LINES]  # transformers has no rule for lone surrogates
    expected = tokenizer(lines).input_ids
    assert tokenizer.unk_token_id in {i for line in expected for i in line}
    assert [imported.source_ids([*line, EOS]) for line in codec.encode_source(LINES)] == expected
    targets = tokenizer(text_target=lines).input_ids
    encoded = codec.encode_target(LINES)
    assert [imported.target_ids([*line, EOS]) for line in encoded] == targets
    assert codec.decode_target(encoded) == tokenizer.batch_decode(targets, skip_special_tokens=True)


@torch.no_grad()
def test_logits_and_translations_are_those_of_transformers(imported: Imported) -> None:
    ours, theirs, tokenizer = imported.ours, imported.theirs, imported.tokenizer
    lines = [line for line in LINES[:25] if 0 < len(line) < 30]
    expected = tokenizer(lines).input_ids
    draw = torch.Generator().manual_seed(0)
    theirs_of_ours = imported.target_ids(list(range(1, len(ours.codec.target))))
    differences = []
    for source, source_ids in zip(ours.codec.encode_source(lines), expected, strict=True):
        target = [BOS, *torch.randint(4, len(ours.codec.target), (7,), generator=draw).tolist()]
        target_ids = torch.tensor([imported.target_ids(target)])
        found = ours.models[0](torch.tensor([[*source, EOS]]), torch.tensor([target]))[0]
        logits = theirs(torch.tensor([source_ids]), decoder_input_ids=target_ids).logits[0]
        differences.append((found[:, 1:] - logits[:, theirs_of_ours]).abs().max().item())
        assert found[:, PAD].max() < found.max() - 50  # this id does not exist there
    print(f"largest difference of the logits: {max(differences):.1e}")
    assert max(differences) < 1e-5

    for beam in (1, 4):
        search = SearchConfig(beam=beam, n_best=beam, alpha=0, max_length_offset=8)
        for line, source_ids, hypotheses in zip(lines, expected, ours.hypotheses(lines, search), strict=True):
            output = theirs.generate(
                torch.tensor([source_ids]),
                do_sample=False,
                num_beams=beam,
                num_return_sequences=beam,
                length_penalty=0.0,
                max_new_tokens=len(source_ids) + 8,
                forced_eos_token_id=None,
                logits_processor=LogitsProcessorList([ForcedEnd(len(source_ids) + 8, 0)]),
            ).tolist()
            output = [row[: row.index(0, 1) + 1] for row in output]
            found_ids = [ours.codec.target.ids(list(h.pieces)) for h in hypotheses]
            assert [imported.target_ids([BOS, *ids, EOS]) for ids in found_ids] == output, line
