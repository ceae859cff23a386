"""Jacobians of a step against finite differences, and products that neither overflow nor vanish."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from rnnjax import probes, reference_unroll, unroll
from rnnjax.cells import CELLS, LSTM, Elman, ElmanCarry, Jordan
from rnnjax.testing import TOLERANCE, assert_close, flat_carry

ALL = [Jordan(3, 4, 2) if name == "jordan" else cell(3, 4) for name, cell in CELLS.items()]


@pytest.mark.parametrize("cell", ALL, ids=list(CELLS))
def test_step_jacobians_are_finite_differences(cell, x64):
    params = cell.init(jax.random.key(0), jnp.float64)
    x = jax.random.normal(jax.random.key(1), (3, 2, 3), jnp.float64)
    start = jax.tree.map(lambda leaf: leaf + 0.2, cell.initial_carry(params, (2,)))
    jacobians = probes.step_jacobians(cell, params, x, start)
    carry = jax.tree.map(lambda leaf: leaf[1], start)
    flat, unflatten = ravel_pytree(carry)
    assert jacobians.shape == (3, 2, flat.size, flat.size)
    for t in range(3):
        z = cell.project(params, x[t, 1])
        columns = []
        for j in range(flat.size):
            moved = [flat_carry(cell.step(params, unflatten(flat.at[j].add(e)), z)) for e in (1e-6, -1e-6)]
            columns.append((moved[0] - moved[1]) / 2e-6)
        assert_close(jacobians[t, 1], jnp.stack(columns, axis=1), 1e-8)
        flat = flat_carry(cell.step(params, unflatten(flat), z))


def test_products_are_products(x64):
    jacobians = jax.random.normal(jax.random.key(0), (5, 2, 3, 3), jnp.float64)
    for t in (4, 2, 0, -2):
        products = probes.jacobian_products(jacobians, t)
        last = t % 5
        assert products.matrix.shape == (last + 1, 2, 3, 3)
        for k in range(last + 1):
            want = np.eye(3)
            for s in range(last, k, -1):
                want = want @ jacobians[s, 1]
            got = jnp.exp(products.log_scale[k, 1]) * products.matrix[k, 1]
            assert_close(got, want, TOLERANCE["float64"])


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_products_neither_overflow_nor_vanish(factor):
    products = probes.jacobian_products(jnp.broadcast_to(factor * jnp.eye(2), (1001, 2, 2)))
    np.testing.assert_allclose(products.log_scale[0], 1000 * np.log(factor), rtol=1e-5)
    np.testing.assert_array_equal(products.matrix[0], np.eye(2))


def test_a_product_of_zero_is_zero():
    products = probes.jacobian_products(jnp.zeros((3, 2, 2)))
    assert (
        products.log_scale[0] == -jnp.inf and jnp.all(products.matrix[0] == 0) and not jnp.isnan(products.matrix).any()
    )


def test_no_such_time_is_refused():
    for t in (3, -4):
        with pytest.raises(IndexError, match=f"t is {t} but there are 3 steps"):
            probes.jacobian_products(jnp.zeros((3, 2, 2)), t)


def test_a_linear_cell_has_its_matrix_for_jacobian(x64):
    cell = Elman(3, 4, activation="identity")
    params = cell.init(jax.random.key(0), jnp.float64)
    jacobians = probes.step_jacobians(cell, params, jnp.ones((2, 3), jnp.float64))
    assert_close(jacobians, np.stack([params["W_hh"].T] * 2), TOLERANCE["float64"])


def test_lstm_fields_stand_in_their_order(x64):
    cell = LSTM(3, 4)
    params = cell.init(jax.random.key(0), jnp.float64)
    params = jax.tree.map(jnp.zeros_like, params)
    jacobian = probes.step_jacobians(cell, params, jnp.zeros((1, 3), jnp.float64))[0]
    assert_close(jacobian[4:, 4:], 0.5 * np.eye(4), TOLERANCE["float64"], "dc/dc = sigmoid(0)")
    assert_close(jacobian[:4, 4:], 0.25 * np.eye(4), TOLERANCE["float64"], "dh/dc = sigmoid(0) * sigmoid(0)")
    assert jnp.all(jacobian[:, :4] == 0)


@dataclasses.dataclass(frozen=True)
class _Masked(Elman):
    """A mask for each example among the parameters."""

    def step(self, params, carry, z):
        return ElmanCarry(super().step(params, ElmanCarry(carry.h * params["mask"]), z).h)


def test_parameters_of_an_example_are_its_own(x64):
    cell, mask = _Masked(3, 4), jax.random.normal(jax.random.key(2), (2, 4), jnp.float64)
    params = Elman(3, 4).init(jax.random.key(0), jnp.float64)
    inputs = jax.random.normal(jax.random.key(1), (5, 2, 3), jnp.float64)
    with jax.numpy_rank_promotion("allow"), pytest.raises(ValueError, match="a step of one"):
        reference_unroll(cell, params | {"mask": mask}, inputs)
    of_both = probes.step_jacobians(cell, params | {"mask": mask}, inputs)
    of_one = probes.step_jacobians(cell, params | {"mask": mask[1]}, inputs[:, 1])
    assert_close(of_both[:, 1], of_one, TOLERANCE["float64"])
    whole = unroll(cell, params | {"mask": mask}, inputs).outputs
    alone = reference_unroll(cell, params | {"mask": mask[1]}, inputs[:, 1]).outputs
    assert_close(whole[:, 1], alone, TOLERANCE["float64"])


def test_singular_values_keep_their_scale(x64):
    jacobians = jax.random.normal(jax.random.key(0), (4, 2, 3, 3), jnp.float64)
    small = probes.log_singular_values(probes.jacobian_products(1e-200 * jacobians))
    for k in range(4):
        want = np.eye(3)
        for s in range(3, k, -1):
            want = want @ jacobians[s, 0]
        assert_close(small[k, 0] + (3 - k) * 200 * np.log(10), np.log(np.linalg.svd(want)[1]), 1e-9)
    none = probes.log_singular_values(probes.jacobian_products(jnp.zeros((3, 2, 2))))
    assert jnp.all(none[:2] == -jnp.inf) and jnp.all(none[2] == 0)
