"""The long short-term memory with forget gate."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell, add_bias, check_choice, check_sizes, dot, parameter_dtype, sigmoid, sum_outer
from rnnjax.initializers import INITIALIZERS, draw


class LSTMFactors(NamedTuple):
    """Of a step's backward: gates [*, 4H], d pre-activation / d (c, c, c, h); shown [*, H], dh / dc; kept [*, H], f."""

    gates: jax.Array
    shown: jax.Array
    kept: jax.Array


class LSTMCarry(NamedTuple):
    """h [*batch, H], the hidden state that the output shows, and c [*batch, H], the memory cell."""

    h: jax.Array
    c: jax.Array


@dataclasses.dataclass(frozen=True)
class LSTM(Cell):
    """c_t = f * c_{t-1} + i * g, h_t = o * tanh(c_t), y_t = h_t, with i, f, o = sigmoid of z_i, z_f, z_o and
    g = tanh(z_g), where [z_i, z_f, z_g, z_o] = x_t W_ih + h_{t-1} W_hh + b.

    Parameters, gates in the order i, f, g, o: W_ih [I, 4H], W_hh [H, 4H], b [4H].
    Source: Hochreiter, Schmidhuber 1997; forget gate of Gers, Schmidhuber, Cummins 2000.

    input_size: I, features of x_t.
    hidden_size: H, features of h_t and c_t.
    forget_bias: the initial value of b's forget part; the rest of b starts at 0.
    input_init: how each gate's block of W_ih is drawn, a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how each gate's block of W_hh is drawn.
    gain: the factor on W_hh.
    """

    input_size: int
    hidden_size: int
    forget_bias: float = 1.0
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
        zeros = jnp.zeros(hidden, dtype)
        return {
            "W_ih": draw(self.input_init, input_key, (inputs, hidden), gates=4, dtype=dtype),
            "W_hh": draw(self.recurrent_init, recurrent_key, (hidden, hidden), gates=4, gain=self.gain, dtype=dtype),
            "b": jnp.concatenate([zeros, jnp.full(hidden, self.forget_bias, dtype), zeros, zeros]),
        }

    def initial_carry(self, params, batch_shape=()):
        zeros = jnp.zeros((*batch_shape, self.hidden_size), parameter_dtype(params))
        return LSTMCarry(h=zeros, c=zeros)

    def project(self, params, inputs):
        return add_bias(dot(inputs, params["W_ih"]), params["b"])

    def step(self, params, carry, z):
        return self.step_and_keep(params, carry, z)[0]

    def step_and_keep(self, params, carry, z):
        i, f, g, o = gates = self._gates(z + dot(carry.h, params["W_hh"]))
        c = f * carry.c + i * g
        return LSTMCarry(h=o * jnp.tanh(c), c=c), jnp.concatenate(gates, axis=-1)

    def _gates(self, before):
        """i, f, g, o; one sigmoid over all four, since four small ones are fused into their consumers and run twice."""
        i, f, _, o = jnp.split(sigmoid(before), 4, axis=-1)
        return i, f, jnp.tanh(before[..., 2 * self.hidden_size : 3 * self.hidden_size]), o

    def linearize(self, params, carries_before, carries, kept):
        i, f, g, o = jnp.split(kept, 4, axis=-1)
        shown = jnp.tanh(carries.c)
        gates = [g * i * (1 - i), carries_before.c * f * (1 - f), i * (1 - g * g), shown * o * (1 - o)]
        return LSTMFactors(jnp.concatenate(gates, axis=-1), o * (1 - shown * shown), f)

    def pull(self, params, factors, d_carry):
        d_pre, d_c = self._before_activations(factors, d_carry)
        return LSTMCarry(h=dot(d_pre, params["W_hh"].T), c=d_c * factors.kept)

    def collect(self, params, factors, carries_before, kept, d_carries):
        d_zs, _ = self._before_activations(factors, d_carries)
        return {"W_hh": sum_outer(carries_before.h, d_zs)}, d_zs

    def _before_activations(self, factors, d_carry):
        """(dL/d the gates before their activations, dL/dc with what h passes on)."""
        d_c = d_carry.c + d_carry.h * factors.shown
        return jnp.concatenate([d_c, d_c, d_c, d_carry.h], axis=-1) * factors.gates, d_c
