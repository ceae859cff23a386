"""Masks of dropout: how they are drawn, and weights that apply one to whatever they are multiplied with."""

import contextlib
import contextvars
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from rnnjax.cell import dot, scale


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Masked:
    """Weights [F, O] that make of x @ weights (x * mask) @ weights, for x and mask [*batch, F].

    A cell meets them in place of a recurrent matrix. It may take columns of them, [:, a:b], and has to multiply by @ or
    by `rnnjax.cell.dot`; whatever else it does raises TypeError.
    """

    weights: jax.Array
    mask: jax.Array

    def dot_from(self, x):
        """dot(x, self)."""
        return dot(x * self.mask, self.weights)

    def __rmatmul__(self, x):
        return (x * self.mask) @ self.weights

    def __getitem__(self, index):
        if not isinstance(index, tuple) or index[0] not in (slice(None), Ellipsis):
            raise TypeError(f"[{index}] of masked weights {self.weights.shape}: only columns can be taken, [:, a:b]")
        return Masked(self.weights[index], self.mask)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Transposed:
    """The transposed weights [O, F] of a `Masked`, for its backward: the mask stands after them."""

    weights: jax.Array
    mask: jax.Array

    def dot_from(self, d):
        """dot(d, self)."""
        return dot(d, self.weights) * self.mask

    def __rmatmul__(self, d):
        return (d @ self.weights) * self.mask

    def __getitem__(self, rows):
        return Transposed(self.weights[rows], self.mask)


def masked(params: dict[str, Any], masks: dict[str, jax.Array] | None, of: type = Masked) -> dict[str, Any]:
    """params with each mask [*batch, F] where it belongs: before a matrix, into a vector."""
    if masks is None:
        return params
    return params | {
        name: scale(mask, params[name]) if params[name].ndim == 1 else of(params[name], mask)
        for name, mask in masks.items()
    }


def row_masks(key: jax.Array, rate: float, inputs: Any, features: int, *, each_step: bool) -> jax.Array:
    """[T, *batch, features], set with probability 1 - rate, for inputs with leaves [T, *batch, ...].

    Without `each_step` it is the same at all times. A row's draws depend on the key and on the row's number alone; in
    shard_map, on its number in the whole batch, split along the first batch axis over the mesh's axes in their order;
    within `part_of_batch`, on its number in the batch that the part is of.
    """
    leaf = jax.tree.leaves(inputs)[0]
    time, *batch = jnp.shape(leaf)[:-1]
    rows = _first_row(key, leaf, math.prod(batch)) + jnp.arange(math.prod(batch), dtype=jnp.int32)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, rows)
    shape = (time, features) if each_step else (features,)
    draws = jax.vmap(lambda key: jax.random.uniform(key, shape, jnp.float32))(keys)
    kept = (draws >= rate).reshape(*batch, *shape)
    return jnp.moveaxis(kept, len(batch), 0) if each_step else jnp.broadcast_to(kept, (time, *kept.shape))


_part: contextvars.ContextVar[tuple[Any, int]] = contextvars.ContextVar("rnnjax_part_of_batch", default=(0, 1))


@contextlib.contextmanager
def part_of_batch(number: Any, parts: int):
    """Within the context, rows are those of part `number` (which may be traced) of a batch in `parts` equal ones, so
    that a batch that is trained part by part has the masks of the whole."""
    token = _part.set((number, parts))
    try:
        yield
    finally:
        _part.reset(token)


def _first_row(key: jax.Array, leaf: jax.Array, rows: int):
    """The number in the whole batch of this device's first row, so that devices with one key share no mask."""
    over = jax.typeof(leaf).manual_axis_type.varying - jax.typeof(key).manual_axis_type.varying
    axes = tuple(axis for axis in jax.sharding.get_abstract_mesh().axis_names if axis in over)
    number, parts = _part.get()
    return rows * ((jax.lax.axis_index(axes) if axes else 0) * parts + number)


def scaled(kept: jax.Array, rate: float, dtype) -> jax.Array:
    """1 / (1 - rate) where kept and 0 elsewhere: what is masked by it keeps its mean."""
    return jnp.where(kept, 1 / (1 - rate), 0).astype(dtype)
