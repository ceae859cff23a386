"""The sigmoid of the gates keeps its digits where it is small, and so does its derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.cell import sigmoid


@pytest.mark.parametrize("dtype, tolerance", [(jnp.float32, 1e-6), (jnp.float64, 1e-14)])
def test_relative_error(dtype, tolerance, x64):
    x = np.linspace(-80, 80, 3201)
    want = 1 / (1 + np.exp(-x))
    got = np.asarray(sigmoid(jnp.asarray(x, dtype)), np.float64)
    exact = 1 / (1 + np.exp(-np.asarray(jnp.asarray(x, dtype), np.float64)))
    np.testing.assert_allclose(got, exact, rtol=tolerance)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    slope = np.asarray(jax.vmap(jax.grad(sigmoid))(jnp.asarray(x[x < 0], dtype)), np.float64)
    np.testing.assert_allclose(slope, (exact * (1 - exact))[x < 0], rtol=4 * tolerance)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
def test_far_ends_and_what_is_not_finite(dtype, x64):
    got = sigmoid(jnp.array([-jnp.inf, -6e4, 0.0, 12, 100, 6e4, jnp.inf, jnp.nan], dtype)).astype(jnp.float32)
    np.testing.assert_allclose(got, [0, 0, 0.5, 1, 1, 1, 1, np.nan], rtol=1e-5)
    np.testing.assert_array_equal(jax.vmap(jax.grad(sigmoid))(jnp.array([-1e30, 0.0, 1e30])), [0, 0.25, 0])


def test_forward_and_second_derivatives(x64):
    x = jnp.array([-3.0, 0.1, 2.0])
    s = sigmoid(x)
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(sigmoid)))(x), s * (1 - s) * (1 - 2 * s), rtol=1e-12)
    np.testing.assert_allclose(jax.jvp(sigmoid, (x,), (jnp.ones(3),))[1], s * (1 - s), rtol=1e-12)
