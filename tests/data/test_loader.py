"""The loader makes the batches of the plan as tensors, in a thread that ends with its user."""

import threading

import numpy as np
import pytest
import torch
from conftest import token_arrays

from nmt.data.batching import UpdatePlan, make_plan
from nmt.data.folder import ParallelSplit
from nmt.data.loader import make_micro_batch, updates
from nmt.data.sides import make_side
from nmt.text.subword import BOS, EOS, PAD


def split_and_plan(pairs: int, batch_tokens: int, groups: int) -> tuple[ParallelSplit, UpdatePlan]:
    """Returns random pairs, and the plan of an epoch of them."""
    random = np.random.default_rng(0)
    sides = [[random.integers(4, 30, random.integers(1, 9)) for _ in range(pairs)] for _ in range(2)]
    lengths = [np.array([len(s) + 1 for s in side]) for side in sides]
    plan = make_plan((lengths[0], lengths[1]), batch_tokens=batch_tokens, groups=groups, seed=1, epoch=0)
    return ParallelSplit(*token_arrays(*sides)), plan


def test_a_padded_batch_equals_one_made_by_hand() -> None:
    sides = [[np.array([5, 6]), np.array([7])], [np.array([8]), np.array([9, 10, 11])]]
    batch = make_micro_batch(ParallelSplit(*token_arrays(*sides)), [np.array([1, 0])])
    assert batch.source.ids_F.tolist() == [7, EOS, PAD, 5, 6, EOS] + [PAD] * 122
    assert batch.target.ids_F.tolist() == [BOS, 9, 10, 11, BOS, 8, PAD, PAD] + [PAD] * 120
    assert batch.labels_M.tolist() == [9, 10, 11, EOS, 8, EOS, PAD, PAD] + [PAD] * 120
    assert batch.source.layout.positions_F.tolist()[:6] == [0, 1, 2, 0, 1, 2]
    assert batch.source.layout.lengths_B.tolist() == [2, 3]
    assert [(b.sentences, b.width, b.padded) for b in batch.target.layout.blocks] == [(2, 4, True)]
    assert (batch.source_tokens, batch.target_tokens, batch.positions) == (5, 6, 256)


def test_each_block_has_its_own_width() -> None:
    side = make_side([[np.array([5, 6, 3])], [np.array([7, 3]), np.array([8, 3])]])
    assert side.ids_F.tolist() == [5, 6, 3, 7, 3, 8, 3]
    assert [(b.sentences, b.width, b.padded) for b in side.layout.blocks] == [(1, 3, False), (2, 2, False)]
    assert side.layout.longest == 3


@pytest.mark.parametrize("first", [0, 3])
def test_updates_follow_the_plan_in_order(first: int) -> None:
    made, plan = split_and_plan(100, batch_tokens=60, groups=2)
    loaded_updates = list(updates(made, plan, 40, first))
    assert len(loaded_updates) == len(plan) - first > 3
    for index, update in enumerate(loaded_updates, first):
        expected = [make_micro_batch(made, blocks) for blocks in plan.micro_batches(index, 40)]
        for loaded_batch, batch in zip(update.batches, expected, strict=True):
            assert torch.equal(loaded_batch.source.ids_F, batch.source.ids_F)
            assert torch.equal(loaded_batch.labels_M, batch.labels_M)
        assert update.target_tokens == sum(batch.target_tokens for batch in expected)
        assert update.source_tokens == sum(batch.source_tokens for batch in expected)


def test_ranks_share_an_update_and_idle_ranks_get_only_padding_as_labels() -> None:
    made, plan = split_and_plan(5, batch_tokens=1000, groups=1)
    shares = [list(updates(made, plan, 1000, rank=rank, ranks=8)) for rank in range(8)]
    for index, update_by_rank in enumerate(zip(*shares, strict=True)):
        batches = [batch for update in update_by_rank for batch in update.batches]
        assert len({len(update.batches) for update in update_by_rank}) == 1
        working = [batch for batch in batches if batch.target_tokens]
        assert sorted(i for b in working for block in b.sentences for i in block) == sorted(plan.update(index)[0])
        assert {update.target_tokens for update in update_by_rank} == {sum(b.target_tokens for b in working)}
        assert len(batches) == 8 > len(working)
        assert all((batch.labels_M == PAD).all() for batch in batches if not batch.target_tokens)


def loader_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("nmt-loader")}


def test_an_exception_in_the_thread_is_raised_where_the_batches_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def tokens(index: int) -> tuple[int, int]:
        if index:
            raise OSError("disk gone")
        return 0, 0

    split, plan = split_and_plan(100, batch_tokens=60, groups=2)
    monkeypatch.setattr(UpdatePlan, "tokens", lambda _, index: tokens(index))
    earlier_threads, stream = loader_threads(), updates(split, plan, 40)
    next(stream)
    with pytest.raises(OSError, match="disk gone"):
        next(stream)
    assert loader_threads() <= earlier_threads


def test_closing_the_batches_early_ends_the_thread() -> None:
    earlier_threads, stream = loader_threads(), updates(*split_and_plan(100, batch_tokens=60, groups=2), 40)
    next(stream)
    assert len(loader_threads() - earlier_threads) == 1
    stream.close()
    assert loader_threads() <= earlier_threads
