"""Jacobians of a step, and their products between two times.

A carry is flattened to one vector, its fields one after another in their order, S entries in all.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.cell import Carry, Cell, Params
from rnnjax.probes.unrolls import carries_before
from rnnjax.unroll import unroll
from rnnjax.unroll.handlers import Steps
from rnnjax.unroll.sequence import check_carry, check_inputs, keep_where, vary


def step_jacobians(cell: Cell, params: Params, inputs: Any, carry: Carry | None = None) -> jax.Array:
    """dcarry_t/dcarry_{t-1} along the trajectory of `unroll(cell, params, inputs, carry)`.

    Returns [T, *batch, S, S]; entry [t, ..., i, j] is dcarry_t[i] / dcarry_{t-1}[j], where carry_{-1} is the one given.
    Inputs and errors are those of `unroll`.
    """
    inputs, _, batch_shape = check_inputs(cell, params, inputs)
    start = check_carry(cell, params, carry, batch_shape)
    carries = unroll(cell, params, inputs, start).carries
    return _jacobians(Steps(cell.prepare(params), inputs, None, start, carries, cell, reverse=False, truncate=None))


def unroll_jacobians(found: dict[str, Steps]) -> dict[str, jax.Array]:
    """The Jacobians of the steps of every unroll in a model, from what `recorded` gives.

    Returns {unroll: [T, *batch, S, S]}, beside the inputs of a step: dcarry_t/dcarry_{t-1}, or dcarry_t/dcarry_{t+1} of
    an unroll that reads backwards. At pads, where the carry is held, it is the identity.
    """
    return {name: _jacobians(steps) for name, steps in found.items()}


@jax.jit
def _jacobians(steps: Steps) -> jax.Array:
    """Row by row, for all steps and examples at once, so that parameters may hold an array per example."""
    zs, before = steps.cell.project(steps.params, steps.inputs), carries_before(steps)
    leaves, structure = jax.tree.flatten(before)
    lead = jax.tree.leaves(steps.inputs)[0].ndim - 1
    sizes = [math.prod(leaf.shape[lead:]) for leaf in leaves]

    def step(before):
        after = jax.vmap(functools.partial(steps.cell.step, steps.params))(before, zs)
        return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), after, before)

    def row(pull, one):
        parts = jnp.split(one, np.cumsum(sizes)[:-1])
        of_all = [
            jnp.broadcast_to(part.reshape(leaf.shape[lead:]), leaf.shape)
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        (d_before,) = pull(jax.tree.unflatten(structure, of_all))
        return jnp.concatenate([d.reshape(*d.shape[:lead], -1) for d in jax.tree.leaves(d_before)], axis=-1)

    eye = vary(jnp.eye(sum(sizes), dtype=leaves[0].dtype), steps)
    jacobians = jax.vmap(functools.partial(row, jax.vjp(step, before)[1]), out_axes=lead)(eye)
    return (
        jacobians if steps.valid is None else keep_where(steps.valid, jacobians, jnp.broadcast_to(eye, jacobians.shape))
    )


class JacobianProducts(NamedTuple):
    """dcarry_t/dcarry_k = exp(log_scale[k]) * matrix[k] for every k <= t.

    matrix [K, *batch, S, S] has a largest magnitude of 1 (0 where the product is 0); log_scale [K, *batch] is in nats.
    """

    matrix: jax.Array
    log_scale: jax.Array


def jacobian_products(jacobians: jax.Array, t: int = -1) -> JacobianProducts:
    """dcarry_t/dcarry_k = J_t J_{t-1} ... J_{k+1} for k = 0 ... t, the scale kept apart so that nothing overflows.

    jacobians: [T, *batch, S, S] as `step_jacobians` returns; t counts as an index, from the end where negative.
    Raises IndexError where there is no step t.
    """
    time = jacobians.shape[0]
    if not -time <= t < time:
        raise IndexError(f"t is {t} but there are {time} steps")
    t %= time
    size = jacobians.shape[-1]
    eye = jnp.broadcast_to(jnp.eye(size, dtype=jacobians.dtype), jacobians.shape[1:])
    last = JacobianProducts(eye, jnp.zeros(jacobians.shape[1:-2], jacobians.dtype))

    def back(after, jacobian):
        product = jnp.matmul(after.matrix, jacobian, precision="highest")  # not in TF32: errors would multiply
        largest = jnp.max(jnp.abs(product), axis=(-2, -1))
        scale = jnp.where(largest > 0, largest, 1)
        log_scale = jnp.where(largest > 0, after.log_scale + jnp.log(scale), -jnp.inf)
        now = JacobianProducts(product / scale[..., None, None], log_scale)
        return now, now

    _, products = jax.lax.scan(back, last, jacobians[1 : t + 1], reverse=True)
    return jax.tree.map(lambda rest, one: jnp.concatenate([rest, one[None]]), products, last)


def log_singular_values(products: JacobianProducts) -> jax.Array:
    """log of the singular values of dcarry_t/dcarry_k, in nats, the largest first: [K, *batch, S].

    Those below the largest by more digits than the dtype has are rounding, whatever the scale; -inf for 0. What
    separates the first from the last is kept over long times by `lyapunov_spectrum` alone.
    """
    values = jnp.linalg.svd(products.matrix, compute_uv=False)
    return jnp.log(values) + products.log_scale[..., None]
