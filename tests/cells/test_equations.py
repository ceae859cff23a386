"""Every cell and variant is its paper's equations, written anew in numpy and run as a loop."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from rnnjax import reference_unroll
from rnnjax.cells import GRU, LSTM, MGU, Elman, IndRNN
from rnnjax.testing import TOLERANCE, assert_close

tanh = np.tanh


def s(x):
    return 1 / (1 + np.exp(-x))


def normal(x):
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5)


def cut(leaf, names):
    return SimpleNamespace(**dict(zip(names, np.split(leaf, len(names), axis=-1), strict=True)))


def before(p, names, x, h):
    """What the gates, whose blocks stand in this order, are applied to."""
    return cut(x @ p["W_ih"] + h @ p["W_hh"] + p["b"], names)


def linear(p, x, h):
    return (x @ p["W_ih"] + h @ p["W_hh"] + p["b"],)


def irnn(p, x, h):
    return (np.maximum(0, x @ p["W_ih"] + h @ p["W_hh"] + p["b"]),)


def modrelu(p, x, h):
    a = x @ p["W_ih"] + h @ p["W_hh"]
    return (np.sign(a) * np.maximum(0, np.abs(a) + p["b"]),)


def exprnn(p, x, h):
    return modrelu(p | {"W_hh": 0.9 * scipy.linalg.expm(p["A_hh"] - p["A_hh"].T)}, x, h)


def lstm(p, x, h, c):
    a = before(p, "ifgo", x, h)
    c = s(a.f) * c + s(a.i) * tanh(a.g)
    return s(a.o) * tanh(c), c


def no_input_gate(p, x, h, c):
    a = before(p, "fgo", x, h)
    c = s(a.f) * c + tanh(a.g)
    return s(a.o) * tanh(c), c


def no_forget_gate(p, x, h, c):
    a = before(p, "igo", x, h)
    c = c + s(a.i) * tanh(a.g)
    return s(a.o) * tanh(c), c


def no_output_gate(p, x, h, c):
    a = before(p, "ifg", x, h)
    c = s(a.f) * c + s(a.i) * tanh(a.g)
    return tanh(c), c


def no_gate(p, x, h, c):
    c = c + tanh(x @ p["W_ih"] + h @ p["W_hh"] + p["b"])
    return tanh(c), c


def no_input_activation(p, x, h, c):
    a = before(p, "ifgo", x, h)
    c = s(a.f) * c + s(a.i) * a.g
    return s(a.o) * tanh(c), c


def no_output_activation(p, x, h, c):
    a = before(p, "ifgo", x, h)
    c = s(a.f) * c + s(a.i) * tanh(a.g)
    return s(a.o) * c, c


def peepholes(p, x, h, c):
    a = before(p, "ifgo", x, h)
    c = s(a.f + p["p_f"] * c) * c + s(a.i + p["p_i"] * c) * tanh(a.g)
    return s(a.o + p["p_o"] * c) * tanh(c), c


def coupled(p, x, h, c):
    a = before(p, "fgo", x, h)
    c = s(a.f) * c + (1 - s(a.f)) * tanh(a.g)
    return s(a.o) * tanh(c), c


def gate_recurrence(p, x, h, c, i, f, o):
    a, (from_i, from_f, from_o) = before(p, "ifgo", x, h), np.split(p["W_gates"], 3)
    fed = cut(i @ from_i + f @ from_f + o @ from_o, "ifo")
    i, f, o = s(a.i + fed.i), s(a.f + fed.f), s(a.o + fed.o)
    c = f * c + i * tanh(a.g)
    return o * tanh(c), c, i, f, o


def of_1997(p, x, h, c, i, o):
    a, (from_i, from_o) = before(p, "igo", x, h), np.split(p["W_gates"], 2)
    fed = cut(i @ from_i + o @ from_o, "io")
    i, o = s(a.i + fed.i), s(a.o + fed.o)
    c = c + i * tanh(a.g)
    return o * tanh(c), c, i, o


def projection(p, x, h, c):
    m, c = lstm(p, x, h, c)
    return m @ p["W_hr"], c


def layer_norm(p, x, h, c):
    a = cut(p["scale_ih"] * normal(x @ p["W_ih"]) + p["scale_hh"] * normal(h @ p["W_hh"]) + p["b"], "ifgo")
    c = s(a.f) * c + s(a.i) * tanh(a.g)
    return s(a.o) * tanh(p["scale_c"] * normal(c) + p["shift_c"]), c


def everything(p, x, h, c, f):
    """Layer normalisation, coupled gates that feed back, peepholes, no output gate, no activation, projection."""
    a = cut(p["scale_ih"] * normal(x @ p["W_ih"]) + p["scale_hh"] * normal(h @ p["W_hh"]) + p["b"], "fg")
    f = s(a.f + f @ p["W_gates"] + p["p_f"] * c)
    c = f * c + (1 - f) * a.g
    return (p["scale_c"] * normal(c) + p["shift_c"]) @ p["W_hr"], c, f


def gru_without_reset(p, x, h):
    a = before(p, "un", x, h)
    return (s(a.u) * h + (1 - s(a.u)) * tanh(a.n),)


def gru_without_update_after(p, x, h):
    z, from_h = cut(x @ p["W_ih"] + p["b"], "rn"), cut(h @ p["W_hh"], "rn")
    return (tanh(z.n + s(z.r + from_h.r) * (from_h.n + p["b_hn"])),)


def gru_without_update_before(p, x, h):
    z, W = cut(x @ p["W_ih"] + p["b"], "rn"), cut(p["W_hh"], "rn")
    return (tanh(z.n + (s(z.r + h @ W.r) * h) @ W.n),)


def mgu(p, x, h):
    z, W = cut(x @ p["W_ih"] + p["b"], "fn"), cut(p["W_hh"], "fn")
    f = s(z.f + h @ W.f)
    return ((1 - f) * h + f * tanh(z.n + (f * h) @ W.n),)


def indrnn(p, x, h):
    return (np.maximum(0, x @ p["W_ih"] + p["u"] * h + p["b"]),)


ALL = {
    linear: Elman(3, 5, activation="identity"),
    irnn: Elman(3, 5, activation="relu", recurrent_init="identity"),
    modrelu: Elman(3, 5, activation="modrelu"),
    exprnn: Elman(3, 5, activation="modrelu", orthogonal=True, gain=0.9),
    lstm: LSTM(3, 5),
    no_input_gate: LSTM(3, 5, input_gate=False),
    no_forget_gate: LSTM(3, 5, forget_gate=False),
    no_output_gate: LSTM(3, 5, output_gate=False),
    no_gate: LSTM(3, 5, input_gate=False, forget_gate=False, output_gate=False),
    no_input_activation: LSTM(3, 5, input_activation="identity"),
    no_output_activation: LSTM(3, 5, output_activation="identity"),
    peepholes: LSTM(3, 5, peepholes=True),
    coupled: LSTM(3, 5, coupled=True),
    gate_recurrence: LSTM(3, 5, gate_recurrence=True),
    of_1997: LSTM(3, 5, forget_gate=False, gate_recurrence=True),
    projection: LSTM(3, 5, projection_size=4),
    layer_norm: LSTM(3, 5, layer_norm=True),
    everything: LSTM(
        3,
        5,
        layer_norm=True,
        coupled=True,
        gate_recurrence=True,
        peepholes=True,
        output_gate=False,
        input_activation="identity",
        output_activation="identity",
        projection_size=4,
    ),
    gru_without_reset: GRU(3, 5, reset="none"),
    gru_without_update_after: GRU(3, 5, update_gate=False),
    gru_without_update_before: GRU(3, 5, update_gate=False, reset="before"),
    mgu: MGU(3, 5),
    indrnn: IndRNN(3, 5),
}


@pytest.mark.parametrize("equations", ALL, ids=lambda equations: equations.__name__)
def test_a_cell_is_its_equations(equations, x64):
    cell = ALL[equations]
    draw = np.random.default_rng(0).standard_normal
    shapes = jax.eval_shape(cell.init, jax.random.key(0))
    params = {name: 0.4 * draw(leaf.shape) for name, leaf in shapes.items()}
    start = jax.tree.map(lambda leaf: draw(leaf.shape), jax.eval_shape(cell.initial_carry, params))
    inputs = draw((20, 3))
    carry, carries = tuple(start), []
    for x in inputs:
        carry = equations(params, x, *carry)
        carries.append(carry)
    want = [np.stack(field) for field in zip(*carries, strict=True)]
    got = reference_unroll(cell, jax.tree.map(jnp.asarray, params), inputs, start)
    assert_close(list(got.carries), want, TOLERANCE["float64"])
    assert_close(got.outputs, want[0], TOLERANCE["float64"])
