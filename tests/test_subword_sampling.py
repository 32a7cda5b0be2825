"""BPE-dropout and unigram sampling: the distribution of segmentations, stored encodings, and their use in epochs."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from commands import assert_resumes, failed, run, train
from conftest import invented_pairs
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.batching import make_plan
from nmt.data.loader import make_update
from nmt.data.store import DataFolder
from nmt.text.segmentation import BpeDropout, UnigramSampling
from nmt.text.subword import Subword

LANGS = ["--source-lang=en", "--target-lang=de"]
LINES = [line for pair in invented_pairs(400) for line in pair]
BPE, UNIGRAM = Subword.train(LINES, "bpe", 500), Subword.train(LINES, "unigram", 500)
DRAWS = 100_000


def dropout_distribution(pieces: tuple[str, ...], scores: dict[str, float], p: float) -> dict[tuple[str, ...], float]:
    """Enumerates algorithm 1 of Provilkov et al. 2020: all subsets of the possible merges may be left out."""
    merges = [(scores[a + b], -i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in scores]
    found: dict[tuple[str, ...], float] = {}
    for subset in range(2 ** len(merges)):
        kept = [merge for i, merge in enumerate(merges) if subset >> i & 1]
        probability = (1 - p) ** len(kept) * p ** (len(merges) - len(kept))
        if kept:
            place = -max(kept)[1]
            merged = (*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :])
            for result, rest in dropout_distribution(merged, scores, p).items():
                found[result] = found.get(result, 0.0) + probability * rest
        else:
            found[pieces] = found.get(pieces, 0.0) + probability
    return found


def segmentations(word: str, pieces: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """Yields all ways to cut a word into pieces."""
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        if word[:end] in pieces:
            yield from ((word[:end], *rest) for rest in segmentations(word[end:], pieces))


def total_variation(expected: dict[tuple[str, ...], float], found: Counter[tuple[str, ...]]) -> float:
    assert found.keys() <= expected.keys()
    assert sum(expected.values()) == pytest.approx(1)
    return sum(abs(probability - found[key] / DRAWS) for key, probability in expected.items()) / 2


@pytest.mark.parametrize("word, p", [("▁lomu", 0.1), ("▁deki", 0.5), ("▁kiva", 0.3)])
def test_bpe_dropout_has_the_distribution_of_the_paper(word: str, p: float) -> None:
    sampler, random = BpeDropout(BPE._processor), Random(0)
    expected = dropout_distribution(tuple(word), sampler.scores, p)
    assert len(expected) > 3
    found = Counter(tuple(sampler.sample_word(word, p, random)) for _ in range(DRAWS))
    assert total_variation(expected, found) <= 0.01


@pytest.mark.parametrize("word, alpha", [("▁lomu", 0.2), ("▁tusi", 1.0), ("▁baba", 0.5)])
def test_unigram_sampling_has_the_distribution_of_the_paper(word: str, alpha: float) -> None:
    sampler, random = UnigramSampling(UNIGRAM._processor), Random(0)
    expected = {
        pieces: math.exp(alpha * sum(sampler.scores[piece] for piece in pieces))
        for pieces in segmentations(word, sampler.scores)
    }
    total = sum(expected.values())
    assert len(expected) > 3
    found = Counter(tuple(sampler.sample_word(word, alpha, random)) for _ in range(DRAWS))
    assert total_variation({pieces: p / total for pieces, p in expected.items()}, found) <= 0.01


lines = st.lists(st.text(st.sampled_from("abdekilmoä ß☃漢\t."), max_size=30), max_size=5)


@given(lines, st.integers(0, 2**64 - 1))
def test_any_sampled_encoding_spells_the_text_of_the_plain_one(text: list[str], seed: int) -> None:
    for model, strength in ((BPE, 0.0), (BPE, 0.4), (UNIGRAM, 0.1)):
        sampled = model.sample(text, strength, [seed] * len(text))
        assert model.decode(sampled) == model.decode(model.encode(text))
        if not strength:
            assert sampled == model.encode(text)


def test_ten_thousand_sampled_lines_spell_their_text() -> None:
    text = [line for seed in range(13) for line in LINES[seed::1]][:10_000]
    for model, strength in ((BPE, 0.1), (UNIGRAM, 0.2)):
        sampled = model.sample(text, strength, range(len(text)))
        assert model.decode(sampled) == model.decode(model.encode(text))
        plain = model.encode(text)
        assert sum(a != b for a, b in zip(sampled, plain, strict=True)) / len(text) > 0.2


def preprocess(corpus: dict[str, str], dest: Path, *options: str) -> DataFolder:
    texts = [f"--train={corpus['train']}", f"--valid={corpus['valid']}"]
    run("preprocess", *LANGS, *texts, f"--dest={dest}", "--vocab-size=330", *options)
    return DataFolder.open(dest)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "meta.json"}


def test_without_dropout_the_data_is_the_same_to_the_byte(tiny_corpus: dict[str, str], tmp_path: Path) -> None:
    preprocess(tiny_corpus, tmp_path / "plain")
    preprocess(tiny_corpus, tmp_path / "zero", "--subword-dropout=0", "--encodings=5")
    assert content(tmp_path / "plain") == content(tmp_path / "zero")


@pytest.mark.parametrize("sides", ["both", "source", "target"])
def test_each_sentence_has_its_encodings_and_only_in_training(
    tiny_corpus: dict[str, str], tmp_path: Path, sides: str
) -> None:
    options = ["--subword-dropout=0.2", "--encodings=3", f"--sampled-side={sides}"]
    data = preprocess(tiny_corpus, tmp_path / "data", *options)
    for split, side, lang in (
        (data.split("train"), "source", "en"),
        (data.split("train"), "target", "de"),
        (data.split("valid"), "source", "en"),
    ):
        name = "train" if split is data.split("train") else "valid"
        text = Path(f"{tiny_corpus[name]}.{lang}").read_text().splitlines()
        encode = data.codec.encode_source if side == "source" else data.codec.encode_target
        plain = encode(text)
        epochs = [getattr(split.in_epoch(1, epoch), side) for epoch in range(3)]
        found = [[epoch[i].tolist() for epoch in epochs] for i in range(len(text))]
        if name == "train" and sides in ("both", side):
            assert any(len(set(map(tuple, of_line))) == 3 for of_line in found)
            decoded = data.codec.source.decode([ids for of_line in found for ids in of_line])
            assert decoded == [line for ids in plain for line in data.codec.source.decode([ids]) * 3]
        else:
            assert found == [[ids] * 3 for ids in plain]


def test_the_encodings_do_not_depend_on_the_workers_or_on_chunks(
    tiny_corpus: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--subword-dropout=0.2", "--encodings=3"]
    preprocess(tiny_corpus, tmp_path / "whole", *options, "--workers=1")
    monkeypatch.setattr("nmt.data.corpora.CHUNK_PAIRS", 70)
    monkeypatch.setattr("nmt.data.preprocess.useful_workers", lambda workers, _: workers)
    preprocess(tiny_corpus, tmp_path / "parts", *options, "--workers=2")
    assert content(tmp_path / "whole") == content(tmp_path / "parts")
    preprocess(tiny_corpus, tmp_path / "other", *options, "--seed=2")
    assert content(tmp_path / "whole")["train.en.tokens"] != content(tmp_path / "other")["train.en.tokens"]


def test_an_encoding_that_is_too_long_is_replaced_by_the_plain_one(tiny_corpus: dict[str, str], tmp_path: Path) -> None:
    plain = preprocess(tiny_corpus, tmp_path / "plain", "--max-length=40")
    data = preprocess(tiny_corpus, tmp_path / "data", "--max-length=40", "--subword-dropout=0.9", "--encodings=2")
    assert len(data.split("train")) == len(plain.split("train"))
    source = data.split("train").in_epoch(1, 0).source
    assert max(len(source[i]) for i in range(len(source))) <= 40
    assert data.split("train").source.longest <= 41
    assert any(len(source[i]) > len(plain.split("train").source[i]) for i in range(len(source)))


def test_every_epoch_has_each_sentence_once_with_the_lengths_of_its_encoding(
    tiny_corpus: dict[str, str], tmp_path: Path
) -> None:
    data = preprocess(tiny_corpus, tmp_path / "data", "--subword-dropout=0.2", "--encodings=4")
    used: list[list[bytes]] = [[] for _ in range(300)]
    for epoch in range(8):
        split = data.split("train").in_epoch(7, epoch)
        lengths = split.source.lengths, split.target.lengths
        assert lengths[0].total == sum(len(split.source[i]) + 1 for i in range(300))
        plan = make_plan(*lengths, batch_tokens=3000, groups=2, seed=7, epoch=epoch)
        seen: list[int] = []
        for index in range(len(plan)):
            update = make_update(split, plan, index, 700, 0, 1, packs=False)
            tokens = [batch.source_tokens for batch in update.batches]
            assert sum(tokens) == update.source_tokens == plan.tokens(index)[0]
            assert update.source_tokens <= 1.3 * 3000
            assert all(len(batch.source.ids_F) <= 700 + 128 for batch in update.batches)
            seen += [int(i) for batch in update.batches for block in batch.sentences for i in block]
        assert sorted(seen) == list(range(300))
        for i in range(300):
            used[i].append(split.source[i].tobytes() + b"|" + bytes(str(split.source.rows(np.array([i]))), "ascii"))
    assert all(Counter(of_sentence).most_common(1)[0][1] == 2 for of_sentence in used)
    combinations = set()
    for epoch in range(16):
        split = data.split("train").in_epoch(7, epoch)
        combinations.add((int(split.source.rows(np.array([5]))[0]), int(split.target.rows(np.array([5]))[0])))
    assert len(combinations) == 16


def test_training_on_sampled_encodings_resumes_to_the_last_bit(tiny_corpus: dict[str, str], tmp_path: Path) -> None:
    preprocess(tiny_corpus, tmp_path / "data", "--subword-dropout=0.1", "--encodings=3")

    def train_until(folder: Path, update: int) -> None:
        train(tmp_path / "data", folder, f"--max-updates={update}", "--valid-metric=nll")

    assert_resumes(train_until, tmp_path, [7, 23, 40])


@pytest.mark.parametrize("options, message", [
    (["--subword=unigram", "--subword-dropout=0.1"], "--subword-dropout samples a bpe model, but the subword model is"),
    (["--subword-alpha=0.1"], "--subword-alpha samples a unigram model, but the subword model is bpe; leave it out"),
    (["--subword=wordpiece", "--subword-alpha=0.1"], "--subword-alpha samples a unigram model, but the subword"),
    (["--subword-alpha=1", "--subword-dropout=0.1"], "--subword-dropout is for bpe and --subword-alpha for unigram"),
    (["--alignments=a", "--subword-dropout=0.1"], "--alignments link the pieces of one segmentation; leave out"),
    (["--symbols=a", "--subword-dropout=0.1"], "--symbols are not to be cut; leave out --subword-dropout"),
])  # fmt: skip
def test_what_cannot_be_sampled_is_refused(
    tiny_corpus: dict[str, str], tmp_path: Path, options: list[str], message: str
) -> None:
    texts = [f"--train={tiny_corpus['train']}", f"--valid={tiny_corpus['valid']}", "--vocab-size=330"]
    assert message in failed("preprocess", *LANGS, *texts, f"--dest={tmp_path}/data", *options)
