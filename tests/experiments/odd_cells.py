"""Cells as a user may bring them: some odd, some broken, each in its own way; for the tests of the battery."""

import dataclasses
import functools
import itertools
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen, nnx

from experiments.common.user_cells import LeakyElman, Plain, PlainCarry
from rnnjax.cells import Jordan

number = 3
drawn = itertools.count()
"""What no cell may ask: how often it was called."""


@dataclasses.dataclass(frozen=True)
class Nan(Plain):
    """Its second step is no number."""

    def step(self, params, carry, z):
        return PlainCarry(jnp.sqrt(-1 - jnp.square(super().step(params, carry, z).h)))


@dataclasses.dataclass(frozen=True)
class Exploding(Plain):
    """Grows tenfold a step."""

    def step(self, params, carry, z):
        return PlainCarry(10 * carry.h + super().step(params, carry, z).h)


@dataclasses.dataclass(frozen=True)
class Forgetful(Plain):
    """No step knows of the one before."""

    def step(self, params, carry, z):
        return super().step(params, PlainCarry(jnp.zeros_like(carry.h)), z)


@dataclasses.dataclass(frozen=True)
class NoDtype(Plain):
    """Its init takes a key alone."""

    def init(self, key):
        return super().init(key)


@dataclasses.dataclass(frozen=True)
class AlwaysFloat32(Plain):
    """Its init pays no heed to the dtype."""

    def init(self, key, dtype=jnp.float32):
        del dtype
        return super().init(key)


class CountingCarry(NamedTuple):
    """h [*batch, H] and n [*batch, 1], a whole number."""

    h: jax.Array
    n: jax.Array


@dataclasses.dataclass(frozen=True)
class Counting(Plain):
    """Counts its steps in whole numbers."""

    def initial_carry(self, params, batch_shape=()):
        return CountingCarry(super().initial_carry(params, batch_shape).h, jnp.zeros((*batch_shape, 1), jnp.int32))

    def step(self, params, carry, z):
        return CountingCarry(super().step(params, PlainCarry(carry.h), z).h, carry.n + 1)


@dataclasses.dataclass(frozen=True)
class Fickle(Plain):
    """Another cell at every trace."""

    def step(self, params, carry, z):
        return PlainCarry((0.5 + 0.1 * (next(drawn) % 5)) * super().step(params, carry, z).h)


class TwoCarry(NamedTuple):
    """fast [*batch, H] and slow [*batch, 2]."""

    fast: jax.Array
    slow: jax.Array


@dataclasses.dataclass(frozen=True)
class TwoFields(Plain):
    """A state of two fields of several sizes."""

    def initial_carry(self, params, batch_shape=()):
        fast = super().initial_carry(params, batch_shape).h
        return TwoCarry(fast, jnp.zeros_like(fast[..., :2]))

    def step(self, params, carry, z):
        fast = super().step(params, PlainCarry(carry.fast + jnp.mean(carry.slow, -1, keepdims=True)), z).h
        return TwoCarry(fast, 0.9 * carry.slow + 0.1 * fast[..., :1])


@dataclasses.dataclass(frozen=True)
class Readout(Plain):
    """Says that its output is a prediction, whatever the task."""

    readout: ClassVar[bool] = True


class NoDataclass(Plain):
    """A class of a plain kind."""

    def __init__(self, input_size, hidden_size):
        object.__setattr__(self, "input_size", input_size)
        object.__setattr__(self, "hidden_size", hidden_size)


@dataclasses.dataclass(frozen=True)
class Units:
    """Its sizes have other names."""

    units: int
    features: int


@dataclasses.dataclass(frozen=True)
class Wants(LeakyElman):
    """Wants what it is not given."""

    depth: int = dataclasses.field(kw_only=True)


@dataclasses.dataclass(frozen=True)
class Refuses(Plain):
    """Takes no sizes."""

    def __post_init__(self):
        raise RuntimeError("not today")


@dataclasses.dataclass(frozen=True)
class NoCell:
    """Has sizes and nothing else."""

    input_size: int
    hidden_size: int


def slow(input_size, hidden_size):
    """A Cell of a function."""
    return LeakyElman(input_size, hidden_size, leak=0.01)


def jordan(input_size, hidden_size, output_size):
    """A Cell that reads out."""
    return Jordan(input_size, hidden_size, output_size, feedback="identity")


def minimal(input_size, hidden_size):
    """A Linen module of a function."""
    del input_size
    return linen.MGUCell(features=hidden_size)


def nnx_gru(inputs, hidden, *, rngs):
    """A module of a function."""
    return nnx.GRUCell(inputs, hidden, rngs=rngs)


def of_three(input_size, hidden_size):
    """Always of three inputs."""
    del input_size
    return Plain(3, hidden_size)


ready = LeakyElman(1, 1, leak=0.2)
partial = functools.partial(LeakyElman, leak=0.3)
module = linen.GRUCell(features=4)
