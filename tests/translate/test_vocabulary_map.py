"""Vocabulary maps: how they are made of aligned data, and translations that have only the candidates of a map."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ctranslate2
import numpy as np
import pytest
import torch
from checkpoints import ELOQUENT, FP32, TEXT_CONFIG, eloquent_checkpoint, generated, saved, small_codec, some_sentences
from commands import LANGS, failed, run
from conftest import token_arrays
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import serving

from nmt import Translator
from nmt.checkpoint import Checkpoint
from nmt.config import SearchConfig, VocabularyMapConfig
from nmt.data import vocabulary_map
from nmt.data.folder import DataFolder, ParallelSplit
from nmt.data.vocabulary_map import VocabularyMap
from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.subword import BOS, EOS, UNK, Subword
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.units import Unit

pytestmark = pytest.mark.usefixtures("cache")
PIECES = small_codec().target.pieces(list(range(len(small_codec().target))))
SPECIAL = [PIECES[i] for i in (UNK, BOS, EOS)]
CPU = ["--precision=fp32", "--max-length-offset=8"]
CT2 = ["--engine=ctranslate2", "--max-length-offset=8"]
LINES = some_sentences(25, seed=3)


# Maps of aligned data


def test_a_map_lists_the_pieces_that_are_linked_most_often(tmp_path: Path) -> None:
    """The pieces are ▁words, and ▁s ome, ▁f ew, ▁m ore, ▁f rom and ▁ le arn."""
    pairs = [
        ("some words", "words few", "0-0 1-1"),
        ("some words", "words more", "0-0 1-1"),
        ("some words", "more few", "0-0 1-1"),
        ("learn", "learn", ""),
        ("words", "from", "0-0"),
    ]
    for name, lines in zip(("corpus.en", "corpus.de", "links"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    model = saved(eloquent_checkpoint(0), tmp_path / "model.safetensors")
    corpus = ["--train", tmp_path / "corpus", "--valid", tmp_path / "corpus", "--alignments", tmp_path / "links"]
    run("preprocess", *LANGS, *corpus, "--like", model, "--dest", tmp_path / "data")
    options = ["--per-piece=2", "--always=1", "--output", tmp_path / "map"]
    run("vocabulary-map", tmp_path / "data", *options)
    first, *others = (tmp_path / "map").read_text().splitlines()
    assert first == f"\t{' '.join([*SPECIAL, '▁f', '▁m', '▁'])}"  # the most frequent one, and characters
    entries = dict(line.split("\t") for line in others)
    assert list(entries) == PIECES[EOS + 1 :]
    linked = {"▁s": "▁words ore", "ome": "▁words ore", "▁words": "ew ore"}  # rom has a larger id than ore
    assert entries == {piece: linked.get(piece, piece) for piece in PIECES[EOS + 1 :]}


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(0, 5))
def test_a_map_has_the_counts_of_a_loop_over_all_links(seed: int, per_piece: int, always: int) -> None:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 8, (2, 40))
    used = np.concatenate((random.choice(np.arange(UNK, 260), 3), random.choice(np.arange(260, len(PIECES)), 12)))
    sides = [[random.choice(used, n) for n in side] for side in lengths]
    links = [random.permutation(np.argwhere(random.random((s, t)) < 0.3)).ravel() for s, t in lengths.T]
    split = ParallelSplit(*token_arrays(*sides, links))
    data = cast(DataFolder, SimpleNamespace(path="data", codec=small_codec(), split=lambda _: split))

    ranked = sorted(Counter(np.concatenate(sides[1]).tolist()).items(), key=lambda item: (-item[1], item[0]))
    occurring = [PIECES[i] for i, _ in ranked if i > EOS]
    spelling = [piece for piece in occurring[always:] if len(piece.strip("▁")) < 2 or piece.startswith("<0x")]
    expected = {"": [*SPECIAL, *occurring[:always], *spelling]}
    linked_to = defaultdict[str, Counter[int]](Counter)
    for source, target, numbers in zip(*sides, links, strict=True):
        for i, j in numbers.reshape(-1, 2):
            linked_to[PIECES[source[i]]][int(target[j])] += 1
    for piece in PIECES[EOS + 1 :]:
        linked = linked_to[piece]
        best = [PIECES[i] for i, _ in sorted(linked.items(), key=lambda item: (-item[1], item[0]))] or [piece]
        kept = [candidate for candidate in best if candidate not in expected[""]] if linked else best
        expected[piece] = kept[:per_piece]
    with pytest.MonkeyPatch.context() as patch:  # several parts are counted and summed
        patch.setattr(vocabulary_map, "_SENTENCES_AT_ONCE", 15)
        patch.setattr(vocabulary_map, "_TOKENS_AT_ONCE", 50)
        lines = list(vocabulary_map.vocabulary_map_lines(data, VocabularyMapConfig(per_piece=per_piece, always=always)))
    assert lines == [f"{source}\t{' '.join(target)}\n" for source, target in expected.items()]


def test_pieces_that_the_format_cannot_hold_are_left_out(tmp_path: Path) -> None:
    subword = Subword.train(["a\tb c d", "e\tf g\rh"] * 50, "bpe", 272)
    pieces, ids = subword.pieces(list(range(len(subword)))), np.arange(EOS + 1, len(subword))
    assert {"\t", "\r"} < set(pieces)
    links = np.repeat(np.arange(len(ids)), 2)
    split = ParallelSplit(*token_arrays([ids], [ids], [links]))
    data = cast(DataFolder, SimpleNamespace(codec=TextCodec(TEXT_CONFIG, subword, subword), split=lambda _: split))
    lines = list(vocabulary_map.vocabulary_map_lines(data, VocabularyMapConfig(always=200)))
    (tmp_path / "map").write_text("".join(lines), newline="")
    VocabularyMap.parsed(read_lines(tmp_path / "map"), "map", data.codec)
    assert len(lines) == 1 + len(ids) - 2


def test_data_without_alignments_is_refused(trained: Path, tmp_path: Path) -> None:
    said = failed("vocabulary-map", trained / "data", "--output", tmp_path / "map")
    assert "data has no word alignments" in said and "nmt preprocess --alignments" in said
    assert not list(tmp_path.iterdir())
    meta = trained / "data" / "meta.json"
    assert "meta.json is the same file as the input" in failed("vocabulary-map", trained / "data", "--output", meta)


# Translations


Entries = dict[tuple[str, ...], list[str]]


def some_entries(seed: int) -> Entries:
    """Returns random candidates, of single pieces and of one sequence, by source pieces."""
    random = np.random.default_rng(seed)
    sources = [(), ("▁s", "ome"), *((piece,) for piece in PIECES[EOS + 1 :])]
    return {source: random.choice(PIECES[EOS + 1 :], 6).tolist() for source in sources}


def written(path: Path, entries: Entries) -> Path:
    path.write_text("".join(f"{' '.join(source)}\t{' '.join(target)}\n" for source, target in entries.items()))
    return path


def candidates(entries: Entries, pieces: Sequence[str]) -> set[str]:
    """Returns the candidates of a sentence, by looking for each entry in it."""
    candidate_pieces = {*SPECIAL, *entries[()]}
    text = f" {' '.join(pieces)} "
    for source, target in entries.items():
        if source and f" {' '.join(source)} " in text:
            candidate_pieces.update(target)
    return candidate_pieces


def source_pieces(line: str) -> list[str]:
    (ids,) = small_codec().encode_source([line])
    return small_codec().source.pieces(ids)


def best(model: Path, lines: list[str], *options: str | Path) -> list[dict[str, Any]]:
    return [line["hypotheses"][0] for line in generated(model, lines, *options)]


def test_the_whole_vocabulary_as_candidates_changes_nothing(model: Path, tmp_path: Path) -> None:
    whole = written(tmp_path / "map", {(): PIECES})
    for options in ([], ["--sample", "--seed=4"], ["--beam-groups=2", "--beam=4"], ["--no-repeat-ngram=2"]):
        plain, restricted = (best(model, LINES, *CPU, *options, *m) for m in ([], ["--vocabulary-map", whole]))
        assert [h["pieces"] for h in plain] == [h["pieces"] for h in restricted]
        for ours, theirs in zip(restricted, plain, strict=True):
            assert ours["log_probs"] == pytest.approx(theirs["log_probs"], abs=1e-5)


def translator_with(vocabulary_map: Path, *models: Path) -> Translator:
    return Translator(PyTorchEngine.load(*models, runtime=FP32, vocabulary_map=str(vocabulary_map)))


def biased_checkpoint(seed: int) -> Checkpoint:
    """Returns a model with random weights and a random output bias."""
    checkpoint = eloquent_checkpoint(seed, ending=12)
    weights = checkpoint.weights | {"output_bias": torch.randn(len(PIECES))}
    return replace(checkpoint, model_config=replace(ELOQUENT, output_bias=True), weights=weights)


@pytest.mark.parametrize("seeds", [[3], [3, 8]])
@pytest.mark.parametrize("options", [SearchConfig(beam=3), SearchConfig(sample=True)])
def test_log_p_is_that_among_the_candidates(tmp_path: Path, seeds: list[int], options: SearchConfig) -> None:
    """The reference normalises the logits of a sentence's candidates in float64; an ensemble averages P."""
    paths = [saved(biased_checkpoint(seed), tmp_path / f"{seed}.safetensors") for seed in seeds]
    entries = some_entries(1)
    search = replace(options, max_length_offset=8)
    path = written(tmp_path / "map", entries)
    translations = translator_with(path, *paths).hypotheses(LINES, search)
    models = [model.double() for model in PyTorchEngine.load(*paths, runtime=FP32).models]
    for line, (hypothesis,) in zip(LINES, translations, strict=True):
        pieces = source_pieces(line)
        allowed = sorted(PIECES.index(piece) for piece in candidates(entries, pieces))
        labels = [*map(PIECES.index, hypothesis.pieces), EOS]
        assert set(labels) <= set(allowed)
        sides = torch.tensor([[*map(PIECES.index, pieces), EOS]]), torch.tensor([[BOS, *labels[:-1]]])
        with torch.no_grad():
            probabilities = torch.stack([model(*sides)[0][:, allowed].softmax(-1) for model in models]).mean(0)
        expected = probabilities[range(len(labels)), [allowed.index(label) for label in labels]].log()
        assert hypothesis.log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def test_prefixes_and_constraints_need_not_be_candidates(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "map", {(): ["▁words", "ew"]})
    translator = translator_with(path, model)
    units = [Unit("some words", prefix="learn"), Unit("a few", constraints=("some pieces",)), Unit("to")]
    translations = [h[0] for h in translator.hypotheses(units, SearchConfig(max_length_offset=12))]
    assert translations[0].text.startswith("learn") and "some pieces" in translations[1].text
    assert set(translations[2].pieces) <= {"▁words", "ew", *SPECIAL}
    with pytest.raises(Exception, match="--scorer needs the whole vocabulary"):
        translator.hypotheses(["a"], SearchConfig(scorer="mine"))


@pytest.mark.parametrize("flag, first, second", [
    ("--vocabulary-map", "\t▁words ew\n", "\t▁words ore\n"), ("--glossary", "few\txyz\n", "few\txy\n"),
])  # fmt: skip
def test_a_job_is_resumed_only_with_the_same_file(
    model: Path, tmp_path: Path, flag: str, first: str, second: str
) -> None:
    path = tmp_path / "file"
    path.write_text(first)
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    command = ["generate", model, *CPU, "--device=cpu", "--input", tmp_path / "in", "--shard-lines=4"]
    options = [flag, path, "--output", tmp_path / "out"]
    run(*command, *options, "--shard=1/2")
    path.write_text(second)
    assert flag in failed(*command, *options)
    assert flag in failed(*command, *options[2:])
    path.write_text(first)
    run(*command, *options)
    assert (tmp_path / "out").read_bytes() == run(*command[:-1], *options[:2]).stdout
    assert "is the same file as the input" in failed(*command, *options[:3], path)
    if flag == "--vocabulary-map":
        assert "does not work with --cluster auto; leave" in failed(*command, *options, "--cluster=auto")


# CTranslate2


def test_ctranslate2_has_the_same_candidates(model: Path, tmp_path: Path) -> None:
    entries = some_entries(5)
    path = written(tmp_path / "map", entries)
    options = ["--beam=1", "--vocabulary-map", path]
    together, alone = (best(model, LINES, *CT2, *options, f"--batch-tokens={n}") for n in (4096, 1))
    expected = best(model, LINES, *CPU, *options)
    # Where a translation reaches its maximum length, the engines cut it at different places.
    ended = [i for i, h in enumerate(expected) if len(h["pieces"]) < 8]
    assert len(ended) > 5
    assert [alone[i]["pieces"] for i in ended] == [expected[i]["pieces"] for i in ended]
    candidate_sets = [candidates(entries, source_pieces(line)) for line in LINES]
    assert {piece for h in together for piece in h["pieces"]} <= set().union(*candidate_sets)
    other = best(model, LINES, *CT2, "--beam=1", "--vocabulary-map", written(path, some_entries(6)))
    assert [h["pieces"] for h in other] != [h["pieces"] for h in together]  # the cached export has a map of its own


def test_the_map_is_exported(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "map", {(): ["▁words", "ew"]})
    run("export", "ctranslate2", model, "--vocabulary-map", path, "--output", tmp_path / "model")
    assert (tmp_path / "model" / "vmap.txt").read_bytes() == path.read_bytes()
    run("export", "ctranslate2", model, "--vocabulary-map=-", "--output", tmp_path / "piped", stdin=path.read_bytes())
    assert (tmp_path / "piped" / "vmap.txt").read_bytes() == path.read_bytes()
    exported = ctranslate2.Translator(str(tmp_path / "model"))
    (translation,) = exported.translate_batch([source_pieces("some words")], use_vmap=True, max_decoding_length=20)
    assert set(translation.hypotheses[0]) <= {"▁words", "ew", *SPECIAL}


def test_the_service_has_the_candidates(model: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "map", some_entries(7))
    expected = [h["text"] for h in best(model, LINES, *CPU, "--vocabulary-map", path)]
    with serving(model, "--precision=fp32", "--device=cpu", "--vocabulary-map", path) as server:
        answer = server.translate(LINES, max_length_offset=8, pieces=False)
        assert [translation["text"] for translation in answer["translations"]] == expected
        alternatives = server.post("/alternatives", {"source": "some words", "prefix": "more"}).json["alternatives"]
        assert alternatives[0]["prefix"].startswith("more ")


# Bad files


@pytest.mark.parametrize("content, said", [
    (b"", "map is empty; make it with nmt vocabulary-map"),
    (b"\t\xff\n", "map, line 1: byte 2 (0xff) is not UTF-8"),
    ("\tew\n▁s ew\n".encode(), "map, line 2 has 0 tabs instead of one"),
    ("▁s\tew\tore\n".encode(), "map, line 1 has 2 tabs instead of one"),
    ("▁s\tew ▁fewer\n".encode(), "map, line 1 has the target piece '▁fewer', which the model lacks"),
    ("▁s ▁fewer\t\n".encode(), "map, line 1 has the source piece '▁fewer', which the model lacks"),
    (None, "map"),
])  # fmt: skip
def test_a_bad_file_is_named(model: Path, cache: Path, tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "map"
    if content is not None:
        path.write_bytes(content)
    cached_files = set(cache.glob("*"))
    for options in ([], ["--engine=ctranslate2"]):
        message = failed("generate", model, *options, "--device=cpu", "--vocabulary-map", path, stdin=b"a\n")
        assert said in message and str(tmp_path) in message
    assert str(path) in failed("export", "ctranslate2", model, "--vocabulary-map", path, "--output", tmp_path / "model")
    assert str(path) in failed("serve", model, "--port=0", "--device=cpu", "--vocabulary-map", path)
    assert set(cache.glob("*")) - cached_files <= {cache / ".lock"} and not (tmp_path / "model").exists()
