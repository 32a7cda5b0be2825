"""Imported models of Marian compute what a loop over Marian's own tensors computes; damaged files are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import run
from marian_loop import OTHER_TEXT, PRE, SELF, SEPARATE, pieces_of, spm, write_model

from nmt.checkpoint import build_model, load_checkpoint
from nmt.text.subword import BOS, EOS

SOURCES = "some words to learn", "a few more pieces from words and some", "from"
OTHER = spm(50, OTHER_TEXT)


def imported(folder: Path, *options: str) -> Path:
    path = folder.with_suffix(".safetensors")
    run("import", "marian", folder, "--output", path, *options)
    return path


@pytest.mark.parametrize("kind, changes", [
    ("int8", {}), ("int8", SELF | PRE), ("float", PRE), ("float", SEPARATE | SELF),
    ("npz", SELF | {"transformer-ffn-activation": "relu"}), ("npz", SEPARATE | PRE | {"output-omit-bias": "true"}),
])  # fmt: skip
def test_logits_are_those_of_a_loop_over_marians_tensors(tmp_path: Path, kind: str, changes: dict[str, Any]) -> None:
    models = [spm(), OTHER] if SEPARATE.items() <= changes.items() else [spm(), spm()]
    loop = write_model(tmp_path / "model", changes, kind=kind, models=models)
    languages = ["--source-lang=en", "--target-lang=pt"] if kind == "npz" else []
    checkpoint = load_checkpoint(imported(tmp_path / "model", *languages))
    codec, model = checkpoint.codec, build_model(checkpoint, tmp_path).double().eval()
    assert (codec.config.source_lang, codec.config.target_lang) == ("en", "pt")
    theirs = [EOS, 1, *range(4, len(codec.target))]  # our id for each of Marian's
    assert codec.target.pieces(theirs) == pieces_of(models[1])
    for source in codec.encode_source(list(SOURCES)):
        target = list(np.random.default_rng(len(source)).integers(2, len(theirs), 9))
        expected = loop.logits([codec_id - 2 if codec_id > EOS else 1 for codec_id in source], target)
        logits = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *(piece + 2 for piece in target)]]))[0]
        np.testing.assert_allclose(logits[:, theirs].detach(), expected, rtol=0, atol=1e-5)
        assert (logits[:, [0, BOS]] < -90).all()
