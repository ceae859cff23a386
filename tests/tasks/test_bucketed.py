"""Batches of a corpus: few shapes, and a few sequences that stand out pad no others."""

import dataclasses

import numpy as np
import pytest

from rnnjax.tasks.base import Batch
from rnnjax.tasks.bucketed import BucketedTask, hide, pad_ids, round_up


@dataclasses.dataclass(frozen=True)
class Lengths(BucketedTask):
    """Sequences of these lengths, each of its own number."""

    each: tuple[int, ...]
    buckets: int = 4

    def lengths(self, split):
        return np.array(self.each)

    def pad(self, split, end, indices, batch_size):
        ids, lengths = pad_ids([np.full(self.each[index], index) for index in indices], end, batch_size, -1)
        return Batch(ids, ids, (ids >= 0).astype(np.float32), lengths)


def test_one_that_stands_out_has_a_bucket_of_its_own():
    usual = tuple(range(5, 25)) * 50
    assert Lengths(usual).ends("train") == (9, 14, 19, 24)
    assert Lengths((*usual, 100_000)).ends("train")[-2:] == (24, 100_000)
    assert Lengths((*usual, 48)).ends("train")[-1] == 48 and len(Lengths((*usual, 48)).ends("train")) <= 4
    assert Lengths((*usual, 100_000), buckets=1).ends("train") == (100_000,)
    assert Lengths((7,)).ends("train") == (7,)


def test_every_epoch_has_each_sequence_once_and_a_batch_is_a_function_of_its_step():
    task = Lengths((3, 1, 7, 7, 2, 5, 4), buckets=2)
    steps = task.steps_per_epoch(2)
    for epoch in (0, 1, 0):
        batches = [task.batch(epoch * steps + index, 2, seed=9) for index in range(steps)]
        seen = [batch.inputs[0, row] for batch in batches for row in range(2) if batch.lengths[row]]
        assert sorted(seen) == list(range(7))
    orders = [[int(task.batch(step, 1, seed=seed).inputs[0, 0]) for step in range(7)] for seed in (1, 2)]
    assert orders[0] != orders[1]
    assert orders[0] == [int(Lengths(task.each, 2).batch(step, 1, seed=1).inputs[0, 0]) for step in range(7)]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda task: task.batch(-1, 1, 0), "step is -1"),
        (lambda task: task.batch(0, 1, -1), "seed -1"),
        (lambda task: task.batch(0, 0, 0), "batch_size is 0: expected at least 1"),
        (lambda task: task.batches("dev", 1), "split is 'dev': expected one of train, valid, test"),
    ],
)
def test_what_can_not_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(Lengths((1, 2)))


def test_ids_are_padded_and_hidden_by_draws_of_their_step():
    ids, lengths = pad_ids([np.array([[1, 2]]), np.array([[3], [4]])], 3, 3, -1, width=2)
    np.testing.assert_array_equal(ids[:, 0], [[1, 2], [-1, -1], [-1, -1]])
    np.testing.assert_array_equal(ids[:, 1], [[3, -1], [4, -1], [-1, -1]])
    np.testing.assert_array_equal(lengths, [1, 2, 0])
    many = np.tile(np.array([1, 2]), (5000, 1))
    hidden = hide(many, np.array([False, True, False]), 0.3, step=4, seed=1)
    assert abs((hidden[:, 0] == 0).mean() - 0.3) < 0.03 and (hidden[:, 1] == 2).all()
    np.testing.assert_array_equal(hidden, hide(many, np.array([False, True, False]), 0.3, step=4, seed=1))
    assert [round_up(size) for size in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]
