"""How a library stores a cell's weights, written as a map from ours: one table for both directions.

Libraries store the same matrices, each cut, ordered and turned in its own way. A `Form` says for every array of theirs
which blocks of ours stand in it; a block is the part of one of our parameters that belongs to one gate:

    "weight_ih": slot(blocks("W_ih", "ifgo"), transposed=True)        torch.nn.LSTM, [4H, I]
    "linear/w": slot(blocks("W_ih", "igfo"), blocks("W_hh", "igfo"))  haiku.LSTM, [I + H, 4H]

`convert.load` reads it backwards: a block of ours is the sum of theirs (two biases of one gate add up), or zero where
they have none. `convert.dump` reads it forwards: the first array with a block gets it, a second one zeros, and a block
that no array has must be zero. So what was dumped loads as it was.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import jax

from rnnjax.cell import Cell


class Block(NamedTuple):
    """One gate's part of our parameter `param`, as a library stores it: theirs = sign * (ours - shift)."""

    param: str
    gate: str
    sign: int = 1
    shift: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """What it is a part of."""
        return self.param, self.gate


class Slot(NamedTuple):
    """One array of theirs: rows of blocks side by side, one row above the next, and the whole transposed or not."""

    rows: tuple[tuple[Block, ...], ...]
    transposed: bool

    @property
    def axes(self) -> int:
        """1 for a vector, 2 for a matrix or several vectors."""
        return 2 if len(self.rows) > 1 or self.rows[0][0].param.startswith("W") else 1


def blocks(param: str, gates: str, *, negated: str = "", shifts: Mapping[str, float] | None = None) -> tuple:
    """The blocks of `param`, one for each letter of `gates`, in the library's order."""
    shifts = shifts or {}
    return tuple(Block(param, gate, -1 if gate in negated else 1, shifts.get(gate, 0.0)) for gate in gates)


def slot(*rows: tuple[Block, ...], transposed: bool = False) -> Slot:
    """A `Slot` of these rows."""
    return Slot(rows, transposed)


@dataclasses.dataclass(frozen=True)
class Form:
    """How a library stores one kind of cell.

    name: what the library calls it.
    cell: our class; gates: the order of the gates in its parameters, a letter each.
    slots: {name of theirs: what stands in it}.
    options: {field of our class: the values that the library has}; of several, the weights don't tell which.
    sizes: the fields of our class that the shapes tell.
    """

    name: str
    cell: type[Cell]
    gates: str
    slots: Mapping[str, Slot]
    options: Mapping[str, tuple] = dataclasses.field(default_factory=dict)
    sizes: tuple[str, ...] = ("input_size", "hidden_size")

    def blocks(self) -> Iterator[Block]:
        """All blocks of all slots."""
        return (block for slot in self.slots.values() for row in slot.rows for block in row)

    def order(self, param: str) -> str:
        """The gates that `param` has blocks of, in our order."""
        held = {block.gate for block in self.blocks() if block.param == param}
        return "".join(gate for gate in self.gates if gate in held)

    def holder(self, param: str) -> str:
        """The name of the first slot that begins with a block of `param`."""
        return next(name for name, slot in self.slots.items() if slot.rows[0][0].param == param)


def without_bias(form: Form) -> Form:
    """The form of the same cell made without biases."""
    slots = {name: slot for name, slot in form.slots.items() if not slot.rows[0][0].param.startswith("b")}
    return dataclasses.replace(form, name=f"{form.name} without bias", slots=slots)


def param_shapes(cell: Cell) -> dict[str, tuple[int, ...]]:
    """{name: shape} of the parameters of a cell."""
    return {name: leaf.shape for name, leaf in jax.eval_shape(cell.init, jax.random.key(0)).items()}
