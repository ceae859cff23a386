"""The independently recurrent network: each unit feeds back to itself alone."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import ACTIVATIONS, Cell, activated, add_bias, check_choice, check_sizes, dot, parameter_dtype, scale
from rnnjax.initializers import INITIALIZERS, draw


class IndRNNCarry(NamedTuple):
    """h [*batch, H], the hidden state."""

    h: jax.Array


@dataclasses.dataclass(frozen=True)
class IndRNN(Cell):
    """h_t = f(x_t W_ih + u * h_{t-1} + b), y_t = h_t.

    Parameters: W_ih [I, H], u [H], b [H]; u starts at U(0, gain). The paper bounds |u| by gamma^(1/T), with which the
    gradient of a relu grows by gamma at most over T steps (its section 3.1): that is the `gain` to start from, and
    1, the default, is the bound for sequences of any length. Nothing here keeps the bound in training.
    Source: Li, Li, Cook, Zhu, Gao 2018, arXiv:1803.04831.

    input_size: I, features of x_t.
    hidden_size: H, features of h_t.
    activation: f, one of relu, tanh, sigmoid, identity.
    input_init: how W_ih is drawn, a name in rnnjax.initializers.INITIALIZERS.
    gain: the largest value that u may start at.
    """

    input_size: int
    hidden_size: int
    activation: str = "relu"
    input_init: str = "lecun_normal"
    gain: float = 1.0

    recurrent: ClassVar[tuple[str, ...]] = ("u",)

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size")
        check_choice(self, "activation", ("relu", "tanh", "sigmoid", "identity"))
        check_choice(self, "input_init", INITIALIZERS)

    def init(self, key, dtype=jnp.float32):
        input_key, recurrent_key = jax.random.split(key)
        hidden = self.hidden_size
        return {
            "W_ih": draw(self.input_init, input_key, (self.input_size, hidden), dtype=dtype),
            "u": (self.gain * jax.random.uniform(recurrent_key, (hidden,), jnp.float32)).astype(dtype),
            "b": jnp.zeros(hidden, dtype),
        }

    def initial_carry(self, params, batch_shape=()):
        return IndRNNCarry(h=jnp.zeros((*batch_shape, self.hidden_size), parameter_dtype(params)))

    def project(self, params, inputs):
        return add_bias(dot(inputs, params["W_ih"]), params["b"])

    def step(self, params, carry, z):
        return IndRNNCarry(h=ACTIVATIONS[self.activation](z + scale(carry.h, params["u"])))

    def gates(self, params, carry, z):
        return activated("h", self.step(params, carry, z).h, self.activation)
