"""Jacobians of a step, and their products between two times.

A carry is flattened to one vector, its fields one after another in their order, S entries in all.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from rnnjax.cell import Carry, Cell, Params
from rnnjax.unroll import unroll
from rnnjax.unroll.sequence import cast, check_carry, check_inputs


def step_jacobians(cell: Cell, params: Params, inputs: Any, carry: Carry | None = None) -> jax.Array:
    """dcarry_t/dcarry_{t-1} along the trajectory of `unroll(cell, params, inputs, carry)`.

    Returns [T, *batch, S, S]; entry [t, ..., i, j] is dcarry_t[i] / dcarry_{t-1}[j], where carry_{-1} is the one given.
    Inputs and errors are those of `unroll`. Raises ValueError where the parameters hold an array per example, so that
    a step of one example gives several.
    """
    carries = unroll(cell, params, inputs, carry).carries
    inputs, time, batch_shape = check_inputs(cell, params, inputs)
    start = check_carry(cell, params, carry, batch_shape)
    before = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest[:-1]])[:time], start, carries)
    flat, unflatten = ravel_pytree(cell.initial_carry(params))
    params = cell.prepare(params)

    def jacobian(before, z):
        def step(flat):
            return ravel_pytree(cast(cell.step(params, unflatten(flat), z), flat.dtype))[0]

        return jax.jacrev(step)(ravel_pytree(before)[0])

    for _ in range(1 + len(batch_shape)):
        jacobian = jax.vmap(jacobian)
    jacobians = jacobian(before, cell.project(params, inputs))
    if jacobians.shape[-2:] != (flat.size, flat.size):
        raise ValueError(
            f"a step of one example of {cell!r} has the Jacobian {jacobians.shape[-2:]}: expected {flat.size} rows. "
            "Parameters that hold an array per example have to be given one example at a time, by jax.vmap"
        )
    return jacobians


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
