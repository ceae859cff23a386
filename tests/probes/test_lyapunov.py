"""Lyapunov exponents against closed forms, against a plain loop of explicit Jacobians, and their derivative."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import probes, unroll
from rnnjax.cells import CELLS, LSTM, Elman, IndRNN
from rnnjax.probes import lyapunov_spectrum
from rnnjax.testing import assert_close, count_compilations

REGULAR = {  # without directions that nothing leads on, whose exponents are -inf
    "jordan": {"output_size": 2, "feedback": "tanh"},
    "indrnn": {"activation": "tanh"},
}
ALL = [cell(3, 4, **REGULAR.get(name, {})) for name, cell in CELLS.items()]


def by_loop(jacobians, count, burn_in):
    """The definition: a decomposition after every step, of one example."""
    basis, logs = np.eye(jacobians.shape[-1], count), []
    for jacobian in np.asarray(jacobians):
        basis, triangle = np.linalg.qr(jacobian @ basis)
        logs.append(np.log(np.abs(np.diag(triangle))))
    return np.mean(logs[burn_in:], axis=0)


@pytest.mark.parametrize("cell", ALL, ids=list(CELLS))
def test_exponents_are_those_of_the_jacobians(cell, x64):
    params = cell.init(jax.random.key(0), jnp.float64)
    inputs = jax.random.normal(jax.random.key(1), (12, 2, 3), jnp.float64)
    found = lyapunov_spectrum(cell, params, inputs, count=2, burn_in=4)
    jacobians = probes.step_jacobians(cell, params, inputs)
    for row in range(2):
        assert_close(found.exponents[row], by_loop(jacobians[:, row], 2, 4), 1e-9)
    assert_close(found.carry, unroll(cell, params, inputs).carry, 1e-12)
    product = jnp.einsum("bsk,bsl->bkl", found.basis, found.basis)
    assert_close(product, jnp.broadcast_to(jnp.eye(2), (2, 2, 2)), 1e-12)
    fewer = lyapunov_spectrum(cell, params, inputs, count=2, burn_in=4, every=4)
    assert_close(fewer.exponents, found.exponents, 1e-8)


def test_a_direction_that_nothing_leads_on_has_no_rate():
    cell = IndRNN(3, 4)
    params = cell.init(jax.random.key(0))
    off = params | {"b": jnp.full_like(params["b"], -100.0)}  # every relu is off
    found = lyapunov_spectrum(cell, off, jnp.ones((10, 3)))
    assert jnp.all(found.exponents == -jnp.inf)


def test_a_linear_network_has_the_logarithms_of_its_eigenvalues(x64):
    cell = Elman(1, 3, activation="identity")
    rates = np.array([0.3, -0.1, -0.7])
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    params = cell.init(jax.random.key(0), jnp.float64) | {"W_hh": jnp.asarray(basis @ np.diag(np.exp(rates)) @ basis.T)}
    found = lyapunov_spectrum(cell, params, jnp.zeros((2000, 1)), burn_in=1000, every=5)
    assert_close(found.exponents, rates, 1e-9)
    assert found.error.max() < 1e-9 and 1 < found.digits < 5 * 1.0 / np.log(10) + 1


def test_the_memory_of_an_lstm_without_weights_decays_as_its_forget_gate_has_it(x64):
    cell = LSTM(2, 3, forget_bias=1.0)
    params = jax.tree.map(jnp.zeros_like, cell.init(jax.random.key(0), jnp.float64)) | {
        "b": cell.init(jax.random.key(0), jnp.float64)["b"]
    }
    start = jax.tree.map(lambda leaf: leaf + 0.1, cell.initial_carry(params))
    basis = jnp.concatenate([jnp.zeros((3, 3)), jnp.eye(3)])  # of c
    found = lyapunov_spectrum(cell, params, jnp.zeros((400, 2)), start, count=3, burn_in=200, basis=basis)
    assert_close(found.exponents, jnp.full(3, jnp.log(jax.nn.sigmoid(1.0))), 1e-10)


def test_it_goes_on_where_it_stopped(x64):
    cell = Elman(2, 5, gain=1.5)
    params = cell.init(jax.random.key(0), jnp.float64)
    inputs = 0.3 * jax.random.normal(jax.random.key(1), (40, 3, 2), jnp.float64)
    whole = lyapunov_spectrum(cell, params, inputs, count=3)
    first = lyapunov_spectrum(cell, params, inputs[:20], count=3)
    second = lyapunov_spectrum(cell, params, inputs[20:], first.carry, count=3, basis=first.basis)
    assert_close((first.exponents + second.exponents) / 2, whole.exponents, 1e-12)


def test_the_derivative_is_that_of_finite_differences(x64):
    cell = Elman(2, 4)
    params = cell.init(jax.random.key(0), jnp.float64)
    inputs = jax.random.normal(jax.random.key(1), (6, 2), jnp.float64)

    def squared(weights, every=1):
        found = lyapunov_spectrum(cell, params | {"W_hh": weights}, inputs, count=3, every=every)
        return jnp.sum(found.exponents**2)

    direction = jax.random.normal(jax.random.key(2), (4, 4), jnp.float64)
    for every in (1, 3):
        gradient = jax.grad(squared)(params["W_hh"], every)
        moved = [squared(params["W_hh"] + e * direction, every) for e in (1e-6, -1e-6)]
        assert_close(jnp.vdot(gradient, direction), (moved[0] - moved[1]) / 2e-6, 1e-6)


def test_the_error_is_that_of_the_means_of_parts(x64):
    cell = Elman(1, 1, activation="identity")

    @dataclasses.dataclass(frozen=True)
    class Driven(Elman):
        """h_t = x_t h_{t-1}, whose exponent is the mean of log |x_t|."""

        def project(self, params, inputs):
            return inputs

        def step(self, params, carry, z):
            return type(carry)(carry.h * z)

    params = cell.init(jax.random.key(0), jnp.float64)
    inputs = jnp.exp(jax.random.normal(jax.random.key(3), (1000, 1), jnp.float64))
    found = lyapunov_spectrum(Driven(1, 1), params, inputs)
    logs = np.log(np.asarray(inputs[:, 0]))
    assert_close(found.exponents, logs.mean()[None], 1e-10)
    assert_close(found.error, logs.reshape(10, 100).mean(1).std(ddof=1)[None] / np.sqrt(10), 1e-10)
    assert np.isnan(lyapunov_spectrum(Driven(1, 1), params, inputs[:9]).error)


def test_what_can_not_be_is_told():
    cell = Elman(2, 4)
    params, inputs = cell.init(jax.random.key(0)), jnp.ones((12, 2))
    for options, message in (
        ({"count": 0}, "count is 0: expected 1 to 4"),
        ({"count": 5}, "count is 5: expected 1 to 4"),
        ({"every": 5}, "every is 5, of 12 steps with a burn_in of 0: expected a whole number that divides both"),
        ({"every": 3, "burn_in": 4}, "every is 3, of 12 steps with a burn_in of 4"),
        ({"burn_in": 12}, "burn_in is 12: expected 0 to 11"),
        ({"basis": jnp.eye(4)[:, :2]}, r"the basis has the shape \(4, 2\): expected \(4, 4\)"),
    ):
        with pytest.raises(ValueError, match=message):
            lyapunov_spectrum(cell, params, inputs, **options)
    steep = params | {"W_hh": jnp.diag(jnp.array([1.0, 1.0, 1.0, 1e-3]))}
    with pytest.raises(ValueError, match="the basis lost .* decimal digits, of 6.9 that float32 has"):
        lyapunov_spectrum(cell, steep, 0 * inputs, every=4)


def test_a_second_call_compiles_nothing():
    cell = Elman(2, 4)
    params, inputs = cell.init(jax.random.key(0)), jnp.ones((12, 2))
    other = 2 * inputs
    lyapunov_spectrum(cell, params, inputs, count=2)
    with count_compilations() as counted:
        lyapunov_spectrum(cell, params, other, count=2)
    assert counted.count == 0
