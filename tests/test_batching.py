"""The update plan: every sentence once, budgets kept, and nothing but data and options deciding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.batching import Epoch, UpdatePlan, make_plan

Lengths = list[tuple[int, int]]
lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120)
budgets = st.integers(1, 400)


def plan(pairs: Lengths, batch_tokens: int = 200, groups: int = 4, seed: int = 1, epoch: int = 0) -> UpdatePlan:
    source, target = (np.array(side) for side in zip(*pairs, strict=True))
    return make_plan(source, target, batch_tokens=batch_tokens, groups=groups, seed=seed, epoch=epoch)


@given(lengths, budgets, st.integers(1, 9), budgets)
def test_an_epoch_holds_every_sentence_once_however_it_is_cut(
    pairs: Lengths, batch_tokens: int, groups: int, device_tokens: int
) -> None:
    made = plan(pairs, batch_tokens, groups)
    for index in range(len(made)):
        cut = [i for batch in made.micro_batches(index, device_tokens) for block in batch for i in block]
        assert cut == [i for group in made.update(index) for i in group]
    seen = [i for index in range(len(made)) for group in made.update(index) for i in group]
    assert sorted(seen) == list(range(len(pairs)))


@given(lengths, budgets, st.integers(1, 9))
def test_groups_are_of_one_size(pairs: Lengths, batch_tokens: int, groups: int) -> None:
    made = plan(pairs, batch_tokens, groups)
    sizes = [[sum(map(sum, (pairs[i] for i in group))) for group in made.update(u)] for u in range(len(made))]
    assert all(len(update) == groups for update in sizes[:-1])
    updates = max(1, round(max(map(sum, zip(*pairs, strict=True))) / batch_tokens))
    share = sum(map(sum, pairs)) / (updates * groups)
    longest = max(map(sum, pairs))
    found = [size for update in sizes for size in update]
    assert max(found) <= 1.25 * share + longest
    if len(found) == updates * groups:  # or else there are sentences as large as a group
        assert len(made) == updates
        assert sorted(found)[2:] == [] or sorted(found)[2] >= share - longest  # the first and the last may be smaller


@given(lengths, budgets, budgets)
def test_a_micro_batch_fits_the_device(pairs: Lengths, batch_tokens: int, device_tokens: int) -> None:
    made = plan(pairs, batch_tokens)
    for index in range(len(made)):
        for batch in made.micro_batches(index, device_tokens):
            padded = [sum(len(b) * max(pairs[i][side] for i in b) for b in batch) for side in (0, 1)]
            assert max(padded) <= device_tokens or sum(map(len, batch)) == 1


@given(lengths, budgets, budgets, st.sampled_from([1, 2, 3, 8]))
def test_ranks_get_the_same_update_in_equally_many_parts(
    pairs: Lengths, batch_tokens: int, device_tokens: int, ranks: int
) -> None:
    made = plan(pairs, batch_tokens)
    for index in range(len(made)):
        batches = made.micro_batches(index, device_tokens, ranks)
        assert len(batches) % ranks == 0
        assert [i for batch in batches for block in batch for i in block] == [i for g in made.update(index) for i in g]
        assert all(sum(map(made.padded_size, b)) <= device_tokens or sum(map(len, b)) == 1 for b in batches)


def test_ranks_get_equal_work() -> None:
    made = plan(realistic_lengths(20_000), 25_000, 8)
    waste = []
    for index in range(len(made) - 1):
        sizes = [sum(map(made.padded_size, batch)) for batch in made.micro_batches(index, 4096, 4)]
        waste.append(max(sizes) * len(sizes) / sum(sizes) - 1)
    assert np.mean(waste) < 0.1


@given(lengths, st.integers(0, 5), st.integers(0, 5))
def test_a_plan_is_a_function_of_data_seed_and_epoch(pairs: Lengths, seed: int, epoch: int) -> None:
    first, second = plan(pairs, seed=seed, epoch=epoch), plan(pairs, seed=seed, epoch=epoch)
    assert [u.tolist() for i in range(len(first)) for u in first.update(i)] == [
        u.tolist() for i in range(len(second)) for u in second.update(i)
    ]


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 1}])
def test_another_seed_or_epoch_brings_another_order(change: dict[str, int]) -> None:
    pairs = [(5, 5)] * 100
    assert plan(pairs).update(0)[0].tolist() != plan(pairs, **change).update(0)[0].tolist()


def realistic_lengths(sentences: int) -> Lengths:
    """Captions of about 14 pieces, the target about as long as its source."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(9.0, 1.6, sentences), 3, 60).astype(int)
    target = np.clip(source * random.normal(1.05, 0.2, sentences), 3, 60).astype(int)
    return list(zip(source.tolist(), target.tolist(), strict=True))


@pytest.mark.parametrize(("batch_tokens", "groups"), [(4096, 1), (4096, 8), (4096, 3), (25_000, 8)])
def test_little_is_padded(batch_tokens: int, groups: int) -> None:
    made = plan(realistic_lengths(60_000), batch_tokens, groups)
    shares = [made.padding_share(4096), made.padding_share(4096, updates=50)]
    assert max(shares) < 0.08
    lengths = np.array([made.source_lengths, made.target_lengths])
    sides = np.array([lengths[:, np.concatenate(made.update(i))].sum(axis=1) for i in range(len(made))])
    tokens = sides.max(axis=1)
    assert np.median(tokens) == pytest.approx(batch_tokens, rel=0.05)
    assert groups % 2 or tokens.tolist() == pytest.approx([batch_tokens] * len(tokens), rel=0.05)
    heavier = sides[:-1, 0] > sides[:-1, 1]
    assert 0.2 < np.mean(heavier[:-1] != heavier[1:]) < 0.8  # which side is, is not the turn's


def test_padding_share_by_hand() -> None:
    epoch = Epoch(np.array([0, 1]), np.array([0, 2]), np.array([0]), ((3, 4),))
    made = UpdatePlan(np.array([2, 3]), np.array([4, 4]), epoch, 1)
    assert made.padding_share(100) == pytest.approx(1 / 14)  # one of the source's six positions


def test_updates_mix_lengths() -> None:
    made = plan([(n, n) for n in range(1, 41) for _ in range(50)], batch_tokens=800, groups=8)
    spread = [np.ptp([made.target_lengths[g].mean() for g in made.update(i)]) for i in range(len(made) - 1)]
    assert np.median(spread) > 15
