"""Lyapunov exponents: the rates at which small changes of the carry grow or die out along a trajectory."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from rnnjax.cell import Carry, Cell, Params
from rnnjax.unroll.sequence import cast, check_carry, check_inputs

_PARTS = 10
"""Of a trajectory, from whose means the error is taken."""


class LyapunovSpectrum(NamedTuple):
    """What `lyapunov_spectrum` measures.

    exponents [*batch, K], in nats a step, in the order of the decomposition, which is that of their size up to noise.
    error [*batch, K]: their standard error, from the means of ten parts of the trajectory, one after another; nan where
        there are fewer than ten decompositions.
    digits [*batch]: the decimal digits that the basis lost between two decompositions, at the worst.
    carry: the one after the last step, and basis [*batch, S, K], the orthonormal one there: to go on from.
    """

    exponents: jax.Array
    error: jax.Array
    digits: jax.Array
    carry: Carry
    basis: jax.Array


def lyapunov_spectrum(
    cell: Cell,
    params: Params,
    inputs: Any,
    carry: Carry | None = None,
    *,
    count: int | None = None,
    every: int = 1,
    burn_in: int = 0,
    basis: jax.Array | None = None,
) -> LyapunovSpectrum:
    """The first Lyapunov exponents along the trajectory of `unroll(cell, params, inputs, carry)`.

        Q_n R_n = J_{nm} ... J_{(n-1)m+1} Q_{n-1},    lambda_i = sum_n log |R_n[i, i]| / T

    with J_t = dcarry_t/dcarry_{t-1}, the fields of a carry flattened one after another to S entries, m = `every`.
    No Jacobian is formed: a step's linearization is applied to all columns of the basis at once. The network is driven
    by its inputs, or autonomous with inputs of zeros. Differentiable in parameters and inputs; a second call with the
    same shapes compiles nothing. Source: Benettin et al. 1980; Engelken, Wolf, Abbott 2023, "Lyapunov spectra of
    chaotic recurrent neural networks".

    inputs, carry: as `unroll` takes them, [T, *batch, ...].
    count: K, how many exponents; all S where it is None.
    every: m, steps between two decompositions. What these cost less is paid in digits, see `LyapunovSpectrum`.
    burn_in: the first steps, in which the basis turns to the directions that grow; they are not counted.
    basis: [*batch, S, K], orthonormal; the first K unit vectors where it is None.

    Raises ValueError where count, every, burn_in or the basis can't be and, outside of jit, where a basis lost all
    digits of its dtype between two decompositions.
    """
    inputs, time, batch_shape = check_inputs(cell, params, inputs)
    start = check_carry(cell, params, carry, batch_shape)
    flat = ravel_pytree(cell.initial_carry(params))[0]
    count = flat.size if count is None else count
    _check_counts(time, flat.size, count, every, burn_in)
    shape = (*batch_shape, flat.size, count)
    if basis is None:
        basis = jnp.broadcast_to(jnp.eye(flat.size, count, dtype=flat.dtype), shape)
    if jnp.shape(basis) != shape:
        raise ValueError(f"the basis has the shape {jnp.shape(basis)}: expected {shape}, [*batch, S, K]")
    found = _spectrum(cell, params, inputs, start, jnp.asarray(basis, flat.dtype), every, burn_in)
    held = -math.log10(jnp.finfo(flat.dtype).eps)
    if every > 1 and not isinstance(found.digits, jax.core.Tracer) and jnp.max(found.digits, initial=0) >= held:
        raise ValueError(
            f"between two decompositions the basis lost {float(jnp.max(found.digits)):.1f} decimal digits, of "
            f"{held:.1f} that {flat.dtype} has: take a smaller every, a lower count, or float64"
        )
    return found


@functools.partial(jax.jit, static_argnums=(0, 5, 6))
def _spectrum(cell, params, inputs, start, basis, every, burn_in):
    unflatten = ravel_pytree(cell.initial_carry(params))[1]
    params = cell.prepare(params)

    def push(state, z):
        def step(flat):
            return ravel_pytree(cast(cell.step(params, unflatten(flat), z), flat.dtype))[0]

        flat, along = jax.linearize(step, state[0])
        return (flat, jax.vmap(along, 1, 1)(state[1])), None

    def stretch(state, zs):
        (flat, basis), _ = jax.lax.scan(push, state, zs)
        basis, triangle = jnp.linalg.qr(basis)
        return (flat, basis), jnp.log(jnp.abs(jnp.diagonal(triangle)))

    def trajectory(start, basis, zs):
        zs = jax.tree.map(lambda z: z.reshape(-1, every, *z.shape[1:]), zs)
        (flat, basis), grown = jax.lax.scan(stretch, (ravel_pytree(start)[0], basis), zs)
        digits = jnp.max(grown.max(-1) - grown.min(-1)) / math.log(10)
        counted = grown[burn_in // every :] / every
        size = len(counted) // _PARTS
        parts = counted[: size * _PARTS].reshape(_PARTS, size, counted.shape[1]).mean(1)  # nan of none
        error = jnp.std(parts, axis=0, ddof=1) / math.sqrt(_PARTS)
        return LyapunovSpectrum(counted.mean(0), error, digits, unflatten(flat), basis)

    for _ in jax.tree.leaves(start)[0].shape[:-1]:
        trajectory = jax.vmap(trajectory, (0, 0, 1))
    return trajectory(start, basis, cell.project(params, inputs))


def _check_counts(time: int, size: int, count: int, every: int, burn_in: int) -> None:
    if not 1 <= count <= size:
        raise ValueError(f"count is {count}: expected 1 to {size}, the entries of the carry")
    if every < 1 or time % every or burn_in % every:
        raise ValueError(
            f"every is {every}, of {time} steps with a burn_in of {burn_in}: expected a whole number that divides both"
        )
    if not 0 <= burn_in < time:
        raise ValueError(f"burn_in is {burn_in}: expected 0 to {time - 1}, fewer than the {time} steps")
