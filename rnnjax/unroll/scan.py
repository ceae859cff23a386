"""`unroll`: a cell over a sequence, compiled."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Carry, Cell, Params, parameter_dtype
from rnnjax.unroll import handlers
from rnnjax.unroll.adjoint import scan_carries, scan_with_own_backward
from rnnjax.unroll.blocks import crossings, over_blocks, truncated
from rnnjax.unroll.sequence import (
    cast,
    check_carry,
    check_inputs,
    check_lengths,
    check_steps,
    fill_pads,
    valid_steps,
    vary,
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
    truncate: int | None = None,
    chunk: int | None = None,
    method: str = "auto",
    name: str | None = None,
) -> Unrolled:
    """Runs `cell` over time with `jax.lax.scan`.

    inputs: an array [T, *batch, input_size] or a pytree of arrays [T, *batch, features]; brought to the dtype of the
        parameters, which the carry and the outputs have too.
    carry: where to start, as an earlier call returned it; the cell's initial carry by default.
    lengths: [*batch] whole numbers of valid steps, 0 ... T, for sequences padded on the right. At t >= length the carry
        is held and the output is 0. Pads may hold anything, NaN included; length 0 returns the carry as given.
    reverse: reads each valid prefix backwards; outputs and carries stand beside the inputs that made them.
    truncate: no gradient crosses t = truncate, 2 * truncate, ... (truncated BPTT); the carry given keeps its gradient.
    chunk: of the carries, keep those at t = chunk, 2 * chunk, ... for the backward and compute the rest again: memory
        grows with T / chunk + chunk in place of T, but for inputs and outputs.
    method: "auto" takes the cell's own backward where it brings one; "scan" is jax.lax.scan as JAX differentiates it,
        for forward mode (jvp, jacfwd), which a backward of one's own rules out.
    name: what probes call this unroll; the cell's class in lower case by default.

    Gradients are exact: those of `reference_unroll` to rounding, under grad, grad of grad, vmap and jit.
    Raises ValueError or TypeError for a carry, inputs or lengths that don't fit, naming the array and what was
    expected.
    """
    if method not in ("auto", "scan"):
        raise ValueError(f"method is {method!r}: expected auto or scan")
    check_steps("truncate", truncate)
    check_steps("chunk", chunk)
    inputs, time, batch_shape = check_inputs(cell, params, inputs)
    carry = check_carry(cell, params, carry, batch_shape)
    valid = None
    if lengths is not None:
        valid = valid_steps(check_lengths(lengths, time, batch_shape), time)
        inputs = fill_pads(inputs, valid)  # before the matmul: 0 * NaN would reach the weights' gradient
    params, carry, inputs = vary((cell.prepare(params), carry, inputs), (params, carry, inputs, valid))
    handler = handlers.current()
    perturbation = None
    if handler is not None:
        like = jax.tree.map(lambda leaf: jax.typeof(jnp.broadcast_to(leaf, (time, *leaf.shape))), carry)
        name = name or getattr(cell, "label", type(cell).__name__.lower())
        inputs, perturbation = handler.before(name, like, inputs)
    own = method == "auto" and getattr(cell, "brings_backward", False) and _all_floating(params)
    run = functools.partial(_run, cell, scan_with_own_backward if own else scan_carries, params, reverse)
    if chunk is not None:
        whole = jax.checkpoint(run, prevent_cse=False)
        run = functools.partial(over_blocks, whole, size=chunk, reverse=reverse)
    sequences = (inputs, valid, perturbation)
    if truncate is not None and truncate < time:
        run = functools.partial(over_blocks, truncated(run, reverse), size=truncate, reverse=reverse)
        sequences = (crossings(valid, time, reverse), sequences)
    final, (outputs, carries) = run(carry, sequences)
    if handler is not None:
        steps = handlers.Steps(params, inputs, valid, carry, carries, cell, reverse, truncate)
        carries, outputs = handler.after(steps, outputs)
    return Unrolled(outputs, final, carries)


def _all_floating(params) -> bool:
    return all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(params))


def _run(cell, scan, params, reverse, carry, sequences):
    """(final carry, (outputs, carries)) of a block of steps; outputs are 0 at pads."""
    inputs, valid, _ = sequences
    final, carries = scan(cell, params, carry, *sequences, reverse)
    outputs = cast(cell.read(params, carries, cell.project(params, inputs)), parameter_dtype(params))
    return final, (outputs if valid is None else zero_where_not(valid, outputs), carries)
