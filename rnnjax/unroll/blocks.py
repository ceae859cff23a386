"""Time cut into blocks: what bounds memory, and where truncated gradients end."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rnnjax.unroll.sequence import keep_where, time_of


def over_blocks(function: Callable, carry: Any, sequences: Any, size: int, *, reverse: bool) -> Any:
    """`jax.lax.scan` of `function(carry, block) -> (carry, results)` over blocks of `size` steps.

    sequences: leaves [T, ...]; blocks begin at multiples of `size`, and the last one is shorter where T is no multiple.
    Returns (carry, results), the results [T, ...] as one call over all of the sequences would give them.
    """
    count, left = divmod(time_of(sequences), size)
    if count + (left > 0) <= 1:
        return function(carry, sequences)
    cut = functools.partial(jax.tree.map, lambda leaf: leaf[: count * size].reshape(count, size, *leaf.shape[1:]))
    rest = jax.tree.map(lambda leaf: leaf[count * size :], sequences)
    scan = functools.partial(jax.lax.scan, function, xs=cut(sequences), reverse=reverse)
    join = functools.partial(jax.tree.map, lambda leaf: leaf.reshape(count * size, *leaf.shape[2:]))
    if not left:
        carry, results = scan(carry)
        return carry, join(results)
    if reverse:
        carry, last = function(carry, rest)
        carry, results = scan(carry)
    else:
        carry, results = scan(carry)
        carry, last = function(carry, rest)
    return carry, jax.tree.map(lambda *parts: jnp.concatenate(parts), join(results), last)


def truncated(function: Callable, reverse: bool) -> Callable:
    """`function` on a block, with no gradient into the carry that the block before it left.

    Its block is (crossings, sequences).
    """

    def stop_before(carry, block):
        crosses, sequences = block
        crosses = crosses[-1 if reverse else 0]
        return function(keep_where(crosses, jax.lax.stop_gradient(carry), carry), sequences)

    return stop_before


def crossings(valid: jax.Array | None, time: int, reverse: bool) -> jax.Array:
    """[T, *batch], or [T] where all steps are valid: whether the step read before t was one of the row's own.

    A carry that is held over pads crosses nothing.
    """
    valid = jnp.ones(time, bool) if valid is None else valid
    outside = jnp.zeros_like(valid[:1])
    return jnp.concatenate([valid[1:], outside] if reverse else [outside, valid[1:]])


def fitting(tree: Any, time: int, megabytes: int) -> int:
    """Steps in a block of about that size of the leaves [T, ...] of `tree`: larger temporaries cost page faults.

    A divisor of T where one is near.
    """
    step = sum(math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
    size = max(1, min(megabytes * 2**20 // max(1, step), time))
    return next((divisor for divisor in range(size, size // 2, -1) if time % divisor == 0), size)
