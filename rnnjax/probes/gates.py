"""What the gates of every unroll in a model were doing: how open they stood, and how many were stuck at an end."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxprs_in_params

from rnnjax.cell import Cell, Gate, gates_of, sigmoid
from rnnjax.probes.places import primitives
from rnnjax.probes.unrolls import carries_before, numbered, valid_mask
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
    are the sigmoids and tanhs of its `project` and `step`, in their order: sigmoid, sigmoid_1, tanh. A relu is not
    bounded and no gate, nor is what has other axes than [*batch, F], such as the scores of an attention.

    Raises ValueError where no unroll has a gate, and for a cell that names none and has a sigmoid or tanh inside a
    scan, while or cond of its own, where each would stand for several.
    """
    statistics = {name: _of_unroll(steps) for name, steps in found.items()}
    if not any(statistics.values()):
        cells = ", ".join(f"{name}: {steps.cell!r}" for name, steps in found.items())
        raise ValueError(
            f"no cell has a gate, nor a sigmoid or tanh in its step ({cells}): name what is bounded in Cell.gates"
        )
    return statistics


@jax.jit
def _of_unroll(steps: Steps) -> dict[str, GateStatistics]:
    cell, params, ends = steps.cell, steps.params, {}
    zs, before = cell.project(params, steps.inputs), carries_before(steps)

    def named(carry, z):
        return _values(gates_of(cell, params, carry, z), ends)

    def looked_for(carry, inputs):
        step = jax.make_jaxpr(functools.partial(_step, cell, params))(carry, inputs)
        return _values(_found(step, jax.tree.leaves((carry, inputs))), ends)

    valid = valid_mask(steps)
    if jax.eval_shape(functools.partial(gates_of, cell, params), *_first((before, zs))) is None:
        run = looked_for
        if _takes_one_example(steps, before):  # so that what has no axis of examples is told from what has
            for _ in valid.shape[1:]:
                run = jax.vmap(run)
        found = jax.vmap(run)(before, steps.inputs)
        found = {name: values for name, values in found.items() if values.shape[: valid.ndim] == valid.shape}
    else:
        found = jax.vmap(named)(before, zs)
    return {name: _statistics(Gate(values, *ends[name]), valid) for name, values in found.items()}


def _step(cell: Cell, params: Any, carry: Any, inputs: Any) -> Any:
    """A step from what the cell is given, `project` included."""
    return cell.step(params, carry, cell.project(params, inputs))


def _values(gates: dict[str, Gate], ends: dict[str, tuple[float, float]]) -> dict[str, jax.Array]:
    """The values alone; the ends, which are no arrays and the same at every step, are put into `ends`."""
    ends.update({name: (gate.low, gate.high) for name, gate in gates.items()})
    return {name: gate.values for name, gate in gates.items()}


def _first(tree: Any) -> Any:
    """Types of the leaves [T, ...], without time."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)


def _takes_one_example(steps: Steps, before: Any) -> bool:
    """Whether a step of one example gives the carry of one: not where parameters hold an array for each."""
    lead = valid_mask(steps).ndim
    alone = [
        jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), tree)
        for tree in (before, steps.inputs)
    ]

    try:
        after = jax.eval_shape(functools.partial(_step, steps.cell), steps.params, *alone)
    except (TypeError, ValueError):
        return False
    return jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, alone[0])


def _statistics(gate: Gate, valid: jax.Array) -> GateStatistics:
    """Of a gate whose values are [T, *batch, F]."""
    values, low, high = gate
    dtype = jnp.promote_types(values.dtype, jnp.float32)
    features = math.prod(values.shape[valid.ndim :])
    values = (values.astype(dtype).reshape(*valid.shape, features) - low) / (high - low)
    there = jnp.broadcast_to(expand(valid, values), values.shape)
    ends = (values < MARGIN, values > 1 - MARGIN)
    all_but_time, all_but_units = tuple(range(1, values.ndim)), tuple(range(values.ndim - 1))

    def shares(axes):
        mean = jnp.mean(values, axes, where=there) * (high - low) + low
        return mean, *(jnp.mean(end.astype(dtype), axes, where=there) for end in ends)

    bins = jnp.clip(jnp.floor(values * BINS), 0, BINS - 1)
    # Whole numbers within a step: float32 stops counting at 2^24.
    counts = [jnp.sum((bins == at) & there, axis=all_but_time, dtype=jnp.int32) for at in range(BINS)]
    counts = jnp.sum(jnp.stack(counts).astype(dtype), axis=1)
    edges = jnp.linspace(low, high, BINS + 1, dtype=dtype)
    return GateStatistics(*shares(all_but_time), *shares(all_but_units), counts / jnp.maximum(counts.sum(), 1), edges)


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
            _check_none_inside(equation)
            outputs = primitive.bind(*given, **equation.params)
            outputs = outputs if primitive.multiple_results else [outputs]
        if kind is not None:
            gates[numbered(kind[0], gates)] = Gate(outputs[0], *kind[1:])
        held.update(zip(equation.outvars, outputs, strict=True))
    return list(map(read, jaxpr.jaxpr.outvars))


def _check_none_inside(equation: Any) -> None:
    """Raises ValueError where a loop or branch has a gate inside."""
    for inner in jaxprs_in_params(equation.params):
        if inside := sorted({_BOUNDED[name][0] for name in primitives(inner) if name in _BOUNDED}):
            raise ValueError(
                f"a step has a {' and a '.join(inside)} inside a {equation.primitive.name}, where one would stand for "
                "several: name what is bounded in Cell.gates"
            )


def _is_ours(jaxpr: ClosedJaxpr) -> bool:
    """Whether a call is one of `rnnjax.cell.sigmoid`, which is not JAX's primitive."""
    return jaxpr.jaxpr.debug_info.func_src_info == _SIGMOID


_SIGMOID = jax.make_jaxpr(sigmoid)(0.0).eqns[0].params["call_jaxpr"].jaxpr.debug_info.func_src_info
