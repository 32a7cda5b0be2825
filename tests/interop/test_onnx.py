"""ONNX Runtime computes the translations of this toolkit with exported graphs, and `tokenizers` gives the same ids."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import (
    CONFIG,
    ELOQUENT,
    TEXT_CONFIG,
    WORDS,
    eloquent_checkpoint,
    generated,
    saved,
    small_checkpoint,
    small_codec,
    some_sentences,
)
from commands import failed, run
from conftest import invented_pairs
from marian import mixed_lines
from onnx import load, numpy_helper, shape_inference
from onnxruntime import InferenceSession
from sentencepiece import SentencePieceTrainer
from test_export import largest_sum, opus_codec, replace_text, separate_codec, tagged_codec
from tokenizers import Tokenizer

import nmt
from nmt.interop import onnx
from nmt.interop.conversion import SPECIAL_PIECES
from nmt.pages import web_export
from nmt.text.codec import TextCodec
from nmt.text.mapped import Mapped
from nmt.text.subword import BOS, EOS, PAD, Subword


def exported(checkpoint: Path, form: str = "onnx", *options: str | Path) -> Path:
    """Exports a checkpoint and returns the folder."""
    run("export", form, checkpoint, "--output", checkpoint.parent / form, *options)
    return checkpoint.parent / form


class OnnxModel:
    """Greedy search with the graphs of a folder, as `optimum` and transformers.js run them."""

    def __init__(self, folder: Path, *decoders: str, ending: str = "") -> None:
        names = ["encoder_model", *decoders]
        self._encoder, *self._decoders = (InferenceSession(folder / "onnx" / f"{n}{ending}.onnx") for n in names)

    def translate(self, sources: list[list[int]], steps: int) -> list[list[int]]:
        """Returns the ids of `steps` pieces for each source; those behind EOS have no meaning."""
        longest = max(map(len, sources)) + 1
        ids = np.array([[*line, EOS, *[PAD] * (longest - len(line) - 1)] for line in sources])
        mask = (ids != PAD).astype(np.int64)
        (encoded,) = self._encoder.run(None, {"input_ids": ids, "attention_mask": mask})
        values: dict[str, Any] = {"encoder_attention_mask": mask, "encoder_hidden_states": encoded}
        targets = np.full((len(sources), 1), BOS)
        for step in range(steps):
            session = self._decoders[min(step, len(self._decoders) - 1)]
            values |= {"input_ids": targets[:, -1:], "use_cache_branch": np.array([step > 0])}
            empty = {i.name: np.zeros((len(ids), i.shape[1], 0, i.shape[3]), np.float32)
                     for i in session.get_inputs() if i.name not in values}  # fmt: skip
            inputs = {i.name: (values | empty)[i.name] for i in session.get_inputs()}
            outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
            logits_B1V = outputs.pop("logits")
            logits_B1V[:, :, [PAD, BOS]] = -np.inf  # as bad_words_ids in generation_config.json
            targets = np.append(targets, logits_B1V.argmax(-1), axis=1)
            values |= {name.replace("present", "past_key_values"): value for name, value in outputs.items()}
        return [list(map(int, line[1:])) for line in targets]


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm, gelu, biases": {"norm": "pre", "activation": "gelu", "attention_biases": True, "output_bias": True},
    "positions of Marian": {"sinusoids": "marian"},
    "swish, positions of fairseq": {"activation": "swish", "sinusoids": "fairseq", "decoder_layers": 2},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_translations_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str) -> None:
    monkeypatch.setattr(onnx, "_MOST_DIVERGENCE", 1.0)  # these large random weights are hard on int8
    config = replace(ELOQUENT, **VARIANTS[variant])
    checkpoint = eloquent_checkpoint(3, ending=16, config=config)
    for name, weight in checkpoint.weights.items():  # biases of a new model are 0
        if name.endswith("bias") and "norm" not in name:
            weight.normal_(0, 0.3)
    model = saved(checkpoint, tmp_path / "model.safetensors")
    folder, sentences = exported(model), some_sentences(12, 5)
    options = ["--beam=1", "--precision=fp32", "--max-length-offset=5"]
    expected = [line["hypotheses"][0]["pieces"] for line in generated(model, sentences, *options)]
    assert len({tuple(pieces) for pieces in expected}) > 6
    codec = checkpoint.codec
    sources = codec.encode_source(sentences)
    for decoders in (["decoder_model", "decoder_with_past_model"], ["decoder_model_merged"]):
        translations = OnnxModel(folder, *decoders).translate(sources, max(map(len, expected)) + 1)
        pieces = [codec.target.pieces(ids) for ids in translations]
        # A graph may give an empty translation.
        pairs = [(line[: len(known)], known) for line, known in zip(pieces, expected, strict=True) if line[0] != "</s>"]
        assert len(pairs) > 6 and all(line == known for line, known in pairs)
        ends = [ids[len(known)] for ids, known in zip(translations, expected, strict=True)]
        limit_hits = [len(known) == len(ids) + 5 for known, ids in zip(expected, sources, strict=True)]
        assert all(end == EOS or limited for end, limited in zip(ends, limit_hits, strict=True))


GRAPHS = "encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged"


@pytest.fixture(scope="module")
def eloquent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eloquent")
    return exported(saved(eloquent_checkpoint(3, ending=16), folder / "model.safetensors"))


def test_graphs_in_int8_are_smaller_and_translate(eloquent: Path) -> None:
    sources = small_codec().encode_source(some_sentences(12, 5))
    both = [OnnxModel(eloquent, "decoder_model_merged", ending=e).translate(sources, 8) for e in ("", "_quantized")]
    same = [a == b for line, other in zip(*both, strict=True) for a, b in zip(line, other, strict=True)]
    assert sum(same) > 0.5 * len(same)
    for name in GRAPHS:
        graph, quantized = (eloquent / "onnx" / f"{name}{ending}.onnx" for ending in ("", "_quantized"))
        assert quantized.stat().st_size < graph.stat().st_size


def test_weights_of_large_graphs_are_in_files_beside_them(
    eloquent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (eloquent / "onnx" / "decoder_model_merged.onnx").stat().st_size
    monkeypatch.setattr(onnx, "_MOST_BYTES", size // 2)
    folder = exported(saved(eloquent_checkpoint(3, ending=16), tmp_path / "model.safetensors"))
    large = {f"{name}.onnx" for name in GRAPHS if (eloquent / "onnx" / f"{name}.onnx").stat().st_size > size * 0.6}
    assert {path.name for path in (folder / "onnx").glob("*data")} == {f"{name}_data" for name in large} > set()
    assert (folder / "onnx" / "decoder_model_merged.onnx").stat().st_size < size // 4
    assert len({path.stat().st_mode for path in (folder / "onnx").iterdir()}) == 1
    sources = small_codec().encode_source(some_sentences(12, 5))
    for ending in ("", "_quantized"):
        both = [OnnxModel(each, "decoder_model_merged", ending=ending) for each in (folder, eloquent)]
        assert both[0].translate(sources, 8) == both[1].translate(sources, 8)
    text = [(each / "README.md").read_text().split("parameters in ")[1][:6] for each in (folder, eloquent)]
    assert text[0] == text[1]
    (folder / "onnx" / "decoder_model_merged.onnx_data").unlink()
    with pytest.raises(Exception, match="onnx_data"):
        OnnxModel(folder, "decoder_model_merged")


def test_a_page_that_no_browser_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    monkeypatch.setattr(web_export, "_MOST_BYTES", 1000)
    said = failed("export", "web", model, "--output", tmp_path / "large")
    assert "model.safetensors has 0.0 GB of weights in 8 bits, but a page in a browser can hold 0.0 GB; train" in said
    assert not (tmp_path / "large").exists()


@pytest.mark.parametrize("name", GRAPHS)
def test_products_in_int8_overflow_on_no_processor(eloquent: Path, name: str) -> None:
    """For signed weights, ONNX Runtime uses `vpmaddubsw` where there is no VNNI; for unsigned ones, 32-bit sums."""
    graph = load(eloquent / "onnx" / f"{name}_quantized.onnx").graph
    arrays = {array.name: numpy_helper.to_array(array) for array in graph.initializer}
    weights = [arrays[node.input[1]] for node in graph.node if node.op_type == "MatMulInteger"]
    assert len(weights) >= 4
    for weight_KN in weights:
        if weight_KN.dtype == np.int8:
            assert largest_sum(weight_KN) <= np.iinfo(np.int16).max


def test_a_model_that_8_bits_cannot_hold_is_not_exported(tmp_path: Path) -> None:
    """A large weight, which is multiplied by 0, makes all others of its row 0."""
    checkpoint = eloquent_checkpoint(3, ending=16)
    for name, weight in checkpoint.weights.items():
        if name.endswith("feed_forward.inner.bias"):
            weight[0] = -1000
        elif name.endswith("feed_forward.outer.weight"):
            weight[:, 0] = 1000
    model = saved(checkpoint, tmp_path / "model.safetensors")
    message = failed("export", "onnx", model, "--output", tmp_path / "onnx")
    assert "would translate badly in int8: its probabilities would diverge by" in message
    assert not (tmp_path / "onnx").exists()


def unigram_codec() -> TextCodec:
    subword = Subword.train([side for pair in invented_pairs(100) for side in pair], "unigram", 330)
    return TextCodec(replace(TEXT_CONFIG, subword="unigram"), subword, subword)


def codec_that_keeps_spaces(prefix: bool) -> TextCodec:
    model, lines = io.BytesIO(), [side for pair in invented_pairs(100) for side in pair]
    options: dict[str, Any] = {"model_type": "bpe", "vocab_size": 330, "byte_fallback": True, "minloglevel": 2}
    ids: dict[str, Any] = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    spaces: dict[str, Any] = {"add_dummy_prefix": prefix, "remove_extra_whitespaces": False}
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options, **ids, **spaces)
    subword = Subword.from_bytes(model.getvalue(), "bpe", "model")
    return TextCodec(TEXT_CONFIG, subword, subword)


KEEPING_SPACES = [partial(codec_that_keeps_spaces, prefix) for prefix in (True, False)]


@pytest.mark.parametrize("make_codec", [small_codec, unigram_codec, opus_codec, tagged_codec, *KEEPING_SPACES])
def test_the_tokenizer_gives_the_ids_of_the_codec(make_codec: Callable[[], TextCodec], tmp_path: Path) -> None:
    codec = make_codec()
    folder = exported(saved(small_checkpoint(0, codec=codec), tmp_path / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    lines = [*some_sentences(20, 0), *(side for pair in invented_pairs(20, 1) for side in pair), "  a  b ▁c ", ""]
    lines += mixed_lines(200, 0)
    lines += [f"{tag} {line}" for tag in codec.config.tags for line in lines]
    encoded = codec.encode_source(lines)
    same = [tokenizer.encode(line).ids == [*ids, EOS] for line, ids in zip(lines, encoded, strict=True)]
    assert all(same) if codec.config.subword == "bpe" else sum(same) > 0.9 * len(same)
    lines = [line for line in lines if line == line.strip()]
    decoded = [tokenizer.decode(ids).rstrip(" ") for ids in codec.encode_target(lines)]
    if codec.config.subword != "marian":
        assert decoded == codec.decode_target(codec.encode_target(lines))


def test_a_page_has_what_the_browser_loads(tmp_path: Path) -> None:
    model = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    facts = ["--license=CC BY 4.0", "--data=Invented words."]
    folder = exported(model, "web", *facts)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    page = {
        "index.html",
        "page.js",
        "protected.js",
        "protected.json",
        "offline.js",
        "package.json",
        "style.css",
        "page.css",
        "README.md",
    }
    settings = {f"{name}.json" for name in ("config", "generation_config", "tokenizer", "tokenizer_config")}
    graphs = {f"onnx/{name}_quantized.onnx" for name in ("encoder_model", "decoder_model_merged")}
    assert names == page | {f"model/{name}" for name in settings | graphs}
    assert json.loads((folder / "model" / "config.json").read_text())["nmt"]["text"]["target_lang"] == "de"
    card = (folder / "README.md").read_text()
    assert "npm run engine" in card
    assert "## Licence\n\nCC BY 4.0\n" in card
    assert "## Data\n\nInvented words.\n" in card
    assert "## Scores" not in card


def wordpiece_codec() -> TextCodec:
    subword = Subword.train([WORDS] * 5, "wordpiece", 280)
    return TextCodec(replace(TEXT_CONFIG, subword="wordpiece"), subword, subword)


def separate_opus_codec() -> TextCodec:
    sides = opus_codec()
    target = Mapped(sides.target.pieces(list(range(len(sides.target) - 1))), sides.target.model, "marian")
    return TextCodec(replace(sides.config, joint_vocab=False), sides.source, target)


def fairseq_codec() -> TextCodec:
    codes = Mapped([*SPECIAL_PIECES, "a", "b@@"], b"#version: 0.2\na b</w>\n", "subword-nmt")
    tokenizers = {"source_tokenizer": "escaping-moses-en", "target_tokenizer": "escaping-moses-de"}
    return TextCodec(replace(TEXT_CONFIG, subword="subword-nmt", **tokenizers), codes, codes)


def coded_opus_codec() -> TextCodec:
    """Returns a codec like those of Opus-MT whose source has language codes."""
    return replace_text(opus_codec(), tags=(opus_codec().source.pieces([9])[0],))


def several_opus_codec() -> TextCodec:
    """Returns a codec like those of Opus-MT whose source has codes of several languages."""
    pieces = {"fra": opus_codec().source.pieces([9])[0], "ron": opus_codec().source.pieces([10])[0]}
    languages = {"languages": tuple(pieces), "language_pieces": tuple(pieces.values()), "directions": ("en fra",)}
    return replace_text(opus_codec(), source_lang="mul", target_lang="mul", **languages)


def text(**changes: Any) -> Callable[[], TextCodec]:
    return lambda: replace_text(small_codec(), **changes)


@pytest.mark.parametrize(("form", "codec", "config", "message"), [
    ("onnx", separate_codec, {}, "nmt export onnx has one vocabulary for both languages, but"),
    ("web", separate_codec, {}, "nmt export web has one vocabulary for both languages, but"),
    ("onnx", small_codec, {"attention_window": 3}, "nmt export onnx does not support --attention-window, which"),
    ("web", small_codec, {"d_k": 2}, "nmt export web needs d_k and d_v to be d_model / heads, but"),
    ("web", text(source_tokenizer="moses-en"), {}, "nmt export web translates raw text, but"),
    ("web", tagged_codec, {}, "has the tags <bt>, which a page cannot put before a sentence"),
    ("onnx", wordpiece_codec, {}, "nmt export onnx segments text with sentencepiece, but"),
    ("argos", text(target_tokenizer="moses-de"), {}, "cannot prepare text with Moses tokenisation as"),
    ("argos", text(source_tokenizer="escaping-moses-en"), {}, "cannot prepare text with Moses tokenisation as"),
    ("argos", text(lowercase=True, target_tokenizer="moses-de"), {}, "with Moses tokenisation and lowercasing as"),
    ("argos", wordpiece_codec, {}, "with a wordpiece vocabulary as"),
    ("argos", fairseq_codec, {}, "with Moses tokenisation and a subword-nmt vocabulary as"),
    ("argos", coded_opus_codec, {}, "with language codes such as >>fra<< as"),
    ("argos", text(source_lang="de-CH"), {}, "from de-CH to de, which Argos Translate would take for one language"),
    ("argos", small_codec, {"d_k": 2}, "CTranslate2 needs d_k and d_v to be"),
    ("ctranslate2", small_codec, {"d_k": 2}, "has d_model 8, heads 2, d_k 2 and d_v 4"),
    ("ctranslate2", small_codec, {"attention": "additive", "attention_window": 5},
     "does not support --attention or --attention-window"),
    ("huggingface", small_codec, {"norm": "pre", "attention_window": 3},
     "MarianMT does not support --norm or --attention-window"),
])  # fmt: skip
def test_what_a_format_cannot_hold_is_refused(
    tmp_path: Path, form: str, codec: Callable[[], TextCodec], config: dict[str, Any], message: str
) -> None:
    model = saved(small_checkpoint(0, replace(CONFIG, **config), codec()), tmp_path / "model.safetensors")
    assert message in failed("export", form, model, "--output", tmp_path / f"{form}.argosmodel")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


IMPORTED: dict[str, Callable[[], TextCodec]] = {
    "MarianMT, such as Opus-MT": opus_codec,
    "MarianMT with one language code": coded_opus_codec,
    "MarianMT of several target languages": several_opus_codec,
    "MarianMT with separate vocabularies": separate_opus_codec,
    "fairseq": fairseq_codec,
}


@pytest.mark.parametrize("model", IMPORTED)
def test_imported_models_leave_by_the_doors_of_the_documentation(tmp_path: Path, model: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    head, _, *rows = [
        row.strip("| ").split(" | ")
        for row in page.split("## Imported models")[1].split("## ")[0].splitlines()
        if "|" in row
    ]
    assert sorted(row[0] for row in rows) == sorted(IMPORTED)
    (row,) = (row for row in rows if row[0] == model)
    variants = {"sinusoids": "fairseq"} if model == "fairseq" else {}
    path = saved(small_checkpoint(0, replace(CONFIG, **variants), IMPORTED[model]()), tmp_path / "model.safetensors")
    for form, said in zip(head[1:], row[1:], strict=True):
        output = tmp_path / f"{form.strip('`')}.argosmodel"
        command = ["export", form.strip("`"), path, "--output", output]
        if said == "yes":
            run(*command)
        else:
            assert str(path) in failed(*command)
        assert output.exists() == (said == "yes")


def test_graphs_that_compute_other_logits_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = saved(small_checkpoint(0), tmp_path / "model.safetensors")
    monkeypatch.setattr(onnx, "sinusoids", lambda length, config: torch.zeros(length, config.d_model))
    with pytest.raises(RuntimeError, match="differ"):
        onnx.export_onnx(nmt.load_checkpoint(model), str(model), str(tmp_path / "onnx"), nmt.config.Facts())
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_disk_that_is_full_when_graphs_are_quantised_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnx does not notice that it wrote a part of a file only."""
    model = saved(small_checkpoint(0), tmp_path / "model.safetensors")

    def write_a_part(graph: str, output: str) -> None:
        Path(output).write_bytes(Path(graph).read_bytes()[:-100])

    monkeypatch.setattr(shape_inference, "infer_shapes_path", write_a_part)
    message = failed("export", "web", model, "--output", tmp_path / "page")
    assert "page cannot be written (No space left on device); free some space" in message
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
