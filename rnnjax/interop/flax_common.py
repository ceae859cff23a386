"""What both of Flax's interfaces need: names for a foreign carry, and cells of ours that Flax can run."""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import PyTreeDef

from rnnjax import layers
from rnnjax.cell import Carry, Cell, Params, parameter_dtype
from rnnjax.unroll.sequence import cast


class Layout(NamedTuple):
    """How a foreign carry is named: (c, h) of Flax's LSTM, whose output is h, is LSTMCellCarry(h, c) here.

    cell: its class; structure: that of the foreign carry; fields: our names, the output's first; places: where each
    stands among the leaves of the foreign carry; size: features of the output.
    """

    cell: str
    structure: PyTreeDef
    fields: tuple[str, ...]
    places: tuple[int, ...]
    size: int

    def ours(self, carry: Any) -> Carry:
        """A foreign carry as a NamedTuple."""
        leaves = jax.tree.leaves(carry)
        return _carry_class(self.cell, self.fields)(*(jnp.asarray(leaves[place]) for place in self.places))

    def theirs(self, carry: Carry) -> Any:
        """And back."""
        leaves = dict(zip(self.places, carry, strict=True))
        return jax.tree.unflatten(self.structure, [leaves[place] for place in range(len(leaves))])


def find_layout(cell: str, step: Callable, *args: Any) -> Layout:
    """The layout of the carry that `step(*args) -> (carry, output)` returns, found by tracing it.

    Raises ValueError where the output is none of the carry's leaves: a perturbation of the carry, which a probe adds
    after the step, would not reach it.
    """
    traced, (carry, _) = jax.make_jaxpr(step, return_shape=True)(*args)
    *leaves, output = traced.jaxpr.outvars
    shown = next((place for place, leaf in enumerate(leaves) if leaf is output), None)
    if shown is None:
        raise ValueError(
            f"{cell} puts out an array that is no part of its carry: what a probe adds to the carry after a step would "
            "not reach it. Let the cell put out its state and apply the rest to the outputs of rnnjax.unroll, or keep "
            "the output in the carry too"
        )
    paths, structure = jax.tree_util.tree_flatten_with_path(carry)
    names = [jax.tree_util.keystr(path, simple=True, separator="_") for path, _ in paths]
    places = (shown, *(place for place in range(len(names)) if place != shown))
    if all(name.isidentifier() for name in names):
        fields = tuple(names[place] for place in places)
    else:  # a tuple, or an array alone, tells no names
        fields = ("h", *(["c"] if len(names) == 2 else [f"c_{i}" for i in range(len(names) - 1)]))
    return Layout(cell, structure, fields, places, output.aval.shape[-1])


@functools.cache
def _carry_class(cell: str, fields: tuple[str, ...]) -> type:
    return collections.namedtuple(f"{cell}Carry", fields)


def check_axes(cell: str, module: Any) -> None:
    """Raises ValueError where a Flax cell has feature axes beside the last (a convolution)."""
    if module.num_feature_axes != 1:
        raise ValueError(
            f"{cell} acts on {module.num_feature_axes} axes of features: rnnjax.unroll takes cells that act on the "
            "last one alone, so leave this cell to Flax's RNN"
        )


def check_only_parameters(cell: str, others: list[str]) -> None:
    """Raises ValueError where a Flax cell holds variables that are no parameters."""
    if others:
        raise ValueError(
            f"{cell} holds {', '.join(others)} beside its parameters, which rnnjax.unroll has no room for: move what "
            "changes over time into the carry, and take a dropout of rnnjax.layers around the cell"
        )


def describe(cell: str, options: dict[str, Any], defaults: dict[str, Any]) -> str:
    """A Flax cell in one line: its class and what it was given."""
    given = {name: value for name, value in options.items() if value != defaults.get(name, dataclasses.MISSING)}
    told = (f"{name}={getattr(value, '__name__', None) or repr(value)}" for name, value in given.items())
    return f"{cell}({', '.join(told)})"


def run_step(cell: Cell, params: Params, carry: Carry, inputs: jax.Array) -> tuple[Carry, jax.Array]:
    """One step of our cell as Flax calls one: (carry, output)."""
    params = cell.prepare(params)
    dtype = parameter_dtype(params)
    z = cell.project(params, cast(inputs, dtype))
    carry = cast(cell.step(params, carry, z), dtype)
    return carry, cast(cell.read(params, carry, z), dtype)


def shapes_of(layer: layers.Layer, dtype: Any = jnp.float32) -> Params:
    """The layer's parameters as ShapeDtypeStructs."""
    return jax.eval_shape(functools.partial(layer.init, dtype=dtype), jax.random.key(0))


def check_steps_alone(cell: Cell, instead: str) -> None:
    """Raises TypeError for what is no Cell, ValueError for one whose masks are drawn for a whole sequence."""
    if not hasattr(cell, "step"):
        raise TypeError(f"cell of RNNCell is {cell!r}: expected a Cell. Other layers are run by {instead}")
    if layers.is_random(cell):
        raise ValueError(
            f"{cell!r} draws its masks for a whole sequence, which Flax's RNN has no room for: run it with {instead}"
        )
