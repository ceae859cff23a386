"""NNX's cells in unroll and ours in flax.nnx.RNN give one result; a module's weights are found, and new ones drawn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rnnjax import unroll
from rnnjax.cells import GRU, LSTM, Elman, Jordan
from rnnjax.interop.linen import LinenCell
from rnnjax.interop.nnx import NNXCell, RNNCell, parameters
from rnnjax.layers import InputDropout, LearnedCarry
from rnnjax.nn import RNN
from rnnjax.testing import TOLERANCE, assert_close, check_cell, random_like

T, B, X, H = 5, 3, 3, 4
LENGTHS = np.array([T, 2, 1])
VALID = (np.arange(T)[:, None] < LENGTHS)[..., None]
FLAX_CELLS = {
    "simple": functools.partial(nnx.SimpleCell, X, H, residual=True),
    "lstm": functools.partial(nnx.LSTMCell, X, H),
    "optimized_lstm": functools.partial(nnx.OptimizedLSTMCell, X, H, activation_fn=jnp.sin),
    "gru": functools.partial(nnx.GRUCell, X, H),
}
OURS = {"elman": Elman(X, H), "jordan": Jordan(X, H, 2), "lstm": LSTM(X, H), "gru": GRU(X, H)}


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


def in_flax(make, reverse):
    """flax.nnx.RNN, time first: its outputs beside their inputs and 0 at pads, which Flax leaves as they come."""
    options = {"time_major": True, "return_carry": True, "reverse": reverse, "keep_order": True}

    def run(params, inputs, first):
        module = make(params)
        carry, outputs = nnx.RNN(module, **options)(inputs, initial_carry=first, seq_lengths=jnp.asarray(LENGTHS))
        return jnp.where(VALID, outputs, 0), carry

    return run


@pytest.mark.parametrize("name, reverse", both_ways(FLAX_CELLS, ("gru", True)))
def test_flax_cells_in_unroll_are_those_of_flax(name, reverse, x64):
    made = FLAX_CELLS[name](dtype=jnp.float64, rngs=nnx.Rngs(0))
    cell = NNXCell(made)
    params, inputs, first = draw(cell)

    def ours(params, inputs, first):
        inputs = jnp.where(VALID, inputs, jnp.nan)
        result = unroll(cell, params, inputs, cell.layout.ours(first), lengths=LENGTHS, reverse=reverse)
        return result.outputs, cell.layout.theirs(result.carry)

    def with_weights(params):
        return nnx.merge(nnx.graphdef(made), params)

    args = (params, inputs, cell.layout.theirs(first))
    got, want = with_gradients(ours, *args), with_gradients(in_flax(with_weights, reverse), *args)
    assert_close(got, want, TOLERANCE["float64"])


@pytest.mark.parametrize("name, reverse", both_ways(OURS))
def test_our_cells_in_flax_are_those_of_unroll(name, reverse, x64):
    cell = OURS[name]
    graph = nnx.graphdef(RNNCell(cell, rngs=nnx.Rngs(0)))

    def ours(params, inputs, first):
        result = unroll(cell, params, inputs, first, lengths=LENGTHS, reverse=reverse)
        return result.outputs, result.carry

    def with_weights(params):
        return nnx.merge(graph, {"params": params})

    args = draw(cell)
    got = with_gradients(in_flax(with_weights, reverse), *args)
    assert_close(got, with_gradients(ours, *args), TOLERANCE["float64"])


def test_our_cell_in_flax_holds_the_parameters_of_our_layer():
    inputs = jnp.ones((T, B, X))
    cell = LearnedCarry(LinenCell(linen.GRUCell(H), X))
    ours, theirs = RNN(cell, rngs=nnx.Rngs(0)), nnx.RNN(RNNCell(cell, rngs=nnx.Rngs(0)), time_major=True)
    assert_close(parameters(ours.params), parameters(theirs.cell.params), 0)
    want = unroll(cell, parameters(ours.params), inputs).outputs
    assert_close(theirs(inputs), want, TOLERANCE["float32"])


def test_weights_are_those_of_the_module_and_the_cell_keeps_none():
    module = nnx.LSTMCell(X, H, rngs=nnx.Rngs(7))
    cell, params = NNXCell(module), parameters(module)
    assert params["hi"]["kernel"] is module.hi.kernel[...]
    assert (cell.input_size, cell.hidden_size, cell.output_size, cell.layout.fields) == (X, H, H, ("h", "c"))
    assert jax.tree.map(jnp.shape, cell.init(jax.random.key(0))) == jax.tree.map(jnp.shape, params)
    assert jnp.any(cell.init(jax.random.key(0))["hi"]["kernel"] != cell.init(jax.random.key(1))["hi"]["kernel"])
    drawn = parameters(nnx.LSTMCell(X, H, rngs=nnx.Rngs(jax.random.key(3))))
    assert_close(cell.init(jax.random.key(3)), drawn, 0)
    nnx.update(module, cell.init(jax.random.key(3)))
    assert_close(parameters(module), drawn, 0)


def test_a_cell_is_a_value():
    cell = NNXCell(nnx.GRUCell(X, H, activation_fn=nnx.relu, rngs=nnx.Rngs(0)))
    again = NNXCell(nnx.GRUCell(X, H, activation_fn=nnx.relu, rngs=nnx.Rngs(1)))
    assert cell == again and hash(cell) == hash(again)
    assert cell != NNXCell(nnx.GRUCell(X, H, rngs=nnx.Rngs(0)))
    assert repr(cell) == "NNXCell(GRUCell(activation_fn=relu), input_size=3, hidden_size=4)"
    make = FLAX_CELLS["lstm"]
    assert NNXCell(make) == NNXCell(make) and repr(NNXCell(make)) == "NNXCell(LSTMCell(), input_size=3, hidden_size=4)"


@pytest.mark.full
@pytest.mark.parametrize("name", FLAX_CELLS)
def test_a_flax_cell_keeps_the_contract(name):
    check_cell(NNXCell(FLAX_CELLS[name](rngs=nnx.Rngs(0))))
    check_cell(NNXCell(FLAX_CELLS[name]))


def test_the_dtype_of_the_parameters_is_that_of_the_computation(x64):
    cell = NNXCell(nnx.SimpleCell(X, H, rngs=nnx.Rngs(0)))  # whose dtype is float32 where none is given
    params = cell.init(jax.random.key(0), jnp.float64)
    outputs = unroll(cell, params, jnp.ones((T, B, X))).outputs
    assert outputs.dtype == jnp.float64 and jnp.any(outputs != outputs.astype(jnp.float32))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(cell.init(jax.random.key(0), jnp.bfloat16))} == {"bfloat16"}


class Deep(nnx.RNNCellBase):
    """A user's cell: several layers a step, what lies between them in no carry; `shows` says what it puts out."""

    def __init__(self, *, rngs, depth=1, shows="h", dropout=False, normed=False, axes=1):
        self.first = nnx.Linear(X + H, H, rngs=rngs)
        self.layers = nnx.List([nnx.Linear(H, H, rngs=rngs) for _ in range(depth)])
        self.dropout = nnx.Dropout(0.5, rngs=rngs) if dropout else None
        self.norm = nnx.BatchNorm(H, rngs=rngs) if normed else None
        self.shows, self.axes = shows, axes

    def __call__(self, carry, inputs):
        h = between = nnx.tanh(self.first(jnp.concatenate([inputs, carry], -1)))
        for layer in self.layers:
            h = nnx.tanh(layer(h))
        return h, h if self.shows == "h" else between

    def initialize_carry(self, input_shape, rngs=None, carry_init=None):
        return jnp.zeros((*input_shape[:-1], H))

    @property
    def num_feature_axes(self):
        return self.axes


def test_a_users_cell_is_drawn_by_the_function_that_makes_it():
    make = functools.partial(Deep, depth=11)  # of which "10" comes before "2" and 10 does not
    cell, module = NNXCell(make, X), make(rngs=nnx.Rngs(jax.random.key(3)))
    params = cell.init(jax.random.key(3))
    assert_close(params, parameters(module), 0)
    assert set(params["layers"]) == {str(place) for place in range(11)}  # NNX takes names, not its own numbers
    model = RNN(cell, rngs=nnx.Rngs(0))
    nnx.update(model, {"params": params})
    inputs = jax.random.normal(jax.random.key(1), (T, B, X))
    want = nnx.RNN(module, time_major=True)(inputs)
    assert_close(jax.jit(lambda: model(inputs).outputs)(), want, TOLERANCE["float32"])


def test_a_module_of_a_users_class_has_weights_and_no_draw():
    module = Deep(rngs=nnx.Rngs(0))
    cell = NNXCell(module, X)
    assert cell.hidden_size == H
    assert (
        jax.eval_shape(functools.partial(unroll, cell), parameters(module), jnp.ones((T, B, X))).outputs.shape[2] == H
    )
    with pytest.raises(ValueError, match=r"how the weights of Deep were drawn: give NNXCell a function"):
        cell.init(jax.random.key(0))


@pytest.mark.parametrize("module, error, message", [
    (lambda: Elman(X, H), TypeError, r"module is Elman\(.*: expected a flax.nnx.RNNCellBase"),
    (lambda: Deep(rngs=nnx.Rngs(0), axes=3), ValueError, "Deep acts on 3 axes of features"),
    (lambda: Deep(rngs=nnx.Rngs(0), shows="between"), ValueError, "Deep puts out an array that is no part"),
    (lambda: Deep(rngs=nnx.Rngs(0), dropout=True), ValueError, "Deep holds RngCount, RngKey beside its parameters"),
    (lambda: Deep(rngs=nnx.Rngs(0), normed=True), ValueError, "Deep holds BatchStat beside its parameters"),
    (lambda: functools.partial(Deep, normed=True), ValueError, "Deep holds BatchStat beside its parameters"),
    (lambda: functools.partial(nnx.Linear, X, H), TypeError, "expected a flax.nnx.RNNCellBase"),
])  # fmt: skip
def test_what_has_no_place_in_unroll_is_refused_by_name(module, error, message):
    with pytest.raises(error, match=message):
        NNXCell(module(), X)


def test_a_size_that_is_not_told_is_asked_for():
    with pytest.raises(ValueError, match="input_size of NNXCell is None"):
        NNXCell(Deep(rngs=nnx.Rngs(0)))


def test_what_flax_can_not_step_is_refused_by_name():
    with pytest.raises(ValueError, match=r"InputDropout\(.* draws its masks.*rnnjax.nn.RNN"):
        RNNCell(InputDropout(LSTM(X, H), 0.5), rngs=nnx.Rngs(0))
