"""Fine-tuning: data in the vocabulary of a checkpoint, its weights as a beginning, and frozen parts of the model."""

import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import forks
import numpy as np
import pytest
import torch
from checkpoints import saved
from commands import LANGS, SMALL, TRAIN, assert_resumes, failed, records, run, same_weights, valid_losses, weights
from conftest import invented_pairs, write_pairs

import nmt
from nmt.checkpoint import build_model
from nmt.data.folder import DataFolder
from nmt.text.codec import TextCodec
from nmt.text.subword import Subword
from nmt.training.fine_tuning import start_from

TUNE = [*TRAIN[1:], "--warmup-updates=5", "--lr-schedule=constant", "--lr=0.002", "--valid-metric=nll"]


@pytest.fixture(scope="module")
def tuned(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with new.en, new.de, the checkpoint old.safetensors, and data/ in its vocabulary."""
    folder = tmp_path_factory.mktemp("tuned")
    write_pairs(folder / "new", invented_pairs(100, seed=7))
    shutil.copy(trained / "run" / "snapshot-00000040.safetensors", folder / "old.safetensors")
    run("preprocess", *LANGS, f"--train={folder}/new", f"--valid={trained}/valid", f"--dest={folder}/data",
        f"--like={folder}/old.safetensors")  # fmt: skip
    return folder


def fine_tune(tuned: Path, folder: Path, *options: str) -> str:
    return run("train", *begin(tuned, folder), *TUNE, *options).stderr


def begin(tuned: Path, folder: Path) -> list[str]:
    return [f"{tuned}/data", f"--init-from={tuned}/old.safetensors", f"--save-dir={folder}"]


def test_text_is_encoded_with_the_vocabulary_of_the_checkpoint(tuned: Path) -> None:
    codec = nmt.load_checkpoint(tuned / "old.safetensors").codec
    data = DataFolder.open(tuned / "data")
    assert data.codec.to_dict() == codec.to_dict()
    source, target = ((tuned / f"new.{lang}").read_text().splitlines() for lang in ("en", "de"))
    for side, ids in (("source", codec.encode_source(source)), ("target", codec.encode_target(target))):
        stored = getattr(data.split("train"), side)
        assert [stored[i].tolist() for i in range(len(stored))] == ids


def test_a_corpus_with_other_endings_of_words_has_the_same_vocabulary(trained: Path, tmp_path: Path) -> None:
    checkpoint = nmt.load_checkpoint(trained / "run" / "best.safetensors")
    models, old = [], checkpoint.codec
    for index, endings in enumerate([("/s", "/ed"), ("/n",)]):
        codec = TextCodec(replace(old.config, endings=endings), old.source, old.target)
        models.append(saved(replace(checkpoint, codec=codec), tmp_path / f"{index}.safetensors"))
    run("generate", *models, stdin=b"a\n")
    write_pairs(tmp_path / "new", invented_pairs(50, seed=7))
    run("preprocess", *LANGS, f"--train={tmp_path}/new", f"--valid={trained}/valid", f"--dest={tmp_path}/data",
        f"--like={models[0]}")  # fmt: skip
    assert DataFolder.open(tmp_path / "data").codec.config.endings == ("/s", "/ed")
    options = [f"{tmp_path}/data", f"--init-from={models[1]}", f"--save-dir={tmp_path}/run", "--max-updates=1"]
    assert "pieces have embeddings" not in run("train", *options, *TUNE).stderr


@pytest.mark.parametrize("options, message", [
    (["--source-lang=de", "--target-lang=en"], "translates en to de, but --source-lang is de and --target-lang is en"),
    ([*LANGS, "--lowercase", "--vocab-size=300"], "--lowercase does not work with --like"),
])  # fmt: skip
def test_data_that_contradicts_the_checkpoint_is_refused(tuned: Path, options: list[str], message: str) -> None:
    texts = [f"--train={tuned}/new", f"--valid={tuned}/new", f"--dest={tuned}/other", f"--like={tuned}/old.safetensors"]
    assert message in failed("preprocess", *options, *texts)


def test_the_loss_before_the_first_update_is_that_of_the_checkpoint(trained: Path, tuned: Path, tmp_path: Path) -> None:
    said = fine_tune(tuned, tmp_path, "--max-updates=10", "--valid-updates=10")
    assert valid_losses(tmp_path)[0] == pytest.approx(valid_losses(trained / "run")[40], abs=1e-6)
    assert "validation at update 0: " in said
    (start,) = records(tmp_path, "start")
    assert "--init-from" in start["command"] and "--d-model" not in start["command"]
    assert " 2.00e-03 " in said
    assert nmt.load_checkpoint(tmp_path / "state-00000010.safetensors").training["counters"]["update"] == 10


def test_the_first_validation_writes_the_best_checkpoint(tuned: Path, tmp_path: Path) -> None:
    fine_tune(tuned, tmp_path, "--max-updates=2", "--lr=3", "--warmup-updates=1")  # this destroys the model
    assert same_weights(tuned / "old.safetensors", tmp_path / "best.safetensors")


def test_a_resumed_fine_tuning_ends_with_the_weights_of_an_uninterrupted_one(tuned: Path, tmp_path: Path) -> None:
    """The first start of the resumed one is killed before the first update."""
    said = []

    def train_until(folder: Path, update: int) -> None:
        said.append(fine_tune(tuned, folder, f"--max-updates={update}"))

    early = forks.At("nmt.training.loop.train_update")
    forks.run("train", *begin(tuned, tmp_path / "resumed"), *TUNE, before=early, code=-signal.SIGKILL)
    assert_resumes(train_until, tmp_path, [2, 4, 6])
    assert all("resumed from" in log and "starting with" not in log for log in said[1:])
    assert not list((tmp_path / "resumed").glob("*.earlier"))
    assert list(valid_losses(tmp_path / "resumed")) == [0, 2, 4, 6]


def test_two_ranks_start_from_the_same_weights(trained: Path, tuned: Path, tmp_path: Path) -> None:
    forks.run_ranks("train", *begin(tuned, tmp_path), *TUNE, "--max-updates=1")
    assert valid_losses(tmp_path)[0] == pytest.approx(valid_losses(trained / "run")[40], abs=1e-6)


def test_dropout_may_change_but_not_the_sizes(tuned: Path, tmp_path: Path) -> None:
    fine_tune(tuned, tmp_path / "run", "--max-updates=1", "--dropout=0.4")
    assert nmt.load_checkpoint(tmp_path / "run" / "best.safetensors").model_config.dropout == 0.4
    misfit = f"the weights of --init-from {tuned}/old.safetensors do not fit: --heads is 4 instead of 2; --d-k is 8 "
    for extra in ([], ["--dry-run"], ["--minutes=5"]):
        said = failed("train", *begin(tuned, tmp_path / "other"), "--heads=4", *extra)
        assert misfit in said
        assert "measuring" not in said
        assert "leave out --arch and these options (in a file of --config: arch, heads, d-k, d-v)" in said
    assert not (tmp_path / "other").exists()


def test_a_model_with_fewer_layers_takes_some_of_the_checkpoint(trained: Path, tmp_path: Path) -> None:
    deep, shallow = tmp_path / "deep", tmp_path / "shallow"
    sizes = "--encoder-layers=3", "--decoder-layers=4", "--norm=pre"
    run("train", trained / "data", f"--save-dir={deep}", *TRAIN, *SMALL, *sizes, "--max-updates=1")
    command = "train", trained / "data", f"--init-from={deep}/best.safetensors", f"--save-dir={shallow}", *TUNE
    said = run(*command, "--encoder-layers=2", "--decoder-layers=1", "--lr=1e-30", "--max-updates=1").stderr
    assert "of the 3 encoder layers of best.safetensors, these are taken: 2, 3" in said
    assert "of the 4 decoder layers of best.safetensors, these are taken: 4" in said
    deep_weights, shallow_weights = weights(deep / "best.safetensors"), weights(shallow / "best.safetensors")
    origins = {"encoder.0.": "encoder.1.", "encoder.1.": "encoder.2.", "decoder.0.": "decoder.3."}
    expected = {name: weight for name, weight in deep_weights.items() if not name.startswith(("encoder.", "decoder."))}
    for new, old in origins.items():
        expected |= {new + name[10:]: weight for name, weight in deep_weights.items() if name.startswith(old)}
    assert shallow_weights.keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in shallow_weights.items())
    run("train", "--config", shallow / "config.toml", "--max-updates=2")
    more = f"--save-dir={tmp_path}/deeper", "--encoder-layers=4"
    assert "--encoder-layers is 4 instead of 3" in failed(*command, *more)


def test_without_a_checkpoint_the_architecture_is_required(tuned: Path, tmp_path: Path) -> None:
    said = run("train", tuned / "data", f"--save-dir={tmp_path}/run", code=2).stderr
    assert "Missing one of --hours, --minutes, --arch, --init-from" in said


@pytest.mark.parametrize("groups, prefixes", [
    (["embeddings"], ("target_embedding",)),
    (["encoder"], ("encoder",)),
    (["decoder", "embeddings"], ("decoder", "target_embedding")),
])  # fmt: skip
def test_frozen_weights_stay(tuned: Path, tmp_path: Path, groups: list[str], prefixes: tuple[str, ...]) -> None:
    options = [f"--freeze={group}" for group in groups]
    for stop, given in ((1, options), (2, options[::-1])):
        said = fine_tune(tuned, tmp_path, f"--max-updates={stop}", *given)
    assert f"{' and '.join(sorted(groups))} frozen" in said
    old_weights, tuned_weights = weights(tuned / "old.safetensors"), weights(tmp_path / "snapshot-00000002.safetensors")
    same = {name for name in old_weights if torch.equal(old_weights[name], tuned_weights[name])}
    assert same == {name for name in old_weights if name.startswith(prefixes)}
    said = failed("train", *begin(tuned, tmp_path), *TRAIN[1:], "--resume-changed")
    assert "because the state of the optimiser does not fit" in said
    command = ["train", tuned / "data", f"--save-dir={tmp_path}", *TRAIN, *SMALL, *options]
    if "embeddings" in groups:  # which states do not have
        assert "lacks the weights that do not learn; give --init-from" in failed(*command, "--max-updates=3")


@pytest.mark.parametrize("options, message", [
    (["--lr=0.001"], "--lr 0.001 needs --lr-schedule inverse-sqrt or"),
    (["--lr-schedule=linear"], "--lr-schedule linear needs --lr; add it, or leave out"),
    (["--lr-schedule=linear", "--lr=1", "--lr-scale=2"], "--lr-scale 2.0 does not work with --lr-schedule lin"),
    (["--min-delta=0.1"], "--min-delta 0.1 needs --patience; add it, or leave out --min-delta"),
    ([f"--freeze={group}" for group in ("embeddings", "encoder", "decoder")], "--freeze leaves no weights to train; l"),
    (["--lr-schedule=constant", "--lr=1e30", "--freeze=encoder", "--max-skipped-updates=2"], "training diverged"),
])  # fmt: skip
def test_odd_options_end_in_one_sentence(tuned: Path, tmp_path: Path, options: list[str], message: str) -> None:
    assert message in failed("train", tuned / "data", f"--save-dir={tmp_path}/run", *TRAIN, *SMALL, *options)


class Vocabulary(list[str]):
    @property
    def vocabulary(self) -> list[str]:
        return self


@pytest.mark.parametrize("joint", [True, False])
def test_a_vocabulary_in_another_order_gives_the_same_probabilities(tuned: Path, joint: bool) -> None:
    """Also from a joint vocabulary to separate ones."""
    path = tuned / "old.safetensors"
    checkpoint = nmt.load_checkpoint(path)
    old, size = build_model(checkpoint, path).eval(), len(checkpoint.codec.target)
    shuffles = [np.random.default_rng(seed).permutation(size - 4) for seed in ((0, 0) if joint else (0, 1))]
    orders = [np.r_[:4, 4 + shuffle] for shuffle in shuffles]
    source, target = (Vocabulary(checkpoint.codec.target.pieces(order.tolist())) for order in orders)
    langs = checkpoint.codec.config
    new = nmt.model.transformer.Transformer(old.config, size, size, shared=joint).eval()
    start_from(str(path), new, SimpleNamespace(config=langs, source=source, target=target, to_dict=dict))  # type: ignore[arg-type]
    places = [torch.from_numpy(np.argsort(order)) for order in orders]
    generator = torch.Generator().manual_seed(0)
    source_ids, target_ids = (torch.randint(4, size, (3, 7), generator=generator) for _ in range(2))
    log_probs = new(places[0][source_ids], places[1][target_ids]).log_softmax(-1)[..., places[1]]
    torch.testing.assert_close(log_probs, old(source_ids, target_ids).log_softmax(-1), atol=1e-5, rtol=0)


def pieces_of(subword: Subword) -> list[str]:
    return subword.pieces(list(range(len(subword))))


def test_pieces_that_the_checkpoint_lacks_start_at_random_and_are_named(tuned: Path, tmp_path: Path) -> None:
    write_pairs(tmp_path / "new", invented_pairs(200, seed=9))
    run("preprocess", *LANGS, f"--train={tmp_path}/new", f"--valid={tuned}/new", f"--dest={tmp_path}/data",
        "--vocab-size=350", "--separate-vocab")  # fmt: skip
    shutil.copy(tuned / "old.safetensors", tmp_path)
    said = fine_tune(tmp_path, tmp_path / "run", "--max-updates=1", "--lr=1e-30")
    old, start = nmt.load_checkpoint(tmp_path / "old.safetensors"), weights(tmp_path / "run" / "best.safetensors")
    rows = dict(zip(pieces_of(old.codec.target), old.weights["target_embedding.weight"], strict=True))
    codec = DataFolder.open(tmp_path / "data").codec
    for side, pieces in (("source", pieces_of(codec.source)), ("target", pieces_of(codec.target))):
        new = [piece for piece in pieces if piece not in rows]
        assert 0 < len(new) < len(pieces)
        shared = f"{len(pieces) - len(new):,} of {len(pieces):,} pieces have embeddings in old.safetensors"
        assert f"{shared}; {len(new)} start at random" in said and f": {new[0]}" in said
        embeddings = zip(pieces, start[f"{side}_embedding.weight"], strict=True)
        assert all(torch.equal(row, rows[piece]) for piece, row in embeddings if piece in rows)
