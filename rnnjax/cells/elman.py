"""The Elman network: the hidden state feeds back."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import (
    ACTIVATIONS,
    SLOPES,
    Cell,
    add_bias,
    check_choice,
    check_sizes,
    dot,
    parameter_dtype,
    sum_outer,
)
from rnnjax.initializers import INITIALIZERS, draw


class ElmanCarry(NamedTuple):
    """h [*batch, H], the hidden state."""

    h: jax.Array


@dataclasses.dataclass(frozen=True)
class Elman(Cell):
    """h_t = f(x_t W_ih + h_{t-1} W_hh + b), y_t = h_t.

    Parameters: W_ih [I, H], W_hh [H, H], b [H]. With activation="relu" and recurrent_init="identity" this is the IRNN
    of Le, Jaitly, Hinton 2015. Source: Elman 1990, "Finding structure in time".

    input_size: I, features of x_t.
    hidden_size: H, features of h_t.
    activation: f, one of tanh, relu, sigmoid, identity.
    input_init: how W_ih is drawn, a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how W_hh is drawn.
    gain: the factor on W_hh.
    """

    input_size: int
    hidden_size: int
    activation: str = "tanh"
    input_init: str = "lecun_normal"
    recurrent_init: str = "orthogonal"
    gain: float = 1.0

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size")
        check_choice(self, "activation", ("tanh", "relu", "sigmoid", "identity"))
        check_choice(self, "input_init", INITIALIZERS)
        check_choice(self, "recurrent_init", INITIALIZERS)

    def init(self, key, dtype=jnp.float32):
        input_key, recurrent_key = jax.random.split(key)
        inputs, hidden = self.input_size, self.hidden_size
        return {
            "W_ih": draw(self.input_init, input_key, (inputs, hidden), dtype=dtype),
            "W_hh": draw(self.recurrent_init, recurrent_key, (hidden, hidden), gain=self.gain, dtype=dtype),
            "b": jnp.zeros(hidden, dtype),
        }

    def initial_carry(self, params, batch_shape=()):
        return ElmanCarry(h=jnp.zeros((*batch_shape, self.hidden_size), parameter_dtype(params)))

    def project(self, params, inputs):
        return add_bias(dot(inputs, params["W_ih"]), params["b"])

    def step(self, params, carry, z):
        return ElmanCarry(h=ACTIVATIONS[self.activation](z + dot(carry.h, params["W_hh"])))

    def step_and_keep(self, params, carry, z):
        return self.step(params, carry, z), None

    def linearize(self, params, carries_before, carries, kept):
        return SLOPES[self.activation](carries.h)

    def pull(self, params, factors, d_carry):
        return ElmanCarry(h=dot(d_carry.h * factors, params["W_hh"].T))

    def collect(self, params, factors, carries_before, kept, d_carries):
        d_zs = d_carries.h * factors
        return {"W_hh": sum_outer(carries_before.h, d_zs)}, d_zs
