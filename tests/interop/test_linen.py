"""Flax's cells in unroll and ours in flax.linen.RNN give one result; what has no place in unroll is refused by name."""

import functools
from typing import NamedTuple

import flax.errors
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from rnnjax import layers, unroll
from rnnjax.cells import GRU, LSTM, Elman, Jordan
from rnnjax.interop.linen import RNN, LinenCell, RNNCell
from rnnjax.layers import InputDropout
from rnnjax.nn import SequenceModel
from rnnjax.tasks import Adding
from rnnjax.testing import TOLERANCE, assert_close, check_cell, random_like
from rnnjax.train.config import TrainConfig
from rnnjax.train.loop import train

T, B, X, H = 5, 3, 3, 4
LENGTHS = np.array([T, 2, 1])
VALID = (np.arange(T)[:, None] < LENGTHS)[..., None]
FLAX_CELLS = {
    "simple": nn.SimpleCell(H, residual=True),
    "lstm": nn.LSTMCell(H),
    "optimized_lstm": nn.OptimizedLSTMCell(H),
    "gru": nn.GRUCell(H, activation_fn=nn.relu),
    "mgu": nn.MGUCell(H),
    "mgu_ungated": nn.MGUCell(H, reset_gate=False),
}
OURS = {
    "elman": Elman(X, H),
    "jordan": Jordan(X, H, 2),
    "lstm": LSTM(X, H),
    "gru": GRU(X, H),
    "linen": LinenCell(nn.OptimizedLSTMCell(H), X),
}


def both_ways(names, *quick):
    """Every name in both directions; those not in `quick` are long checks."""
    every = [(name, reverse) for name in names for reverse in (False, True)]
    return [pytest.param(*case, marks=() if case in quick else pytest.mark.full) for case in every]


def draw(cell):
    """Parameters, inputs and a first carry, in float64."""
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 1, scale=0.5)
    return params, jax.random.normal(jax.random.key(2), (T, B, X)), random_like(cell.initial_carry(params, (B,)), 4)


def with_gradients(run, *args):
    """What `run` returns, and the gradients of a random projection of it."""

    def loss(*args):
        results = run(*args)
        leaves = jax.tree.leaves(results)
        return sum(map(jnp.vdot, leaves, random_like(leaves, 3))), results

    return jax.jit(jax.grad(loss, range(len(args)), has_aux=True))(*args)


def in_flax(module, reverse):
    """flax.linen.RNN, time first: its outputs beside their inputs and 0 at pads, which Flax leaves as they come."""
    rnn = nn.RNN(module, time_major=True, return_carry=True, reverse=reverse, keep_order=True)

    def run(params, inputs, first):
        variables = {"params": {"cell": params}}
        carry, outputs = rnn.apply(variables, inputs, initial_carry=first, seq_lengths=jnp.asarray(LENGTHS))
        return jnp.where(VALID, outputs, 0), carry

    return run


@pytest.mark.parametrize("name, reverse", both_ways(FLAX_CELLS, ("optimized_lstm", True)))
def test_flax_cells_in_unroll_are_those_of_flax(name, reverse, x64):
    cell = LinenCell(FLAX_CELLS[name], X)
    params, inputs, first = draw(cell)

    def ours(params, inputs, first):
        inputs = jnp.where(VALID, inputs, jnp.nan)
        result = unroll(cell, params, inputs, cell.layout.ours(first), lengths=LENGTHS, reverse=reverse)
        return result.outputs, cell.layout.theirs(result.carry)

    args = (params, inputs, cell.layout.theirs(first))
    assert_close(
        with_gradients(ours, *args), with_gradients(in_flax(cell.module, reverse), *args), TOLERANCE["float64"]
    )


@pytest.mark.parametrize("name, reverse", both_ways(OURS, ("jordan", True)))
def test_our_cells_in_flax_are_those_of_unroll(name, reverse, x64):
    cell = OURS[name]

    def ours(params, inputs, first):
        result = RNN(cell).apply({"params": params}, inputs, first, lengths=LENGTHS, reverse=reverse)
        return result.outputs, result.carry

    args = draw(cell)
    got = with_gradients(in_flax(RNNCell(cell), reverse), *args)
    assert_close(got, with_gradients(ours, *args), TOLERANCE["float64"])


def test_batch_first_and_in_the_order_of_reading(x64):
    params, inputs, _ = draw(OURS["gru"])
    rnn = nn.RNN(RNNCell(OURS["gru"]), reverse=True, return_carry=True)
    carry, outputs = jax.jit(rnn.apply)({"params": {"cell": params}}, jnp.swapaxes(inputs, 0, 1))
    want = jax.jit(lambda params, inputs: unroll(OURS["gru"], params, inputs, reverse=True))(params, inputs)
    assert_close((jnp.swapaxes(outputs, 0, 1)[::-1], carry), (want.outputs, want.carry), TOLERANCE["float64"])


def test_a_row_of_no_step_keeps_its_carry(x64):
    cell = LinenCell(nn.LSTMCell(H), X)
    params, inputs, first = draw(cell)
    got = unroll(cell, params, inputs, first, lengths=np.array([T, 0, 1]))
    assert_close(jax.tree.map(lambda leaf: leaf[1], got.carry), jax.tree.map(lambda leaf: leaf[1], first), 0)
    assert jnp.all(got.outputs[:, 1] == 0)


def shapes(function, *args):
    return jax.tree.map(jnp.shape, jax.eval_shape(function, *args))


@pytest.mark.parametrize("name", [pytest.param("lstm", marks=pytest.mark.full), "linen"])
def test_parameters_are_the_cells_and_change_places(name):
    cell, key, inputs = OURS[name], jax.random.key(5), jnp.ones((T, B, X))
    variables, step = jax.jit(RNN(cell).init)(key, inputs), RNNCell(cell)
    carry = step.initialize_carry(key, (B, X))
    assert_close(carry, cell.initial_carry(variables["params"], (B,)), 0)
    assert_close(jax.jit(step.init)(key, carry, inputs[0]), variables, TOLERANCE["float32"])
    assert shapes(nn.RNN(step).init, key, inputs) == {"params": {"cell": shapes(cell.init, key)}}
    assert shapes(RNN(cell).init, key, inputs) == {"params": shapes(cell.init, key)}
    half = jax.eval_shape(RNN(cell, param_dtype=jnp.bfloat16).init, key, inputs)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(half)} == {"bfloat16"}
    assert jax.eval_shape(RNN(cell).apply, half, inputs).outputs.dtype == jnp.bfloat16


def test_parameters_of_another_size_are_refused_by_flax():
    other = jax.eval_shape(RNN(LSTM(X, H + 1)).init, jax.random.key(0), jnp.ones((T, B, X)))
    with pytest.raises(flax.errors.ScopeParamShapeError, match="W_hh"):
        jax.eval_shape(RNN(LSTM(X, H)).apply, other, jnp.ones((T, B, X)))
    with pytest.raises(flax.errors.ScopeCollectionNotFound, match="W_hh"):
        RNN(LSTM(X, H)).apply({}, jnp.ones((T, B, X)), mutable="stats")


def test_a_parameter_that_is_missing_is_drawn_where_flax_may():
    cell = LSTM(X, H)
    params = cell.init(jax.random.key(0))
    left = {"params": {name: params[name] for name in ("W_ih", "b")}}
    _, made = RNN(cell).apply(left, jnp.ones((T, B, X)), mutable="params", rngs={"params": jax.random.key(1)})
    assert_close({name: made["params"][name] for name in ("W_ih", "b")}, left["params"], 0)
    assert_close(made["params"]["W_hh"][:, :H] @ made["params"]["W_hh"][:, :H].T, np.eye(H), TOLERANCE["float32"])


class Tagger(nn.Module):
    """Two layers, the upper one both ways by Flax's own means."""

    @nn.compact
    def __call__(self, inputs, lengths):
        below = RNN(GRU(X, H), name="below")(inputs, lengths=lengths).outputs
        forward, backward = (nn.RNN(RNNCell(LSTM(H, H))) for _ in range(2))
        return nn.Bidirectional(forward, backward, time_major=True)(below, seq_lengths=lengths)


@jax.jit
def tagged(params, inputs):
    below = unroll(GRU(X, H), params["below"], inputs, lengths=LENGTHS).outputs
    run = functools.partial(unroll, LSTM(H, H), inputs=below, lengths=LENGTHS)
    forward, backward = run(params["RNNCell_0"]), run(params["RNNCell_1"], reverse=True)
    return jnp.concatenate([forward.outputs, backward.outputs], axis=-1)


@pytest.mark.full
def test_in_a_model_of_flax(x64):
    inputs, lengths = jax.random.normal(jax.random.key(0), (T, B, X), jnp.float32), jnp.asarray(LENGTHS)
    variables = cast_to(jax.jit(Tagger().init)(jax.random.key(1), inputs, lengths), jnp.float64)
    got = jax.jit(Tagger().apply)(variables, inputs, lengths)
    assert_close(jnp.where(VALID, got, 0), tagged(variables["params"], inputs), TOLERANCE["float64"])


def test_dropout_draws_from_its_stream_in_training_alone():
    layer, inputs = layers.Stack((InputDropout(LSTM(X, H), 0.5), GRU(H, H))), jnp.ones((T, B, X))
    params, model = layer.init(jax.random.key(0)), RNN(layer)
    evaluated = model.apply({"params": params}, inputs)
    assert_close(evaluated, layers.run(layer, params, inputs), 0)

    @jax.jit
    def train(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return model.apply({"params": params}, inputs, deterministic=False, rngs=rngs).outputs

    assert_close(train(1), train(1), 0)
    assert jnp.any(train(1) != train(2)) and jnp.any(train(1) != evaluated.outputs)
    with pytest.raises(flax.errors.InvalidRngError, match="dropout"):
        model.apply({"params": params}, inputs, deterministic=False)
    with pytest.raises(ValueError, match="reverse is True but the layer is Stack"):
        model.apply({"params": params}, inputs, reverse=True)


def test_what_flax_can_not_step_is_refused_by_name():
    key, inputs = jax.random.key(0), jnp.ones((T, B, X))
    with pytest.raises(ValueError, match=r"InputDropout\(.* draws its masks.*rnnjax.interop.linen.RNN"):
        nn.RNN(RNNCell(InputDropout(LSTM(X, H), 0.5))).init(key, inputs)
    with pytest.raises(TypeError, match=r"cell of RNNCell is Stack\(.*: expected a Cell"):
        nn.RNN(RNNCell(layers.Stack((LSTM(X, H),)))).init(key, inputs)


def test_a_first_carry_made_of_parameters_is_found_where_they_are():
    cell, inputs = layers.LearnedCarry(Elman(X, H)), jnp.ones((T, B, X))
    params = random_like(cell.init(jax.random.key(0)), 1)
    rnn = nn.RNN(RNNCell(cell), time_major=True)
    got = jax.jit(rnn.apply)({"params": {"cell": params}}, inputs)
    assert_close(got, unroll(cell, params, inputs).outputs, TOLERANCE["float32"])
    with pytest.raises(ValueError, match=r"first carry of LearnedCarry\(.* is made of its parameters"):
        RNNCell(cell).initialize_carry(jax.random.key(0), (B, X))


@pytest.mark.full
@pytest.mark.parametrize("name", FLAX_CELLS)
def test_a_flax_cell_keeps_the_contract(name):
    check_cell(LinenCell(FLAX_CELLS[name], X))


def test_the_dtype_of_the_parameters_is_that_of_the_computation(x64):
    cell = LinenCell(nn.LSTMCell(H, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16), X)  # a QR that bfloat16 has not
    drawn = {dtype: cell.init(jax.random.key(0), dtype) for dtype in (jnp.bfloat16, jnp.float32, jnp.float64)}
    for dtype, params in drawn.items():
        assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype(dtype)}
        assert_close(cast_to(params, jnp.bfloat16), drawn[jnp.bfloat16], 0)
        assert unroll(cell, params, jnp.ones((T, B, X), jnp.float64)).carry.c.dtype == dtype
    recurrent = drawn[jnp.float32]["hi"]["kernel"]
    assert_close(recurrent @ recurrent.T, np.eye(H), TOLERANCE["float32"], "orthogonal")
    exact = unroll(cell, drawn[jnp.float64], jnp.ones((T, B, X))).outputs
    assert_close(unroll(cell, drawn[jnp.float32], jnp.ones((T, B, X))).outputs, exact, TOLERANCE["float32"])
    assert jnp.any(exact != exact.astype(jnp.float32))


def cast_to(tree, dtype):
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)


def test_a_cell_is_a_value():
    cell = LinenCell(nn.GRUCell(H, activation_fn=nn.relu), X)
    assert cell == LinenCell(nn.GRUCell(features=H, activation_fn=nn.relu), X) != LinenCell(nn.GRUCell(H), X)
    assert hash(cell) == hash(LinenCell(nn.GRUCell(H, activation_fn=nn.relu), X))
    assert repr(cell) == "LinenCell(GRUCell(features=4, activation_fn=relu), input_size=3)"
    assert (cell.input_size, cell.hidden_size, cell.output_size) == (X, H, H)


class Leaky(nn.RNNCellBase):
    """A user's cell: h and a slow average of it, under `kind` of carry; what it puts out is for `shows` to say."""

    kind: str = "dict"
    shows: str = "h"
    axes: int = 1
    rate: float = 0.0
    deterministic: bool = True
    normed: bool = False

    @nn.compact
    def __call__(self, carry, inputs):
        slow, h = jax.tree.leaves(carry)[:2]
        h = nn.tanh(nn.Dense(H)(jnp.concatenate([inputs, h], -1)))
        h = nn.Dropout(self.rate)(h, deterministic=self.deterministic)
        h = nn.BatchNorm(use_running_average=True)(h) if self.normed else h
        slow = 0.9 * slow + 0.1 * h
        return self.carry(slow, h), {"h": h, "slow": slow, "both": h + slow}[self.shows]

    @nn.nowrap
    def carry(self, slow, h):
        kinds = {"dict": lambda: {"a_slow": slow, "h": h}, "tuple": lambda: (slow, h), "named": lambda: Slow(slow, h)}
        return kinds[self.kind]() if self.kind != "three" else (slow, (h, slow))

    @nn.nowrap
    def initialize_carry(self, rng, input_shape):
        return self.carry(*jnp.full((2, *input_shape[:-1], H), 0.1))

    @property
    def num_feature_axes(self):
        return self.axes


class Slow(NamedTuple):
    slow: jax.Array
    h: jax.Array


@pytest.mark.parametrize("kind, shows, fields", [
    ("tuple", "h", ("h", "c")),
    ("tuple", "slow", ("h", "c")),
    ("dict", "h", ("h", "a_slow")),
    ("named", "h", ("h", "slow")),
    ("named", "slow", ("slow", "h")),
    ("three", "h", ("h", "c_0", "c_1")),
])  # fmt: skip
def test_the_carry_of_a_users_cell_has_names(kind, shows, fields):
    cell = LinenCell(Leaky(kind, shows), X)
    theirs = cell.module.carry(jnp.zeros(H), jnp.ones(H))
    ours = cell.layout.ours(theirs)
    assert ours._fields == fields and type(ours).__name__ == "LeakyCarry"
    assert jnp.all(ours[0] == (shows == "h"))
    assert_close(cell.layout.theirs(ours), theirs, 0)


def test_a_users_cell_in_unroll_is_that_of_flax(x64):
    cell = LinenCell(Leaky("three", "h"), X)
    params, inputs, _ = draw(cell)
    got = jax.jit(lambda params: unroll(cell, params, inputs))(params)
    rnn = nn.RNN(cell.module, time_major=True, return_carry=True)
    want = jax.jit(lambda params: rnn.apply({"params": {"cell": params}}, inputs))(params)
    assert_close((cell.layout.theirs(got.carry), got.outputs), want, TOLERANCE["float64"])


@pytest.mark.parametrize("make, error, message", [
    (lambda: Elman(X, H), TypeError, r"module is Elman\(.*: expected a flax.linen.RNNCellBase"),
    (lambda: nn.ConvLSTMCell(H, (2, 2)), ValueError, "ConvLSTMCell acts on 3 axes of features"),
    (lambda: Leaky(shows="both"), ValueError, "Leaky puts out an array that is no part of its carry"),
    (lambda: Leaky(rate=0.5, deterministic=False), ValueError, "Leaky draws random numbers in its step"),
    (lambda: Leaky(normed=True), ValueError, "Leaky holds batch_stats beside its parameters"),
])  # fmt: skip
def test_what_has_no_place_in_unroll_is_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        LinenCell(make(), X)


def test_a_size_that_is_none_is_refused():
    with pytest.raises(ValueError, match="input_size of LinenCell is 0"):
        LinenCell(nn.GRUCell(H), 0)
    assert LinenCell(Leaky(rate=0.5), X).hidden_size == H  # dropout that is off draws nothing


def test_the_trainer_takes_them(tmp_path):
    task, cell = Adding(6), LinenCell(nn.LSTMCell(8), 2)
    model = SequenceModel(cell, task.output_size, reads_last=task.reads_last, rngs=nnx.Rngs(0))
    config = TrainConfig(steps=150, steps_per_call=50, eval_every=150, log_every=50, learning_rate=1e-2)
    trained = train(model, task, config, tmp_path)
    assert trained.scores["test"]["loss"] < 0.5 * task.chance
    assert "LinenCell(LSTMCell(features=8), input_size=2)" in repr(model)


@pytest.mark.parametrize("wrapper", [layers.DropConnect, layers.RecurrentDropout])
def test_a_wrapper_that_needs_the_recurrent_matrices_by_name_says_so(wrapper):
    cell = wrapper(LinenCell(nn.GRUCell(4), 3), 0.5)
    params = cell.init(jax.random.key(0))
    with pytest.raises(ValueError, match="recurrent of LinenCell.*expected the names of the matrices"):
        cell.randomize(jax.random.key(1), params, jnp.zeros((5, 2, 3)))
