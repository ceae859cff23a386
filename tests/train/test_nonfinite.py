"""What is not finite is told by its step, its tensor and the first time at which it was, going back from the loss."""

import dataclasses
import json
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Sums, assert_same_bits, config_of, model_of, rows_of
from flax import nnx

from rnnjax.cells import LSTM, Elman
from rnnjax.nn import SequenceModel
from rnnjax.tasks import Batch, SyntheticTask
from rnnjax.testing import assert_close
from rnnjax.train import loop
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.loop import NonFiniteError, train
from rnnjax.train.nonfinite import describe, not_finite, where_in_time
from rnnjax.train.replicas import Replica
from rnnjax.train.step import Learner, root_key

TIME = 8


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """These tests compile far more than they compute."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@dataclasses.dataclass(frozen=True)
class Silence(SyntheticTask):
    """Inputs of 0, and as the loss the last output itself."""

    input_size: ClassVar[int] = 1
    output_size: ClassVar[int] = 1
    reads_last: ClassVar[bool] = True

    def sample(self, key, batch_size):
        return Batch(jnp.zeros((TIME, batch_size, 1)), jnp.zeros(batch_size), jnp.ones(batch_size))

    def loss(self, outputs, batch):
        return outputs[:, 0]

    def metrics(self, outputs, batch):
        return {}


def exploding(weight=1e10, activation="tanh"):
    """h_t = tanh(weight * h_{t-1}) from 0 on, so that dL/dh_t is weight to the power of the steps that are left."""
    model = model_of(Elman(1, 1, activation), Silence(), dtype="float32")
    model.rnn.params["W_hh"][...] = jnp.full((1, 1), weight, jnp.float32)
    model.head.kernel[...] = jnp.ones((1, 1), jnp.float32)
    return model


def test_the_first_time_is_where_the_powers_pass_the_largest_float(tmp_path):
    """1e10 ** 3 is a float32 and 1e10 ** 4 is not: the last time is 7, so it begins 4 steps before."""
    with pytest.raises(NonFiniteError) as error:
        train(exploding(), Silence(), config_of(), tmp_path)
    names = ", ".join(f"the gradient of rnn/params/{name}" for name in ("W_hh", "W_ih", "b"))
    where = "going back from the loss, dL/dh_t of elman from t = 3 back (example 0)"
    assert str(error.value).startswith(f"step 0: {names} are not finite; {where}. A lower --config.train.learning_rate")
    assert error.value.step == 0 and error.value.where == where and len(error.value.tensors) == 3
    assert rows_of(tmp_path) == [] and json.loads((tmp_path / "heartbeat.json").read_text())["state"] == "failed"


def test_the_noise_that_made_it_is_there_when_it_is_looked_for():
    """Without noise the weight is 1 and nothing explodes."""
    learner = Learner(exploding(1.0, "identity"), Silence(), config_of(weight_noise=1e12))
    state = learner.init(root_key(0))
    batch = learner.sample(state)
    _, metrics = learner.train_step(state, batch)
    assert not metrics["finite"].all()
    assert "dL/dh_t of elman from t = " in where_in_time(learner, state, batch)


def place_of(step, seed=0):
    """(t, row) near the end of the longest sequence of a training batch."""
    lengths = Sums().batch(step, 3, seed).lengths
    row = int(np.argmax(lengths))
    return int(lengths[row]) - 2, row


@pytest.mark.parametrize("window", [0, 4])
def test_a_target_that_is_no_number_is_found_in_its_row_at_its_time(tmp_path, window):
    t, row = place_of(1)
    assert (t, row) != (0, 0) and t >= 4
    task = Sums(nan_at=1, nan_place=(t, row))
    with pytest.raises(NonFiniteError) as error:
        train(model_of(LSTM(1, 3), task, dtype="float32"), task, config_of(window=window, steps=8), tmp_path)
    step, at = (3, t - 4) if window else (1, t)  # the second window of the second batch
    assert error.value.step == step and error.value.tensors[0] == "the loss"
    assert error.value.where == f"going back from the loss, dL/dh_t of lstm from t = {at} back (example {row})"


def test_where_no_carry_is_to_blame_it_says_so():
    @jax.custom_vjp
    def poison(x):
        return x

    poison.defvjp(lambda x: (x, None), lambda _, g: (jnp.full_like(g, jnp.inf),))

    class Poisoned(SequenceModel):
        def __call__(self, inputs, **kwargs):
            self.head.bias[...] = poison(self.head.bias[...])
            return super().__call__(inputs, **kwargs)

    model = Poisoned(Elman(1, 1), 1, reads_last=True, rngs=nnx.Rngs(0))
    learner = Learner(model, Silence(), config_of())
    state = learner.init(root_key(0))
    batch = learner.sample(state)
    _, metrics = learner.train_step(state, batch)
    found = not_finite(np.asarray(metrics["finite"])[None], learner.tensor_names)
    assert found == [(0, ["the gradient of head/bias"])]
    told = where_in_time(learner, state, batch)
    assert told == "dL/dcarry_t is finite at all t: it is a weight's own sum, or the head, that is not"


def by_hand(task, bad, config):
    """The state after 6 steps of which those in `bad` make no update."""
    learner = Learner(model_of(Elman(1, 3), task, dtype="float32"), task, config)
    state, step = learner.init(root_key(0)), jax.jit(learner.train_step)
    for number in range(6):
        moved, _ = step(state, task.batch(number, config.batch_size, 0))
        state = state._replace(step=moved.step) if number in bad else moved
    return state


def test_skip_leaves_the_update_out_and_counts_it(tmp_path):
    t, row = place_of(3)
    task, config = Sums(nan_at=3, nan_place=(t, row)), config_of(nonfinite="skip")
    trained = train(model_of(Elman(1, 3), task, dtype="float32"), task, config, tmp_path)
    want = by_hand(task, {3}, config)
    assert_close(to_arrays(trained.state.params), to_arrays(want.params), 1e-6)  # a step alone may round otherwise
    assert trained.state.nonfinite == 1 and trained.state.step == 6 and trained.stopped is None
    (told,) = [one for one in rows_of(tmp_path) if one["kind"] == "nonfinite"]
    assert told["step"] == 3 and told["why"].startswith("step 3: the loss, the gradient of head/bias")
    assert told["why"].endswith(f"; going back from the loss, dL/dh_t of elman from t = {t} back (example {row})")
    assert [one["loss"] for one in rows_of(tmp_path) if one["kind"] == "train" and one["step"] == 4] == [None]
    assert np.isfinite(trained.scores["test"]["loss"])


def test_count_goes_on_with_what_it_has(tmp_path):
    task, config = Sums(nan_at=3), config_of(nonfinite="count")
    model = model_of(Elman(1, 3), task, dtype="float32")
    trained = train(model, task, config, tmp_path)
    assert trained.state.nonfinite == 3 and trained.state.step == 6
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(trained.state.params["head"]))
    assert [one["step"] for one in rows_of(tmp_path) if one["kind"] == "nonfinite"] == [3, 4, 5]
    assert ["going back" in one["why"] for one in rows_of(tmp_path) if one["kind"] == "nonfinite"] == [
        True,
        False,
        False,
    ]
    assert [one["nonfinite"] for one in rows_of(tmp_path) if one["kind"] == "train"] == [0, 1, 3]
    assert trained.best_step == -1
    assert_same_bits(trained.best, nnx.state(model, nnx.Param))


def test_it_is_looked_for_with_the_state_of_its_step(tmp_path, monkeypatch):
    """Also in the middle of a call of which the state before is no longer there."""
    seen = []
    monkeypatch.setattr(loop, "where_in_time", lambda learner, state, batch: seen.append((state, batch)) or "")
    task = Sums(nan_at=3)
    for nonfinite in ("skip", "stop"):
        config = config_of(nonfinite=nonfinite, steps_per_call=6, eval_every=6, log_every=6)
        try:
            train(model_of(Elman(1, 3), task, dtype="float32"), task, config, tmp_path / nonfinite)
        except NonFiniteError as error:
            assert nonfinite == "stop" and error.step == 3
    config = config_of(steps=3, steps_per_call=3, eval_every=3, log_every=3)
    want = train(model_of(Elman(1, 3), task, dtype="float32"), task, config, tmp_path / "before").state
    assert len(seen) == 2
    for state, batch in seen:
        assert_same_bits(state._replace(stopped=None, nonfinite=None), want._replace(stopped=None, nonfinite=None))
        assert np.isnan(batch.targets[0, 0]).all()


def test_every_row_that_has_something_is_told():
    finite = np.array([[True, True, True], [True, False, False], [False, True, True]])
    assert not_finite(finite, ["the loss", "a", "b"]) == [(1, ["a", "b"]), (2, ["the loss"])]
    assert not_finite(finite[:1], ["the loss", "a", "b"]) == []
    assert describe(4, ["the loss"]) == "step 4: the loss is not finite"
    assert describe(4, ["a", "b"], "there") == "step 4: a, b are not finite; there"


def test_several_replicas_that_skip_in_one_call_are_told_in_the_order_of_the_steps(tmp_path):
    """However steps are grouped into calls, metrics.jsonl has the same bytes; each replica is told where, once."""
    task, written = Sums(nan_at=3), []
    for count in (1, 2, 6):
        config = config_of(nonfinite="skip", steps_per_call=count, eval_every=6, log_every=6)
        replicas = [Replica(model_of(Elman(1, 3), task, dtype="float32"), seed, {}, str(seed)) for seed in (0, 1)]
        train(replicas, task, config, tmp_path / str(count))
        written.append((tmp_path / str(count) / "metrics.jsonl").read_bytes())
    assert written[0] == written[1] == written[2]
    told = [(one["step"], one["replica"]) for one in rows_of(tmp_path / "6") if one["kind"] == "nonfinite"]
    assert told == [(3, 0), (3, 1)]
