"""Every registered architecture has the paper's size, and it works from training to translation."""

from dataclasses import replace
from pathlib import Path

import pytest
from checkpoints import CONFIG, saved, small_checkpoint
from commands import SMALL, TRAIN, failed, run

from nmt.config import ModelConfig, TrainConfig
from nmt.config.options import flag_name
from nmt.model.architectures import ARCHITECTURES, model_config, parameters
from nmt.training.options import options_of

# The paper's Table 3, in millions.
PARAMETERS = {
    "transformer_base": 65, "table3_b_dk16": 58, "table3_b_dk32": 60, "table3_c_n2": 36, "table3_c_n4": 50,
    "table3_c_n8": 80, "table3_c_dmodel256": 28, "table3_c_dmodel1024": 168, "table3_c_dff1024": 53,
    "table3_c_dff4096": 90, "transformer_big": 213,
}  # fmt: skip
# These tests divide all widths of an architecture by this number.
SCALE = 8


def millions(name: str) -> float:
    return parameters(ARCHITECTURES[name], 37_000) / 1e6


@pytest.mark.parametrize("name", PARAMETERS)
def test_sizes_differ_from_base_as_much_as_in_the_papers_table_3(name: str) -> None:
    """The differences agree up to rounding, which is at most a million. Base itself is 2M smaller than in the paper.

    If d_model differs, the difference depends on the size of the vocabulary. The paper says "about 37,000", and its
    rows imply anything from 35,900 to 41,900.
    """
    config, base = ARCHITECTURES[name], ARCHITECTURES["transformer_base"]
    assert millions("transformer_base") == pytest.approx(65, abs=2.5)
    if config.d_model == base.d_model:
        difference = PARAMETERS[name] - PARAMETERS["transformer_base"]
        assert millions(name) - millions("transformer_base") == pytest.approx(difference, abs=1)
    else:
        vocabulary = (PARAMETERS[name] * 1e6 - parameters(config, 0)) / config.d_model
        assert 35_000 < vocabulary < 42_000


def test_rows_of_table_3_change_what_their_names_say() -> None:
    base = ARCHITECTURES["transformer_base"]
    expected = {
        "table3_a_h1": {"heads": 1, "d_k": 512, "d_v": 512},
        "table3_a_h4": {"heads": 4, "d_k": 128, "d_v": 128},
        "table3_a_h16": {"heads": 16, "d_k": 32, "d_v": 32},
        "table3_a_h32": {"heads": 32, "d_k": 16, "d_v": 16},
        "table3_b_dk16": {"d_k": 16},
        "table3_b_dk32": {"d_k": 32},
        "table3_c_n2": {"encoder_layers": 2, "decoder_layers": 2},
        "table3_c_n4": {"encoder_layers": 4, "decoder_layers": 4},
        "table3_c_n8": {"encoder_layers": 8, "decoder_layers": 8},
        "table3_c_dmodel256": {"d_model": 256, "d_k": 32, "d_v": 32},
        "table3_c_dmodel1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
        "table3_c_dff1024": {"d_ff": 1024},
        "table3_c_dff4096": {"d_ff": 4096},
        "table3_d_dropout0.0": {"dropout": 0.0},
        "table3_d_dropout0.2": {"dropout": 0.2},
        "table3_e_learned": {"learned_positions": 1024},
    }
    rows = {name: config for name, config in ARCHITECTURES.items() if name.startswith("table3_")}
    assert rows == {name: replace(base, **changes) for name, changes in expected.items()}


@pytest.mark.parametrize("arch, options, widths", [
    ("transformer_base", {"heads": 16}, (32, 32)),
    ("transformer_base", {"d_model": 256}, (32, 32)),
    ("transformer_base", {"d_model": 1024, "heads": 16, "d_ff": 4096}, (64, 64)),
    ("transformer_base", {"heads": 16, "d_k": 64}, (64, 32)),
    ("transformer_base", {"d_k": 16}, (16, 64)),
    ("transformer_base", {"heads": 8}, (64, 64)),
    ("table3_b_dk16", {"heads": 4}, (16, 128)),
])  # fmt: skip
def test_the_widths_of_heads_follow_unless_they_are_given(
    arch: str, options: dict[str, int], widths: tuple[int, int]
) -> None:
    model = model_config(arch, **options)
    assert (model.d_k, model.d_v) == widths


def test_given_widths_of_heads_are_those_of_the_runs_options(trained: Path, tmp_path: Path) -> None:
    """They are written even if they are the architecture's, because they would otherwise follow."""
    sizes = ["--heads=8", "--d-k=32", "--encoder-layers=1", "--decoder-layers=1"]
    log = run("train", trained / "data", f"--save-dir={tmp_path}/run", *TRAIN, *sizes, "--max-updates=1").stderr
    assert "h 8, d_k 32, d_v 16, P_drop 0.3" in " ".join(log.split())
    second_log = run("train", f"--config={tmp_path}/run/config.toml", "--max-updates=2").stderr
    assert "h 8, d_k 32, d_v 16" in " ".join(second_log.split()) and "resumed from" in second_log


def test_widths_of_heads_that_followed_are_not_in_the_options() -> None:
    default = model_config("transformer_base")
    options = options_of("data", model_config("transformer_base", d_model=768), TrainConfig(save_dir="run"), default)
    assert options["d_model"] == 768 and not {"d_k", "d_v"} & options.keys()


def scaled_down(config: ModelConfig) -> dict[str, int]:
    """Returns options that make an architecture small and change nothing else about it."""
    widths = {name: max(1, getattr(config, name) // SCALE) for name in ("d_model", "d_ff", "d_k", "d_v")}
    layers = {name: max(1, getattr(config, name) // 4) for name in ("encoder_layers", "decoder_layers")}
    return widths | layers


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_translates_and_exports(name: str, tmp_path: Path) -> None:
    """The weights are random. The next test trains, and the nightly set trains all architectures."""
    config = replace(ARCHITECTURES[name], **scaled_down(ARCHITECTURES[name]))
    model = saved(small_checkpoint(0, config), tmp_path / "model.safetensors")
    options = ["--max-length-offset=2", "--device=cpu", "--precision=fp32"]
    assert run("generate", model, *options, stdin=b"some words\nlearn\n").stdout.count(b"\n") == 2
    export = ["export", "ctranslate2", model, "--output", tmp_path / "exported"]
    if name.startswith("table3_b_"):  # d_k and d_v differ
        assert "CTranslate2 needs d_k and d_v to be d_model / heads" in failed(*export)
    elif config.decoder == "ssru":
        assert "CTranslate2 does not support --decoder" in failed(*export)
    else:
        run(*export)
        assert (tmp_path / "exported" / "model.bin").is_file()


# One architecture with each option that differs from base in more than a size.
DISTINCT = {
    "transformer_base",
    "transformer_base_fast",
    "transformer_base_ssru",
    "table3_b_dk16",
    "table3_d_dropout0.0",
    "table3_e_learned",
}


@pytest.mark.parametrize(
    "name", [name if name in DISTINCT else pytest.param(name, marks=pytest.mark.nightly) for name in ARCHITECTURES]
)
def test_architectures_train(name: str, trained: Path, tmp_path: Path) -> None:
    sizes = [f"{flag_name(option)}={value}" for option, value in scaled_down(ARCHITECTURES[name]).items()]
    options = [*TRAIN[1:], *sizes, "--max-updates=2", "--save-updates=1", "--valid-metric=nll"]
    run("train", trained / "data", "--save-dir", tmp_path / "run", f"--arch={name}", *options)
    run("average-checkpoints", tmp_path / "run", "--last", "2", "--output", tmp_path / "average.safetensors")
    lines = (trained / "test.en").read_bytes()
    generate = ["generate", tmp_path / "average.safetensors", "--max-length-offset=2", "--device=cpu"]
    assert run(*generate, stdin=lines).stdout.count(b"\n") == lines.count(b"\n")


def test_too_few_learned_positions_are_refused_before_any_work(trained: Path, tmp_path: Path) -> None:
    learned = ["train", trained / "data", "--save-dir", tmp_path / "run", *TRAIN, *SMALL, "--max-updates=1"]
    assert "the model learns 9 positions, but" in failed(*learned, "--learned-positions=9", "--valid-metric=nll")
    message = failed(*learned, "--learned-positions=100")
    assert "may have 563; give --learned-positions 563 or --valid-metric nll" in message
    assert not (tmp_path / "run").exists()
    run(*learned, "--learned-positions=100", "--valid-metric=nll")
    generate = ["generate", tmp_path / "run" / "best.safetensors", "--device=cpu"]
    assert "the model learns 100 positions, but" in failed(*generate, stdin=b"ba\n")
    assert run(*generate, "--max-source-length=49", stdin=b"ba\n" + b"ba " * 200).stdout.count(b"\n") == 2


def test_a_dozen_learned_positions_suffice_for_short_parts(tmp_path: Path) -> None:
    few = saved(small_checkpoint(1, replace(CONFIG, learned_positions=12)), tmp_path / "model.safetensors")
    generate = ["generate", few, "--device=cpu", "--max-source-length=6", "--max-length-offset=5"]
    assert run(*generate, stdin=b"a few\nsome words to learn pieces\n").stdout.count(b"\n") == 2
