"""The SSRU equals its formula, and models with one are trained, searched, tuned and shown like others."""

import random
from dataclasses import replace
from pathlib import Path

import forks
import pytest
import torch
from checkpoints import ELOQUENT, eloquent_checkpoint, saved, some_sentences, whole
from commands import SMALL, TRAIN, assert_resumes, failed, run, valid_losses, weights
from torch import Tensor
from two_ranks import command

from nmt import Translator
from nmt.config import RuntimeConfig, SearchConfig
from nmt.data.sides import make_side
from nmt.model.masks import Layout
from nmt.model.ssru import SSRU, Beginnings
from nmt.translate.encoding import encode
from nmt.translate.running_search import RunningSearch

CONFIG = replace(ELOQUENT, decoder="ssru", decoder_layers=2, sinusoids="marian", output_bias=True)
TINY = ["--arch=transformer_tiny_ssru", *TRAIN[1:], *SMALL]


def padded(*blocks: list[int]) -> Layout:
    """Returns the layout of blocks of sentences of these lengths."""
    return make_side([[[5] * length for length in block] for block in blocks]).layout


def packed(lengths: list[int]) -> Layout:
    positions_F = torch.cat([torch.arange(length) for length in lengths])
    return Layout(positions_F, torch.tensor(lengths), max(lengths), None)


@pytest.mark.parametrize("layout", [
    padded([7, 3, 1], [70, 64]), packed([3, 1, 1, 65, 2]), packed([130]), padded([1]), padded([1, 1, 1]),
    packed([1, 1]),
])  # fmt: skip
def test_states_and_gradients_are_those_of_the_formula(layout: Layout) -> None:
    torch.manual_seed(0)
    unit = SSRU(6).double()
    torch.nn.init.normal_(unit.forget_bias)
    x_FD, factors_FD = torch.randn(2, len(layout.positions_F), 6, dtype=torch.float64).unbind()
    x_FD = x_FD.requires_grad_()
    inputs = [x_FD, *unit.parameters()]
    forget_DD, candidate_DD = unit.forget_candidate.weight.split(6)
    expected: list[Tensor] = []
    for x_D, position in zip(x_FD, layout.positions_F.tolist(), strict=True):
        forget_D = (forget_DD @ x_D + unit.forget_bias).sigmoid()
        state_D = forget_D * (state_D if position else 0) + (1 - forget_D) * (candidate_DD @ x_D)  # noqa: F821
        expected.append(state_D.relu())
    output_FD = unit(x_FD, None, Beginnings.of(layout))
    torch.testing.assert_close(output_FD, torch.stack(expected))
    gradients = [torch.autograd.grad((y_FD * factors_FD).sum(), inputs) for y_FD in (output_FD, torch.stack(expected))]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("search", [SearchConfig(n_best=3, beam=3), SearchConfig(beam=1, alignments=True)])
def test_lines_that_join_a_running_search_get_what_they_get_alone(tmp_path: Path, search: SearchConfig) -> None:
    path = saved(eloquent_checkpoint(3, ending=12, config=CONFIG), tmp_path / "model.safetensors")
    translator = Translator.load(path, runtime=RuntimeConfig(device="cpu", precision="fp32"))
    draw, lines = random.Random(1), some_sentences(20, 1)
    waiting = dict(enumerate(encode(translator.codec, whole(translator.codec, *lines), search)))
    running, joined = RunningSearch(translator.engine, search, log_probs=True), {}
    while waiting or running.keys:
        new = {key: waiting.pop(key) for key in list(waiting)[: draw.choice([0, 1, 2, 5])]}
        joined |= running.advance(new, draw.choice([1, 2, 5]))  # type: ignore[arg-type]
    for key, line in enumerate(lines):
        (hypotheses,) = translator.hypotheses([line], search)
        assert [(h.text, h.alignment) for h in joined[key]] == [(h.text, h.alignment) for h in hypotheses]
        assert joined[key][0].log_probs == pytest.approx(hypotheses[0].log_probs, rel=1e-5)


def test_the_outputs_of_weights_with_16_bits_have_16_bits() -> None:
    """A GPU translates with such weights, and the next layer needs inputs of their type."""
    layout, unit = packed([3, 2]), SSRU(6).bfloat16()
    assert unit(torch.randn(5, 6, dtype=torch.bfloat16), None, Beginnings.of(layout)).dtype == torch.bfloat16


def test_a_training_resumes_bit_by_bit(trained: Path, tmp_path: Path) -> None:
    def train_until(folder: Path, stop: int) -> None:
        run("train", trained / "data", "--save-dir", folder, *TINY, f"--max-updates={stop}", "--save-updates=2")

    assert_resumes(train_until, tmp_path, [2, 6])


def test_two_ranks_train_the_same_model_as_one(data: Path, tmp_path: Path) -> None:
    options = ["--arch=transformer_tiny_ssru", "--max-updates=5", "--dropout=0", "--warmup-updates=400"]
    forks.run_ranks(*command(data, tmp_path / "two", *options))
    run(*command(data, tmp_path / "one", *options))
    single_weights, joint_weights = (
        weights(tmp_path / name / "snapshot-00000005.safetensors") for name in ("one", "two")
    )
    assert any(name.endswith("forget_bias") for name in single_weights)
    assert max(float((single_weights[name] - joint_weights[name]).abs().max()) for name in single_weights) < 2e-4


def test_a_model_is_tuned_and_its_attention_is_drawn(trained: Path, tmp_path: Path) -> None:
    run("train", trained / "data", "--save-dir", tmp_path / "run", *TINY, "--max-updates=2", "--valid-metric=nll")
    base, options = f"--init-from={tmp_path}/run/best.safetensors", ["--lora=2", "--lr-schedule=constant", "--lr=0.01"]
    tuned = ["train", trained / "data", "--save-dir", tmp_path / "tuned", base, *TRAIN[1:], *options]
    run(*tuned, "--max-updates=10", "--valid-updates=10", "--valid-metric=nll")
    losses = valid_losses(tmp_path / "tuned")
    assert losses[10] < losses[0]
    changed = [weights(tmp_path / name / "best.safetensors") for name in ("run", "tuned")]
    assert not torch.equal(*(each["decoder.0.self_attention.forget_candidate.weight"] for each in changed))
    run("attention", tmp_path / "tuned" / "best.safetensors", "--source=Ba de.", "--output", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Cross-attention" in page and "Encoder self-attention" in page and "Decoder self-attention" not in page


@pytest.mark.parametrize("format", ["ctranslate2", "onnx", "huggingface"])
def test_toolkits_without_an_ssru_are_not_exported_to(tmp_path: Path, format: str) -> None:
    path = saved(eloquent_checkpoint(3, config=replace(CONFIG, sinusoids="paper")), tmp_path / "model.safetensors")
    assert "does not support --decoder, which" in failed("export", format, path, "--output", tmp_path / "out")
