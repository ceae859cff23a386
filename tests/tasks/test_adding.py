"""Adding: what is drawn, the target, and the score of a guess."""

import numpy as np
import pytest

from rnnjax.tasks import Adding


@pytest.mark.parametrize("length", [2, 3, 7, 20])
def test_one_marker_in_each_half_and_the_target_is_their_sum(draw, length):
    batch = draw(Adding(length), 3000)
    values, markers = np.array(batch.inputs[..., 0]), np.array(batch.inputs[..., 1])
    half = length // 2
    assert batch.inputs.shape == (length, 3000, 2) and set(np.unique(markers)) <= {0.0, 1.0}
    np.testing.assert_array_equal(markers[:half].sum(0), 1)
    np.testing.assert_array_equal(markers[half : 2 * half].sum(0), 1)
    np.testing.assert_array_equal(markers[2 * half :], 0)
    np.testing.assert_allclose(batch.targets[:, 0], (values * markers).sum(0), rtol=1e-6)


def test_values_and_marker_positions_are_uniform(draw):
    batch = draw(Adding(10), 20_000)
    values, markers = np.array(batch.inputs[..., 0]), np.array(batch.inputs[..., 1])
    np.testing.assert_allclose(markers.mean(1), 0.2, atol=0.015)
    assert values.min() >= 0 and values.max() <= 1
    np.testing.assert_allclose(np.histogram(values, 10, (0, 1))[0] / values.size, 0.1, atol=0.005)


def test_chance_is_the_loss_of_the_best_constant(draw):
    task = Adding(6)
    batch = draw(task, 200_000)
    losses = [float(task.loss(np.full((200_000, 1), guess, np.float32), batch).mean()) for guess in (0.9, 1.0, 1.1)]
    assert task.chance == pytest.approx(1 / 6)
    assert losses[1] == min(losses) and losses[1] == pytest.approx(task.chance, abs=2e-3)


def test_loss_and_metric(draw):
    batch = draw(Adding(4), 2)
    outputs = np.array(batch.targets) + np.array([[0.5], [-2.0]], np.float32)
    np.testing.assert_allclose(Adding(4).loss(outputs, batch), [0.25, 4.0], rtol=1e-5)
    np.testing.assert_allclose(Adding(4).metrics(outputs, batch)["absolute_error"][0], [0.5, 2.0], rtol=1e-5)
