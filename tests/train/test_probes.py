"""What the trainer measures is carry_gradients of each example alone; steps are log-spaced and can be met."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnjax import probes
from rnnjax.cells import LSTM, Elman, Jordan
from rnnjax.layers import Bidirectional
from rnnjax.nn import SequenceModel
from rnnjax.tasks import Adding, Batch, Copying, CorpusTask, Music
from rnnjax.testing import assert_close
from rnnjax.train.build import make_model
from rnnjax.train.config import TrainConfig
from rnnjax.train.probes import GradientNorms, log_spaced_steps, one_step_loss
from rnnjax.train.step import Learner


@dataclasses.dataclass(frozen=True)
class Piano(Music):
    """Music without a file."""

    @functools.cached_property
    def output_bias(self):
        return np.zeros(88, np.float32)

    def sample(self, key, batch_size):
        del batch_size
        keys = jax.random.bernoulli(key, 0.3, (6, 3, 88)).astype(jnp.float32)
        lengths = jnp.array([6, 0, 3])
        mask = (jnp.arange(6)[:, None] < lengths[None]).astype(jnp.float32)
        return Batch(keys, jnp.roll(keys, 1, 0), mask, lengths)


@dataclasses.dataclass(frozen=True)
class Ragged(Adding):
    """The adding problem over sequences of 6, 2 and 4 steps."""

    def sample(self, key, batch_size):
        return super().sample(key, 3)._replace(lengths=jnp.array([6, 2, 4]))


CASES = {
    "at the last step, one length": (Adding(6), LSTM(2, 3)),
    "at the last step, many lengths": (Ragged(6), LSTM(2, 3)),
    "at every step, one length": (Copying(delay=2, symbols=2, recall=2), Elman(4, 3)),
    "at every step, many lengths": (Piano(), Jordan(88, 3, 88, feedback="sigmoid")),
}


def fields_of(cell):
    return {"lstm": ("h", "c"), "elman": ("h",), "jordan": ("y",)}[type(cell).__name__.lower()]


@pytest.mark.parametrize("case", CASES)
def test_rows_are_the_gradients_of_each_example_alone(case):
    task, cell = CASES[case]
    model = make_model(cell, task, 0)
    batch = task.sample(jax.random.key(1), 3)
    learner = Learner(model, task, TrainConfig())
    state, probe = learner.init(jax.random.key(0)), GradientNorms(task, batch, (0, 4))
    values = jax.jit(lambda params: probe.inside(lambda p, b: learner.apply(p, state.variables, b), params))(
        state.params
    )
    probe.host(4, jax.device_get(values))
    assert probe.measured == [4] and probe.steps == {0, 4}
    ((name, row),) = probe.rows[0].items()
    assert name == type(cell).__name__.lower() and set(row) == {"carry", *fields_of(cell)}

    graph, params = nnx.split(model)
    for example in range(3):
        length = batch.inputs.shape[0] if batch.lengths is None else int(batch.lengths[example])
        for norms in row.values():
            assert norms.shape == batch.inputs.shape[:2] and np.isnan(norms[length:, example]).all()
        if length == 0:
            continue

        def loss(params, inputs, example=example, length=length):
            outputs = nnx.merge(graph, params)(inputs)
            if task.reads_last:
                return task.loss(outputs, Batch(inputs, batch.targets[example, None], jnp.ones(1)))[0]
            targets = batch.targets[:length, example, None]
            return task.loss(outputs, Batch(inputs, targets, jnp.ones((length, 1))))[-1, 0]

        (gradients,) = probes.carry_gradients(loss)(params, batch.inputs[:length, example, None]).values()
        fields = {field: np.asarray(getattr(gradients, field), np.float64)[::-1, 0] for field in gradients._fields}
        fields["carry"] = np.concatenate(list(fields.values()), -1)
        for field, values in fields.items():
            with np.errstate(divide="ignore"):
                want = np.log10(np.linalg.norm(values, axis=-1))
            np.testing.assert_allclose(row[field][:length, example], want, atol=1e-4)
        assert np.isfinite(row["carry"][0, example])


def test_the_loss_probed_is_that_of_each_examples_last_valid_step():
    task = Piano()
    batch = task.sample(jax.random.key(1), 3)
    outputs = jax.random.normal(jax.random.key(2), (6, 3, 88))
    losses = task.loss(outputs, batch)
    assert_close(one_step_loss(task, outputs, batch), losses[5, 0] + losses[2, 2], 1e-6)
    whole = batch._replace(lengths=None, mask=jnp.ones((6, 3)))
    assert_close(one_step_loss(task, outputs, whole), losses[5].sum(), 1e-6)

    task = Ragged(6)
    batch = task.sample(jax.random.key(1), 3)
    batch = batch._replace(mask=jnp.array([1.0, 0.0, 1.0]))
    outputs = jnp.array([[0.1], [jnp.nan], [0.3]])
    want = jnp.square(outputs - batch.targets)[jnp.array([0, 2])].sum()
    assert_close(one_step_loss(task, outputs, batch), want, 1e-6)


def test_a_gradient_that_is_not_finite_is_no_missing_distance():
    task = Ragged(6)
    model = make_model(Elman(2, 3), task, 0)
    batch = task.sample(jax.random.key(1), 3)
    learner = Learner(model, task, TrainConfig())
    state = learner.init(jax.random.key(0))

    def apply(params, batch):
        return learner.apply(params, state.variables, batch) * jnp.array([[1.0], [jnp.nan], [1.0]])

    norms = np.asarray(GradientNorms(task, batch, (0,)).inside(apply, state.params)["elman"]["carry"])
    assert np.isfinite(norms[:, 0]).all() and np.isposinf(norms[:2, 1]).all() and np.isnan(norms[2:, 1]).all()
    assert np.isfinite(norms[:4, 2]).all() and np.isnan(norms[4:, 2]).all()


@given(calls=st.integers(1, 5000), per_call=st.integers(1, 60), count=st.integers(1, 40))
@settings(deadline=None)
def test_steps_start_at_0_end_at_the_last_and_can_be_met(calls, per_call, count):
    steps = log_spaced_steps(calls * per_call, per_call, count)
    assert steps[0] == 0 and steps[-1] == calls * per_call
    assert all(type(step) is int and step % per_call == 0 for step in steps)
    assert all(before < after for before, after in zip(steps, steps[1:], strict=False))
    assert 2 <= len(steps) <= count + 1


def test_steps_are_evenly_spaced_in_log():
    assert log_spaced_steps(1000, 1, 4) == (0, 1, 10, 100, 1000)
    assert log_spaced_steps(1000, 10, 3) == (0, 10, 100, 1000)
    assert log_spaced_steps(1500, 25, 1) == (0, 1500)
    assert log_spaced_steps(6, 2, 100) == (0, 2, 4, 6)


@dataclasses.dataclass(frozen=True)
class Marks(CorpusTask):
    """A loss at one marked step of each of two sequences, of 5 steps and of 3."""

    input_size: ClassVar[int] = 2
    output_size: ClassVar[int] = 1
    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "identity"
    unit: ClassVar[str] = "squared error"

    def example(self):
        inputs = np.random.default_rng(0).normal(size=(5, 2, 2)).astype(np.float32)
        mask = np.zeros((5, 2), np.float32)
        mask[3, 0] = mask[1, 1] = 1
        return Batch(inputs, np.zeros((5, 2, 1), np.float32), mask, np.array([5, 3], np.int32))

    def loss(self, outputs, batch):
        return jnp.square(outputs - batch.targets)[..., 0]


def test_distances_are_from_the_step_that_counts_in_either_direction():
    task = Marks()
    batch = task.example()
    layer = Bidirectional(Elman(2, 3), Elman(2, 3))
    model = SequenceModel(layer, 1, rngs=nnx.Rngs(0))
    learner = Learner(model, task, TrainConfig())
    state = learner.init(jax.random.key(0))

    def apply(params, batch):
        return learner.apply(params, state.variables, batch)

    norms = GradientNorms(task, batch, (0,)).inside(apply, state.params)
    forward, backward = (np.asarray(norms[side]["carry"]) for side in ("forward", "backward"))
    np.testing.assert_array_equal(np.isfinite(forward), np.arange(5)[:, None] < [4, 2])  # back to the start
    np.testing.assert_array_equal(np.isfinite(backward), np.arange(5)[:, None] < [2, 2])  # on to the row's end
    # Each at distance 0 is the head's own derivative, whatever comes before.
    kernel = np.asarray(model.head.kernel[...])
    outputs = np.asarray(model(batch.inputs, lengths=batch.lengths))
    for row, at in enumerate((3, 1)):
        slope = 2 * outputs[at, row, 0]
        assert_close(forward[0, row], np.log10(np.linalg.norm(slope * kernel[:3])), 1e-4)
        assert_close(backward[0, row], np.log10(np.linalg.norm(slope * kernel[3:])), 1e-4)


def test_a_row_that_counts_nothing_has_no_distance():
    task = Marks()
    batch = task.example()
    batch.mask[:, 1] = 0
    model = SequenceModel(Elman(2, 3), 1, rngs=nnx.Rngs(0))
    learner = Learner(model, task, TrainConfig())
    state = learner.init(jax.random.key(0))
    norms = GradientNorms(task, batch, (0,)).inside(
        lambda params, batch: learner.apply(params, state.variables, batch), state.params
    )["elman"]["carry"]
    np.testing.assert_array_equal(np.isnan(norms), [[False, True]] * 4 + [[True, True]])
