"""What the draws of a cell are, and that an orthogonal matrix stays one through training."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import expm

from rnnjax import unroll
from rnnjax.cells import GRU, LSTM, MGU, Elman, IndRNN
from rnnjax.cells.elman import modrelu
from rnnjax.testing import TOLERANCE, assert_close

KEY = jax.random.key(0)
STEPS = 50.0
MANY = {"input_size": 2, "hidden_size": 1000, "recurrent_init": "identity"}  # the identity is drawn quickly


def check_uniform(values, low, high):
    """1000 values of U(low, high): their quantiles are within four standard errors."""
    values = np.sort(np.asarray(values, np.float64))
    ranks = (np.arange(1000) + 0.5) / 1000
    assert low - 1e-3 <= values[0] and values[-1] <= high + 1e-3
    np.testing.assert_allclose(values, low + (high - low) * ranks, atol=4 * (high - low) * 0.5 / 1000**0.5)


def test_chrono_of_an_lstm():
    i, f, g, o = np.split(LSTM(**MANY, forget_bias=7.0, chrono=STEPS).init(KEY)["b"], 4)
    check_uniform(np.exp(f), 1, STEPS - 1)
    np.testing.assert_array_equal(i, -f)
    assert not g.any() and not o.any()
    np.testing.assert_array_equal(LSTM(**MANY, coupled=True, chrono=STEPS).init(KEY)["b"][:1000], f)
    assert not LSTM(2, 5, chrono=2).init(KEY)["b"].any()  # U(1, 1) = 1


def test_chrono_and_bias_of_a_gru():
    r, u, n = np.split(GRU(**MANY, update_bias=7.0, chrono=STEPS).init(KEY)["b"], 3)
    check_uniform(np.exp(u), 1, STEPS - 1)
    assert not r.any() and not n.any()
    np.testing.assert_array_equal(GRU(2, 4, update_bias=1.5).init(KEY)["b"], np.repeat(np.float32([0, 1.5, 0]), 4))
    np.testing.assert_array_equal(GRU(2, 4, update_bias=1.5, reset="none").init(KEY)["b"], [1.5] * 4 + [0] * 4)
    assert not GRU(2, 4, update_bias=1.5, update_gate=False).init(KEY)["b"].any()


def test_an_update_bias_keeps():
    cell = GRU(2, 4, update_bias=30.0)
    start = cell.initial_carry({}, (3,))._replace(h=jax.random.normal(KEY, (3, 4)))
    kept = unroll(cell, cell.init(KEY), jnp.ones((5, 3, 2)), start).carry
    assert_close(kept, start, TOLERANCE["float32"])


def test_chrono_may_be_traced():
    for cell in (LSTM(2, 3), GRU(2, 3)):
        init = lambda steps, cell=cell: dataclasses.replace(cell, chrono=steps).init(KEY)["b"]  # noqa: E731
        several = jax.vmap(init)(jnp.array([10.0, 90.0]))
        assert_close(several, jnp.stack([init(10.0), init(90.0)]), TOLERANCE["float32"])


def test_options_that_add_parameters_start_at_the_standard_cell():
    cell = LSTM(3, 4)
    params, inputs = cell.init(KEY), jax.random.normal(KEY, (6, 2, 3))
    seen = LSTM(3, 4, peepholes=True)
    more = seen.init(KEY)
    assert {name: more[name].tolist() for name in params} == {name: leaf.tolist() for name, leaf in params.items()}
    assert_close(unroll(seen, more, inputs).outputs, unroll(cell, params, inputs).outputs, TOLERANCE["float32"])


def test_each_block_of_the_gate_recurrence_is_orthogonal():
    blocks = LSTM(2, 4, gate_recurrence=True, gain=0.5).init(KEY)["W_gates"].reshape(3, 4, 3, 4).transpose(0, 2, 1, 3)
    squares = jnp.einsum("abij,abkj->abik", blocks, blocks)
    assert_close(squares, jnp.broadcast_to(0.25 * jnp.eye(4), (3, 3, 4, 4)), TOLERANCE["float32"])
    assert len({float(block[0, 0]) for block in blocks.reshape(9, 4, 4)}) == 9


def test_the_weight_of_an_indrnn():
    for gain in (1.0, 0.9):
        check_uniform(IndRNN(2, 1000, gain=gain).init(KEY)["u"], 0, gain)


def test_an_indrnn_takes_weights_of_each_example():
    cell = IndRNN(3, 4)
    params, inputs = cell.init(KEY), jax.random.normal(KEY, (5, 2, 3))
    each = jnp.stack([params["u"], 0 * params["u"]])
    got = unroll(cell, params | {"u": each}, inputs).outputs
    want = [unroll(cell, params | {"u": u}, inputs[:, b]).outputs for b, u in enumerate(each)]
    assert_close(got, jnp.stack(want, axis=1), TOLERANCE["float32"])


def test_mgu_starts_without_a_bias():
    assert not MGU(3, 4).init(KEY)["b"].any()


def rotation(cell, params):
    """W_hh / gain, after a check that it is orthogonal and of determinant 1."""
    W = cell.prepare(params)["W_hh"] / cell.gain
    assert_close(W @ W.T, jnp.eye(cell.hidden_size), TOLERANCE["float32"])
    np.testing.assert_allclose(jnp.linalg.det(W), 1, rtol=1e-5)
    return W


@pytest.mark.parametrize("size, gain", [(5, 0.9), (1, 1.0)])
def test_an_orthogonal_matrix_starts_as_rotations_of_planes(size, gain):
    cell = Elman(2, size, orthogonal=True, gain=gain)
    params = cell.init(KEY)
    W, angles = np.asarray(rotation(cell, params)), np.diag(params["A_hh"], 1)[::2]
    assert len(angles) == size // 2 and np.all(np.abs(angles) <= np.pi)
    want = np.eye(size)
    for k, angle in enumerate(angles):
        turn = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        want[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = turn
    assert_close(W, want, TOLERANCE["float32"])


def test_the_angles_are_uniform():
    angles = jax.vmap(lambda key: Elman(1, 2, orthogonal=True).init(key)["A_hh"][0, 1])(jax.random.split(KEY, 1000))
    check_uniform(angles, -np.pi, np.pi)


def test_it_stays_orthogonal_while_it_is_trained():
    cell = Elman(3, 6, orthogonal=True)
    inputs = jax.random.normal(KEY, (8, 4, 3))

    @jax.jit
    def update(params):
        gradients = jax.grad(lambda p: jnp.square(unroll(cell, p, inputs).outputs[-1] - 1).mean())(params)
        return jax.tree.map(lambda p, d: p - 0.3 * d, params, gradients)

    params = cell.init(KEY)
    before = rotation(cell, params)
    for _ in range(20):
        params = update(params)
    assert jnp.abs(rotation(cell, params) - before).max() > 0.1
    assert jnp.count_nonzero(params["A_hh"]) == 30  # every plane turns, none on the diagonal


def test_bfloat16_rounds_the_orthogonal_matrix_once():
    cell = Elman(3, 6, orthogonal=True)
    params = cell.init(KEY, jnp.bfloat16)
    free = params["A_hh"].astype(jnp.float32)
    np.testing.assert_array_equal(cell.prepare(params)["W_hh"], expm(free - free.T).astype(jnp.bfloat16))


def test_modrelu_with_bias_0_is_linear_at_0_too():
    a, b = jnp.array([[-2.0, 0.0, 0.5]]), jnp.zeros(3)
    np.testing.assert_array_equal(modrelu(a, b), a)
    np.testing.assert_array_equal(jax.grad(lambda a: modrelu(a, b).sum())(a), jnp.ones((1, 3)))
    np.testing.assert_array_equal(modrelu(a, jnp.full(3, -1.0)), [[-1, 0, 0]])
    np.testing.assert_array_equal(jax.grad(lambda b: modrelu(a, b).sum())(jnp.full(3, -1.0)), [-1, 0, 0])
