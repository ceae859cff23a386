"""Every probe of PROBES on every cell of CELLS, under jit."""

import jax
import jax.numpy as jnp
import pytest

from rnnjax import probes, unroll
from rnnjax.cells import CELLS

MORE = {  # whose Jacobians have all directions: not where a relu is off, nor through a softmax
    "jordan": {"output_size": 2, "feedback": "tanh"},
    "indrnn": {"activation": "tanh"},
}
CALLS = {
    "carry_gradients": lambda cell, loss, params, inputs: probes.carry_gradients(loss)(params, inputs),
    "gradient_norms": lambda cell, loss, params, inputs: probes.gradient_norms(
        probes.carry_gradients(loss)(params, inputs)
    ),
    "step_jacobians": lambda cell, loss, params, inputs: probes.step_jacobians(cell, params, inputs),
    "jacobian_products": lambda cell, loss, params, inputs: probes.jacobian_products(
        probes.step_jacobians(cell, params, inputs)
    ),
    "log_singular_values": lambda cell, loss, params, inputs: probes.log_singular_values(
        probes.jacobian_products(probes.step_jacobians(cell, params, inputs))
    ),
    "lyapunov_spectrum": lambda cell, loss, params, inputs: _time_first(
        probes.lyapunov_spectrum(cell, params, inputs, count=1).exponents
    ),
    "input_gradients": lambda cell, loss, params, inputs: probes.input_gradients(loss)(params, inputs),
    "weight_gradients_by_time": lambda cell, loss, params, inputs: _batched(
        probes.weight_gradients_by_time(loss)(params, inputs)
    ),
    "recorded": lambda cell, loss, params, inputs: [
        steps.carries for steps in probes.recorded(loss)(params, inputs).values()
    ],
    "unroll_jacobians": lambda cell, loss, params, inputs: probes.unroll_jacobians(
        probes.recorded(loss)(params, inputs)
    ),
    "unroll_spectra": lambda cell, loss, params, inputs: [
        _time_first(spectrum.exponents)
        for spectrum in probes.unroll_spectra(probes.recorded(loss)(params, inputs), count=1).values()
    ],
    "gate_statistics": lambda cell, loss, params, inputs: [
        _batched([gate.mean, gate.low, gate.high])
        for gates in probes.gate_statistics(probes.recorded(loss)(params, inputs)).values()
        for gate in gates.values()
    ],
}


def test_every_probe_is_tried_and_says_what_it_is():
    assert set(CALLS) == set(probes.PROBES)
    assert all(probe.__doc__ for probe in probes.PROBES.values())


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("probe", CALLS)
def test_runs_on_every_cell(cell, probe):
    cell = CELLS[cell](3, 4, **MORE.get(cell, {}))
    params, inputs = cell.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (5, 2, 3))

    def loss(params, inputs):
        return jnp.square(unroll(cell, params, inputs).outputs).sum()

    got = jax.jit(lambda p, x: CALLS[probe](cell, loss, p, x))(params, inputs)
    for leaf in jax.tree.leaves(got):
        assert leaf.shape[:2] == (5, 2)
        assert not jnp.isnan(leaf).any() and jnp.isfinite(leaf[:-1]).all()  # the last dL/dc of an LSTM is 0


def _time_first(exponents):
    """What is of a whole trajectory, as what has an entry a step."""
    return jnp.broadcast_to(exponents, (5, *exponents.shape))


def _batched(tree):
    """What is of all examples, as what has an entry an example."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:, None], (5, 2, *leaf.shape[1:])), tree)
