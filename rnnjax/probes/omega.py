"""The regulariser that keeps the gradient's norm over time (Pascanu, Mikolov, Bengio 2013, equations 9 and 10).

    Omega = sum over transitions (t, b) of ( ||d_{t+1} J_{t+1}|| / ||d_{t+1}|| - 1 )^2

with d_t = dL/dcarry_t, J_{t+1} = dcarry_{t+1}/dcarry_t, and norms over all fields of the carry together. Where a
gradient neither vanishes nor explodes from one step to the one before, its ratio is 1. Of Omega the immediate
derivative is taken: carries, d and what a cell is given as inputs are constants, so that parameters count only where
they stand in J. The way there:

1. The gradient of the loss, with every carry's beside it, as in `rnnjax.probes.gradients`. What every unroll has run
   is taken out of the same forward pass.
2. Omega and its gradient, by the parameters that each cell's steps have seen, for many steps at once.
3. From these to the parameters of the loss, by the transpose of what the function makes of the one the other (a
   cell's `prepare`, a mask of DropConnect, a cast). The rest of the function is not run again.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rnnjax.cell import parameter_dtype
from rnnjax.probes.unrolls import (
    Perturb,
    by_unroll,
    carries_before,
    compiled,
    discover,
    floating,
    with_floating,
    zeros_like,
)
from rnnjax.unroll import handlers
from rnnjax.unroll.blocks import crossings, fitting, over_blocks
from rnnjax.unroll.sequence import cast, expand, time_of, vary


def value_and_grad_with_omega(loss_fn: Callable, *, has_aux: bool = False) -> Callable:
    """Like `jax.value_and_grad`, with Omega and its gradient beside it.

    loss_fn: (params, *args, **kwargs) -> scalar, or (scalar, aux) with `has_aux`, as `carry_gradients` takes it.

    Returns a compiled function of the same arguments that gives (value, gradients, (omega, transitions,
    omega_gradients)), where value is (loss, aux) with `has_aux`; omega is the sum above over all unrolls inside
    loss_fn; transitions is how many it has, a whole number; and omega_gradients are those of the sum, by params. A
    transition leads from one valid step to the next one read where the gradient passes and d_{t+1} is not 0: none into
    a pad, from the carry that an unroll starts with, or over a multiple of `truncate`. It may itself be put under jit,
    vmap, scan or shard_map, where omega and transitions are those of the device and gradients summed as `jax.grad`
    sums them.

    Raises ValueError as `carry_gradients` does, and for an unroll inside a jax.jit or jax.checkpoint of loss_fn.
    """
    return compiled(loss_fn, functools.partial(_differentiate, has_aux=has_aux))


def _differentiate(loss: Callable, params: Any, whole: Callable, *, has_aux: bool):
    unrolls = discover(functools.wraps(loss)(lambda: loss(params)), through=())
    zeros = zeros_like(unrolls, "carries")

    def perturbed(params, zeros):
        with handlers.handling(Perturb(zeros)) as seen:
            value = loss(params)
        return value[0] if has_aux else value, (value, seen.steps)

    def prepared(params):
        _, (_, steps) = perturbed(params, zeros)
        return {name: floating(run.params) for name, run in steps.items()}

    (_, (value, steps)), (gradients, of_carries) = jax.value_and_grad(perturbed, (0, 1), has_aux=True)(params, zeros)
    of_carries = by_unroll(unrolls, of_carries, "carries")
    found = {name: _omega(run, of_carries[name]) for name, run in steps.items()}
    omega, transitions = (sum(each[i] for each in found.values()) for i in (0, 1))
    _, transpose = jax.vjp(prepared, params)
    (of_params,) = transpose({name: each[2] for name, each in found.items()})
    return value, whole(gradients), (omega, transitions, whole(of_params))


def _omega(steps: handlers.Steps, d_carries: Any):
    """(Omega of an unroll, its transitions, the gradient by the floating leaves of its parameters)."""
    unit, there = _unit(d_carries, jax.tree.leaves(steps.inputs)[0].ndim - 1)
    sequences = (carries_before(steps), steps.inputs, unit, there & expand(_transitions(steps), there))
    moved = floating(steps.params)
    wide = [leaf.astype(_wide(leaf)) for leaf in moved]

    def of_block(found, block):
        omega, gradient = jax.value_and_grad(functools.partial(_sum, steps))(moved, *block)
        count = jnp.sum(block[-1], dtype=jnp.int32)
        return jax.tree.map(lambda total, more: total + more.astype(total.dtype), found, (omega, count, gradient)), None

    start = jnp.zeros((), _wide(jax.tree.leaves(unit)[0])), jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, wide)
    size = fitting((sequences, jax.eval_shape(steps.cell.project, steps.params, steps.inputs)), time_of(sequences), 4)
    (omega, count, gradient), _ = over_blocks(of_block, vary(start, (steps, unit)), sequences, size, reverse=False)
    return omega, count, [d.astype(leaf.dtype) for d, leaf in zip(gradient, moved, strict=True)]


def _sum(steps, moved, before, inputs, unit, counts):
    """Omega over a block of steps, as a function of the floating parameters."""
    params = with_floating(steps.params, moved)
    zs = steps.cell.project(params, inputs)

    def step(before):
        return cast(jax.vmap(functools.partial(steps.cell.step, params))(before, zs), parameter_dtype(params))

    _, pull = jax.vjp(step, before)
    leaves, scale = _scaled(pull(unit)[0], counts.ndim)
    return jnp.sum(jnp.where(counts, jnp.square(scale * _norm(leaves, counts.ndim) - 1), 0))


def _transitions(steps: handlers.Steps) -> jax.Array:
    """[T, *batch], or [T] where all steps are valid: whether the gradient that reaches t passes to the step before."""
    time = time_of(steps.carries)
    passes = crossings(steps.valid, time, steps.reverse)
    if steps.truncate is not None:
        at = jnp.arange(time)
        before = at + 1 if steps.reverse else at - 1
        passes &= expand(at // steps.truncate == before // steps.truncate, passes)
    return passes


def _unit(tree: Any, lead: int) -> tuple[Any, jax.Array]:
    """(the tree over its norm, where this is not 0 [T, *batch]); leaves have `lead` axes before their features."""
    leaves, _ = _scaled(tree, lead)
    norm = _norm(leaves, lead)
    there = norm != 0
    safe = jnp.where(there, norm, 1)
    leaves = [
        (leaf / expand(safe, leaf)).astype(like.dtype) for leaf, like in zip(leaves, jax.tree.leaves(tree), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(tree), leaves), there


def _scaled(tree: Any, lead: int) -> tuple[list[jax.Array], jax.Array]:
    """(leaves of the tree over a scale, the scale [T, *batch]), so that squares of the leaves neither overflow nor are
    flushed to 0."""
    leaves = [leaf.astype(_wide(leaf)) for leaf in jax.tree.leaves(tree)]
    largest = [jnp.max(jnp.abs(leaf), range(lead, leaf.ndim), initial=0) for leaf in leaves]
    largest = jax.lax.stop_gradient(functools.reduce(jnp.maximum, largest))
    bound = jnp.finfo(largest.dtype).max / 16  # the reciprocal of a larger scale would be flushed to 0
    scale = jnp.where(largest > 0, jnp.minimum(largest, bound), 1)
    return [leaf / expand(scale, leaf) for leaf in leaves], scale


def _norm(leaves: list[jax.Array], lead: int) -> jax.Array:
    """The Euclidean norm over all features of all leaves [T, *batch]; where it is 0, so is its gradient."""
    squares = sum(jnp.sum(jnp.square(leaf), range(lead, leaf.ndim)) for leaf in leaves)
    zero = squares == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, squares)))


def _wide(leaf: jax.Array) -> jnp.dtype:
    return jnp.promote_types(leaf.dtype, jnp.float32)
