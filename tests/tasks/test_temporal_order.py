"""Temporal order: positions, targets and lengths, recomputed from the inputs in plain numpy."""

import numpy as np
import pytest

from rnnjax.tasks import TemporalOrder, reduce_mean


def _relevant(batch):
    """Positions and values [B, 2] of A and B, from the one-hot inputs."""
    relevant = np.array(batch.inputs[..., :2])
    positions = np.array([np.flatnonzero(row.sum(-1)) for row in relevant.swapaxes(0, 1)])
    values = np.take_along_axis(relevant[..., 1].T, positions, 1)
    return positions, values


@pytest.mark.parametrize("length", [10, 19, 50])
def test_positions_targets_and_distractors(draw, length):
    batch = draw(TemporalOrder(length), 2000)
    assert batch.inputs.shape == (length, 2000, 6) and batch.lengths is None
    np.testing.assert_array_equal(np.array(batch.inputs).sum(-1), 1)
    positions, values = _relevant(batch)
    tenth, half = length // 10, length // 2
    assert positions.shape == (2000, 2)
    assert set(positions[:, 0]) == set(range(tenth, 2 * tenth))
    assert set(positions[:, 1]) == set(range(half, half + tenth))
    np.testing.assert_array_equal(batch.targets, values[:, 0] + 2 * values[:, 1])
    np.testing.assert_allclose(np.bincount(batch.targets) / 2000, 0.25, atol=0.05)
    share = np.array(batch.inputs).mean((0, 1))[2:] / np.array(batch.inputs)[..., 2:].mean((0, 1)).sum()
    np.testing.assert_allclose(share, 0.25, atol=0.02)


def test_each_example_has_its_own_length_and_zeros_after_it(draw):
    task = TemporalOrder(20, 35)
    batch = draw(task, 2000)
    lengths = np.array(batch.lengths)
    assert batch.inputs.shape[0] == 35 and set(lengths) == set(range(20, 36))
    valid = np.arange(35)[:, None] < lengths[None, :]
    np.testing.assert_array_equal(np.array(batch.inputs).sum(-1), valid)
    positions, values = _relevant(batch)
    for position, low, width in (
        (positions[:, 0], lengths // 10, lengths // 10),
        (positions[:, 1], lengths // 2, lengths // 10),
    ):
        assert np.all(position >= low) and np.all(position < low + width)
    np.testing.assert_array_equal(batch.targets, values[:, 0] + 2 * values[:, 1])


def test_the_memoryless_guess_scores_chance_and_a_quarter(draw):
    task = TemporalOrder(10)
    batch = draw(task, 40_000)
    frequency = np.bincount(batch.targets) / 40_000
    outputs = np.broadcast_to(np.log(frequency).astype(np.float32), (40_000, 4))
    assert float(task.loss(outputs, batch).mean()) == pytest.approx(task.chance, abs=1e-3)
    assert float(reduce_mean(*task.metrics(outputs, batch)["accuracy"])) == pytest.approx(0.25, abs=0.01)
