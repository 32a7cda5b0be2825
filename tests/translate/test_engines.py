"""`--engine ctranslate2` gives what PyTorch gives, and refuses what it cannot do."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from checkpoints import ELOQUENT, eloquent_checkpoint, generated, multilingual_codec, saved, some_sentences
from commands import failed, run
from servers import serving

from nmt.text.subword import BOS, EOS, PAD
from nmt.translate import placed_terms

pytestmark = pytest.mark.usefixtures("cache")
CT2 = ["--engine=ctranslate2", "--device=cpu"]
PYTORCH = ["--precision=fp32", "--device=cpu"]


def hypotheses(model: Path, lines: list[str], *options: str) -> list[list[dict[str, Any]]]:
    return [line["hypotheses"] for line in generated(model, lines, "--max-length-offset=20", *options)]


def test_greedy_translations_are_the_same(model: Path) -> None:
    lines = [*some_sentences(60, seed=3), "", "some words " * 30]
    options = ["--beam=1", "--max-source-length=40", "--alignments"]
    expected, translations = (hypotheses(model, lines, *options, *engine) for engine in (PYTORCH, CT2))
    # Where a translation reaches its maximum length, the engines cut it at different places.
    ended = [line for line, (h,) in enumerate(translations) if len(h["pieces"]) < 20]
    assert len({expected[line][0]["text"] for line in ended}) > 20
    for (ours,), (theirs,) in ((translations[line], expected[line]) for line in ended):
        assert (ours["text"], ours["pieces"]) == (theirs["text"], theirs["pieces"])
        for name in ("score", "log_prob", "log_probs"):
            assert ours[name] == pytest.approx(theirs[name], abs=1e-3)
    linked = [translations[line][0]["alignment"] == expected[line][0]["alignment"] for line in ended]
    assert sum(linked) > 0.9 * len(linked)  # two words may get almost the same attention


def test_the_token_of_the_target_language_is_no_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that would end each translation at once gives one piece, and its score has the length of one piece."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config = replace(ELOQUENT, output_bias=True)
    checkpoint = eloquent_checkpoint(5, codec=multilingual_codec("both_sides"), config=config)
    checkpoint.weights["output_bias"][EOS] = 30
    path, lines = saved(checkpoint, tmp_path / "model.safetensors"), some_sentences(20, seed=4)
    options = ["--source-lang=en", "--target-lang=de", "--beam=2"]
    expected, translations = (hypotheses(path, lines, *options, *engine) for engine in (PYTORCH, CT2))
    for (ours,), (theirs,) in zip(translations, expected, strict=True):
        assert len(ours["pieces"]) == 1
        assert (ours["text"], ours["pieces"]) == (theirs["text"], theirs["pieces"])
        assert ours["score"] == pytest.approx(theirs["score"], abs=1e-3)


def test_terms_take_the_same_places(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms without a place, which PyTorch searches for, are missing with CTranslate2. Here, both place as many."""
    monkeypatch.setattr(placed_terms, "_LEAST_FALL", placed_terms._LEAST_FALL_WITHOUT_SEARCH)
    (tmp_path / "terms").write_text("some\txyz\nlearn\tuvw um\n")
    lines = some_sentences(80, seed=4)
    options = ["--beam=1", "--max-length-offset=12", "--alignments"]
    free = zip(*(hypotheses(model, lines, *options, *engine) for engine in (PYTORCH, CT2)), strict=True)
    lines = [line for line, ((own,), (other,)) in zip(lines, free, strict=True) if own["text"] == other["text"]]
    options += ["--glossary", str(tmp_path / "terms"), "--glossary-mode=strict"]
    expected, translations = (hypotheses(model, lines, *options, *engine) for engine in (PYTORCH, CT2))
    placed = [pair for pair in zip(expected, translations, strict=True) if not pair[1][0].get("unmet")]
    pairs_with_terms = [pair for pair in placed if "xyz" in pair[1][0]["text"] or "uvw" in pair[1][0]["text"]]
    assert len(pairs_with_terms) > 5
    for (own,), (other,) in placed:
        assert own["text"] == other["text"]
        assert own["log_prob"] == pytest.approx(other["log_prob"], abs=1e-3)
        assert len(set(own["alignment"].split())) == len(own["alignment"].split())


def test_no_translation_has_bos_or_padding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the most probable pieces."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checkpoint = eloquent_checkpoint(3, ending=12)
    bias = torch.zeros(len(checkpoint.codec.target))
    bias[[BOS, PAD]] = 50
    config, weights = replace(ELOQUENT, output_bias=True), checkpoint.weights | {"output_bias": bias}
    model = saved(replace(checkpoint, model_config=config, weights=weights), tmp_path / "model.safetensors")
    lines = some_sentences(5, seed=6)
    outputs = [[h["pieces"] for (h,) in hypotheses(model, lines, "--beam=1", *engine)] for engine in (PYTORCH, CT2)]
    sources = [checkpoint.codec.source.pieces(ids) for ids in checkpoint.codec.encode_source(lines)]
    for quantization in ("float32", "int8"):
        run("export", "ctranslate2", model, "--quantization", quantization, "--output", tmp_path / quantization)
        exported = ctranslate2.Translator(str(tmp_path / quantization))
        translations = exported.translate_batch(sources, beam_size=1, max_decoding_length=20)
        outputs.append([translation.hypotheses[0] for translation in translations])
    for sentences in outputs:
        assert any(sentences) and not set().union(*sentences) & set(checkpoint.codec.target.pieces([BOS, PAD]))


def test_beams_are_ranked_by_the_same_scores(model: Path) -> None:
    lines = some_sentences(10, seed=4)
    n_best_lists = hypotheses(model, lines, "--n-best=3", *CT2)
    assert all(n_best == sorted(n_best, key=lambda h: -h["score"]) for n_best in n_best_lists)
    translations = [h for n_best in n_best_lists for h in n_best]
    assert all(
        h["score"] == pytest.approx(h["log_prob"] / ((5 + len(h["log_probs"])) / 6) ** 0.6) for h in translations
    )
    best = [h["text"] for (h,) in hypotheses(model, lines, *CT2)]
    ended = [line for line, n_best in enumerate(n_best_lists) if all(len(h["pieces"]) < 20 for h in n_best)]
    # A list may have an empty translation, but a single translation is never empty.
    listed = [next(h["text"] for h in n_best if h["pieces"]) for n_best in n_best_lists]
    assert ended and all(best[line] == listed[line] for line in ended)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_the_batch_of_a_line_does_not_matter(model: Path, alpha: float) -> None:
    options = [f"--alpha={alpha}", "--n-best=4", "--max-length-offset=2", *CT2]
    together, alone = (
        hypotheses(model, some_sentences(12, seed=9), *options, f"--batch-tokens={tokens}") for tokens in (4096, 1)
    )
    assert [[h["pieces"] for h in line] for line in together] == [[h["pieces"] for h in line] for line in alone]


def test_prefixes_are_kept(model: Path, tmp_path: Path) -> None:
    (tmp_path / "prefixes").write_text("more  pieces\n\n")
    lines = some_sentences(2, seed=5)
    first, second = hypotheses(model, lines, f"--prefixes={tmp_path / 'prefixes'}", *CT2)
    assert first[0]["text"].startswith("more  pieces")
    (plain,) = hypotheses(model, lines, *CT2)[1]
    assert second[0]["text"] == plain["text"]
    assert second[0]["log_probs"] == pytest.approx(plain["log_probs"], abs=1e-5)


def test_translations_with_a_prefix_are_ranked_by_their_whole_score(model: Path, tmp_path: Path) -> None:
    lines = some_sentences(20, seed=5)
    (tmp_path / "prefixes").write_text("more pieces\n" * len(lines))
    options = [f"--prefixes={tmp_path / 'prefixes'}", *CT2]
    four = hypotheses(model, lines, "--n-best=4", *options)
    scores = [[h["score"] for h in n_best] for n_best in four]
    assert scores == [sorted(n_best, reverse=True) for n_best in scores]
    assert [n_best[0]["text"] for n_best in four] == [h["text"] for (h,) in hypotheses(model, lines, *options)]


def test_lengths_beyond_what_the_model_can_write_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checkpoint = eloquent_checkpoint(1)
    positions = {f"{side}_positions.table": torch.zeros(32, ELOQUENT.d_model) for side in ("source", "target")}
    config, weights = replace(ELOQUENT, learned_positions=32), checkpoint.weights | positions
    few = saved(replace(checkpoint, model_config=config, weights=weights), tmp_path / "few.safetensors")
    for options in (["--max-length-offset=50", "--min-length=50"], ["--min-length=100", "--max-length-offset=1"]):
        (line,) = generated(few, ["a b"], *CT2, *options)
        assert 10 < len(line["hypotheses"][0]["pieces"]) < 32


def test_a_model_is_exported_once_and_in_int8_once_more(model: Path, cache: Path, tmp_path: Path) -> None:
    """CTranslate2 could convert the weights to int8 itself, but its products would then overflow on some CPUs."""
    generated(model, ["a"], *CT2)
    (folder,) = (path for path in cache.iterdir() if path.is_dir())
    written = (folder / "model.bin").stat().st_mtime_ns
    generated(model, ["a"], *CT2, "--compute-type=float32")
    assert (folder / "model.bin").stat().st_mtime_ns == written
    generated(model, ["a"], *CT2, "--compute-type=int8")
    (in_int8,) = (path for path in cache.iterdir() if path.is_dir() and path != folder)
    assert (in_int8 / "model.bin").stat().st_size < 0.9 * (folder / "model.bin").stat().st_size
    generated(saved(eloquent_checkpoint(1), tmp_path / "other.safetensors"), ["a"], *CT2)
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 3


@pytest.mark.parametrize("options, said", [
    (["--sample"], "does not support --sample; use --engine pytorch"),
    (["--beam-groups=2"], "does not support --beam-groups"),
    (["--precision=fp32"], "--precision is fp32, but --engine is ctranslate2; use --compute-type"),
    (["--input-format=jsonl"], "does not support constraints"),
])  # fmt: skip
def test_what_ctranslate2_lacks_is_refused(model: Path, options: list[str], said: str) -> None:
    stdin = json.dumps({"source": "a", "constraints": ["b"]}).encode()
    assert said in failed("generate", model, *CT2, *options, stdin=stdin)


def test_other_commands_that_need_another_engine_are_refused(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--engine ctranslate2 has no ensembles, but there are 2" in failed("generate", model, model, *CT2)
    assert "--compute-type int8 needs --engine ctranslate2" in failed("generate", model, "--compute-type=int8")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    said = failed("generate", model, *CT2)
    assert "--engine ctranslate2 needs the package ctranslate2" in said and "pip install '.[ctranslate2]'" in said


def test_a_damaged_exported_model_is_named(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    generated(model, ["a"], *CT2)
    (file,) = tmp_path.rglob("model.bin")
    file.write_bytes(file.read_bytes()[:1000])
    assert f"CTranslate2 cannot load {file.parent}" in failed("generate", model, *CT2)


def test_without_a_home_folder_the_way_out_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)
    assert "set XDG_CACHE_HOME to a folder that can be written" in failed("generate", model, *CT2)


def test_the_service_translates_with_it(model: Path) -> None:
    lines = some_sentences(20, seed=6)
    with serving(model, *CT2) as server:
        answer = server.translate(lines, max_length_offset=20, pieces=False)
        expected = [alternatives[0]["text"] for alternatives in hypotheses(model, lines, *CT2)]
        assert [translation["text"] for translation in answer["translations"]] == expected
        (scored,) = server.post("/score", {"pairs": [{"source": "some words", "target": "a few"}]}).json["scores"]
        rescored = run("rescore", model, *PYTORCH, stdin=b"some words\ta few").stdout
        assert scored["log_prob"] == pytest.approx(float(rescored), abs=1e-3)
        alternatives = server.post("/alternatives", {"source": "some words", "prefix": "more"}).json["alternatives"]
        assert alternatives[0]["prefix"].startswith("more ")
        said = server.refused("/translate", {"source": "a", "constraints": ["b"]})
        assert said == "--engine ctranslate2 does not support constraints; use --engine pytorch"
        assert "attention weights need" in server.refused("/attention", {"source": "a", "target": "b"})


@pytest.mark.parametrize("options, is_copied", [
    ([], True), (["--no-protect"], False), (["--no-protect", "--keep", r"https:\S+"], True),
])  # fmt: skip
def test_words_that_stay_are_left_to_the_model_on_request(trained: Path, options: list[str], is_copied: bool) -> None:
    done = run("generate", trained / "run" / "average.safetensors", *options, stdin=b"https://example.org/a?b=1 now\n")
    assert (b"https://example.org/a?b=1" in done.stdout) == is_copied


def test_lines_without_letters_are_left_to_the_model_on_request(trained: Path) -> None:
    arguments = ["generate", trained / "run" / "average.safetensors", "--output-format", "jsonl"]
    for options, is_left in (([], False), (["--no-protect"], True), (["--no-protect", "--keep", r"[\d.%]+"], False)):
        (line,) = run(*arguments, *options, stdin=b"3.14 %\n").stdout.splitlines()
        assert bool(json.loads(line)["hypotheses"][0]["pieces"]) == is_left
