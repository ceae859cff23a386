"""Norms from 1e-38 to inf, distances from each example's own length, and slopes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnjax import probes
from rnnjax.cells import LSTMCarry


@pytest.mark.parametrize("values, want", [
    ([3e20, 4e20], np.log10(5) + 20),
    ([3e-30, 4e-30], np.log10(5) - 30),
    ([1.2e-38, 0.0], np.log10(1.2) - 38),
    ([1.1e-38, 0.0], -np.inf),
    ([3e38, 3e38], np.log10(3 * 2**0.5) + 38),
    ([0.0, 0.0], -np.inf),
    ([np.inf, 1.0], np.inf),
    ([-np.inf, 1.0], np.inf),
    ([np.nan, 1.0], np.nan),
    ([np.inf, np.nan], np.nan),
    ([-2.0, 0.0], np.log10(2)),
])  # fmt: skip
def test_log10_norm_in_float32(values, want):
    got = probes.log10_norm(jnp.array([values], jnp.float32))
    assert got.dtype == jnp.float32 and got.shape == (1,)
    np.testing.assert_allclose(got[0], want, rtol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=5))
def test_log10_norm_is_numpys_in_float64(values):
    with jax.enable_x64(True):
        size = np.linalg.norm(values)
        if size > 1e-150:
            np.testing.assert_allclose(
                probes.log10_norm(jnp.array(values, jnp.float64)), np.log10(size), rtol=1e-12, atol=1e-12
            )


def test_bfloat16_is_measured_in_float32():
    assert probes.log10_norm(jnp.full((2, 3), 1e30, jnp.bfloat16)).dtype == jnp.float32


def test_the_carry_is_measured_whole_with_its_fields_beside_it():
    carry = LSTMCarry(h=jnp.full((2, 1, 4), 3e25), c=jnp.full((2, 1, 4), 4e25))
    norms = probes.gradient_norms({"lstm": carry})["lstm"]
    assert list(norms) == ["carry", "h", "c"]
    np.testing.assert_allclose(norms["h"], np.log10(6) + 25, rtol=1e-6)
    np.testing.assert_allclose(norms["c"], np.log10(8) + 25, rtol=1e-6)
    np.testing.assert_allclose(norms["carry"], np.log10(10) + 25, rtol=1e-6)
    silent = probes.gradient_norms({"lstm": jax.tree.map(jnp.zeros_like, carry)})["lstm"]["carry"]
    assert jnp.all(silent == -jnp.inf)


def test_distance_counts_from_each_examples_own_length():
    values = jnp.arange(4.0)[:, None] + jnp.array([[0.0, 10, 20]])
    got = probes.by_distance(values, jnp.array([4, 2, 0]))
    nan = np.nan
    np.testing.assert_array_equal(got, [[3, 11, nan], [2, 10, nan], [1, nan, nan], [0, nan, nan]])
    np.testing.assert_array_equal(probes.by_distance(values), values[::-1])


def test_distance_of_an_unroll_that_reads_backwards_counts_from_the_first_step():
    values = jnp.arange(4.0)[:, None] + jnp.array([[0.0, 10]])
    got = probes.by_distance(values, jnp.array([4, 2]), reverse=True)
    np.testing.assert_array_equal(got, [[0, 10], [1, 11], [2, np.nan], [3, np.nan]])
    np.testing.assert_array_equal(probes.by_distance(values, reverse=True), values)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_lengths_of_any_whole_type_and_out_of_range(dtype):
    got = probes.by_distance(jnp.arange(3.0)[:, None].repeat(3, 1), np.array([0, 2, 9], dtype))
    np.testing.assert_array_equal(got, [[np.nan, 1, 2], [np.nan, 0, 1], [np.nan, np.nan, 0]])


def test_slope_is_the_log_of_the_factor_a_step(x64):
    distance = jnp.arange(20.0)
    curves = jnp.stack([distance * jnp.log10(0.5) + 3, distance * jnp.log10(1.5)], axis=1)
    np.testing.assert_allclose(probes.slope(curves), np.log([0.5, 1.5]), rtol=1e-12)
    holed = curves.at[5, 0].set(jnp.nan).at[19, 0].set(-jnp.inf)
    np.testing.assert_allclose(probes.slope(holed), np.log([0.5, 1.5]), rtol=1e-12)
    assert jnp.isnan(probes.slope(jnp.array([1.0, -jnp.inf, -jnp.inf])))
    noisy = curves[:, 0] + jnp.sin(distance)
    np.testing.assert_allclose(probes.slope(noisy), np.polyfit(distance, noisy, 1)[0] * np.log(10), rtol=1e-10)
