"""The minimal gated unit: one gate both forgets and resets."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell, Gate, add_bias, check_choice, check_sizes, dot, parameter_dtype, sigmoid
from rnnjax.initializers import INITIALIZERS, draw


class MGUCarry(NamedTuple):
    """h [*batch, H], the hidden state."""

    h: jax.Array


@dataclasses.dataclass(frozen=True)
class MGU(Cell):
    """h_t = (1 - f) * h_{t-1} + f * n, y_t = h_t, with f = sigmoid(z_f + h_{t-1} W_f) and
    n = tanh(z_n + (f * h_{t-1}) W_n), where [z_f, z_n] = x_t W_ih + b.

    As in the paper, f near 0 keeps: a GRU with u = 1 - f and r = f. Parameters, gates in the order f, n: W_ih [I, 2H],
    W_hh [H, 2H], b [2H]. Source: Zhou, Wu, Zhang, Zhou 2016, "Minimal gated unit for recurrent neural networks".

    input_size: I, features of x_t.
    hidden_size: H, features of h_t.
    input_init: how each gate's block of W_ih is drawn, a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how each gate's block of W_hh is drawn.
    gain: the factor on W_hh.
    """

    input_size: int
    hidden_size: int
    input_init: str = "lecun_normal"
    recurrent_init: str = "orthogonal"
    gain: float = 1.0

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size")
        check_choice(self, "input_init", INITIALIZERS)
        check_choice(self, "recurrent_init", INITIALIZERS)

    def init(self, key, dtype=jnp.float32):
        input_key, recurrent_key = jax.random.split(key)
        inputs, hidden = self.input_size, self.hidden_size
        return {
            "W_ih": draw(self.input_init, input_key, (inputs, hidden), gates=2, dtype=dtype),
            "W_hh": draw(self.recurrent_init, recurrent_key, (hidden, hidden), gates=2, gain=self.gain, dtype=dtype),
            "b": jnp.zeros(2 * hidden, dtype),
        }

    def initial_carry(self, params, batch_shape=()):
        return MGUCarry(h=jnp.zeros((*batch_shape, self.hidden_size), parameter_dtype(params)))

    def project(self, params, inputs):
        return add_bias(dot(inputs, params["W_ih"]), params["b"])

    def step(self, params, carry, z):
        f, n = self._gate_and_news(params, carry.h, z)
        return MGUCarry(h=(1 - f) * carry.h + f * n)

    def gates(self, params, carry, z):
        f, n = self._gate_and_news(params, carry.h, z)
        return {"f": Gate(f, 0.0, 1.0), "n": Gate(n, -1.0, 1.0)}

    def _gate_and_news(self, params, h, z):
        hidden = self.hidden_size
        f = sigmoid(z[..., :hidden] + dot(h, params["W_hh"][:, :hidden]))
        return f, jnp.tanh(z[..., hidden:] + dot((f * h).astype(h.dtype), params["W_hh"][:, hidden:]))
