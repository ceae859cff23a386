"""Elman, LSTM and GRU against torch's own numbers, pinned in tests/goldens/torch.npz: outputs, states and gradients."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import unroll
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.testing import TOLERANCE, assert_close

PINNED = np.load(pathlib.Path(__file__).parent.parent / "goldens" / "torch.npz")
CELLS = {"tanh": Elman(4, 5), "relu": Elman(4, 5, activation="relu"), "lstm": LSTM(4, 5), "gru": GRU(4, 5)}


def pinned(name, prefix=""):
    return {
        key.removeprefix(f"{name}.{prefix}").removesuffix("_l0"): jnp.asarray(PINNED[key])
        for key in PINNED
        if key.startswith(f"{name}.{prefix}")
    }


def to_cell(name, torch):
    """torch's two biases add up to one but in the GRU, where that of n's recurrent part stands inside the reset."""
    b_ih, b_hh = torch["bias_ih"], torch["bias_hh"]
    params = {"W_ih": torch["weight_ih"].T, "W_hh": torch["weight_hh"].T, "b": b_ih + b_hh}
    if name == "gru":
        inside = jnp.arange(15) >= 10
        params |= {"b": jnp.where(inside, b_ih, b_ih + b_hh), "b_hn": b_hh[10:]}
    return params


@pytest.mark.parametrize("method", ["auto", "scan"])
@pytest.mark.parametrize("name", CELLS)
def test_is_torchs(name, method, x64):
    torch, gradients = pinned(name), pinned(name, "d_")
    params = to_cell(name, torch)

    def loss(params, inputs):
        result = unroll(CELLS[name], params, inputs, method=method)
        return jnp.vdot(result.outputs, torch["weights"]), result

    (d_params, d_inputs), result = jax.grad(loss, (0, 1), has_aux=True)(params, torch["inputs"])
    assert_close(result.outputs, torch["outputs"], TOLERANCE["float64"])
    assert_close(jnp.stack(result.carry), torch["state"], TOLERANCE["float64"])
    assert_close(d_inputs, gradients["inputs"], TOLERANCE["float64"])
    assert_close(d_params["W_ih"], gradients["weight_ih"].T, TOLERANCE["float64"])
    assert_close(d_params["W_hh"], gradients["weight_hh"].T, TOLERANCE["float64"])
    assert_close(d_params["b"], gradients["bias_ih"], TOLERANCE["float64"])
    if name == "gru":
        assert_close(d_params["b_hn"], gradients["bias_hh"][10:], TOLERANCE["float64"])
