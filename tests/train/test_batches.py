"""Batches are cut along their examples, put together again, and padded to one shape."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Sums, config_of

from rnnjax.cells import Elman
from rnnjax.tasks import Batch, SourceTarget
from rnnjax.testing import TOLERANCE, assert_close
from rnnjax.train.batches import cut, join, own_share, split, stack_batches
from rnnjax.train.build import make_model
from rnnjax.train.devices import DATA_AXIS
from rnnjax.train.step import Learner

OF_STEPS = Batch(
    inputs={"words": np.arange(24).reshape(2, 6, 2), "tags": np.arange(12).reshape(2, 6)},
    targets=np.arange(12).reshape(2, 6),
    mask=np.arange(12.0).reshape(2, 6),
    lengths=np.arange(6),
    fresh=np.arange(6) % 2,
)
OF_LAST = OF_STEPS._replace(targets=np.arange(18).reshape(6, 3), mask=np.ones(6), fresh=None)


def rows(batch, start, stop):
    """Examples start .. stop - 1, by hand."""
    each = (slice(None), slice(start, stop)) if batch.mask.ndim == 2 else slice(start, stop)
    return Batch(
        {name: leaf[:, start:stop] for name, leaf in batch.inputs.items()},
        batch.targets[each],
        batch.mask[each],
        batch.lengths[start:stop],
        None if batch.fresh is None else batch.fresh[start:stop],
    )


@pytest.mark.parametrize("batch", [OF_STEPS, OF_LAST], ids=["steps", "last"])
@pytest.mark.parametrize("parts", [1, 2, 3, 6])
def test_parts_and_shares_are_examples_next_to_each_other(batch, parts):
    pieces, size = split(batch, parts), 6 // parts
    shares = jax.vmap(lambda _: own_share(batch), axis_name=DATA_AXIS)(np.arange(parts))
    for number in range(parts):
        want = rows(batch, number * size, (number + 1) * size)
        for got in (pieces, shares):
            got = jax.tree.map(lambda leaf, number=number: leaf[number], got)
            jax.tree.map(np.testing.assert_array_equal, got, want)


def test_what_is_cut_is_joined():
    leaf = jnp.arange(12).reshape(6, 2)
    assert cut(leaf, 3, 0).shape == (3, 2, 2)
    np.testing.assert_array_equal(join(cut(leaf, 3, 0)), leaf)


def test_stacked_batches_are_padded_to_the_longest_and_train_alike():
    task = Sums()
    short, long = (task.pad(task.sequences("train")[at], 2) for at in (slice(4, 5), slice(1, 3)))
    for short_lengths in (short.lengths, None):
        if short_lengths is None:  # a batch without lengths is as long as it is
            short = task.pad(task.sequences("valid")[:1], 1)
            long = task.pad(task.sequences("train")[1:2], 1)
            short, long = short._replace(lengths=None), long._replace(lengths=None)
        stacked = stack_batches([short, long])
        assert stacked.inputs.shape == (2, 7, *short.inputs.shape[1:]) and stacked.mask.shape[:2] == (2, 7)
        learner = Learner(make_model(Elman(1, 3), task, 0), task, config_of())
        step = jax.jit(learner.train_step)
        for at, batch in enumerate((short, long)):
            padded = jax.tree.map(lambda leaf, at=at: leaf[at], stacked)
            state = learner.init(jax.random.key(0))
            (alone, told), (in_stack, told_in_stack) = step(state, batch), step(state, padded)
            assert_close(told_in_stack["loss"], told["loss"], 1e-6)
            assert_close(in_stack.params, alone.params, TOLERANCE["float32"])


def test_stacking_leaves_targets_of_the_last_step_as_they_are():
    def batch(time):
        return Batch(np.ones((time, 2, 1)), np.arange(6).reshape(2, 3), np.ones(2), np.array([time, 1]))

    stacked = stack_batches([batch(3), batch(5)])
    assert [leaf.shape for leaf in stacked[:4]] == [(2, 5, 2, 1), (2, 2, 3), (2, 2), (2, 2)]
    assert stacked.inputs[0, :3].all() and not stacked.inputs[0, 3:].any()
    assert stacked.targets[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert stack_batches([batch(3)._replace(lengths=None), batch(5)]).lengths.tolist() == [[3, 3], [5, 1]]
    assert stacked.lengths.tolist() == [[3, 1], [5, 1]]


def test_batches_of_one_length_need_no_lengths():
    batch = Batch(np.ones((3, 2, 1)), np.ones((3, 2, 1)), np.ones((3, 2)))
    assert stack_batches([batch, batch]).lengths is None


def test_sources_and_targets_are_padded_each_to_its_longest():
    def pair(source, target):
        inputs = SourceTarget(np.full((source, 2), source), np.full((target, 2), target))
        mask = np.ones((target, 2), np.float32)
        return Batch(inputs, np.full((target, 2), 7), mask, np.full(2, source, np.int32))

    stacked = stack_batches([pair(3, 5), pair(4, 2)])
    assert stacked.inputs.source.shape == (2, 4, 2) and stacked.inputs.target.shape == (2, 5, 2)
    np.testing.assert_array_equal(stacked.inputs.source[:, :, 0], [[3, 3, 3, 0], [4, 4, 4, 4]])
    np.testing.assert_array_equal(stacked.mask[:, :, 1], [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    np.testing.assert_array_equal(stacked.targets[:, :, 0], [[7, 7, 7, 7, 7], [7, 7, 0, 0, 0]])
    np.testing.assert_array_equal(stacked.lengths, [[3, 3], [4, 4]])
