"""Arrays of a library to a cell and its parameters, and back.

Both ways are affine. JAX's arrays go through JAX's operations: the gradient of a loss of `load(arrays)` is the gradient
in the library's own arrays.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.cell import Cell
from rnnjax.interop.arrays import described, quoted
from rnnjax.interop.forms import Block, Form, Slot, param_shapes
from rnnjax.interop.matching import Label, choose, form_of, options_of, sizes_of


def load(
    forms: Sequence[Form], arrays: Mapping[str, Any], label: Label = str, **choices: Any
) -> tuple[Cell, dict[str, jax.Array]]:
    """(cell, params) from the arrays of one cell, whose names and shapes say which of `forms` it is.

    choices: fields of our class that weights may leave open; None where the caller did not say.

    Raises ValueError, naming the array, its shape and what was expected.
    """
    xp = jnp if any(isinstance(array, jax.Array) for array in arrays.values()) else np  # numpy compiles nothing
    form = choose(forms, arrays, label)
    cell = form.cell(**sizes_of(form, arrays, label), **options_of(form, choices))
    shapes, dtype = param_shapes(cell), next(iter(arrays.values())).dtype
    ours: dict[tuple[str, str], Any] = {}
    for name, slot in form.slots.items():
        expected = _slot_shape(form, slot, shapes)
        if arrays[name].shape != expected:
            sizes = ", ".join(f"{size} {getattr(cell, size)}" for size in form.sizes)
            raise ValueError(
                f"{label(name)} has the shape {list(arrays[name].shape)}: expected {list(expected)} in a {form.name} "
                f"of {sizes}"
            )
        for block, part in _cut(xp, slot, arrays[name], shapes):
            part = part if block.sign > 0 else -part
            part = part + dtype.type(block.shift) if block.shift else part
            ours[block.key] = ours[block.key] + part if block.key in ours else part
    params = {}
    for param, shape in shapes.items():
        parts = [ours[param, gate] for gate in form.order(param)]
        params[param] = jnp.asarray(xp.concatenate(parts, axis=-1) if parts else xp.zeros(shape, dtype))
    return cell, params


def dump(forms: Sequence[Form], cell: Cell, params: Mapping[str, Any], where: str = "params") -> dict[str, np.ndarray]:
    """{name: array} of one cell, in the first of `forms` that is this cell's.

    where: what messages call `params`.

    Raises ValueError where there is no form of the cell, where params are not the cell's, and where a parameter that
    the form has no place for is not zero.
    """
    form = form_of(forms, cell)
    left: dict[tuple[str, str], np.ndarray] = {}
    for param, value in _check_params(cell, params, where).items():
        gates = form.order(param)
        if not gates and np.any(value != 0):
            raise ValueError(f"{where}[{param!r}] is not zero, and a {form.name} has no place for it")
        parts = np.split(value, len(gates), axis=-1) if gates else []
        left |= {(param, gate): part for gate, part in zip(gates, parts, strict=True)}
    taken: set[tuple[str, str]] = set()

    def take(block):
        if block.key in taken:
            return np.zeros_like(left[block.key])
        taken.add(block.key)
        part = left[block.key]
        part = part - part.dtype.type(block.shift) if block.shift else part
        return part if block.sign > 0 else -part

    arrays = {}
    for name, slot in form.slots.items():
        rows = [np.concatenate([take(block) for block in row], axis=-1) for row in slot.rows]
        joined = rows[0] if len(rows) == 1 else np.concatenate(rows) if rows[0].ndim == 2 else np.stack(rows)
        arrays[name] = np.ascontiguousarray(joined.T if slot.transposed else joined)
    return arrays


def part_of(params: Any, name: str, where: str = "params") -> tuple[Any, str]:
    """(params[name], what messages call it). Raises ValueError where there is none."""
    if not isinstance(params, Mapping) or name not in params:
        found = quoted(params) if isinstance(params, Mapping) else f"a {type(params).__name__}"
        raise ValueError(f"{where} holds {found}: expected {name!r} too")
    return params[name], f"{where}[{name!r}]"


def _check_params(cell: Cell, params: Mapping[str, Any], where: str) -> dict[str, np.ndarray]:
    shapes = param_shapes(cell)
    if not isinstance(params, Mapping) or set(params) != set(shapes):
        found = quoted(params) if isinstance(params, Mapping) else f"a {type(params).__name__}"
        raise ValueError(f"{where} holds {found}: expected {quoted(shapes)} of {described(cell)}")
    found = {param: np.asarray(params[param]) for param in shapes}
    for param, shape in shapes.items():
        if found[param].shape != shape:
            got = list(found[param].shape)
            raise ValueError(f"{where}[{param!r}] has the shape {got}: expected {list(shape)} of {described(cell)}")
    return found


def _slot_shape(form: Form, slot: Slot, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    columns = sum(shapes[block.param][-1] // len(form.order(block.param)) for block in slot.rows[0])
    if slot.axes == 1:
        return (columns,)
    rows = sum(_height(row, shapes) for row in slot.rows)
    return (columns, rows) if slot.transposed else (rows, columns)


def _height(row: tuple[Block, ...], shapes: Mapping[str, tuple[int, ...]]) -> int:
    shape = shapes[row[0].param]
    return shape[0] if len(shape) == 2 else 1


def _cut(xp: Any, slot: Slot, array: Any, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[Block, Any]]:
    """(block, its part of the array)."""
    array = xp.atleast_2d(array.T if slot.transposed else array)
    at = 0
    for row in slot.rows:
        height = _height(row, shapes)
        part = array[at : at + height] if len(shapes[row[0].param]) == 2 else array[at]
        at += height
        yield from zip(row, xp.split(part, len(row), axis=-1), strict=True)
