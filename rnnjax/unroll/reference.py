"""`reference_unroll`: the specification of `unroll`, as a Python loop over single sequences.

No mask, no padding, no scan: each sequence of the batch is cut to its length and run alone, step by step. Slow on
purpose; it says what the numbers are.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.cell import Carry, Cell, Params, parameter_dtype
from rnnjax.unroll.scan import Unrolled
from rnnjax.unroll.sequence import cast, check_carry, check_inputs, check_lengths, check_steps


def reference_unroll(
    cell: Cell,
    params: Params,
    inputs: Any,
    carry: Carry | None = None,
    *,
    lengths: jax.Array | None = None,
    reverse: bool = False,
    truncate: int | None = None,
) -> Unrolled:
    """What `unroll` computes, with its result and errors; lengths must be known, not traced."""
    check_steps("truncate", truncate)
    inputs, time, batch_shape = check_inputs(cell, params, inputs)
    carry = check_carry(cell, params, carry, batch_shape)
    lengths = np.asarray(check_lengths(np.full(batch_shape, time) if lengths is None else lengths, time, batch_shape))
    params = cell.prepare(params)
    rows = []
    for index in np.ndindex(*batch_shape):
        sequence = jax.tree.map(lambda leaf, i=index: leaf[(slice(None), *i)], inputs)
        start = jax.tree.map(lambda leaf, i=index: leaf[i], carry)
        rows.append(_run(cell, params, sequence, start, int(lengths[index]), time, reverse, truncate))
    if not rows:
        raise ValueError(f"the batch {batch_shape} holds no sequence: a Python loop has nothing to run")
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    outputs, final, carries = jax.tree.map(lambda leaf: leaf.reshape(*batch_shape, *leaf.shape[1:]), stacked)
    axis = len(batch_shape)
    outputs, carries = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), (outputs, carries))
    return Unrolled(outputs, final, carries)


def _run(cell, params, inputs, carry, length, time, reverse, truncate):
    """One sequence: ([T, O] outputs, final carry, carries [T, ...]), with the carry held where t >= length."""
    dtype, truncate = parameter_dtype(params), truncate or time
    outputs, carries = [None] * time, [None] * time
    if reverse:
        carries[length:] = [carry] * (time - length)
    order = range(length - 1, -1, -1) if reverse else range(length)
    for t in order:
        crosses = t + 1 < length and (t + 1) % truncate == 0 if reverse else t > 0 and t % truncate == 0
        if crosses:
            carry = jax.lax.stop_gradient(carry)
        z = cell.project(params, jax.tree.map(lambda leaf, t=t: leaf[t], inputs))
        after = cast(cell.step(params, carry, z), dtype)
        if jax.tree.map(jnp.shape, after) != jax.tree.map(jnp.shape, carry):
            raise ValueError(
                f"a step of one sequence of {cell!r} gives {jax.tree.map(jnp.shape, after)}: expected the shapes of "
                f"its carry, {jax.tree.map(jnp.shape, carry)}"
            )
        carry = carries[t] = after
        outputs[t] = cast(cell.read(params, carry, z), dtype)
    if not reverse:
        carries[length:] = [carry] * (time - length)
    silent = jnp.zeros(cell.output_size, dtype)
    outputs = [silent if output is None else output for output in outputs]
    empty = jax.tree.map(lambda leaf: jnp.zeros((0, *leaf.shape), leaf.dtype), (silent, carry))
    if time == 0:
        return empty[0], carry, empty[1]
    return jnp.stack(outputs), carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *carries)
