"""CTranslate2 and packages for Argos Translate give the probabilities, pieces and translations of this toolkit."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import torch
from checkpoints import (
    ELOQUENT,
    FP32,
    TEXT_CONFIG,
    WORDS,
    eloquent_checkpoint,
    generated,
    multilingual_codec,
    saved,
    small_checkpoint,
    small_codec,
    some_sentences,
)
from commands import LANGS, failed, run, train
from conftest import invented_pairs
from marian import mixed_lines, spm, vocabulary
from stand_ins import Recipe

import nmt
from nmt.interop.conversion import SPECIAL_PIECES
from nmt.interop.ctranslate2 import specification
from nmt.text.codec import TextCodec
from nmt.text.directions import Direction
from nmt.text.mapped import Mapped
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword, with_eos
from nmt.text.text_config import Placement


def trained_and_exported(data: Path, folder: Path, *options: str) -> Path:
    """Trains a small model, exports it to model/ in the folder `folder`, and returns the checkpoint."""
    train(data, folder / "run", "--valid-metric=nll", *options)
    run("export", "ctranslate2", folder / "run" / "best.safetensors", "--output", folder / "model")
    return folder / "run" / "best.safetensors"


def pieces(translator: nmt.Translator, lines: list[str]) -> list[list[str]]:
    return [translator.codec.source.pieces(ids) for ids in translator.codec.encode_source(lines)]


def check_probabilities(checkpoint: Path, folder: Path, sources: list[str], targets: list[str]) -> None:
    """Checks that both toolkits give every token of the targets, EOS included, the same probability.

    The exported model gives PAD and BOS none.
    """
    ours, theirs = nmt.Translator.load(checkpoint, runtime=FP32), ctranslate2.Translator(str(folder))
    ids = [with_eos(ids).tolist() for ids in ours.codec.encode_target(targets)]
    scores = theirs.score_batch(pieces(ours, sources), [ours.codec.target.pieces(line[:-1]) for line in ids])
    for source, labels, scored in zip(ours.codec.encode_source(sources), ids, scores, strict=True):
        with torch.no_grad():
            (logits,) = ours.models[0](torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *labels[:-1]]]))
            logits[:, [PAD, BOS]] = -torch.inf
            expected = logits.log_softmax(-1)[range(len(labels)), labels]
        torch.testing.assert_close(torch.tensor(scored.log_probs), expected, rtol=0, atol=1e-4)


def test_probabilities_and_text_processing_are_the_same(trained: Path, tmp_path: Path) -> None:
    average, exported = trained / "run" / "average.safetensors", tmp_path / "model"
    run("export", "ctranslate2", average, "--output", exported)
    sources, targets = ((trained / f"test.{lang}").read_text().splitlines() for lang in ("en", "de"))
    check_probabilities(average, exported, sources, targets)
    config = json.loads((exported / "config.json").read_text())
    assert config["text"]["target_tokenizer"] == "none"
    assert (exported / "subword.model").read_bytes() == (trained / "data" / "subword.model").read_bytes()
    assert "already exists" in failed("export", "ctranslate2", average, "--output", exported)


def largest_sum(weight_KN: np.ndarray) -> int:
    """Returns the largest size of what `vpmaddubsw` adds in 16 bits: u8 · weight for two neighbouring rows K."""
    even = weight_KN[: len(weight_KN) // 2 * 2].astype(int)
    pairs = [even[::2].clip(*signs) + even[1::2].clip(*signs) for signs in ((0, 127), (-128, 0))]
    return int(255 * max(np.abs(pair).max() for pair in pairs))


def test_the_worst_case_is_that_of_the_instruction() -> None:
    """127 overflows, and 64 does not, because 255 · (64 + 64) < 2^15."""
    assert [largest_sum(np.full((4, 3), size, np.int8)) for size in (127, -128, 64)] == [64770, 65280, 32640]
    assert largest_sum(np.array([[127], [-127]], np.int8)) == 255 * 127


def test_products_in_int8_overflow_on_no_processor() -> None:
    variables = specification(small_checkpoint(0), "model", "int8", "test").variables()
    weights = {name: value.numpy() for name, value in variables.items() if not isinstance(value, str)}
    int8 = {name: weight for name, weight in weights.items() if weight.dtype == np.int8 and weight.ndim == 2}
    assert len(int8) >= 10
    for name, weight_NK in int8.items():
        assert largest_sum(weight_NK.T) < 2**15, name
        scale_N = weights[f"{name}_scale"]
        assert (np.abs(weight_NK).max(axis=1) == 63).all() and (scale_N > 0).all()


def test_separate_vocabularies_and_int8_are_exported(trained: Path, tmp_path: Path) -> None:
    corpora = ["--train", trained / "train", "--valid", trained / "valid"]
    run("preprocess", *LANGS, *corpora, "--dest", tmp_path / "data", "--vocab-size=310", "--separate-vocab")
    checkpoint = trained_and_exported(tmp_path / "data", tmp_path, "--max-updates=2")
    assert {path.name for path in (tmp_path / "model").glob("subword*")} == {"subword.en.model", "subword.de.model"}
    check_probabilities(checkpoint, tmp_path / "model", ["Ba de."], ["ed ab !"])
    run("export", "ctranslate2", checkpoint, "--output", tmp_path / "int8", "--quantization", "int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("int8", "model")]
    assert sizes[0] < sizes[1]
    assert ctranslate2.Translator(str(tmp_path / "int8")).compute_type.startswith("int8")


@pytest.mark.parametrize("variant", [
    ["--norm=pre"],
    ["--learned-positions=600"],
    ["--attention-biases", "--output-bias", "--activation=gelu"],
    ["--activation=swish", "--sinusoids=fairseq"],
    ["--sinusoids=marian"],
])  # fmt: skip
def test_variants_of_the_model_have_the_same_probabilities(trained: Path, tmp_path: Path, variant: list[str]) -> None:
    checkpoint = trained_and_exported(trained / "data", tmp_path, *variant, "--max-updates=3")
    check_probabilities(checkpoint, tmp_path / "model", ["Ba de.", "Ki lo mu na."], ["ed ab !", "an"])


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    assert "pip install '.[ctranslate2]'" in failed("export", "ctranslate2", checkpoint, "--output", tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(("format", "needless"), [
    ("ctranslate2", ["onnx", "nmt.interop.onnx"]),
    ("huggingface", ["onnx", "nmt.interop.onnx", "ctranslate2", "ctranslate2.specs"]),
    ("onnx", ["ctranslate2", "ctranslate2.specs"]),
    ("web", ["ctranslate2", "ctranslate2.specs"]),
])  # fmt: skip
def test_a_format_needs_no_packages_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, needless: list[str]
) -> None:
    checkpoint = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    for name in needless:
        monkeypatch.setitem(sys.modules, name, None)
    run("export", format, checkpoint, "--output", tmp_path / "model")
    assert (tmp_path / "model" / "README.md").exists()


@pytest.mark.parametrize("positions", [0, 300])
def test_the_code_in_the_card_does_not_cut_translations_at_256_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: int
) -> None:
    config = replace(ELOQUENT, learned_positions=positions or None)
    checkpoint = saved(eloquent_checkpoint(3, ending=0, config=config), tmp_path / "model.safetensors")
    run("export", "ctranslate2", checkpoint, "--output", tmp_path / "model")
    monkeypatch.chdir(tmp_path / "model")
    names: dict[str, Any] = {}
    exec(code_of_card(tmp_path / "model").replace("…", "some words"), names)
    assert len(names["results"][0].hypotheses[0]) == (positions or 1001) - 1


def code_of_card(folder: Path) -> str:
    """Returns the Python code in the card of an exported model."""
    (code,) = re.findall("```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    return str(code)


@pytest.mark.parametrize(("placement", "directions", "trained", "direction"), [
    ("target_on_source", (), [], ("de", "fr")), ("both_sides", ("de fr",), [], ("de", "fr")),
    ("behind_source", ("de fr",), ["en de"], ("en", "de")), ("target_on_source", ("de fr",), ["fr en"], ("fr", "en")),
    ("both_sides", (), ["fr de"], ("fr", "de")),
])  # fmt: skip
def test_the_code_in_the_card_puts_tokens_of_languages(
    placement: Placement, directions: tuple[str, ...], trained: list[str], direction: tuple[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    model = eloquent_checkpoint(5, ending=12, codec=multilingual_codec(placement, directions))
    checkpoint = saved(
        replace(model, provenance={"directions": trained} if trained else {}), tmp_path / "m.safetensors"
    )
    lines = some_sentences(30, seed=1)
    expected = translations_in(checkpoint, lines, Direction(*direction))
    (other,) = {"en", "de", "fr"} - {*direction}
    assert expected != translations_in(checkpoint, lines, Direction(direction[0], other))
    run("export", "ctranslate2", checkpoint, "--output", tmp_path / "model")
    code = code_of_card(tmp_path / "model")
    assert f"# sentences in {direction[0]}" in code
    monkeypatch.chdir(tmp_path / "model")
    names: dict[str, Any] = {"LINES": lines}
    exec(code.replace('["…"]', "LINES").replace("beam_size=4", "beam_size=1").replace("1000", "60"), names)
    outputs = zip(names["lines"], expected, strict=True)
    assert all(theirs == ours for theirs, (ours, ended) in outputs if ended)
    assert sum(ended for _, ended in expected) > 3


def translations_in(checkpoint: Path, lines: list[str], direction: Direction) -> list[tuple[str, bool]]:
    """Returns greedy translations, and whether each of them has ended before its maximum length."""
    search = nmt.SearchConfig(beam=1, max_length_offset=50)
    translator = nmt.Translator.load(checkpoint, runtime=FP32)
    units = [nmt.Unit(line, direction=direction) for line in lines]
    return [(best.text, len(best.pieces) < 40) for best, *_ in translator.hypotheses(units, search)]


def test_a_model_card_may_hold_bytes_that_are_not_utf_8(tmp_path: Path) -> None:
    checkpoint = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    run("export", "ctranslate2", checkpoint, "--data=a\udcff", "--license=é", "--output", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "## Data\n\na\\udcff\n" in card
    assert "## Licence\n\né\n" in card


def test_a_model_card_has_only_the_names_of_files(tmp_path: Path) -> None:
    provenance = {"options": {"save_dir": "/a/run", "init_from": None, "user_module": "/a/mine.py"}}
    checkpoint = saved(replace(small_checkpoint(0), provenance=provenance), tmp_path / "model.safetensors")
    run("export", "ctranslate2", checkpoint, "--output", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert '"user_module": "mine.py"' in card
    assert "/a/" not in card


def test_a_model_card_names_the_base_and_the_directions_of_the_last_training(tmp_path: Path) -> None:
    last = {"derived_from": "nllb", "directions": ["eng_Latn deu_Latn", "deu_Latn eng_Latn"]}
    codec = multilingual_codec("both_sides", languages=("eng_Latn", "nld_Latn", "deu_Latn"))
    averaged = replace(small_checkpoint(0, codec=codec), provenance={"averaged": ["a.safetensors"], "last": last})
    checkpoint = saved(averaged, tmp_path / "model.safetensors")
    run("export", "ctranslate2", checkpoint, "--output", tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    assert "trained with nmt, derived from the model `nllb`." in card
    assert "directions eng_Latn-deu_Latn, deu_Latn-eng_Latn." in card
    assert "<details>" in card[: card.index('"averaged"')] and card.endswith("```\n\n</details>\n")


def test_the_help_names_the_extra() -> None:
    assert "'.[onnx]' -c constraints.txt" in " ".join(run("export", "onnx", "--help").stdout.decode().split())


# Packages for Argos Translate


def exported(checkpoint: Path, *options: str | Path) -> Path:
    """Exports a checkpoint and returns the package."""
    package = checkpoint.with_suffix(".argosmodel")
    run("export", "argos", checkpoint, "--output", package, *options)
    return package


class Argos:
    """What Argos Translate does with a package, according to tokenizer.py and translate.py of its release 1.11.0."""

    def __init__(self, package: Path) -> None:
        with ZipFile(package) as archive:
            archive.extractall(package.parent / "installed")
        (self.folder,) = (package.parent / "installed").iterdir()
        self._processor = sentencepiece.SentencePieceProcessor(model_file=str(self.folder / "sentencepiece.model"))
        self._translator = ctranslate2.Translator(str(self.folder / "model"))
        self._prefix = json.loads((self.folder / "metadata.json").read_text()).get("target_prefix", "")

    def encode(self, sentence: str) -> list[str]:
        return list(map(str, self._processor.encode(sentence, out_type=str)))

    def decode(self, pieces: list[str]) -> str:
        text = self._processor.decode_pieces(pieces).replace("▁", " ").replace("_", " ")
        text = text.removeprefix(self._prefix)
        return str(text[1:] if text.startswith(" ") else text)

    def search(self, sentence: str, **changes: int) -> list[str]:
        """Returns the pieces of the translation; `changes` are other options of the search."""
        options = {"beam_size": 4, "num_hypotheses": 1, "length_penalty": 0.2, "return_scores": True} | changes
        (translation,) = self._translator.translate_batch(
            [self.encode(sentence)], target_prefix=[[self._prefix]] if self._prefix else None, replace_unknowns=True,
            max_batch_size=32, batch_type="tokens", **options,
        )  # fmt: skip
        return list(translation.hypotheses[0])


def separate_codec() -> TextCodec:
    """Returns a codec whose languages have different words, each with a vocabulary of its own."""
    sides = zip(*invented_pairs(100), strict=True)
    models = [Subword.train(side, "unigram", 320) for side in sides]
    return TextCodec(replace(TEXT_CONFIG, subword="unigram", joint_vocab=False), *models)


def opus_codec() -> TextCodec:
    """Returns a codec like those of Opus-MT: two sentencepiece models, and one vocabulary with the pieces of both."""
    models = spm(1, 1000), spm(2, 900)
    pieces = [*SPECIAL_PIECES, *(piece for piece in vocabulary(*models) if piece not in (*SPECIAL_PIECES, ">>fra<<"))]
    return TextCodec(replace(TEXT_CONFIG, subword="marian"), *(Mapped(pieces, model, "marian") for model in models))


def tagged_codec() -> TextCodec:
    subword = Subword.train([WORDS] * 5, "bpe", 300, tags=["<bt>"])
    return TextCodec(replace(TEXT_CONFIG, tags=("<bt>",)), subword, subword)


@pytest.mark.parametrize("make_codec", [small_codec, separate_codec, opus_codec, tagged_codec])
def test_pieces_and_text_are_those_of_the_codec(make_codec: Callable[[], TextCodec], tmp_path: Path) -> None:
    codec = make_codec()
    argos = Argos(exported(saved(small_checkpoint(0, codec=codec), tmp_path / "model.safetensors")))
    lines = [side for pair in invented_pairs(20, 1) for side in pair]
    lines += [*mixed_lines(50, 0), *some_sentences(5, 0), "a <bt> b", "<s> a</s>", "", "  a  b ", "a\tb"]
    for line, source, target in zip(lines, codec.encode_source(lines), codec.encode_target(lines), strict=True):
        assert codec.source.ids(argos.encode(line)) == source
        known = [id_ for id_ in target if id_ != UNK]  # CTranslate2 replaces the others
        assert argos.decode(codec.target.pieces(known)) == codec.decode_target([known])[0]


def test_translations_are_the_best_that_beam_search_finds(tmp_path: Path) -> None:
    """The search of this toolkit has another length penalty, so its hypotheses are ranked again."""
    checkpoint = saved(eloquent_checkpoint(3, ending=16), tmp_path / "model.safetensors")
    argos, sentences = Argos(exported(checkpoint, "--quantization=float32")), some_sentences(10, 5)
    options = ["--n-best=4", "--alpha=0", "--min-length=1", "--max-length-offset=200", "--precision=fp32"]
    for sentence, line in zip(sentences, generated(checkpoint, sentences, *options), strict=True):
        best = max(line["hypotheses"], key=lambda h: sum(h["log_probs"]) / len(h["log_probs"]) ** 0.2)
        assert argos.search(sentence) == best["pieces"]
        assert argos.decode(best["pieces"]) == best["text"]


def test_a_package_has_one_folder_with_all_that_argos_translate_reads(tmp_path: Path) -> None:
    codec = TextCodec(replace(TEXT_CONFIG, source_lang="en_GB", target_lang="deu_Latn"), *[small_codec().source] * 2)
    checkpoint = saved(small_checkpoint(0, codec=codec), tmp_path / "model.safetensors")
    (tmp_path / "model.onnx").write_bytes(b"a model of MiniSBD")
    first = exported(checkpoint, "--sentence-model", tmp_path / "model.onnx").read_bytes()
    package = exported(checkpoint, "--sentence-model", tmp_path / "model.onnx")  # replaces the first one
    assert package.read_bytes() == first
    with ZipFile(package) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o644}
    folder = Argos(package).folder
    assert folder.name == "nmt-en_de"
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    model = {"model/config.json", "model/model.bin", "model/shared_vocabulary.json"}
    assert names == {"README.md", "metadata.json", "minisbd/en.onnx", "sentencepiece.model", *model}
    languages = {"from_code": "en", "from_name": "en", "to_code": "de", "to_name": "de"}
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata == {"package_version": "1.0", "argos_version": "1.11.0", **languages}
    assert (folder / "minisbd" / "en.onnx").read_bytes() == b"a model of MiniSBD"
    assert ctranslate2.Translator(str(folder / "model")).compute_type.startswith("int8")
    card = (folder / "README.md").read_text()
    assert 'translate.translate("…", "en", "de")' in card
    assert "which this package contains" in card
    assert str(tmp_path) not in card
    assert '"update": 0' in card


def test_what_argos_translate_does_otherwise_is_a_warning(tmp_path: Path) -> None:
    codec = replace_text(tagged_codec(), source_lang="english")
    checkpoint = saved(small_checkpoint(0, codec=codec), tmp_path / "model.safetensors")
    package = tmp_path / "model.argosmodel"
    done = run("export", "argos", checkpoint, "--output", package)
    assert "has the tags <bt>, which Argos Translate cannot put before a sentence" in done.stderr
    assert "has the language english, which is not a code of ISO 639" in done.stderr
    card = (Argos(package).folder / "README.md").read_text()
    assert "which it downloads when it translates for the first time" in card
    quoted = Argos(exported(checkpoint.rename(tmp_path / 'a "b.safetensors')))
    assert "install_from_path('a \"b.argosmodel')" in (quoted.folder / "README.md").read_text()


def replace_text(codec: TextCodec, **changes: Any) -> TextCodec:
    return TextCodec(replace(codec.config, **changes), codec.source, codec.target)


def test_options_and_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    checkpoint = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    (tmp_path / "en.bin").touch()
    for options, message in (
        (["--output", tmp_path / "model.zip"], "model.zip is the name of another format; give a name that ends in ."),
        (["--sentence-model", tmp_path / "en.bin"], "en.bin does not end in .onnx; give a model of MiniSBD"),
        (["--sentence-model", tmp_path / "no.onnx"], "no.onnx cannot be read (No such file or directory)"),
    ):
        command = ["export", "argos", checkpoint, "--output", tmp_path / "model.argosmodel", *options]
        assert message in failed(*command)
    assert {path.name for path in tmp_path.iterdir()} == {"model.safetensors", "en.bin"}


def test_the_recipe_that_verifies_packages_names_its_formats(quicker: Recipe) -> None:
    assert "argo is not a format; give one or more of: argos" in quicker("verify_exports.sh", "argo", code=1).stderr
