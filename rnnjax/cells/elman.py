"""The Elman network: the hidden state feeds back."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import (
    ACTIVATIONS,
    SLOPES,
    Cell,
    activated,
    add_bias,
    check_choice,
    check_sizes,
    dot,
    parameter_dtype,
    sum_outer,
)
from rnnjax.initializers import INITIALIZERS, draw, rotations


class ElmanCarry(NamedTuple):
    """h [*batch, H], the hidden state."""

    h: jax.Array


def modrelu(a: jax.Array, b: jax.Array) -> jax.Array:
    """sign(a) * relu(|a| + b) for a [..., H] and b [H]; where |a| + b is 0 the slope is 1, so that b = 0 is linear."""
    b = jnp.expand_dims(b, range(a.ndim - 1))
    return jnp.where(jnp.abs(a) + b >= 0, a + jnp.sign(a) * b, 0)


@dataclasses.dataclass(frozen=True)
class Elman(Cell):
    """h_t = f(x_t W_ih + h_{t-1} W_hh + b), y_t = h_t.

    Parameters: W_ih [I, H], W_hh [H, H], b [H]. Source: Elman 1990, "Finding structure in time".

    IRNN (Le, Jaitly, Hinton 2015): activation="relu", recurrent_init="identity".
    Linear network: activation="identity".
    modReLU (Arjovsky, Shah, Bengio 2016): h_t = sign(a) * relu(|a| + b), a = x_t W_ih + h_{t-1} W_hh, where b is no
      longer added. With b = 0, as it starts, h_t = a.
    expRNN (Lezcano-Casado, Martinez-Rubio 2019): orthogonal=True, W_hh = gain * expm(A_hh - A_hh^T) with the parameter
      A_hh [H, H] in place of W_hh, so that W_hh / gain stays orthogonal, of determinant 1. It starts as theirs does,
      from planes of two units each, turned by angles of U(-pi, pi) (Henaff, Szlam, LeCun 2016).

    input_size: I, features of x_t.
    hidden_size: H, features of h_t.
    activation: f, one of tanh, relu, sigmoid, identity, modrelu.
    input_init: how W_ih is drawn, a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how W_hh is drawn.
    gain: the factor on W_hh, at the start or, with orthogonal, at all times.
    orthogonal: whether W_hh is kept orthogonal through all training.
    """

    input_size: int
    hidden_size: int
    activation: str = "tanh"
    input_init: str = "lecun_normal"
    recurrent_init: str = "orthogonal"
    gain: float = 1.0
    orthogonal: bool = False

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size")
        check_choice(self, "activation", ("tanh", "relu", "sigmoid", "identity", "modrelu"))
        check_choice(self, "input_init", INITIALIZERS)
        check_choice(self, "recurrent_init", INITIALIZERS)
        if self.orthogonal and self.recurrent_init != "orthogonal":
            raise ValueError(
                f"recurrent_init of {type(self).__name__} is {self.recurrent_init!r} but orthogonal is True, which has "
                "a draw of its own: leave one of them out"
            )

    @property
    def brings_backward(self):
        return self.activation != "modrelu" and super().brings_backward

    def init(self, key, dtype=jnp.float32):
        input_key, recurrent_key = jax.random.split(key)
        inputs, hidden = self.input_size, self.hidden_size
        if self.orthogonal:
            recurrent = {"A_hh": rotations(recurrent_key, hidden).astype(dtype)}
        else:
            W_hh = draw(self.recurrent_init, recurrent_key, (hidden, hidden), gain=self.gain, dtype=dtype)
            recurrent = {"W_hh": W_hh}
        W_ih = draw(self.input_init, input_key, (inputs, hidden), dtype=dtype)
        return {"W_ih": W_ih, **recurrent, "b": jnp.zeros(hidden, dtype)}

    def initial_carry(self, params, batch_shape=()):
        return ElmanCarry(h=jnp.zeros((*batch_shape, self.hidden_size), parameter_dtype(params)))

    def prepare(self, params):
        if not self.orthogonal:
            return params
        free = params["A_hh"].astype(jnp.promote_types(params["A_hh"].dtype, jnp.float32))
        W_hh = self.gain * jax.scipy.linalg.expm(free - free.T)
        rest = {name: leaf for name, leaf in params.items() if name != "A_hh"}
        return rest | {"W_hh": W_hh.astype(params["A_hh"].dtype)}

    def project(self, params, inputs):
        z = dot(inputs, params["W_ih"])
        return z if self.activation == "modrelu" else add_bias(z, params["b"])

    def step(self, params, carry, z):
        if self.activation == "modrelu":
            return ElmanCarry(h=modrelu(z + dot(carry.h, params["W_hh"]), params["b"]))
        return ElmanCarry(h=ACTIVATIONS[self.activation](z + dot(carry.h, params["W_hh"])))

    def gates(self, params, carry, z):
        return activated("h", self.step(params, carry, z).h, self.activation)

    def step_and_keep(self, params, carry, z):
        return self.step(params, carry, z), None

    def linearize(self, params, carries_before, carries, kept):
        return SLOPES[self.activation](carries.h)

    def pull(self, transposed, factors, d_carry):
        d_zs = d_carry.h * factors
        return ElmanCarry(h=dot(d_zs, transposed["W_hh"])), d_zs

    def collect(self, params, carries_before, kept, d_zs):
        return {"W_hh": sum_outer(carries_before.h, d_zs)}, d_zs
