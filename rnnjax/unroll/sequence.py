"""What an unroll is given, checked and brought to one form."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.cell import Carry, Cell, Params, parameter_dtype


def time_of(sequences: Any) -> int:
    """T of leaves [T, ...]."""
    return jax.tree.leaves(sequences)[0].shape[0]


def cast(tree: Any, dtype) -> Any:
    """Floating leaves in `dtype`, others as they are."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


def expand(mask: jax.Array, like: jax.Array) -> jax.Array:
    """The mask with axes of size 1 appended up to the rank of `like`."""
    return jnp.expand_dims(mask, range(mask.ndim, like.ndim))


def keep_where(mask: jax.Array, tree: Any, other: Any) -> Any:
    """`tree` where the mask, whose axes lead, is set; `other`, of the same structure, elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(expand(mask, a), a, b), tree, other)


def zero_where_not(mask: jax.Array, tree: Any) -> Any:
    """`tree` with zeros where the mask, whose axes lead, is not set."""
    return keep_where(mask, tree, jax.tree.map(jnp.zeros_like, tree))


def check_inputs(cell: Cell, params: Params, inputs: Any) -> tuple[Any, int, tuple[int, ...]]:
    """(inputs in the dtype of the parameters, T, batch shape) from leaves [T, *batch, features].

    Raises ValueError where there is no leaf, where one has no time or feature axis, where leaves disagree in
    [T, *batch], or where a single array has not the cell's `input_size` features.
    """
    inputs = jax.tree.map(jnp.asarray, inputs)
    leaves = jax.tree_util.tree_leaves_with_path(inputs)
    if not leaves:
        raise ValueError("inputs hold no array: expected [T, *batch, features], time first")
    for path, leaf in leaves:
        name = f"inputs{jax.tree_util.keystr(path)}"
        if leaf.ndim < 2:
            raise ValueError(f"{name} has the shape {leaf.shape}: expected [T, *batch, features], time first")
        if leaf.shape[:-1] != leaves[0][1].shape[:-1]:
            raise ValueError(
                f"{name} has the leading axes {leaf.shape[:-1]} but another input has {leaves[0][1].shape[:-1]}: "
                "all share [T, *batch]"
            )
    time, *batch_shape = leaves[0][1].shape[:-1]
    features = getattr(cell, "input_size", None)
    if isinstance(inputs, jax.Array) and features is not None and inputs.shape[-1] != features:
        raise ValueError(
            f"inputs have {inputs.shape[-1]} features (shape {inputs.shape}) but {cell!r} has input_size {features}"
        )
    return cast(inputs, parameter_dtype(params)), time, tuple(batch_shape)


def check_carry(cell: Cell, params: Params, carry: Carry | None, batch_shape: tuple[int, ...]) -> Carry:
    """The carry to start from: the given one, cast to the dtype of the parameters, or the cell's initial carry.

    Raises ValueError where its structure or a field's shape is not that of `cell.initial_carry`, TypeError where a
    field is not floating while it should be.
    """
    expected = cell.initial_carry(params, batch_shape)
    if carry is None:
        return expected
    if jax.tree.structure(carry) != jax.tree.structure(expected):
        raise ValueError(
            f"the carry given to {type(cell).__name__} is a {jax.tree.structure(carry)}: "
            f"expected {jax.tree.structure(expected)}, as initial_carry returns"
        )

    def check(path, leaf, like):
        leaf, name = jnp.asarray(leaf), f"carry{jax.tree_util.keystr(path)}"
        if leaf.shape != like.shape:
            raise ValueError(
                f"{name} has the shape {leaf.shape}: expected {like.shape} for inputs of batch {batch_shape}"
            )
        if jnp.issubdtype(like.dtype, jnp.floating) != jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(f"{name} has the dtype {leaf.dtype}: expected {like.dtype}")
        return leaf.astype(like.dtype)

    return jax.tree_util.tree_map_with_path(check, carry, expected)


def check_lengths(lengths: Any, time: int, batch_shape: tuple[int, ...]) -> jax.Array:
    """lengths as an integer array [*batch].

    Raises TypeError where they are not whole numbers, ValueError where their shape is not the batch's or, when their
    values are known (not traced), where one lies outside 0 ... T. Traced lengths are taken as clipped to 0 ... T.
    """
    traced = isinstance(lengths, jax.core.Tracer)
    lengths = lengths if traced else np.asarray(lengths)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise TypeError(f"lengths have the dtype {lengths.dtype}: expected whole numbers of steps")
    if lengths.shape != batch_shape:
        raise ValueError(
            f"lengths have the shape {lengths.shape}: expected {batch_shape}, one for each sequence of the batch"
        )
    if not traced:
        wrong = np.argwhere((lengths < 0) | (lengths > time))
        if wrong.size:
            place = tuple(int(i) for i in wrong[0])
            value = int(lengths[place])
            index = f"[{', '.join(map(str, place))}]" if place else ""
            reason = "a length is at least 0" if value < 0 else f"the inputs have only {time} steps"
            raise ValueError(f"lengths{index} is {value} but {reason}")
    return jnp.asarray(lengths)


def check_steps(name: str, value: int | None) -> None:
    """Raises TypeError or ValueError unless a number of steps is None or a whole number of at least 1."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} is {value!r}: expected a whole number of steps")
    if value < 1:
        raise ValueError(f"{name} is {value}: expected at least 1 step")


def valid_steps(lengths: jax.Array, time: int) -> jax.Array:
    """[T, *batch], set where t < length."""
    steps = jnp.arange(time, dtype=jnp.int32).reshape(time, *[1] * lengths.ndim)
    return steps < lengths.astype(jnp.int32)[None]


def fill_pads(inputs: Any, valid: jax.Array) -> Any:
    """Inputs with the row's own first step in place of pads; in rows without any, the first one of the longest row.

    Whatever a cell makes of it, it makes of it elsewhere too: where zeros would do harm (a norm's derivative), a real
    step does not, and a pad's gradient of 0 stays 0. Zeros where no row has a step.
    """
    if valid.size == 0:
        return inputs
    flat = valid.reshape(valid.shape[0], -1)
    longest = jnp.argmax(flat.sum(axis=0))

    def fill(leaf):
        first = leaf[0]
        rows = first.reshape(-1, *first.shape[valid.ndim - 1 :])
        other = jnp.where(jnp.any(flat), rows[longest], 0)
        first = jnp.where(expand(valid[0], first), first, jnp.broadcast_to(other, first.shape))
        return jnp.where(expand(valid, leaf), leaf, jax.lax.stop_gradient(first)[None])

    return jax.tree.map(fill, inputs)


def vary(tree: Any, like: Any) -> Any:
    """The tree varying over every mesh axis that some leaf of `like` varies over: what a scan in shard_map asks of its
    carry. The transpose is the sum over devices that a gradient of shared parameters needs.
    """
    axes = frozenset().union(*map(_varies_over, jax.tree.leaves(like)))

    def cast(leaf):
        missing = tuple(axes - _varies_over(leaf))
        return jax.lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(cast, tree) if axes else tree


def _varies_over(leaf: Any) -> frozenset:
    """The mesh axes that an array, or an array's type, varies over."""
    kind = leaf if hasattr(leaf, "manual_axis_type") else jax.typeof(leaf)
    return kind.manual_axis_type.varying
