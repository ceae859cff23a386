"""A step is grad and optax; the model is any NNX module, and is left as it was."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.nn import RNN
from rnnjax.tasks import Adding, Batch, SyntheticTask, reduce_mean
from rnnjax.testing import TOLERANCE, assert_close, count_compilations
from rnnjax.train.build import make_model
from rnnjax.train.config import TrainConfig
from rnnjax.train.step import Learner

TASK = Adding(6)
KEY = jax.random.key(3, impl="threefry2x32")


@dataclasses.dataclass(frozen=True)
class Echo(SyntheticTask):
    """At every step the input itself; `counts` says whether any place counts."""

    counts: bool = True

    input_size: ClassVar[int] = 2
    output_size: ClassVar[int] = 2
    reads_last: ClassVar[bool] = False

    def sample(self, key, batch_size):
        inputs = jax.random.normal(key, (5, batch_size, 2))
        return Batch(inputs, inputs, jnp.full((5, batch_size), float(self.counts)))

    def loss(self, outputs, batch):
        return jnp.mean(jnp.square(outputs - batch.targets), -1)

    def metrics(self, outputs, batch):
        return {"first": (outputs[..., 0], batch.mask * (batch.targets[..., 0] > 0))}


class Noisy(nnx.Module):
    """A model with all that depends on the mode: dropout, and batch norm with its running statistics."""

    def __init__(self, rngs):
        self.rnn = RNN(Elman(2, 4), rngs=rngs)
        self.norm = nnx.BatchNorm(4, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(0.5)
        self.head = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, inputs, *, lengths=None, rngs=None):
        return self.head(self.dropout(self.norm(self.rnn(inputs, lengths=lengths).outputs), rngs=rngs))


def learner_of(model, task, **changes):
    config = TrainConfig(batch_size=4, optimizer="sgd", learning_rate=0.1, clip_norm=0)
    config = dataclasses.replace(config, **changes)
    return Learner(model, task, config)


@pytest.fixture(scope="module")
def noisy():
    """(model, learner, its first state, jitted train_step)."""
    model = Noisy(nnx.Rngs(0))
    learner = learner_of(model, Echo())
    return model, learner, learner.init(KEY), jax.jit(learner.train_step)


@pytest.mark.parametrize("optimizer, cell", [("sgd", Elman(2, 3)), ("adam", LSTM(2, 3))], ids=["sgd", "adam"])
def test_a_step_is_grad_and_optax(optimizer, cell):
    plain = getattr(optax, optimizer)(0.1)
    model = make_model(cell, TASK, 0)
    learner = learner_of(model, TASK, optimizer=optimizer)
    state = learner.init(KEY)
    graph, params = nnx.split(model)
    opt_state, step = plain.init(params), jax.jit(learner.train_step)

    @jax.jit
    @jax.value_and_grad
    def value_and_grad(params, batch):
        return jnp.mean(jnp.square(nnx.merge(graph, params)(batch.inputs)[:, 0] - batch.targets[:, 0]))

    for number in range(3):
        batch = learner.sample(state)
        state, metrics = step(state, batch)
        loss, gradient = value_and_grad(params, batch)
        updates, opt_state = plain.update(gradient, opt_state, params)
        params = optax.apply_updates(params, updates)
        assert state.step == number + 1 and bool(metrics["finite"].all())
        assert_close(metrics["loss"], loss, TOLERANCE["float32"])
        assert_close(metrics["gradient_norm"], optax.tree.norm(gradient), TOLERANCE["float32"])
        assert_close(nnx.to_pure_dict(state.params), nnx.to_pure_dict(params), 1e-4 if optimizer == "adam" else 1e-6)


def test_clipping_shortens_the_step_and_both_norms_are_told():
    model = make_model(GRU(2, 3), TASK, 0)
    free, clipped = (learner_of(model, TASK, clip_norm=norm) for norm in (0, 0.01))
    state = free.init(KEY)
    batch = free.sample(state)
    start = nnx.to_pure_dict(state.params)
    (after, metrics), (shorter, clipped_metrics) = (
        jax.jit(learner.train_step)(learner.init(KEY), batch) for learner in (free, clipped)
    )
    assert metrics["gradient_norm"] == metrics["clipped_norm"] == clipped_metrics["gradient_norm"] > 0.01
    np.testing.assert_allclose(clipped_metrics["clipped_norm"], 0.01, rtol=1e-5)
    moved = jax.tree.map(lambda a, b: a - b, nnx.to_pure_dict(after.params), start)
    want = jax.tree.map(lambda a, m: a + m * 0.01 / metrics["gradient_norm"], start, moved)
    assert_close(nnx.to_pure_dict(shorter.params), want, 1e-6)


def test_a_second_step_compiles_nothing(noisy):
    model, learner, state, step = noisy
    state, _ = step(state, learner.sample(state))
    batch = learner.sample(state)
    with count_compilations() as compiled:
        state, _ = step(state, batch)
    assert compiled.count == 0
    with count_compilations() as compiled:
        step(state, learner_of(model, Echo(), batch_size=7).sample(state))
    assert compiled.count > 0


def test_each_step_has_a_batch_and_a_dropout_mask_of_its_own(noisy):
    _, learner, state, step = noisy
    batches = [learner.sample(state._replace(step=jnp.int32(number))) for number in range(3)]
    assert len({batch.inputs.tobytes() for batch in map(jax.device_get, batches)}) == 3
    losses = [float(step(state._replace(step=jnp.int32(number)), batches[0])[1]["loss"]) for number in (0, 1, 2, 0)]
    assert losses[0] == losses[3] and len(set(losses)) == 3
    other = state._replace(key=jax.random.key(4, impl="threefry2x32"))
    assert float(step(other, batches[0])[1]["loss"]) != losses[0]


def test_training_updates_the_batch_statistics_and_evaluation_uses_them(noisy):
    model, learner, state, step = noisy
    batch = learner_of(model, Echo(), batch_size=64).sample(state)
    hidden = model.rnn(batch.inputs).outputs
    after, _ = step(state, batch)
    statistics = nnx.to_pure_dict(after.variables)["norm"]
    assert_close(statistics["mean"], 0.5 * hidden.mean((0, 1)), 1e-5)
    assert_close(statistics["var"], 0.5 + 0.5 * hidden.var((0, 1)), 1e-5)

    params = nnx.to_pure_dict(after.params)
    scale = params["norm"]["scale"] / jnp.sqrt(statistics["var"] + model.norm.epsilon)
    hidden = RNN(Elman(2, 4), rngs=nnx.Rngs(0))
    nnx.update(hidden, nnx.State(params["rnn"]))
    normed = (hidden(batch.inputs).outputs - statistics["mean"].reshape(1, 1, 4)) * scale.reshape(1, 1, 4)
    normed += params["norm"]["bias"].reshape(1, 1, 4)
    want = normed @ params["head"]["kernel"] + params["head"]["bias"].reshape(1, 1, 2)
    got = learner.apply(after.params, after.variables, batch)
    assert_close(got, want, TOLERANCE["float32"])
    assert_close(learner.apply(after.params, after.variables, batch), got, 0)
    assert jnp.abs(learner.apply(after.params, state.variables, batch) - got).max() > 1e-3


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_model_is_left_as_it_was(mode):
    model = Noisy(nnx.Rngs(0))
    getattr(model, mode)()
    graph, before = nnx.split(model)
    before = jax.tree.map(jnp.copy, nnx.to_pure_dict(before))  # numpy would hold on to the memory itself
    learner = learner_of(model, Echo())
    batch = learner.sample(learner.init(KEY))
    step = jax.jit(learner.train_step, donate_argnums=0)
    for _ in range(2):  # a learner starts as often as it is asked to
        state, _ = step(learner.init(jax.random.key(0)), batch)
    assert not jnp.array_equal(nnx.to_pure_dict(state.params)["head"]["kernel"], before["head"]["kernel"])
    after_graph, after = nnx.split(model)
    assert after_graph == graph and model.dropout.deterministic == (mode == "eval")
    assert_close(nnx.to_pure_dict(after), before, 0)


def test_where_nothing_counts_the_loss_is_0_and_nothing_moves():
    learner = learner_of(make_model(GRU(2, 3), Echo(), 0), Echo(counts=False))
    state = learner.init(KEY)
    batch = learner.sample(state)
    after, metrics = jax.jit(learner.train_step)(state, batch)
    assert metrics["loss"] == 0 and metrics["gradient_norm"] == 0 and bool(metrics["finite"].all())
    assert_close(after.params, state.params, 0)
    scored = learner.score(state.params, state.variables, batch)
    assert {name: (float(total), float(count)) for name, (total, count) in scored.items()} == {
        "loss": (0, 0),
        "first": (0, 0),
    }


def test_scores_are_sums_and_counts_each_over_its_own_mask(noisy):
    model, learner, state, _ = noisy
    batch = learner_of(model, Echo(), batch_size=3).sample(state)
    batch = batch._replace(mask=batch.mask.at[3:, 1].set(0), targets=batch.targets.at[3:, 1].set(jnp.nan))
    scored = learner.score(state.params, state.variables, batch)
    outputs = np.asarray(learner.apply(state.params, state.variables, batch), np.float64)
    targets, mask = np.asarray(batch.targets, np.float64), np.asarray(batch.mask) > 0
    losses = np.square(outputs - targets).mean(-1)[mask]
    np.testing.assert_allclose(scored["loss"], (losses.sum(), 13), rtol=1e-5)
    above = mask & (targets[..., 0] > 0)
    np.testing.assert_allclose(scored["first"], (outputs[above, 0].sum(), above.sum()), rtol=1e-5)
    assert 0 < above.sum() < 13
    assert_close(reduce_mean(learner.task.loss(outputs, batch), batch.mask), losses.mean(), 1e-5)


def test_tensors_have_the_names_of_the_model(noisy):
    _, learner, state, step = noisy
    names = learner.tensor_names
    assert names[0] == "the loss" and len(names) == 1 + len(jax.tree.leaves(state.params))
    batch = learner.sample(state)
    assert step(state, batch)[1]["finite"].shape == (len(names),)
    flat = dict(nnx.to_flat_state(state.params))
    assert names[1:] == [f"the gradient of {'/'.join(map(str, path))}" for path in flat]
    assert {"the gradient of head/kernel", "the gradient of rnn/params/W_hh", "the gradient of norm/scale"} < set(names)


@pytest.mark.parametrize("name", ["head/kernel", "rnn/params/W_ih"])
def test_what_is_not_finite_is_found_under_its_name(noisy, name):
    _, learner, state, _ = noisy

    @jax.custom_vjp
    def poison(x):
        return x

    poison.defvjp(lambda x: (x, None), lambda _, g: (jnp.full_like(g, jnp.inf),))

    class Poisoned(Noisy):
        def __call__(self, inputs, **kwargs):
            module, _, leaf = name.rpartition("/")
            target = self
            for part in module.split("/"):
                target = getattr(target, part)
            holder = target[leaf] if module.endswith("params") else getattr(target, leaf)
            holder[...] = poison(holder[...])
            return super().__call__(inputs, **kwargs)

    learner = learner_of(Poisoned(nnx.Rngs(0)), Echo())
    _, metrics = jax.jit(learner.train_step)(state, learner.sample(state))
    wrong = [tensor for tensor, fine in zip(learner.tensor_names, metrics["finite"], strict=True) if not fine]
    assert wrong == [f"the gradient of {name}"] and jnp.isfinite(metrics["loss"])
