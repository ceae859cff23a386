"""Batches of examples, cut into shares and parts and put together."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.tasks import Batch
from rnnjax.tasks.windows import of_full_length
from rnnjax.train.devices import DATA_AXIS


def map_examples(function: Callable[[Any, int], Any], batch: Batch) -> Batch:
    """`function(leaf, axis)` of every leaf, where axis is that of the examples: 1, behind time, or 0."""
    each = 1 if batch.mask.ndim == 2 else 0

    def over(tree, axis):
        return jax.tree.map(lambda leaf: function(leaf, axis), tree)

    return Batch(
        over(batch.inputs, 1),
        over(batch.targets, each),
        over(batch.mask, each),
        over(batch.lengths, 0),
        over(batch.fresh, 0),
    )


def own_share(batch: Batch) -> Batch:
    """The examples of this device, inside a `shard_map` over DATA_AXIS in which every device has all of them."""
    shares, number = jax.lax.axis_size(DATA_AXIS), jax.lax.axis_index(DATA_AXIS)

    def own(leaf, axis):
        size = leaf.shape[axis] // shares
        return jax.lax.dynamic_slice_in_dim(leaf, number * size, size, axis)

    return map_examples(own, batch)


def split(batch: Batch, parts: int) -> Batch:
    """The batch in `parts` of equally many examples, on a new first axis."""
    return map_examples(lambda leaf, axis: cut(leaf, parts, axis), batch)


def cut(leaf: jax.Array, parts: int, axis: int) -> jax.Array:
    """[..., n, ...] -> [parts, ..., n / parts, ...]."""
    shape = leaf.shape[:axis] + (parts, leaf.shape[axis] // parts) + leaf.shape[axis + 1 :]
    return jnp.moveaxis(leaf.reshape(shape), axis, 0)


def join(leaf: jax.Array) -> jax.Array:
    """[parts, n, ...] -> [parts * n, ...], what `cut` did to axis 0."""
    return leaf.reshape(-1, *leaf.shape[2:])


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """Batches of a corpus on a new first axis, padded to the longest of them; padding changes no result."""
    times = [
        {leaf.shape[0] for leaf in leaves}
        for leaves in zip(*(jax.tree.leaves(one.inputs) for one in batches), strict=True)
    ]
    if any(len(found) > 1 for found in times):
        batches = [batch if batch.lengths is not None else of_full_length(batch, np) for batch in batches]
    stacked = ("inputs", "targets", "mask") if batches[0].mask.ndim == 2 else ("inputs",)  # those that have time
    parts = [{name: getattr(batch, name) for name in stacked} for batch in batches]
    padded = jax.tree.map(lambda *leaves: _pad_alike(leaves), *parts)
    whole = [batch._replace(**dict.fromkeys(stacked)) for batch in batches]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *whole)._replace(**padded)


def _pad_alike(leaves: Sequence[np.ndarray]) -> np.ndarray:
    """[T, ...] of several T -> [n, longest, ...], with zeros after the end."""
    time = max(leaf.shape[0] for leaf in leaves)
    return np.stack([np.pad(leaf, [(0, time - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)) for leaf in leaves])
