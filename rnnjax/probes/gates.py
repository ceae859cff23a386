"""What the gates of every unroll in a model were doing: how open they stood, and how many were stuck at an end."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from rnnjax.cell import Cell, Gate, sigmoid
from rnnjax.probes.unrolls import carries_before, valid_mask
from rnnjax.unroll.handlers import Steps
from rnnjax.unroll.sequence import expand

MARGIN = 0.1
"""A gate is saturated within this share of its range from an end (Karpathy, Johnson, Fei-Fei 2016, section 4.2)."""
BINS = 20


class GateStatistics(NamedTuple):
    """Of one gate, F units, over all valid steps of all examples.

    mean [T], low [T], high [T]: its mean at t, and the share of it that is saturated at its low end and at its high
        one, over units and examples; nan where no example is that long.
    unit_mean [F], unit_low [F], unit_high [F]: the same of every unit, over steps and examples: a unit of a forget gate
        with unit_high near 1 keeps what it has all the time.
    histogram [BINS]: the share of values in each of as many bins of one width, between edges [BINS + 1].
    """

    mean: jax.Array
    low: jax.Array
    high: jax.Array
    unit_mean: jax.Array
    unit_low: jax.Array
    unit_high: jax.Array
    histogram: jax.Array
    edges: jax.Array


def gate_statistics(found: dict[str, Steps]) -> dict[str, dict[str, GateStatistics]]:
    """Saturation, mean and histogram of the gates of every unroll in a model, from what `recorded` gives.

    Returns {unroll: {gate: GateStatistics}}. A cell names its gates in `Cell.gates`, and its candidates and bounded
    activations with them: i, f, o and g of an LSTM. Of one that names none, a cell of Flax or a user's first one, they
    are the sigmoids and tanhs of its step in their order: sigmoid, sigmoid_1, tanh. A relu is not bounded and no gate.

    Raises ValueError where no unroll has a gate.
    """
    statistics = {name: _of_unroll(steps) for name, steps in found.items()}
    if not any(statistics.values()):
        cells = ", ".join(f"{name}: {steps.cell!r}" for name, steps in found.items())
        raise ValueError(
            f"no cell has a gate, nor a sigmoid or tanh in its step ({cells}): name what is bounded in Cell.gates"
        )
    return statistics


def _of_unroll(steps: Steps) -> dict[str, GateStatistics]:
    ends = {}

    def values(carry, z):
        gates = _gates(steps.cell, steps.params, carry, z)
        ends.update({name: (gate.low, gate.high) for name, gate in gates.items()})  # no arrays: the same at every step
        return {name: gate.values for name, gate in gates.items()}

    found = jax.vmap(values)(carries_before(steps), steps.cell.project(steps.params, steps.inputs))
    return {name: _statistics(Gate(of, *ends[name]), valid_mask(steps)) for name, of in found.items()}


def _gates(cell: Cell, params: Any, carry: Any, z: Any) -> dict[str, Gate]:
    named = cell.gates(params, carry, z)
    if named is not None:
        return named
    return _found(jax.make_jaxpr(functools.partial(cell.step, params))(carry, z), jax.tree.leaves((carry, z)))


def _statistics(gate: Gate, valid: jax.Array) -> GateStatistics:
    """Of a gate whose values are [T, *batch, F]."""
    values, low, high = gate
    dtype = jnp.promote_types(values.dtype, jnp.float32)
    values = (values.astype(dtype) - low) / (high - low)
    values = values.reshape(*valid.shape, -1)  # a gate of one value an example, or of several axes
    there = jnp.broadcast_to(expand(valid, values), values.shape)
    ends = (values < MARGIN, values > 1 - MARGIN)
    all_but_time, all_but_units = tuple(range(1, values.ndim)), tuple(range(values.ndim - 1))

    def shares(axes):
        mean = jnp.mean(values, axes, where=there) * (high - low) + low
        return mean, *(jnp.mean(end.astype(dtype), axes, where=there) for end in ends)

    counts, _ = jnp.histogram(values, BINS, (0, 1), weights=there.astype(dtype))
    histogram = counts / jnp.maximum(jnp.sum(there), 1)
    return GateStatistics(
        *shares(all_but_time), *shares(all_but_units), histogram, jnp.linspace(low, high, BINS + 1, dtype=dtype)
    )


_BOUNDED = {"logistic": ("sigmoid", 0.0, 1.0), "tanh": ("tanh", -1.0, 1.0)}
"""Primitives of JAX that are gates."""
_CALLS = {"jit", "pjit", "closed_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call"}


def _found(jaxpr: ClosedJaxpr, arguments: list[jax.Array]) -> dict[str, Gate]:
    """The outputs of every sigmoid and tanh in a jaxpr, in their order."""
    gates: dict[str, Gate] = {}
    _evaluate(jaxpr, arguments, gates)
    return gates


def _evaluate(jaxpr: ClosedJaxpr, arguments: list[jax.Array], gates: dict[str, Gate]) -> list[jax.Array]:
    """What the jaxpr computes, with the gates on its way put into `gates`."""
    held = dict(zip(jaxpr.jaxpr.constvars, jaxpr.consts, strict=True))
    held |= dict(zip(jaxpr.jaxpr.invars, arguments, strict=True))

    def read(atom):
        return atom.val if isinstance(atom, Literal) else held[atom]

    for equation in jaxpr.jaxpr.eqns:
        given, primitive = list(map(read, equation.invars)), equation.primitive
        kind = _BOUNDED.get(primitive.name)
        if primitive.name in _CALLS:
            inside = next(filter(None, map(equation.params.get, ("jaxpr", "call_jaxpr", "fun_jaxpr"))))
            inside = inside if isinstance(inside, ClosedJaxpr) else ClosedJaxpr(inside, ())
            kind = _BOUNDED["logistic"] if _is_ours(inside) else None
            outputs = _evaluate(inside, given, gates if kind is None else {})
        else:
            outputs = primitive.bind(*given, **equation.params)
            outputs = outputs if primitive.multiple_results else [outputs]
        if kind is not None:
            names = itertools.chain([kind[0]], (f"{kind[0]}_{i}" for i in itertools.count(1)))
            gates[next(name for name in names if name not in gates)] = Gate(outputs[0], *kind[1:])
        held.update(zip(equation.outvars, outputs, strict=True))
    return list(map(read, jaxpr.jaxpr.outvars))


def _is_ours(jaxpr: ClosedJaxpr) -> bool:
    """Whether a call is one of `rnnjax.cell.sigmoid`, which is not JAX's primitive."""
    return jaxpr.jaxpr.debug_info.func_src_info == _SIGMOID


_SIGMOID = jax.make_jaxpr(sigmoid)(0.0).eqns[0].params["call_jaxpr"].jaxpr.debug_info.func_src_info
