"""Copying: the layout, the oracle without memory, and recall over the recalled steps only."""

import jax
import numpy as np
import pytest

from rnnjax.tasks import Copying, reduce_mean

CASES = [Copying(), Copying(delay=1), Copying(delay=7, symbols=3, recall=4)]


@pytest.mark.parametrize("task", CASES, ids=str)
def test_the_layout_is_that_of_the_paper(draw, task):
    batch = draw(task, 500)
    recall, delay = task.recall, task.delay
    inputs = np.array(batch.inputs).argmax(-1)
    assert batch.inputs.shape == (delay + 2 * recall, 500, task.symbols + 2)
    np.testing.assert_array_equal(np.array(batch.inputs).sum(-1), 1)
    shown = inputs[:recall]
    assert set(np.unique(shown)) == set(range(1, task.symbols + 1))
    np.testing.assert_allclose(np.bincount(shown.ravel())[1:] / shown.size, 1 / task.symbols, atol=0.04)
    np.testing.assert_array_equal(inputs[recall : recall + delay - 1], 0)
    np.testing.assert_array_equal(inputs[recall + delay - 1], task.symbols + 1)
    np.testing.assert_array_equal(inputs[recall + delay :], 0)
    np.testing.assert_array_equal(batch.targets[: recall + delay], 0)
    np.testing.assert_array_equal(batch.targets[recall + delay :], shown)


def test_the_default_is_ten_of_eight_symbols_in_ten_categories():
    assert (Copying().input_size, Copying().output_size, Copying().length) == (10, 9, 70)


@pytest.mark.parametrize("task", CASES, ids=str)
def test_the_memoryless_oracle_scores_chance(draw, task):
    """Blank until the marker, then all symbols alike: what can be said from the time alone."""
    batch = draw(task, 16)
    outputs = np.zeros((task.length, 16, task.output_size), np.float32)
    outputs[: -task.recall, :, 0] = 100
    outputs[-task.recall :, :, 0] = -100
    loss = reduce_mean(task.loss(outputs, batch), batch.mask)
    assert float(loss) == pytest.approx(task.chance, abs=1e-6)


@pytest.mark.parametrize("delay, baseline", [(50, 0.2971), (100, 0.1733), (200, 0.0945), (500, 0.0400)])
def test_chance_is_the_published_baseline(delay, baseline):
    assert Copying(delay=delay).chance == pytest.approx(baseline, abs=5e-5)


def test_recall_accuracy_counts_the_recalled_steps_only(draw):
    task = Copying(delay=20, symbols=8, recall=4)
    batch = draw(task, 8)
    outputs = np.array(jax.nn.one_hot(batch.targets, task.output_size))
    outputs[-1] = 0
    outputs[-1, :, 0] = 1  # blanks: wrong at the last of the four
    values, mask = task.metrics(outputs, batch)["recall_accuracy"]
    assert mask.shape == values.shape == batch.mask.shape
    assert float(reduce_mean(values, mask)) == pytest.approx(0.75)
    blanks = np.array(jax.nn.one_hot(np.zeros_like(batch.targets), task.output_size))
    assert float(reduce_mean(*task.metrics(blanks, batch)["recall_accuracy"])) == 0
