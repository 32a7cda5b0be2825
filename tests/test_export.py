"""CTranslate2 gives the same probabilities and translations with an exported model as this toolkit."""

import json
import random
import sys
from pathlib import Path

import ctranslate2
import pytest
import torch
from commands import SMALL, TRAIN, failed, run
from conftest import invented_pairs

import nmt
from nmt.config import RuntimeConfig, SearchConfig
from nmt.text.subword import BOS, EOS, with_eos

FP32 = RuntimeConfig(device="cpu", precision="fp32")


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "model"
    run("export", trained / "run" / "average.safetensors", "--format", "ctranslate2", "--output", folder)
    return folder


def pieces(translator: nmt.Translator, lines: list[str]) -> list[list[str]]:
    return [translator.codec.source.pieces(ids) for ids in translator.codec.encode_source(lines)]


def check_probabilities(checkpoint: Path, folder: Path, sources: list[str], targets: list[str]) -> None:
    """Checks that both toolkits give every token of the targets, EOS included, the same probability."""
    ours, theirs = nmt.Translator.load(checkpoint, runtime=FP32), ctranslate2.Translator(str(folder))
    ids = [with_eos(ids).tolist() for ids in ours.codec.encode_target(targets)]
    found = theirs.score_batch(pieces(ours, sources), [ours.codec.target.pieces(line[:-1]) for line in ids])
    for source, labels, scored in zip(ours.codec.encode_source(sources), ids, found, strict=True):
        with torch.no_grad():
            (logits,) = ours.models[0](torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *labels[:-1]]]))
            expected = logits.log_softmax(-1)[range(len(labels)), labels]
        torch.testing.assert_close(torch.tensor(scored.log_probs), expected, rtol=0, atol=1e-4)


def test_probabilities_are_the_same(trained: Path, exported: Path) -> None:
    sources, targets = ((trained / f"test.{lang}").read_text().splitlines() for lang in ("en", "de"))
    check_probabilities(trained / "run" / "average.safetensors", exported, sources, targets)


def test_translations_are_the_same(tmp_path: Path) -> None:
    draw = random.Random(0)
    # A short training is enough to learn that such sentences end.
    words = ["eins", "zwei", "drei", "vier", "fünf", "sechs"]
    targets = [" ".join(words[draw.randrange(3) : draw.randrange(3, 7)]) for _ in range(300)]
    lines = [source for source, _ in invented_pairs(300)]
    for lang, text in (("en", lines), ("de", targets)):
        (tmp_path / f"corpus.{lang}").write_text("".join(f"{line}\n" for line in text))
    corpora = ["--train", tmp_path / "corpus", "--valid", tmp_path / "corpus", "--dest", tmp_path / "data"]
    run("preprocess", "--source-lang=en", "--target-lang=de", *corpora, "--vocab-size=330", "--workers=1")
    options = [*TRAIN, *SMALL, "--max-updates=120", "--valid-metric=nll"]
    run("train", tmp_path / "data", "--save-dir", tmp_path / "run", *options)
    run("export", tmp_path / "run" / "best.safetensors", "--output", tmp_path / "model")
    ours = nmt.Translator.load(tmp_path / "run" / "best.safetensors", runtime=FP32)
    theirs = ctranslate2.Translator(str(tmp_path / "model"))
    for beam in (1, 4):
        expected = [h[0] for h in ours.hypotheses(lines[:100], SearchConfig(beam=beam, alpha=0))]
        sources = pieces(ours, lines[:100])
        found = theirs.translate_batch(sources, beam_size=beam, length_penalty=0, max_decoding_length=150)
        assert all(1 < len(h.pieces) < 30 for h in expected)
        assert [h.pieces for h in expected] == [result.hypotheses[0] for result in found]
        scored = theirs.score_batch(sources, [h.pieces for h in expected])
        log_probs = [sum(result.log_probs) for result in scored]
        assert [h.log_prob for h in expected] == pytest.approx(log_probs, abs=1e-3)
        pairs = "".join(f"{line}\t{h.text}\n" for line, h in zip(lines, expected, strict=False)).encode()
        command = ["rescore", tmp_path / "run" / "best.safetensors", "--precision=fp32", "--device=cpu"]
        assert list(map(float, run(*command, stdin=pairs).stdout.split())) == pytest.approx(log_probs, abs=1e-3)


def test_separate_vocabularies_and_int8_are_exported(trained: Path, tmp_path: Path) -> None:
    corpora = ["--train", trained / "train", "--valid", trained / "valid"]
    langs = ["--source-lang", "en", "--target-lang", "de"]
    run("preprocess", *langs, *corpora, "--dest", tmp_path / "data", "--vocab-size=310", "--separate-vocab")
    options = [*TRAIN, *SMALL, "--max-updates=2", "--valid-metric=nll"]
    run("train", tmp_path / "data", "--save-dir", tmp_path / "run", *options)
    run("export", tmp_path / "run" / "best.safetensors", "--output", tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").glob("subword*")} == {"subword.en.model", "subword.de.model"}
    check_probabilities(tmp_path / "run" / "best.safetensors", tmp_path / "model", ["Ba de."], ["ed ab !"])
    run("export", tmp_path / "run" / "best.safetensors", "--output", tmp_path / "int8", "--quantization", "int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("int8", "model")]
    assert sizes[0] < sizes[1]
    assert ctranslate2.Translator(str(tmp_path / "int8")).compute_type.startswith("int8")


@pytest.mark.parametrize(
    "variant",
    [
        ["--norm=pre"],
        ["--learned-positions=600"],
        ["--attention-biases", "--output-bias", "--activation=gelu"],
        ["--activation=swish", "--sinusoids=fairseq"],
    ],
)
def test_variants_of_the_model_have_the_same_probabilities(trained: Path, tmp_path: Path, variant: list[str]) -> None:
    options = [*TRAIN, *SMALL, *variant, "--max-updates=3", "--valid-metric=nll"]
    run("train", trained / "data", "--save-dir", tmp_path / "run", *options)
    run("export", tmp_path / "run" / "best.safetensors", "--output", tmp_path / "model")
    check_probabilities(
        tmp_path / "run" / "best.safetensors", tmp_path / "model", ["Ba de.", "Ki lo mu na."], ["ed ab !", "an"]
    )


def test_the_text_processing_is_exported(trained: Path, exported: Path) -> None:
    config = json.loads((exported / "config.json").read_text())
    assert config["text"]["target_tokenizer"] == "moses-de"
    assert (exported / "subword.model").read_bytes() == (trained / "data" / "subword.model").read_bytes()


def test_models_and_paths_that_cannot_be_exported_are_refused(
    trained: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    average = trained / "run" / "average.safetensors"
    assert "already exists" in failed("export", average, "--output", exported)
    options = [*TRAIN, *SMALL, "--d-k=8", "--max-updates=1", "--valid-metric=nll"]
    run("train", trained / "data", "--save-dir", tmp_path / "run", *options)
    message = failed("export", tmp_path / "run" / "best.safetensors", "--output", tmp_path / "model")
    assert "has d_model 32, heads 2, d_k 8 and d_v 16" in message
    options = [*TRAIN, *SMALL, "--attention=additive", "--attention-window=5", "--max-updates=1", "--valid-metric=nll"]
    run("train", trained / "data", "--save-dir", tmp_path / "other", *options)
    message = failed("export", tmp_path / "other" / "best.safetensors", "--output", tmp_path / "model")
    assert "does not support --attention or --attention-window" in message
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    assert "pip install ctranslate2" in failed("export", average, "--output", tmp_path / "model")
    assert not (tmp_path / "model").exists()
