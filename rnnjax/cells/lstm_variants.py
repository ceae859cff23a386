"""What the options of an LSTM make of it: the parameters they add, the step with any of them, what contradicts itself.

The equations are in the docstring of `rnnjax.cells.LSTM`, which runs the standard cell by itself.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import ACTIVATIONS, Cell, add_bias, dot, normalize, scale, sigmoid
from rnnjax.initializers import draw


def check_options(cell: Cell) -> None:
    """Raises ValueError, naming the fields, where two options of an LSTM contradict each other."""
    gates = ("input_gate", "forget_gate", "output_gate")
    no_gate = not any(getattr(cell, gate) for gate in gates)
    for name, others, refused, reason in (
        ("coupled", ("input_gate",), cell.coupled and not cell.input_gate, "i = 1 - f needs both gates"),
        ("coupled", ("forget_gate",), cell.coupled and not cell.forget_gate, "i = 1 - f needs both gates"),
        ("chrono", ("forget_gate",), cell.chrono is not None and not cell.forget_gate, "it is the bias of that gate"),
        ("peepholes", gates, cell.peepholes and no_gate, "a peephole belongs to a gate"),
        ("gate_recurrence", gates, cell.gate_recurrence and no_gate, "there is no gate to feed back"),
        ("layer_norm", ("hidden_size",), cell.layer_norm and cell.hidden_size == 1, "one feature normalises to 0"),
    ):
        if refused:
            told = " and ".join(f"{other} is {getattr(cell, other)!r}" for other in others)
            raise ValueError(f"{name} of {type(cell).__name__} is {getattr(cell, name)!r} but {told}: {reason}")


def variant_params(cell: Cell, projection_key: jax.Array, gates_key: jax.Array, dtype) -> dict[str, jax.Array]:
    """The parameters that the options add: peepholes at 0, scales at 1, shifts at 0, W_hr and W_gates drawn."""
    hidden, count = cell.hidden_size, len(cell.gate_names)
    params = {f"p_{gate}": jnp.zeros(hidden, dtype) for gate in cell.gate_names if cell.peepholes}
    if cell.gate_recurrence:
        rows = [
            draw(cell.recurrent_init, key, (hidden, hidden), gates=count, gain=cell.gain, dtype=dtype)
            for key in jax.random.split(gates_key, count)
        ]
        params["W_gates"] = jnp.concatenate(rows)
    if cell.projection_size is not None:
        params["W_hr"] = draw(cell.input_init, projection_key, (hidden, cell.projection_size), dtype=dtype)
    if cell.layer_norm:
        ones = jnp.ones(len(cell.blocks) * hidden, dtype)
        params |= {"scale_ih": ones, "scale_hh": ones}
        params |= {"scale_c": jnp.ones(hidden, dtype), "shift_c": jnp.zeros(hidden, dtype)}
    return params


@functools.cache
def carry_with(*gates: str) -> type:
    """The carry of a full gate recurrence: h, c and the gates [*batch, H] of the step, by name."""
    return NamedTuple("GatesLSTMCarry", [(field, jax.Array) for field in ("h", "c", *gates)])


def variant_step(cell: Cell, params, carry, z) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """(h, c, {gates and g by name}) after one step, whatever the options."""
    recurrent = dot(carry.h, params["W_hh"])
    if cell.layer_norm:
        recurrent = scale(normalize(recurrent), params["scale_hh"])
    before = dict(zip(cell.blocks, jnp.split(z + recurrent, len(cell.blocks), axis=-1), strict=True))
    if cell.gate_recurrence:
        last = dot(jnp.concatenate([getattr(carry, gate) for gate in cell.gate_names], axis=-1), params["W_gates"])
        for gate, fed_back in zip(cell.gate_names, jnp.split(last, len(cell.gate_names), axis=-1), strict=True):
            before[gate] = before[gate] + fed_back

    def opened(gate, c):
        """The gate that sees c through its peephole; 1 where there is none."""
        if gate not in before:
            return 1.0
        return sigmoid(before[gate] + scale(c, params[f"p_{gate}"]) if cell.peepholes else before[gate])

    f = opened("f", carry.c)
    i = 1 - f if cell.coupled else opened("i", carry.c)
    g = ACTIVATIONS[cell.input_activation](before["g"])
    c = f * carry.c + i * g
    o = opened("o", c)
    shown = add_bias(scale(normalize(c), params["scale_c"]), params["shift_c"]) if cell.layer_norm else c
    h = o * ACTIVATIONS[cell.output_activation](shown)
    if cell.projection_size is not None:
        h = dot(h.astype(carry.h.dtype), params["W_hr"])
    return h, c, {"i": i, "f": f, "g": g, "o": o}
