"""`unroll`: a cell over a sequence, compiled."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Carry, Cell, Params, parameter_dtype
from rnnjax.unroll import handlers
from rnnjax.unroll.sequence import (
    cast,
    check_carry,
    check_inputs,
    check_lengths,
    keep_where,
    valid_steps,
    zero_where_not,
)


class Unrolled(NamedTuple):
    """outputs [T, *batch, O]; carry, the final one; carries, the one after each step, fields [T, *batch, ...]."""

    outputs: jax.Array
    carry: Carry
    carries: Carry


def unroll(
    cell: Cell,
    params: Params,
    inputs: Any,
    carry: Carry | None = None,
    *,
    lengths: jax.Array | None = None,
    reverse: bool = False,
    name: str | None = None,
) -> Unrolled:
    """Runs `cell` over time with `jax.lax.scan`.

    inputs: an array [T, *batch, input_size] or a pytree of arrays [T, *batch, features]; brought to the dtype of the
        parameters, which the carry and the outputs have too.
    carry: where to start, as an earlier call returned it; the cell's initial carry by default.
    lengths: [*batch] whole numbers of valid steps, 0 ... T, for sequences padded on the right. At t >= length the carry
        is held and the output is 0. Pads may hold anything, NaN included; length 0 returns the carry as given.
    reverse: reads each valid prefix backwards; outputs and carries stand beside the inputs that made them.
    name: what probes call this unroll; the cell's class in lower case by default.

    Gradients are exact: those of `reference_unroll` to rounding, under grad, grad of grad, jvp, vmap and jit.
    Raises ValueError or TypeError for a carry, inputs or lengths that don't fit, naming the array and what was
    expected.
    """
    inputs, time, batch_shape = check_inputs(cell, params, inputs)
    carry = check_carry(cell, params, carry, batch_shape)
    valid = None
    if lengths is not None:
        valid = valid_steps(check_lengths(lengths, time, batch_shape), time)
        inputs = zero_where_not(valid, inputs)  # before the matmul: 0 * NaN would reach the weights' gradient
    zs = cell.project(params, inputs)
    handler = handlers.current()
    perturbation = None
    if handler is not None:
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((time, *leaf.shape), leaf.dtype), carry)
        perturbation = handler.perturbation(name or type(cell).__name__.lower(), like)
    final, carries = jax.lax.scan(_body(cell, params), carry, (zs, valid, perturbation), length=time, reverse=reverse)
    outputs = cast(cell.read(params, carries, zs), parameter_dtype(params))
    if valid is not None:
        outputs = zero_where_not(valid, outputs)
    if handler is not None:
        carries = handler.carries(carries)
    return Unrolled(outputs, final, carries)


def _body(cell: Cell, params: Params):
    """The scan's body: (carry, (z, valid, perturbation)) -> (carry, carry)."""
    dtype = parameter_dtype(params)

    def body(carry, now):
        z, valid, perturbation = now
        after = cast(cell.step(params, carry, z), dtype)
        if perturbation is not None:
            after = jax.tree.map(jnp.add, after, perturbation)
        if valid is not None:
            after = keep_where(valid, after, carry)
        return after, after

    return body
