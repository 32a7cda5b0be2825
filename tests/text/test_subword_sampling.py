"""BPE-dropout and unigram sampling: the distribution of segmentations, stored encodings, and their use in epochs."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from commands import LANGS, failed, run
from conftest import invented_pairs, write_pairs
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.batching import make_plan
from nmt.data.folder import DataFolder
from nmt.data.loader import make_update
from nmt.text.subword import Segmentations, Subword

LINES = [line for pair in invented_pairs(400) for line in pair]
DRAWS = 20_000


@cache
def model(kind: str) -> Subword:
    return Subword.train(LINES, kind, 500)


def dropout_distribution(pieces: tuple[str, ...], scores: dict[str, float], p: float) -> dict[tuple[str, ...], float]:
    """Enumerates algorithm 1 of Provilkov et al. 2020: all subsets of the possible merges may be left out."""
    merges = [(scores[a + b], -i) for i, (a, b) in enumerate(pairwise(pieces)) if a + b in scores]
    distribution: dict[tuple[str, ...], float] = {}
    for subset in range(2 ** len(merges)):
        kept = [merge for i, merge in enumerate(merges) if subset >> i & 1]
        probability = (1 - p) ** len(kept) * p ** (len(merges) - len(kept))
        if kept:
            place = -max(kept)[1]
            merged = (*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :])
            for segmentation, rest in dropout_distribution(merged, scores, p).items():
                distribution[segmentation] = distribution.get(segmentation, 0.0) + probability * rest
        else:
            distribution[pieces] = distribution.get(pieces, 0.0) + probability
    return distribution


def segmentations(word: str, pieces: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """Yields all ways to cut a word into pieces."""
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        if word[:end] in pieces:
            yield from ((word[:end], *rest) for rest in segmentations(word[end:], pieces))


Draw = Callable[[str, float, Random], list[str]]


def assert_draws(draw: Draw, word: str, strength: float, expected: dict[tuple[str, ...], float]) -> None:
    """Checks that the segmentations of a word are drawn with the expected probabilities."""
    random = Random(0)
    counts = Counter(tuple(draw(word, strength, random)) for _ in range(DRAWS))
    assert len(expected) > 3
    assert sum(expected.values()) == pytest.approx(1)
    assert counts.keys() <= expected.keys()
    assert sum(abs(probability - counts[key] / DRAWS) for key, probability in expected.items()) / 2 <= 0.01


@pytest.mark.parametrize("word, p", [("▁lomu", 0.1), ("▁deki", 0.5), ("▁kiva", 0.3)])
def test_bpe_dropout_has_the_distribution_of_the_paper(word: str, p: float) -> None:
    words = Segmentations(model("bpe")._processor)
    assert_draws(words.with_dropout, word, p, dropout_distribution(tuple(word), words.scores, p))


@pytest.mark.parametrize("word, alpha", [("▁lomu", 0.2), ("▁tusi", 1.0), ("▁baba", 0.5)])
def test_unigram_sampling_has_the_distribution_of_the_paper(word: str, alpha: float) -> None:
    words = Segmentations(model("unigram")._processor)
    weights = {
        pieces: math.exp(alpha * sum(words.scores[piece] for piece in pieces))
        for pieces in segmentations(word, words.scores)
    }
    total = sum(weights.values())
    assert_draws(words.by_probability, word, alpha, {pieces: weight / total for pieces, weight in weights.items()})


lines = st.lists(st.text(st.sampled_from("abdekilmoä ß☃漢\t."), max_size=30), max_size=5)


@given(lines, st.integers(0, 2**64 - 1))
def test_any_sampled_encoding_spells_the_text_of_the_plain_one(text: list[str], seed: int) -> None:
    for kind, strength in (("bpe", 0.0), ("bpe", 0.4), ("unigram", 0.1)):
        sampled = model(kind).sample(text, strength, [seed] * len(text))
        assert model(kind).decode(sampled) == model(kind).decode(model(kind).encode(text))
        if not strength:
            assert sampled == model(kind).encode(text)


def preprocess(corpus: Path, dest: Path, *options: str) -> DataFolder:
    texts = [f"--train={corpus}/train", f"--valid={corpus}/valid"]
    run("preprocess", *LANGS, *texts, f"--dest={dest}", "--vocab-size=330", *options)
    return DataFolder.open(dest)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with train.en, train.de, valid.en, valid.de, plain/ and sampled/."""
    folder = tmp_path_factory.mktemp("corpus")
    write_pairs(folder / "train", invented_pairs(300))
    write_pairs(folder / "valid", invented_pairs(20, seed=1))
    preprocess(folder, folder / "plain")
    preprocess(folder, folder / "sampled", "--subword-dropout=0.2", "--encodings=3")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "meta.json"}


def test_without_dropout_the_data_is_the_same_to_the_byte(corpus: Path, tmp_path: Path) -> None:
    preprocess(corpus, tmp_path / "zero", "--subword-dropout=0")
    assert content(corpus / "plain") == content(tmp_path / "zero")


@pytest.mark.parametrize("sides, options", [
    ("both", ["--subword=unigram", "--subword-alpha=0.2"]),
    ("source", ["--subword-dropout=0.2"]),
    ("target", ["--subword-dropout=0.2"]),
])  # fmt: skip
def test_each_training_sentence_has_its_encodings(corpus: Path, tmp_path: Path, sides: str, options: list[str]) -> None:
    data = preprocess(corpus, tmp_path / "data", *options, "--encodings=3", f"--sampled-side={sides}")
    for name, side, lang in (("train", "source", "en"), ("train", "target", "de"), ("valid", "source", "en")):
        text = (corpus / f"{name}.{lang}").read_text().splitlines()
        plain = getattr(data.codec, f"encode_{side}")(text)
        epochs = [getattr(data.split(name).in_epoch(1, epoch), side) for epoch in range(3)]
        encodings = [[epoch[i].tolist() for epoch in epochs] for i in range(len(text))]
        if name == "train" and sides in ("both", side):
            assert any(len(set(map(tuple, line_encodings))) == 3 for line_encodings in encodings)
            decoded = data.codec.source.decode([ids for line_encodings in encodings for ids in line_encodings])
            assert decoded == [line for ids in plain for line in data.codec.source.decode([ids]) * 3]
        else:
            assert encodings == [[ids] * 3 for ids in plain]


def test_encodings_depend_on_seed_not_on_chunks(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--subword-dropout=0.2", "--encodings=3"]
    preprocess(corpus, tmp_path / "other", *options, "--seed=2")
    assert content(corpus / "sampled")["train.en.tokens"] != content(tmp_path / "other")["train.en.tokens"]
    monkeypatch.setattr("nmt.data.raw_pairs.CHUNK_PAIRS", 70)
    preprocess(corpus, tmp_path / "parts", *options)
    assert content(corpus / "sampled") == content(tmp_path / "parts")


def test_an_encoding_that_is_too_long_is_replaced_by_the_plain_one(corpus: Path, tmp_path: Path) -> None:
    plain = preprocess(corpus, tmp_path / "plain", "--max-length=40").split("train")
    sampled = preprocess(corpus, tmp_path / "data", "--max-length=40", "--subword-dropout=0.9", "--encodings=2")
    split = sampled.split("train")
    assert len(split) == len(plain)
    source = split.in_epoch(1, 0).source
    assert max(len(source[i]) for i in range(len(source))) <= 40
    assert split.source.longest <= 41
    assert any(len(source[i]) > len(plain.source[i]) for i in range(len(source)))


def test_every_epoch_has_each_sentence_once_with_the_lengths_of_its_encoding(corpus: Path, tmp_path: Path) -> None:
    data = preprocess(corpus, tmp_path / "data", "--subword-dropout=0.2", "--encodings=4")
    rows = []
    for epoch in range(8):
        split = data.split("train").in_epoch(7, epoch)
        lengths = split.source.lengths, split.target.lengths
        assert lengths[0].total == sum(len(split.source[i]) + 1 for i in range(300))
        plan = make_plan(lengths, batch_tokens=3000, groups=2, seed=7, epoch=epoch)
        seen: list[int] = []
        for index in range(len(plan)):
            update = make_update(split, plan, index, 700, 0, 1, packs=False)
            tokens = [batch.source_tokens for batch in update.batches]
            assert sum(tokens) == update.source_tokens == plan.tokens(index)[0]
            assert update.source_tokens <= 1.3 * 3000
            assert all(len(batch.source.ids_F) <= 700 + 128 for batch in update.batches)
            seen += [int(i) for batch in update.batches for block in batch.sentences for i in block]
        assert sorted(seen) == list(range(300))
        rows.append(split.source.encodings_of(np.arange(300)))
    # In eight epochs, each of the four encodings is used twice. In sixteen, the sides have all combinations.
    assert all(
        list(Counter(sentence_encodings).values()) == [2, 2, 2, 2] for sentence_encodings in np.array(rows).T.tolist()
    )
    splits = [data.split("train").in_epoch(7, epoch) for epoch in range(16)]
    assert len({(*s.source.encodings_of(np.array([5])), *s.target.encodings_of(np.array([5]))) for s in splits}) == 16


@pytest.mark.parametrize("options, message", [
    (["--subword=unigram", "--subword-dropout=0.1"], "--subword-dropout samples a bpe model, but the subword model is"),
    (["--subword-alpha=0.1"], "--subword-alpha samples a unigram model, but the subword model is bpe; leave it out"),
    (["--subword-alpha=1", "--subword-dropout=0.1"], "--subword-alpha samples a unigram model, but the subword"),
    (["--alignments=a", "--subword-dropout=0.1"], "--alignments a does not work with --subword-dropout 0.1; leave out"),
    (["--symbols=a", "--subword-dropout=0.1"], "--symbols a does not work with --subword-dropout 0.1; leave"),
])  # fmt: skip
def test_what_cannot_be_sampled_is_refused(corpus: Path, tmp_path: Path, options: list[str], message: str) -> None:
    texts = [f"--train={corpus}/train", f"--valid={corpus}/valid", "--vocab-size=330"]
    assert message in failed("preprocess", *LANGS, *texts, f"--dest={tmp_path}/data", *options)
