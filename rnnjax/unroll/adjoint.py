"""The scan with a cell's own backward: what the author knows of the algebra, arranged so that the loop holds little.

JAX differentiates a scan step by step: every gate's derivative, every weight's matmul and every residual inside the
loop. Where a cell brings `linearize`, `pull` and `collect` (see `rnnjax.cell`), the backward of a chunk of steps is

    1. linearize   everything local to a step, for all steps of the chunk at once
    2. pull        dL/dcarry_t -> dL/dcarry_{t-1}, the only part that is a loop
    3. collect     the gradients of parameters and zs from all dL/dcarry_t, one matmul a weight

and what a probe asks for, dL/dcarry_t, is what step 2 hands to step 3 anyway. A chunk is as long as its gates take
about 2 MB: larger temporaries cost page faults. The numbers are those of plain autodiff, to rounding.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from rnnjax.cell import Carry, Cell, Params, parameter_dtype
from rnnjax.unroll.sequence import cast, keep_where, vary, zero_where_not

_CHUNK_BYTES = 2 * 2**20


def scan_carries(
    cell: Cell, params: Params, carry: Carry, zs: Any, valid, perturbation, time: int, reverse: bool
) -> Carry:
    """The carry after every step, [T, *batch, ...], by `jax.lax.scan`; all arguments as `unroll` has prepared them."""
    return _scan(lambda *now: (cell.step(*now), None), params, carry, zs, valid, perturbation, time, reverse)[0]


def _scan(step, params, carry, zs, valid, perturbation, time, reverse):
    """What `step(params, carry, z) -> (carry, kept)` gives at every step, stacked: (carries, kept)."""
    dtype = parameter_dtype(params)

    def body(carry, now):
        z, valid, perturbation = now
        after, kept = step(params, carry, z)
        after = cast(after, dtype)
        if perturbation is not None:
            after = jax.tree.map(jnp.add, after, perturbation)
        if valid is not None:
            after = keep_where(valid, after, carry)
        return after, (after, kept)

    return jax.lax.scan(body, carry, (zs, valid, perturbation), length=time, reverse=reverse)[1]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 6, 7))
def scan_with_own_backward(cell, params, carry, zs, valid, perturbation, time, reverse):
    """`scan_carries` for a cell that brings its own backward."""
    return scan_carries(cell, params, carry, zs, valid, perturbation, time, reverse)


def _forward(cell, params, carry, zs, valid, perturbation, time, reverse):
    carries, kept = _scan(cell.step_and_keep, params, carry, zs, valid, perturbation, time, reverse)
    dtypes = jax.tree.map(lambda leaf: jnp.zeros((), leaf.dtype), zs)
    return carries, (params, carry, kept, valid, dtypes, perturbation is not None, carries)


def _backward(cell, time, reverse, residuals, d_carries):
    params, first, kept, valid, dtypes, perturbed, carries = residuals
    before = jax.tree.map(functools.partial(_shift, reverse=reverse), first, carries)
    sequences = (before, carries, kept, valid, _widen(d_carries))
    start = vary(jax.tree.map(jnp.zeros_like, (_widen(first), _widen(params))), (params, carries, kept, d_carries))

    def of_chunk(accumulated, chunk):
        d_after, d_params = accumulated
        before, carries, kept, valid, d_carries = chunk
        factors = cell.linearize(params, before, carries, kept)
        d_before, d_carries = _pull_chunk(cell, params, factors, valid, d_after, d_carries, not reverse)
        d_here, d_zs = cell.collect(params, factors, before, kept, d_carries)
        d_params = d_params | {name: d_params[name] + d for name, d in d_here.items()}
        return (d_before, d_params), (d_zs, d_carries if perturbed else None)

    accumulated, (d_zs, d_perturbation) = _over_chunks(of_chunk, start, sequences, time, _chunk(kept), not reverse)
    like = functools.partial(jax.tree.map, lambda d, leaf: d.astype(leaf.dtype))
    d_first, d_params = like(accumulated, (first, params))
    return d_params, d_first, like(d_zs, dtypes), None, like(d_perturbation, carries) if perturbed else None


scan_with_own_backward.defvjp(_forward, _backward)


def _pull_chunk(cell, params, factors, valid, d_after, d_carries, reverse):
    """(dL/d the carry before the chunk, dL/dcarry_t at every step of it, 0 at pads)."""

    def body(d_after, now):
        factors, valid, d_shown = now
        d_carry = jax.tree.map(jnp.add, d_after, d_shown)
        d_before = cell.pull(params, factors, d_carry)
        if valid is None:
            return d_before, d_carry
        return keep_where(valid, d_before, d_carry), zero_where_not(valid, d_carry)

    return jax.lax.scan(body, d_after, (factors, valid, d_carries), reverse=reverse)


def _over_chunks(function, start, sequences, time: int, chunk: int, reverse: bool):
    """Scans `function` over chunks of the leading axis; what does not fill one is reached last."""
    count = max(1, time // max(1, min(chunk, time)))
    size = time // count
    left = time - count * size
    cut = functools.partial(jax.tree.map, lambda leaf: leaf[left:] if reverse else leaf[: time - left])
    whole = jax.tree.map(lambda leaf: leaf.reshape(count, size, *leaf.shape[1:]), cut(sequences))
    if count == 1:
        end, results = function(start, jax.tree.map(lambda leaf: leaf[0], whole))
    else:
        end, results = jax.lax.scan(function, start, whole, reverse=reverse)
        results = jax.tree.map(lambda leaf: leaf.reshape(count * size, *leaf.shape[2:]), results)
    if left:
        rest = jax.tree.map(lambda leaf: leaf[:left] if reverse else leaf[time - left :], sequences)
        end, more = function(end, rest)
        order = (more, results) if reverse else (results, more)
        results = jax.tree.map(lambda *parts: jnp.concatenate(parts), *order)
    return end, results


def _chunk(kept: Any) -> int:
    """Steps whose share of `kept` takes about _CHUNK_BYTES."""
    step = sum(math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))
    return max(1, _CHUNK_BYTES // max(1, step))


def _shift(first: jax.Array, after: jax.Array, *, reverse: bool) -> jax.Array:
    """The carry before every step, from the first one and those after every step."""
    if after.shape[0] == 0:
        return after
    return jnp.concatenate([after[1:], first[None]] if reverse else [first[None], after[:-1]])


def _widen(tree: Any) -> Any:
    """Floating leaves in float32 at least: gradients add up in it."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)
