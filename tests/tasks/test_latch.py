"""The latch: one bit in the first steps, Gaussian noise after."""

import numpy as np
import pytest

from rnnjax.tasks import Latch, reduce_mean


def test_the_first_steps_tell_the_class_and_the_rest_is_noise(draw):
    task = Latch(length=12, informative=4, noise=0.3)
    batch = draw(task, 5000)
    inputs, sign = np.array(batch.inputs[..., 0]), 2.0 * np.array(batch.targets) - 1
    assert batch.inputs.shape == (12, 5000, 1)
    np.testing.assert_array_equal(inputs[:4], np.broadcast_to(sign, (4, 5000)))
    noise = inputs[4:]
    assert noise.std() == pytest.approx(0.3, rel=0.02) and abs(noise.mean()) < 0.005
    assert abs((noise * sign[None]).mean()) < 0.005, "the noise tells the class"
    quantiles = np.quantile(noise / 0.3, [0.1587, 0.5, 0.8413])
    np.testing.assert_allclose(quantiles, [-1, 0, 1], atol=0.03)
    assert np.array(batch.targets).mean() == pytest.approx(0.5, abs=0.03)


def test_the_memoryless_guess_scores_chance(draw):
    """The last input is noise: the best linear guess from it is no better than none."""
    task = Latch(length=5)
    batch = draw(task, 50_000)
    last = np.array(batch.inputs[-1])
    none = float(task.loss(np.zeros((50_000, 2), np.float32), batch).mean())
    assert none == pytest.approx(task.chance, abs=1e-6)
    for slope in (-1.0, 1.0):
        outputs = np.concatenate([np.zeros_like(last), slope * last], -1)
        assert float(task.loss(outputs, batch).mean()) > task.chance - 2e-3


def test_the_first_input_answers_it(draw):
    task = Latch()
    batch = draw(task, 64)
    first = np.array(batch.inputs[0])
    outputs = np.concatenate([-20 * first, 20 * first], -1)
    assert float(reduce_mean(*task.metrics(outputs, batch)["accuracy"])) == 1
    assert float(task.loss(outputs, batch).max()) < 1e-6
