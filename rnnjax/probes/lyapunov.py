"""Lyapunov exponents: the rates at which small changes of the carry grow or die out along a trajectory."""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.cell import Carry, Cell, Params
from rnnjax.unroll.handlers import Steps
from rnnjax.unroll.sequence import check_carry, check_inputs, time_of, vary

_PARTS = 10
"""Of a trajectory, from whose means the error is taken."""


class LyapunovSpectrum(NamedTuple):
    """What `lyapunov_spectrum` measures.

    exponents [*batch, K], in nats a step, in the order of the decomposition, which is that of their size up to noise;
        -inf in directions that a step leads nothing on in, such as the context of an attention.
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
    inputs, _, batch_shape = check_inputs(cell, params, inputs)
    start = check_carry(cell, params, carry, batch_shape)
    steps = Steps(cell.prepare(params), inputs, None, start, None, cell, reverse=False, truncate=None)
    return _checked(steps, count, every, burn_in, basis)


def unroll_spectra(
    found: dict[str, Steps], *, count: int | None = None, every: int = 1, burn_in: int = 0
) -> dict[str, LyapunovSpectrum]:
    """The spectrum of every unroll in a model along its own trajectory, from what `recorded` gives: {unroll: ...}.

    A layer is driven by what it was given, the outputs of the one below or an encoder's memory held fixed. An unroll
    that reads backwards is followed in its own order. The rest is as in `lyapunov_spectrum`. Raises ValueError for an
    unroll with pads: a rate over time is that of one whole trajectory, so take sequences of one length.
    """
    for name, steps in found.items():
        if steps.valid is not None and (isinstance(steps.valid, jax.core.Tracer) or not jnp.all(steps.valid)):
            raise ValueError(
                f"unroll {name!r} has lengths, so that some steps may be pads: give whole sequences, without lengths"
            )
    return {name: _checked(steps, count, every, burn_in, None) for name, steps in found.items()}


def _checked(steps: Steps, count: int | None, every: int, burn_in: int, basis: Any) -> LyapunovSpectrum:
    lead = jax.tree.leaves(steps.inputs)[0].ndim - 2
    fields = jax.tree.leaves(steps.first)
    size = sum(math.prod(field.shape[lead:]) for field in fields)
    dtype = jnp.promote_types(fields[0].dtype, jnp.float32)  # of the basis: nothing is decomposed in less
    count = size if count is None else count
    _check_counts(time_of(steps.inputs), size, count, every, burn_in)
    shape = (*fields[0].shape[:lead], size, count)
    if basis is None:
        basis = jnp.broadcast_to(jnp.eye(size, count, dtype=dtype), shape)
    if jnp.shape(basis) != shape:
        raise ValueError(f"the basis has the shape {jnp.shape(basis)}: expected {shape}, [*batch, S, K]")
    found = _spectrum(dataclasses.replace(steps, carries=None), jnp.asarray(basis, dtype), every, burn_in)
    held = -math.log10(jnp.finfo(dtype).eps)
    if every > 1 and not isinstance(found.digits, jax.core.Tracer) and jnp.max(found.digits, initial=0) >= held:
        if jnp.isinf(found.digits).any():
            raise ValueError(
                f"a step leads nothing on in some of the {count} directions, whose exponents are -inf, and in which a "
                "basis can't be kept over several steps: take every=1, or a lower count"
            )
        raise ValueError(
            f"between two decompositions the basis lost {float(jnp.max(found.digits)):.1f} decimal digits, of "
            f"{held:.1f} that {dtype} has: take a smaller every, a lower count, or float64"
        )
    return found


@functools.partial(jax.jit, static_argnums=(2, 3))
def _spectrum(steps, basis, every, burn_in):
    first, basis = vary((steps.first, basis), steps)
    leaves, structure = jax.tree.flatten(first)
    lead = basis.ndim - 2

    def split(basis):
        """The basis [*batch, S, K] as a carry with K on the last axis."""
        cuts = np.cumsum([math.prod(leaf.shape[lead:]) for leaf in leaves])[:-1]
        parts = jnp.split(basis, cuts, axis=lead)
        return structure.unflatten(
            [part.reshape(*leaf.shape, basis.shape[-1]) for part, leaf in zip(parts, leaves, strict=True)]
        )

    def join(columns):
        return jnp.concatenate(
            [part.reshape(*part.shape[:lead], -1, part.shape[-1]) for part in jax.tree.leaves(columns)], axis=lead
        )

    def push(state, z):
        def step(carry):
            after = steps.cell.step(steps.params, carry, z)
            return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), after, carry)

        carry, along = jax.linearize(step, state[0])
        narrow = jax.tree.map(lambda column, like: column.astype(like.dtype), state[1], state[0])
        pushed = jax.vmap(along, -1, -1)(narrow)
        return (carry, jax.tree.map(lambda column: column.astype(basis.dtype), pushed)), None

    def stretch(state, zs):
        (carry, columns), _ = jax.lax.scan(push, state, zs, reverse=steps.reverse)
        basis, triangle = jnp.linalg.qr(join(columns))
        return (carry, split(basis)), jnp.log(jnp.abs(jnp.diagonal(triangle, axis1=-2, axis2=-1)))

    zs = steps.cell.project(steps.params, steps.inputs)
    zs = jax.tree.map(lambda z: z.reshape(-1, every, *z.shape[1:]), zs)
    (carry, columns), grown = jax.lax.scan(stretch, (first, split(basis)), zs, reverse=steps.reverse)
    grown = grown[::-1] if steps.reverse else grown
    digits = jnp.max(grown.max(-1) - grown.min(-1), axis=0) / math.log(10)
    counted = grown[burn_in // every :] / every
    size = len(counted) // _PARTS
    parts = counted[: size * _PARTS].reshape(_PARTS, size, *counted.shape[1:]).mean(1)  # nan of none
    error = jnp.std(parts, axis=0, ddof=1) / math.sqrt(_PARTS)
    return LyapunovSpectrum(counted.mean(0), error, digits, carry, join(columns))


def _check_counts(time: int, size: int, count: int, every: int, burn_in: int) -> None:
    if not 1 <= count <= size:
        raise ValueError(f"count is {count}: expected 1 to {size}, the entries of the carry")
    if every < 1 or time % every or burn_in % every:
        raise ValueError(
            f"every is {every}, of {time} steps with a burn_in of {burn_in}: expected a whole number that divides both"
        )
    if not 0 <= burn_in < time:
        raise ValueError(f"burn_in is {burn_in}: expected 0 to {time - 1}, fewer than the {time} steps")
