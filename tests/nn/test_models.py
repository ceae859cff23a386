"""Modules are unroll with parameters, a stack is one layer after another, the last step is the last valid one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax import probes, unroll
from rnnjax.cells import CELLS, GRU, LSTM, Elman, Jordan, TeacherForced
from rnnjax.nn import RNN, SequenceModel
from rnnjax.nn.models import last_valid
from rnnjax.testing import TOLERANCE, assert_close, fill_pads

INPUTS = np.asarray(jax.random.normal(jax.random.key(0), (5, 2, 3)))
LENGTHS = np.array([5, 2])


def test_rnn_is_unroll_of_its_parameters():
    for cell in (Jordan(3, 4, 2) if name == "jordan" else cell(3, 4) for name, cell in CELLS.items()):
        module = RNN(cell, rngs=nnx.Rngs(0))
        params = {name: module.params[name][...] for name in cell.init(jax.random.key(0))}
        got = module(INPUTS, lengths=LENGTHS, reverse=True)
        assert_close(got, unroll(cell, params, INPUTS, lengths=LENGTHS, reverse=True), 0)
        assert_close(module(INPUTS, got.carry), unroll(cell, params, INPUTS, got.carry), 0)


def test_rnn_takes_what_its_cell_takes():
    forced = TeacherForced(INPUTS, np.ones((5, 2, 4), np.float32))
    assert RNN(Jordan(3, 6, 4), rngs=nnx.Rngs(0))(forced).outputs.shape == (5, 2, 4)


def test_a_stack_is_one_layer_after_another():
    model = SequenceModel([LSTM(3, 4), GRU(4, 6)], 2, rngs=nnx.Rngs(1))
    below, above = model.layers
    outputs = above(below(INPUTS, lengths=LENGTHS).outputs, lengths=LENGTHS).outputs
    assert_close(model(INPUTS, lengths=LENGTHS), model.head(outputs), 0)
    gradients = probes.carry_gradients(lambda m, x: jnp.square(m(x)).sum())(model, INPUTS)
    assert list(gradients) == ["layer_0", "layer_1"]
    assert gradients["layer_0"].c.shape == (5, 2, 4) and jnp.abs(gradients["layer_0"].c).max() > 0


def test_a_jordan_alone_is_its_own_head_and_in_a_stack_gets_one():
    alone = SequenceModel([Jordan(3, 6, 4)], 4, rngs=nnx.Rngs(0))
    assert alone.head is None and alone(INPUTS).shape == (5, 2, 4)
    stacked = SequenceModel([Elman(3, 5), Jordan(5, 6, 4)], 4, rngs=nnx.Rngs(0))
    assert stacked.head is not None and stacked(INPUTS).shape == (5, 2, 4)


@pytest.mark.parametrize("name", CELLS)
def test_the_last_step_is_the_last_valid_one(name):
    cell = Jordan(3, 4, 2) if name == "jordan" else CELLS[name](3, 4)
    model = SequenceModel([cell], 2, reads_last=True, rngs=nnx.Rngs(0))
    got = model(fill_pads(INPUTS, LENGTHS, np.nan), lengths=LENGTHS)
    assert_close(got[0], model(INPUTS[:, :1])[0], TOLERANCE["float32"])
    assert_close(got[1], model(INPUTS[:2, 1:])[0], TOLERANCE["float32"])


def test_no_last_step_is_zeros_with_a_gradient_of_zero():
    values = jnp.ones((3, 2, 4))
    assert_close(last_valid(values, jnp.array([0, 3])), np.repeat([[0.0], [1.0]], 4, axis=1), 0)
    gradient = jax.grad(lambda v: last_valid(v, jnp.array([0, 2])).sum())(values)
    assert jnp.all(gradient[:, 0] == 0) and jnp.all(gradient[1, 1] == 1) and gradient.sum() == 4
    assert last_valid(jnp.ones((0, 2, 4))).shape == (2, 4)


@pytest.mark.parametrize(
    "cells, message",
    [
        ([], "cells is empty"),
        ([LSTM(3, 4), GRU(5, 6)], r"cells\[1\] has input_size 5: expected 4, what cells\[0\] puts out"),
        ([Jordan(3, 4, 5)], "output_size is 2 but Jordan.* reads out 5 itself"),
    ],
)
def test_what_does_not_fit_is_named(cells, message):
    with pytest.raises(ValueError, match=message):
        SequenceModel(cells, 2, rngs=nnx.Rngs(0))


def test_same_seed_same_parameters():
    first, second, other = (SequenceModel([LSTM(3, 4)], 2, rngs=nnx.Rngs(seed)) for seed in (0, 0, 1))
    assert_close(nnx.to_pure_dict(nnx.state(first)), nnx.to_pure_dict(nnx.state(second)), 0)
    assert jnp.any(first.layers[0].params["W_hh"][...] != other.layers[0].params["W_hh"][...])
