"""The scan with a cell's own backward: what the author knows of the algebra, arranged so that the loop holds little.

JAX differentiates a scan step by step: every gate's derivative, every weight's matmul and every residual inside the
loop. Where a cell brings its own backward (see `rnnjax.cell`), that of a chunk of steps is

    1. linearize   everything local to a step, for all steps of the chunk at once
    2. pull        dL/dcarry_t -> dL/dcarry_{t-1}, the only part that is a loop
    3. collect     the gradients of parameters, one matmul a weight, and of zs, which go through `project` at once

and what a probe asks for, dL/dcarry_t, is what step 2 passes on anyway. A chunk is as long as what was kept of its
steps fits into a cache, and nothing but carries and what was kept is ever held for all times: larger temporaries cost
page faults. The numbers are those of plain autodiff, to rounding.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero, custom_vjp_primal_tree_values

from rnnjax.cell import Carry, Cell, Params, parameter_dtype
from rnnjax.unroll.blocks import fitting, over_blocks
from rnnjax.unroll.sequence import cast, keep_where, time_of, vary, zero_where_not


def scan_steps(step, params: Params, carry: Carry, zs: Any, valid, perturbation, time: int, reverse: bool):
    """`jax.lax.scan` of `step(params, carry, z) -> (carry, kept)`: (final carry, (carries, kept)), stacked over time.

    All arguments as `unroll` has prepared them.
    """
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

    return jax.lax.scan(body, carry, (zs, valid, perturbation), length=time, reverse=reverse)


def project_and_scan(cell: Cell, step, params, carry, inputs, valid, perturbation, reverse: bool):
    """`scan_steps` of what `cell.project` makes of the inputs, which is held for a block of steps only."""

    def of_block(carry, block):
        inputs, valid, perturbation = block
        zs = cell.project(params, inputs)
        return scan_steps(step, params, carry, zs, valid, perturbation, time_of(inputs), reverse)

    size = fitting(jax.eval_shape(cell.project, params, inputs), time_of(inputs), 2)
    return over_blocks(of_block, carry, (inputs, valid, perturbation), size, reverse=reverse)


def scan_carries(cell: Cell, params, carry, inputs, valid, perturbation, reverse: bool):
    """(final carry, carries [T, *batch, ...]) of any cell, differentiated by JAX."""

    def step(params, carry, z):
        return cell.step(params, carry, z), None

    final, (carries, _) = project_and_scan(cell, step, params, carry, inputs, valid, perturbation, reverse)
    return final, carries


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 6))
def scan_with_own_backward(cell, params, carry, inputs, valid, perturbation, reverse):
    """`scan_carries` of a cell that brings its own backward."""
    return scan_carries(cell, params, carry, inputs, valid, perturbation, reverse)


def _forward(cell, params, carry, inputs, valid, perturbation, reverse):
    asked = _asked(inputs)
    given = custom_vjp_primal_tree_values((params, carry, inputs, valid, perturbation))
    params, carry, inputs, valid, perturbation = given
    # A perturbation is zero: its gradient is asked for, and adding it would read as much memory as the carries take.
    final, (carries, kept) = project_and_scan(cell, cell.step_and_keep, params, carry, inputs, valid, None, reverse)
    perturbed = None if perturbation is None else ()  # a structure, since a residual that is a value would be traced
    return (final, carries), (params, carry, inputs, asked, kept, valid, perturbed, carries)


def _asked(inputs):
    """For every leaf of the inputs () where its gradient is asked for, else None."""
    leaves = jax.tree.leaves(inputs, is_leaf=lambda leaf: hasattr(leaf, "perturbed"))
    return [() if leaf.perturbed else None for leaf in leaves]


def _backward(cell, reverse, residuals, cotangents):
    params, first, inputs, asked, kept, valid, perturbed, carries = residuals
    perturbed = perturbed is not None
    d_final, d_carries = cotangents
    d_final = _widen(jax.tree.map(_instantiate, d_final, is_leaf=_is_zero))
    d_carries = [None if _is_zero(d) else _widen(d) for d in jax.tree.leaves(d_carries, is_leaf=_is_zero)]
    time = time_of(inputs)
    sequences = (jnp.arange(time), carries, inputs, kept, valid, d_carries)
    start = vary((d_final, jax.tree.map(jnp.zeros_like, _widen(params))), (params, first, sequences))
    transposed = jax.tree.map(lambda leaf: leaf.T if leaf.ndim == 2 else leaf, params)

    def of_chunk(accumulated, chunk):
        d_after, d_params = accumulated
        steps, after, inputs, kept, valid, d_carries = chunk
        before = _before(first, carries, after, steps, reverse)
        factors = cell.linearize(params, before, after, kept)
        pull = functools.partial(cell.pull, transposed)
        d_before, d_pre, d_carries = _pull_chunk(pull, factors, valid, d_after, d_carries, not reverse, perturbed)
        d_step, d_zs = cell.collect(params, before, kept, d_pre)
        d_projection, d_inputs = _through_project(cell, params, inputs, asked, d_zs)
        d_params = jax.tree.map(jnp.add, d_params, _widen(d_projection))
        d_params = d_params | {name: d_params[name] + d for name, d in d_step.items()}
        return (d_before, d_params), (d_inputs, d_carries)

    size = fitting(sequences, time, 4)
    accumulated, (d_inputs, d_perturbation) = over_blocks(of_chunk, start, sequences, size, reverse=not reverse)
    like = functools.partial(jax.tree.map, lambda d, leaf: d.astype(leaf.dtype))
    d_first, d_params = like(accumulated, (first, params))
    return d_params, d_first, d_inputs, None, like(d_perturbation, carries) if perturbed else None


scan_with_own_backward.defvjp(_forward, _backward, symbolic_zeros=True)


def _is_zero(leaf) -> bool:
    return isinstance(leaf, SymbolicZero)


def _instantiate(leaf):
    return jnp.zeros(leaf.shape, leaf.dtype) if _is_zero(leaf) else leaf


def _before(first, carries, after, steps, reverse):
    """The carry before every step of a chunk, from the carries of all times and those after its steps."""
    if time_of(after) == 0:
        return after
    edge = steps[-1] + 1 if reverse else steps[0] - 1
    last = time_of(carries) - 1
    outside = (edge < 0) | (edge > last)

    def of(first, carries, after):
        at_edge = jax.lax.dynamic_index_in_dim(carries, jnp.clip(edge, 0, last), keepdims=False)
        at_edge = jnp.where(outside, first, at_edge)[None]
        return jnp.concatenate([after[1:], at_edge] if reverse else [at_edge, after[:-1]])

    return jax.tree.map(of, first, carries, after)


def _pull_chunk(pull, factors, valid, d_after, d_carries, reverse, perturbed):
    """(dL/d the carry before the chunk, d_pre of every step and, if `perturbed`, dL/dcarry_t; both 0 at pads).

    d_carries: what outputs and carries of a step add to dL/dcarry_t, a leaf for each field or None where nothing.
    """

    def body(d_after, now):
        factors, valid, d_shown = now
        fields, structure = jax.tree.flatten(d_after)
        fields = [d if more is None else d + more for d, more in zip(fields, d_shown, strict=True)]
        d_carry = jax.tree.unflatten(structure, fields)
        d_before, d_pre = pull(factors, d_carry)
        found = (d_pre, d_carry if perturbed else None)
        if valid is not None:
            d_before, found = keep_where(valid, d_before, d_carry), zero_where_not(valid, found)
        return d_before, found

    d_before, (d_pre, d_carries) = jax.lax.scan(body, d_after, (factors, valid, d_carries), reverse=reverse)
    return d_before, d_pre, d_carries


def _through_project(cell, params, inputs, asked, d_zs):
    """(dL/dparams, dL/dinputs) of the zs of a chunk; None for inputs whose gradient is not asked for."""
    leaves, structure = jax.tree.flatten(inputs)
    fixed = [leaf if one is None else None for leaf, one in zip(leaves, asked, strict=True)]
    moved = [None if one is None else leaf for leaf, one in zip(leaves, asked, strict=True)]

    def project(params, moved):
        every = [b if a is None else a for a, b in zip(moved, fixed, strict=True)]
        return cell.project(params, jax.tree.unflatten(structure, every))

    zs, pull = jax.vjp(project, params, moved)
    d_params, d_moved = pull(jax.tree.map(lambda d, z: d.astype(z.dtype), d_zs, zs))
    return d_params, jax.tree.unflatten(structure, d_moved)


def _widen(tree: Any) -> Any:
    """Floating leaves in float32 at least: gradients add up in it."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)
