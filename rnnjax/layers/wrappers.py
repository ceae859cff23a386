"""Cells around a cell. A wrapper is a Cell that does what the one inside does, but for what it overrides."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell, gates_of


@dataclasses.dataclass(frozen=True)
class Wrapper(Cell):
    """Does what the cell inside does; a subclass overrides what it changes.

    cell: the Cell inside.
    """

    cell: Cell

    def __post_init__(self):
        if not hasattr(self.cell, "step"):
            raise TypeError(
                f"cell of {type(self).__name__} is {self.cell!r}: expected a Cell. Of a Bidirectional or a Stack, wrap "
                "the cells inside"
            )

    @property
    def input_size(self):
        return self.cell.input_size

    @property
    def hidden_size(self):
        return self.cell.hidden_size

    @property
    def output_size(self):
        return self.cell.output_size

    @property
    def readout(self):
        return self.cell.readout

    @property
    def label(self):
        return self.cell.label

    @property
    def recurrent(self):
        return self.cell.recurrent

    @property
    def is_random(self) -> bool:
        """Whether `randomize` draws anything."""
        return type(self).randomize is not Wrapper.randomize or is_random(self.cell)

    def init(self, key, dtype=jnp.float32):
        return self.cell.init(key, dtype)

    def initial_carry(self, params, batch_shape=()):
        return self.cell.initial_carry(params, batch_shape)

    def prepare(self, params):
        return self.cell.prepare(params)

    def randomize(self, key, params, inputs):
        return self.cell.randomize(key, params, inputs)

    def project(self, params, inputs):
        return self.cell.project(params, inputs)

    def step(self, params, carry, z):
        return self.cell.step(params, carry, z)

    def read(self, params, carry, z):
        return self.cell.read(params, carry, z)

    def gates(self, params, carry, z):
        return gates_of(self.cell, params, carry, z)

    @property
    def brings_backward(self):
        """Whether both do: a subclass that overrides `step` alone does not."""
        return super().brings_backward and self.cell.brings_backward

    def step_and_keep(self, params, carry, z):
        return self.cell.step_and_keep(params, carry, z)

    def linearize(self, params, carries_before, carries, kept):
        return self.cell.linearize(params, carries_before, carries, kept)

    def pull(self, transposed, factors, d_carry):
        return self.cell.pull(transposed, factors, d_carry)

    def collect(self, params, carries_before, kept, d_pre):
        return self.cell.collect(params, carries_before, kept, d_pre)


def is_random(cell: Cell) -> bool:
    """Whether a cell's `randomize` draws anything, so that its training wants a key."""
    return cell.is_random if isinstance(cell, Wrapper) else type(cell).randomize is not Cell.randomize


@dataclasses.dataclass(frozen=True)
class LearnedCarry(Wrapper):
    """Starts from a carry that is a parameter, the same for every row.

    Parameters beside those of the cell inside: h_0 [H] for the field h, c_0 for c and so on. They start as the cell's
    own initial carry, which is 0 in most cells.

    cell: the Cell inside.
    """

    def init(self, key, dtype=jnp.float32):
        params = self.cell.init(key, dtype)
        start = {f"{field}_0": leaf for field, leaf in self.cell.initial_carry(params)._asdict().items()}
        taken = sorted(start.keys() & params.keys())
        if taken:
            raise ValueError(f"{self.cell!r} has a parameter {taken[0]} already: LearnedCarry would take its place")
        return params | start

    def prepare(self, params):
        return self.cell.prepare(self._without(params))

    def initial_carry(self, params, batch_shape=()):
        start = self.cell.initial_carry(self._without(params), batch_shape)
        learned = {field: jnp.broadcast_to(params[f"{field}_0"], leaf.shape) for field, leaf in start._asdict().items()}
        return start._replace(**learned)

    def _without(self, params):
        """The parameters of the cell inside."""
        return {name: leaf for name, leaf in params.items() if name not in self._own}

    @functools.cached_property
    def _own(self) -> tuple[str, ...]:
        """The names of the parameters that stand for the carry's fields."""
        start = jax.eval_shape(lambda key: self.cell.initial_carry(self.cell.init(key)), jax.random.key(0))
        return tuple(f"{field}_0" for field in start._fields)
