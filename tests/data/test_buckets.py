"""Buckets: ends, coverage, few shapes, and an order that depends on (seed, epoch) alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnjax.data import bucket_ends, epoch_batches, ordered_batches

LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=60)
MANY = settings(max_examples=150, deadline=None)


@MANY
@given(LENGTHS, st.integers(1, 8))
def test_ends_increase_occur_and_end_at_the_largest(lengths, count):
    ends = bucket_ends(lengths, count)
    assert 1 <= len(ends) <= count
    assert list(ends) == sorted(set(ends)) and set(ends) <= set(lengths)
    assert ends[-1] == max(lengths)


@MANY
@given(LENGTHS, st.integers(1, 8), st.integers(1, 9), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_an_epoch_sees_each_index_once_in_the_smallest_bucket(lengths, count, batch_size, seed, epoch):
    ends = bucket_ends(lengths, count)
    plan = epoch_batches(lengths, ends, batch_size, seed=seed, epoch=epoch)
    again = epoch_batches(lengths, ends, batch_size, seed=seed, epoch=epoch)
    assert sorted(i for _, indices in plan for i in indices) == list(range(len(lengths)))
    assert len(plan) == len(ordered_batches(lengths, ends, batch_size))
    for (end, indices), (end_again, indices_again) in zip(plan, again, strict=True):
        assert end == end_again and np.array_equal(indices, indices_again)
        assert 1 <= len(indices) <= batch_size
        for i in indices:
            assert end == min(e for e in ends if e >= lengths[i])


def test_the_worked_example():
    lengths = [3, 9, 4, 7, 9]
    ends = bucket_ends(lengths, 2)
    plan = [(end, list(indices)) for end, indices in ordered_batches(lengths, ends, 2)]
    assert ends == (7, 9) and plan == [(7, [0, 2]), (7, [3]), (9, [1, 4])]


def test_the_order_changes_with_the_epoch_and_with_the_seed():
    lengths = [5] * 20 + [9] * 20

    def order(seed, epoch):
        plan = epoch_batches(lengths, (5, 9), 4, seed=seed, epoch=epoch)
        return tuple(int(i) for _, indices in plan for i in indices), tuple(end for end, _ in plan)

    orders = [order(seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len({indices for indices, _ in orders}) == 6
    assert any(sorted(ends) != list(ends) for _, ends in orders), "batches come bucket by bucket"


@pytest.mark.parametrize(
    "lengths, count, message",
    [([], 2, "lengths are empty"), ([3, 0], 2, "lengths are at least 0: expected"), ([3], 0, "count is 0")],
)
def test_wrong_arguments(lengths, count, message):
    with pytest.raises(ValueError, match=message):
        bucket_ends(lengths, count)
