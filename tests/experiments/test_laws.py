"""The laws hold; what they measure is backpropagation in plain numpy; and each is broken by a broken cell."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.common import laws
from rnnjax.cells import LSTM, Elman

SMALL, STEPS, ROWS = 6, 9, 3


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def drawn(cell, seed, scale, **options):
    """(params, inputs, weights of the loss), the draws of a measurement, as numpy."""
    params_key, input_key, loss_key = jax.random.split(jax.random.key(seed, impl="threefry2x32"), 3)
    params = dataclasses.replace(cell, **options).init(params_key, jnp.float64)
    inputs = scale * jax.random.normal(input_key, (STEPS, ROWS, SMALL), jnp.float64)
    weights = jax.random.normal(loss_key, (ROWS, SMALL), jnp.float64)
    return jax.device_get((params, inputs, weights))


def backwards_through_elman(params, inputs, weights, derivative, activation):
    """log10 norms [T, B] of dL/dh by distance."""
    h, hs = np.zeros((ROWS, SMALL)), []
    for x in inputs:
        h = activation(x @ params["W_ih"] + h @ params["W_hh"] + params["b"])
        hs.append(h)
    gradient, norms = weights, []
    for h in reversed(hs):
        norms.append(np.log10(np.linalg.norm(gradient, axis=-1)))
        gradient = (gradient * derivative(h)) @ params["W_hh"].T
    return np.array(norms)


def backwards_through_lstm(params, inputs, weights):
    """{"c", "carry"}: log10 norms [T, B] of dL/dc, with h held fixed, and of both, by distance."""
    h = c = np.zeros((ROWS, SMALL))
    steps = []
    for x in inputs:
        i, f, g, o = np.split(x @ params["W_ih"] + h @ params["W_hh"] + params["b"], 4, axis=-1)
        i, f, g, o, before = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o), c
        c = f * c + i * g
        h = o * np.tanh(c)
        steps.append((i, f, g, o, before, c))
    of_h, of_c = weights, np.zeros_like(weights)
    norms = {"c": [], "carry": []}
    for i, f, g, o, before, c in reversed(steps):
        with np.errstate(divide="ignore"):
            norms["c"].append(np.log10(np.linalg.norm(of_c, axis=-1)))
        norms["carry"].append(np.log10(np.hypot(np.linalg.norm(of_c, axis=-1), np.linalg.norm(of_h, axis=-1))))
        both = of_c + of_h * o * (1 - np.tanh(c) ** 2)
        gates = (both * g * i * (1 - i), both * before * f * (1 - f), both * i * (1 - g**2))
        gates = np.concatenate([*gates, of_h * np.tanh(c) * o * (1 - o)], axis=-1)
        of_h, of_c = gates @ params["W_hh"].T, both * f
    return {field: np.array(values) for field, values in norms.items()}


@pytest.fixture
def small(monkeypatch, x64):
    """Measures at a small size, in float64 as the study does."""
    monkeypatch.setattr(laws, "SIZE", SMALL)
    monkeypatch.setattr(laws, "TIME", STEPS)
    monkeypatch.setattr(laws, "BATCH", ROWS)


@pytest.mark.parametrize(
    "activation, function, derivative",
    [("tanh", np.tanh, lambda h: 1 - h**2), ("identity", lambda x: x, np.ones_like)],
    ids=["tanh", "identity"],
)
def test_what_is_measured_of_an_elman_is_numpys(small, activation, function, derivative):
    cell = Elman(SMALL, SMALL, activation=activation)
    measure = laws._measure(cell, field="h")
    for scale, gain in ((0.0, 0.7), (0.0, 1.5), (1.0, 1.5)):
        got = measure(7, scale, gain=gain)
        want = backwards_through_elman(*drawn(cell, 7, scale, gain=gain), derivative, function)
        np.testing.assert_allclose(got, want, atol=1e-10)
        if scale == 0:  # an orthogonal matrix turns the gradient and scales it
            np.testing.assert_allclose(np.diff(got, axis=0), math.log10(gain), atol=1e-6)


@pytest.mark.parametrize("field", ["c", "carry"])
def test_what_is_measured_of_an_lstm_is_numpys(small, field):
    cell = LSTM(SMALL, SMALL)
    measure = laws._measure(cell, field=field)
    for scale, forget_bias, gain in ((0.0, 0.0, 0.0), (0.0, 1.0, 1.0), (1.0, 3.0, 1.0)):
        options = {"forget_bias": forget_bias, "gain": gain}
        want = backwards_through_lstm(*drawn(cell, 7, scale, **options))[field]
        np.testing.assert_allclose(measure(7, scale, **options), want, atol=1e-10)


def test_the_jacobian_of_an_lstm_without_input_is_the_one_that_the_law_names(x64):
    params, inputs, weights = drawn(LSTM(SMALL, SMALL), 7, 0.0, forget_bias=0.4)
    jacobian = sigmoid(0.4) * np.eye(SMALL) + params["W_hh"][:, 2 * SMALL : 3 * SMALL].T / 4
    gradient, norms = weights / 2, []  # through o = 1/2 into c of the last step
    for _ in range(STEPS - 1):
        norms.append(np.log10(np.linalg.norm(sigmoid(0.4) * gradient, axis=-1)))
        gradient = gradient @ jacobian
    by_hand = backwards_through_lstm(params, inputs, weights)["c"]
    np.testing.assert_allclose(by_hand[1:], norms, atol=1e-10)


@pytest.mark.full
def test_all_six_laws_hold():
    claims = laws.gradient_laws()
    assert [claim.holds for claim in claims] == [True] * 6, claims
    slope, control, empty, full, driven, silent = (claim.measured for claim in claims)
    assert slope <= 1e-3 and control < 0 and empty <= 1e-6 and full <= 0.01 and driven >= 1 and silent < 0
    assert len({claim.claim for claim in claims}) == 6
    assert all(claim.source and claim.expected for claim in claims)


def test_what_is_not_a_number_breaks_every_law(monkeypatch):
    monkeypatch.setattr(laws, "_measure", lambda cell, field=None: lambda *_, **__: jnp.full((laws.TIME, 2), jnp.nan))
    assert [claim.holds for claim in laws.gradient_laws()] == [False] * 6


class Wrong(Elman):
    """Its recurrent matrix is 1 % larger than it says, and it has no activation."""

    def init(self, key, dtype=jnp.float32):
        params = super().init(key, dtype)
        return params | {"W_hh": 1.01 * params["W_hh"]}

    def step(self, params, carry, z):
        return carry._replace(h=z + carry.h @ params["W_hh"])


class Shifted(LSTM):
    """Its forget bias is 0.2 more than it says."""

    def init(self, key, dtype=jnp.float32):
        params, hidden = super().init(key, dtype), self.hidden_size
        return params | {"b": params["b"].at[hidden : 2 * hidden].add(0.2)}


def no_lstm(input_size, hidden_size, forget_bias):
    del forget_bias
    return Elman(input_size, hidden_size)


@pytest.mark.parametrize(
    "law, cell, broken",
    [("slope_law", "Elman", Wrong), ("forget_bias_laws", "LSTM", Shifted), ("lstm_against_elman", "LSTM", no_lstm)],
)
def test_broken_cells_break_every_law(monkeypatch, x64, law, cell, broken):
    monkeypatch.setattr(laws, "SIZE", 12)
    monkeypatch.setattr(laws, "TIME", 60)
    monkeypatch.setattr(laws, "SEEDS", laws.SEEDS[:1])
    monkeypatch.setattr(laws, cell, broken)
    claims = getattr(laws, law)()
    assert [claim.holds for claim in claims] == [False, False], claims
    assert all(math.isfinite(claim.measured) for claim in claims)
