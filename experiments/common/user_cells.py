"""Cells as a user writes them: none brings a backward of its own, so that JAX differentiates them."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell, dot
from rnnjax.cells import LSTM, Elman, ElmanCarry, LSTMCarry


@dataclasses.dataclass(frozen=True)
class LeakyElman(Elman):
    """h_t = (1 - leak) h_{t-1} + leak f(x_t W_ih + h_{t-1} W_hh + b): a step around another's."""

    leak: float = 0.1

    def step(self, params, carry, z):
        return ElmanCarry((1 - self.leak) * carry.h + self.leak * super().step(params, carry, z).h)


@dataclasses.dataclass(frozen=True)
class CoupledLSTM(LSTM):
    """An LSTM whose input gate is 1 - f: an ablation that rewrites the step. z_i is not used."""

    def step(self, params, carry, z):
        _, f, g, o = jnp.split(z + dot(carry.h, params["W_hh"]), 4, axis=-1)
        f = jax.nn.sigmoid(f)
        c = f * carry.c + (1 - f) * jnp.tanh(g)
        return LSTMCarry(h=jax.nn.sigmoid(o) * jnp.tanh(c), c=c)


class PlainCarry(NamedTuple):
    """h [*batch, H]."""

    h: jax.Array


@dataclasses.dataclass(frozen=True)
class Plain(Cell):
    """h_t = tanh([x_t, h_{t-1}] W): the least that the contract asks for, with no projection ahead of the loop."""

    input_size: int
    hidden_size: int

    def init(self, key, dtype=jnp.float32):
        wide = (self.input_size + self.hidden_size, self.hidden_size)
        return {"W": (jax.random.normal(key, wide) / sum(wide) ** 0.5).astype(dtype)}

    def initial_carry(self, params, batch_shape=()):
        return PlainCarry(jnp.zeros((*batch_shape, self.hidden_size), params["W"].dtype))

    def step(self, params, carry, z):
        return PlainCarry(jnp.tanh(jnp.concatenate([z, carry.h], axis=-1) @ params["W"]))


USER_CELLS = {"leaky Elman": LeakyElman, "coupled LSTM": CoupledLSTM, "plain cell": Plain}
