"""Gradients over time, of any function that calls `unroll`, from one backward pass.

Every unroll inside the function adds a zero e_t to its carry between `step` and `read`; dL/de_t is dL/dcarry_t. Each
field's gradient is taken with the other fields of the same time held fixed: an LSTM whose loss reads only h_T has
dL/dc_T = 0. How an unroll comes to its zeros stands in `rnnjax.probes.unrolls`.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

from rnnjax.cell import parameter_dtype
from rnnjax.probes.unrolls import (
    Perturb,
    by_unroll,
    carries_before,
    compiled,
    discover,
    floating,
    fresh_trace,
    is_floating,
    with_floating,
    zeros_like,
)
from rnnjax.unroll import handlers
from rnnjax.unroll.sequence import cast, zero_where_not


def value_and_grad(loss_fn: Callable, *, has_aux: bool = False) -> Callable:
    """Like `jax.value_and_grad` with the gradient of every carry beside it, from the same backward pass.

    Returns a compiled function of (params, *args, **kwargs) that gives (value, gradients of params, carry gradients),
    where value is (loss, aux) with `has_aux`, and carry gradients are those of `carry_gradients`.
    """
    return compiled(loss_fn, functools.partial(_differentiate, has_aux=has_aux, part="carries", of_params=True))


def carry_gradients(loss_fn: Callable, *, has_aux: bool = False) -> Callable:
    """dL/dcarry_t of every `unroll` that `loss_fn` calls.

    loss_fn: (params, *args, **kwargs) -> scalar, or (scalar, aux) with `has_aux`; any code that calls `unroll`, in any
        framework. Arguments are pytrees; leaves that are no arrays (an activation function, a number) are constants of
        the compiled function: another one, by type and ==, compiles it again.

    Returns a compiled function of the same arguments that gives {name of the unroll: carry of [T, *batch, ...]}: the
    NamedTuple of the cell with the gradient in each field, 0 at pads. An unroll is called by the `name` it was given,
    else by its cell's class; the second of a name is `name_1`, the third `name_2`. It may itself be put under jit, vmap
    or grad; the unrolls of a carry_gradients inside `loss_fn` belong to that one alone. Each compilation has metadata
    of its own, so that a persistent compilation cache does not find it again.

    Raises ValueError where `loss_fn` calls no `unroll`, and where one would run several times with a single
    perturbation: inside scan, while, cond, vmap, lax.map, shard_map, a custom derivative rule, or a jitted function
    that is called twice with the same shapes.
    """
    return _of_part(loss_fn, "carries", has_aux)


def input_gradients(loss_fn: Callable, *, has_aux: bool = False) -> Callable:
    """dL/dx_t of the inputs of every `unroll` that `loss_fn` calls: what each layer hands to the one below.

    loss_fn, the function that is returned, names and errors are those of `carry_gradients`, but that a carry may hold
    whole numbers. It gives {name of the unroll: the inputs' gradient, leaves [T, *batch, features]}: 0 at pads, None
    for a leaf of whole numbers. Inputs count as `unroll` is given them, in the dtype of the parameters: in training
    after an `InputDropout` has masked them.
    """
    return _of_part(loss_fn, "inputs", has_aux)


def _of_part(loss_fn, part, has_aux):
    run = compiled(loss_fn, functools.partial(_differentiate, has_aux=has_aux, part=part, of_params=False))
    return functools.wraps(loss_fn)(lambda *args, **kwargs: run(*args, **kwargs)[2])


def _differentiate(loss: Callable, params: Any, whole: Callable, *, has_aux: bool, part: str, of_params: bool):
    found = discover(functools.wraps(loss)(lambda: loss(params)))
    zeros = zeros_like(found, part)

    def perturbed(zeros, params):
        with fresh_trace(), handlers.handling(Perturb(zeros)):
            return loss(params)

    if of_params:
        value, (of_part, gradients) = jax.value_and_grad(perturbed, (0, 1), has_aux=has_aux)(zeros, params)
        return value, whole(gradients), by_unroll(found, of_part, part)
    value, of_part = jax.value_and_grad(lambda zeros: perturbed(zeros, params), has_aux=has_aux)(zeros)
    return value, None, by_unroll(found, of_part, part)


def weight_gradients_by_time(loss_fn: Callable, *, has_aux: bool = False) -> Callable:
    """dL/dW_t, the share of every step t in dL/dW, of every `unroll` that `loss_fn` calls.

    A step has a share through dL/dcarry_t and what it does with W, and one through dL/dy_t where its `read` uses W. The
    sum over t is the gradient of the parameters as the steps use them: what `cell.prepare` made of them (the W_hh of an
    orthogonal network and not the A_hh that it is computed from), shared with no other unroll, with no share of an
    initial carry that is learned. One parameter takes T times the memory of its gradient.

    loss_fn, the function that is returned and names are those of `carry_gradients`. It gives {name of the unroll: the
    parameters, leaves [T, ...]}: 0 at t >= every length, None for a leaf that is not floating.

    Raises ValueError as `carry_gradients` does, and for an unroll inside a jax.jit or jax.checkpoint of loss_fn.
    """

    def differentiate(loss, params, whole):
        del whole
        found = discover(functools.wraps(loss)(lambda: loss(params)), through=())

        def perturbed(zeros):
            with handlers.handling(Perturb(zeros)) as seen:
                value = loss(params)
            return value[0] if has_aux else value, seen.steps

        gradients, steps = jax.grad(perturbed, has_aux=True)(zeros_like(found, "carries", "outputs"))
        d_carries, d_outputs = (by_unroll(found, gradients, part) for part in ("carries", "outputs"))
        return {name: _shares(run, d_carries[name], d_outputs[name]) for name, run in steps.items()}

    return compiled(loss_fn, differentiate)


def _shares(steps: handlers.Steps, d_carries: Any, d_outputs: jax.Array) -> Any:
    """dL/dparams of every step, leaves [T, ...], from dL/dcarry_t and dL/dy_t."""
    cell, dtype = steps.cell, parameter_dtype(steps.params)
    if steps.valid is not None:
        d_outputs = zero_where_not(steps.valid, d_outputs)

    def of_step(before, after, inputs, d_carry, d_output):
        def step(moved):
            params = with_floating(steps.params, moved)
            z = cell.project(params, inputs)
            return cast((cell.step(params, before, z), cell.read(params, after, z)), dtype)

        _, pull = jax.vjp(step, floating(steps.params))
        return pull((d_carry, d_output))[0]

    shares = iter(jax.vmap(of_step)(carries_before(steps), steps.carries, steps.inputs, d_carries, d_outputs))
    return jax.tree.map(lambda leaf: next(shares) if is_floating(leaf) else None, steps.params)
