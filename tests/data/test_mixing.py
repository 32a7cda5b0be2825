"""Mixing corpora: the shares of an epoch follow weights and temperature, and no data is copied."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import LANGS, assert_resumes, run, train
from conftest import invented_pairs, write_pairs
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.arrays import MixedOrder, Mixture
from nmt.data.batching import make_plan
from nmt.data.folder import DataFolder
from nmt.data.loader import make_update


@given(
    corpora=st.lists(st.tuples(st.integers(1, 40), st.floats(0.01, 20)), min_size=1, max_size=4),
    temperature=st.floats(1, 10),
    seed=st.integers(0, 2**31 - 1),
    first=st.integers(0, 1000),
)
def test_shares_are_exact_and_even(corpora: list[tuple[int, float]], temperature: float, seed: int, first: int) -> None:
    sizes, weights = zip(*corpora, strict=True)
    mixture = Mixture.of(sizes, weights, temperature)
    begins = np.cumsum([0, *sizes])
    total, visited = 0, Counter[int]()
    for epoch in range(first, first + 10):
        order = MixedOrder(mixture, seed, epoch)
        pairs, _ = order.visits(np.arange(len(order)))
        assert len(order) == len(pairs)
        total += len(pairs)
        visited.update(pairs.tolist())
    assert abs(total - 10 * sum(sizes)) <= len(sizes)
    wanted = [(w * n) ** (1 / temperature) for n, w in corpora]
    for corpus, share in enumerate(wanted):
        counts = [visited[pair] for pair in range(begins[corpus], begins[corpus + 1])]
        assert max(counts) - min(counts) <= 1
        assert abs(sum(counts) - 10 * sum(sizes) * share / sum(wanted)) <= 1.01


@given(st.lists(st.integers(1, 30), min_size=1, max_size=3), st.integers(0, 5))
def test_earlier_visits_are_counted(sizes: list[int], seed: int) -> None:
    mixture = Mixture.of(sizes, [1.0 + 3 * i for i in range(len(sizes))], 1.0)
    seen = Counter[int]()
    for epoch in range(6):
        order = MixedOrder(mixture, seed, epoch)
        pairs, earlier = order.visits(np.arange(len(order)))
        for pair, count in zip(pairs.tolist(), earlier.tolist(), strict=True):
            assert seen[pair] == count
            seen[pair] += 1


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with corpora of 200 and 40 pairs, which have no pair in common, and a validation corpus."""
    folder, pairs = tmp_path_factory.mktemp("mixing"), list(dict.fromkeys(invented_pairs(260)))
    for name, part in {"large": pairs[:200], "small": pairs[200:240], "valid": pairs[:10]}.items():
        write_pairs(folder / name, part)
    return folder


def preprocess(corpora: Path, dest: Path, *options: str) -> DataFolder:
    texts = [f"--train={corpora}/large", f"--train={corpora}/small", f"--valid={corpora}/valid", "--vocab-size=330"]
    run("preprocess", *LANGS, *texts, f"--dest={dest}", *options)
    return DataFolder.open(dest)


@pytest.mark.parametrize("options, share", [
    (["--weight=1", "--weight=5"], 0.5),
    (["--weight=1", "--weight=0.5"], 20 / 220),
    (["--temperature=2"], 40**0.5 / (40**0.5 + 200**0.5)),
    (["--weight=1", "--weight=5", "--temperature=3"], 0.5),
])  # fmt: skip
def test_each_corpus_has_its_share_of_updates(corpora: Path, tmp_path: Path, options: list[str], share: float) -> None:
    data = preprocess(corpora, tmp_path / "data", *options)
    base = data.split("train")
    assert len(base) == 240
    texts = [(corpora / f"small.{lang}").read_text().splitlines() for lang in ("en", "de")]
    encoded = data.codec.encode_source(texts[0]), data.codec.encode_target(texts[1])
    small = {(tuple(source), tuple(target)) for source, target in zip(*encoded, strict=True)}
    seen: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for epoch in range(10):
        split = base.in_epoch(3, epoch)
        plan = make_plan((split.source.lengths, split.target.lengths), batch_tokens=900, groups=2, seed=3, epoch=epoch)
        assert plan.totals == tuple(map(sum, zip(*map(plan.tokens, range(len(plan))), strict=True)))
        for index in range(len(plan)):
            update = make_update(split, plan, index, 500, 0, 1, packs=False)
            assert sum(batch.source_tokens for batch in update.batches) == update.source_tokens
            numbers = [int(i) for batch in update.batches for block in batch.sentences for i in block]
            seen.update((tuple(split.source[i].tolist()), tuple(split.target[i].tolist())) for i in numbers)
    assert seen.total() == pytest.approx(2400, abs=2)
    small_share = sum(count for pair, count in seen.items() if pair in small) / seen.total()
    assert small_share == pytest.approx(share, rel=0.01)


def test_equal_weights_give_the_data_of_no_weights(corpora: Path, tmp_path: Path) -> None:
    weights = {"plain": [], "equal": ["--weight=2", "--weight=2"], "other": ["--weight=1", "--weight=2"]}
    made = [preprocess(corpora, tmp_path / name, *options) for name, options in weights.items()]
    plain, equal, other = (data.meta.fingerprint for data in made)
    assert plain == equal != other
    for name in ("train.en.tokens", "train.de.offsets"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_training_on_a_mixture_with_an_average_resumes_to_the_last_bit(corpora: Path, tmp_path: Path) -> None:
    """An epoch has nine updates, so training stops within two epochs and ends in the third."""
    preprocess(corpora, tmp_path / "data", "--weight=1", "--weight=3", "--subword-dropout=0.1", "--encodings=3")
    options = ["--ema=0.99", "--valid-metric=nll", "--save-updates=100"]

    def train_until(folder: Path, update: int) -> None:
        train(tmp_path / "data", folder, f"--max-updates={update}", *options)

    assert_resumes(train_until, tmp_path, [7, 13, 22])
