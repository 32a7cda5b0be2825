"""The update plan has every sentence once, keeps to its budgets, and depends only on the data and the options."""

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
    return make_plan((source, target), batch_tokens=batch_tokens, groups=groups, seed=seed, epoch=epoch)


@given(lengths, budgets, st.integers(1, 9), budgets, st.sampled_from([1, 2, 3, 8]), st.booleans())
def test_micro_batches_have_every_sentence_once_fit_the_device_and_are_as_many_for_each_rank(
    pairs: Lengths, batch_tokens: int, groups: int, device_tokens: int, ranks: int, packs: bool
) -> None:
    made, seen = plan(pairs, batch_tokens, groups), []
    for index in range(len(made)):
        batches = made.micro_batches(index, device_tokens, ranks, packs=packs)
        assert len(batches) % ranks == 0
        sentences = [i for batch in batches for block in batch for i in block]
        assert sentences == [i for group in made.update(index) for i in group]
        seen += sentences
        for batch in batches:
            if packs:
                size = max(sum(pairs[i][side] for block in batch for i in block) for side in (0, 1))
            else:
                size = sum(len(block) * max(max(pairs[i]) for i in block) for block in batch)
            assert size <= device_tokens * 17 / 16 or sum(map(len, batch)) == 1  # a long sentence alone
    assert sorted(seen) == list(range(len(pairs)))


@given(lengths, budgets, st.integers(1, 9))
def test_groups_have_about_the_same_number_of_tokens(pairs: Lengths, batch_tokens: int, groups: int) -> None:
    made = plan(pairs, batch_tokens, groups)
    sizes = [[sum(sum(pairs[i]) for i in group) for group in made.update(u)] for u in range(len(made))]
    assert all(len(update) == groups for update in sizes[:-1])
    updates = max(1, round(max(map(sum, zip(*pairs, strict=True))) / batch_tokens))
    share = sum(map(sum, pairs)) / (updates * groups)
    longest = max(map(sum, pairs))
    loads = [size for update in sizes for size in update]
    assert max(loads) <= 1.25 * share + longest
    if len(loads) == updates * groups:  # otherwise, there are sentences as large as a group
        assert len(made) == updates
        assert all(size >= share - longest for size in sorted(loads)[2:])  # the first and last group may be smaller


def test_an_update_is_one_packed_micro_batch_if_it_has_as_many_tokens() -> None:
    made = plan(realistic_lengths(20_000), 25_000, 8)
    batches = [made.micro_batches(index, 25_000, packs=True) for index in range(len(made))]
    assert [len(update_batches) for update_batches in batches] == [1] * len(made)


def test_packed_micro_batches_have_similar_sizes() -> None:
    made = plan(realistic_lengths(20_000), 25_000, 8)
    for index in range(len(made) - 1):
        batches = [np.concatenate(blocks) for blocks in made.micro_batches(index, 8192, packs=True)]
        sizes = [int(made.lengths[0][b].sum() + made.lengths[1][b].sum()) for b in batches]
        assert len(sizes) <= 4 and max(sizes) < 1.1 * min(sizes)


def test_ranks_get_about_equal_work() -> None:
    made = plan(realistic_lengths(20_000), 25_000, 8)
    waste = []
    for index in range(len(made) - 1):
        sizes = []
        for blocks in made.micro_batches(index, 4096, 4):
            widths = [max(made.lengths[0][block].max(), made.lengths[1][block].max()) for block in blocks]
            sizes.append(sum(len(block) * width for block, width in zip(blocks, widths, strict=True)))
        waste.append(max(sizes) * len(sizes) / sum(sizes) - 1)
    assert np.mean(waste) < 0.1


def test_data_seed_and_epoch_determine_the_plan() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        made = plan(realistic_lengths(500), seed=seed, epoch=epoch)
        return [int(i) for index in range(len(made)) for group in made.update(index) for i in group]

    first = order(1, 0)
    assert order(1, 0) == first
    assert order(2, 0) != first != order(1, 1)


def realistic_lengths(sentences: int) -> Lengths:
    """Returns the lengths of captions of about 14 pieces. A target is about as long as its source."""
    random = np.random.default_rng(0)
    source = np.clip(random.gamma(9.0, 1.6, sentences), 3, 60).astype(int)
    target = np.clip(source * random.normal(1.05, 0.2, sentences), 3, 60).astype(int)
    return list(zip(source.tolist(), target.tolist(), strict=True))


@pytest.mark.parametrize(("batch_tokens", "groups"), [(4096, 1), (4096, 8), (4096, 3), (25_000, 8)])
def test_updates_have_little_padding_and_about_the_same_size(batch_tokens: int, groups: int) -> None:
    made = plan(realistic_lengths(40_000), batch_tokens, groups)
    shares = [made.padding_share(4096), made.padding_share(4096, updates=50)]
    assert max(shares) < 0.08
    lengths = np.array([made.lengths[0], made.lengths[1]])
    sides = np.array([lengths[:, np.concatenate(made.update(i))].sum(axis=1) for i in range(len(made))])
    tokens = sides.max(axis=1)
    assert np.median(tokens) == pytest.approx(batch_tokens, rel=0.05)
    if groups % 2 == 0:
        assert tokens.tolist() == pytest.approx([batch_tokens] * len(tokens), rel=0.05)
    # The longer side does not alternate between source and target.
    source_is_longer = sides[:-1, 0] > sides[:-1, 1]
    assert 0.2 < np.mean(source_is_longer[:-1] != source_is_longer[1:]) < 0.8


def test_the_padding_share_equals_one_computed_by_hand() -> None:
    epoch = Epoch(np.array([0, 1]), np.array([0, 2]), np.array([0]), ((3, 4),))
    made = UpdatePlan((np.array([2, 3]), np.array([4, 4])), epoch, 1)
    assert made.padding_share(100) == pytest.approx(1 / 14)  # one of the six source positions is padding


def test_an_update_mixes_short_and_long_sentences() -> None:
    made = plan([(n, n) for n in range(1, 41) for _ in range(50)], batch_tokens=800, groups=8)
    spread = [np.ptp([made.lengths[1][g].mean() for g in made.update(i)]) for i in range(len(made) - 1)]
    assert np.median(spread) > 15
