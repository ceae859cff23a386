"""Jacobians and spectra of every unroll in a model: those of the cell alone on what it was given there."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import layers, probes, unroll
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.testing import TOLERANCE, assert_close, flat_carry, random_like

T, B, X, H = 12, 2, 3, 2
CELL = GRU(X, H)
STACK = layers.Stack((layers.Bidirectional(LSTM(X, H), Elman(X, H)), GRU(2 * H, H)))


def made():
    params = random_like(STACK.init(jax.random.key(0), jnp.float64), 1, scale=0.7)
    return params, random_like(jax.ShapeDtypeStruct((T, B, X), jnp.float64), 2)


def test_what_was_run_is_what_each_layer_was_given(x64):
    params, inputs = made()
    found = probes.recorded(lambda p, x: layers.run(STACK, p, x))(params, inputs)
    assert set(found) == {"layer_0/forward", "layer_0/backward", "layer_1"}
    below = layers.run(STACK.layers[0], params["layer_0"], inputs)
    assert_close(found["layer_1"].inputs, below.outputs, TOLERANCE["float64"])
    assert found["layer_0/backward"].reverse and found["layer_1"].cell == STACK.layers[1]


def test_jacobians_of_a_model_are_those_of_its_cells(x64):
    params, inputs = made()
    lengths = np.array([T, 3])
    found = probes.unroll_jacobians(probes.recorded(lambda p: layers.run(STACK, p, inputs, lengths=lengths))(params))
    forward = probes.step_jacobians(STACK.layers[0].forward, params["layer_0"]["forward"], inputs)
    assert_close(found["layer_0/forward"][:, 0], forward[:, 0], TOLERANCE["float64"])
    assert_close(found["layer_0/forward"][:3, 1], forward[:3, 1], TOLERANCE["float64"])
    eye = np.broadcast_to(np.eye(2 * H), (T - 3, 2 * H, 2 * H))
    assert_close(found["layer_0/forward"][3:, 1], eye, 0, "the carry is held at pads")
    backward = STACK.layers[0].backward, params["layer_0"]["backward"]
    turned = probes.step_jacobians(*backward, inputs[::-1, :1])[::-1]
    assert_close(found["layer_0/backward"][:, :1], turned, TOLERANCE["float64"])
    alone = probes.step_jacobians(*backward, inputs[:3][::-1])[::-1]
    assert_close(found["layer_0/backward"][:3, 1], alone[:, 1], TOLERANCE["float64"])


def test_the_product_of_a_layers_jacobians_carries_its_gradient(x64):
    params, inputs = made()

    def run(params):
        return layers.run(STACK, params, inputs)

    gradients = probes.carry_gradients(lambda p: jnp.sum(jnp.sin(run(p).outputs[-1])))(params)
    jacobians = probes.unroll_jacobians(probes.recorded(run)(params))["layer_1"]
    products = probes.jacobian_products(jacobians)
    last = flat_carry(gradients["layer_1"])[-1]
    carried = jnp.einsum("bi,kbij->kbj", last, products.matrix) * jnp.exp(products.log_scale)[..., None]
    assert_close(flat_carry(gradients["layer_1"]), carried, TOLERANCE["float64"])


def test_spectra_of_a_model_are_those_of_its_cells(x64):
    params, inputs = made()
    found = probes.recorded(lambda p: layers.run(STACK, p, inputs))(params)
    spectra = probes.unroll_spectra(found, every=2, burn_in=2)
    below = layers.run(STACK.layers[0], params["layer_0"], inputs).outputs
    (bottom, top), of = STACK.layers, probes.lyapunov_spectrum
    for name, want in {
        "layer_0/forward": of(bottom.forward, params["layer_0"]["forward"], inputs, every=2, burn_in=2),
        "layer_0/backward": of(bottom.backward, params["layer_0"]["backward"], inputs[::-1], every=2, burn_in=2),
        "layer_1": of(top, params["layer_1"], below, every=2, burn_in=2),
    }.items():
        assert_close(spectra[name].exponents, want.exponents, 1e-10, name)
    whole = probes.recorded(lambda p: unroll(top, p, below, lengths=np.array([T, T])))(params["layer_1"])
    assert_close(
        probes.unroll_spectra(whole, count=1)["gru"].exponents,
        of(top, params["layer_1"], below, count=1).exponents,
        1e-12,
    )


def test_a_rate_over_pads_is_refused():
    cell = Elman(X, H)
    found = probes.recorded(lambda p: unroll(cell, p, jnp.ones((4, B, X)), lengths=np.array([4, 3])))(
        cell.init(jax.random.key(0))
    )
    with pytest.raises(ValueError, match="unroll 'elman' has lengths.*give whole sequences"):
        probes.unroll_spectra(found)
    with pytest.raises(ValueError, match="every is 3, of 4 steps"):
        probes.unroll_spectra(
            probes.recorded(lambda p: unroll(cell, p, jnp.ones((4, B, X))))(cell.init(jax.random.key(0))), every=3
        )


@pytest.mark.parametrize("probe", [
    lambda run, params, x: probes.step_jacobians(CELL, params, x),
    lambda run, params, x: probes.unroll_jacobians(probes.recorded(run)(params, x))["gru"],
    lambda run, params, x: probes.lyapunov_spectrum(CELL, params, x).exponents[None],
    lambda run, params, x: probes.unroll_spectra(probes.recorded(run)(params, x))["gru"].exponents[None],
    lambda run, params, x: probes.input_gradients(lambda p, x: jnp.sum(run(p, x)))(params, x)["gru"],
], ids=["step_jacobians", "unroll_jacobians", "lyapunov_spectrum", "unroll_spectra", "input_gradients"])  # fmt: skip
def test_inside_shard_map(probe, x64):
    params, inputs = CELL.init(jax.random.key(0), jnp.float64), made()[1]
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    measure = functools.partial(probe, lambda p, x: unroll(CELL, p, x).outputs)
    rows = jax.P(None, "data")
    shared = jax.jit(jax.shard_map(measure, mesh=mesh, in_specs=(jax.P(), rows), out_specs=rows))
    assert_close(shared(params, inputs), measure(params, inputs), TOLERANCE["float64"])


def test_in_bfloat16_nothing_is_decomposed_in_it():
    params, inputs = CELL.init(jax.random.key(0)), random_like(jax.ShapeDtypeStruct((T, B, X), jnp.float32), 2)
    want = probes.lyapunov_spectrum(CELL, params, inputs)
    narrow = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    found = probes.lyapunov_spectrum(CELL, narrow, inputs)
    assert found.exponents.dtype == found.basis.dtype == jnp.float32 and found.carry.h.dtype == jnp.bfloat16
    assert_close(found.exponents, want.exponents, 0.1)


def test_directions_that_nothing_leads_on_are_told():
    cell = Elman(X, H, activation="relu")
    params = cell.init(jax.random.key(0)) | {"W_hh": jnp.eye(H), "b": jnp.array([-100.0, 100.0])}
    found = probes.recorded(lambda p: unroll(cell, p, jnp.ones((4, X))))(params)
    with pytest.raises(ValueError, match="leads nothing on in some of the 2 directions.*take every=1"):
        probes.unroll_spectra(found, every=2)
