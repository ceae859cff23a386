"""Weights of the recurrent cells of flax.linen and flax.nnx, to and from."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.interop.arrays import as_floats, flatten, select, strip, unflatten
from rnnjax.interop.convert import dump, load
from rnnjax.interop.forms import Form, Slot, blocks, slot

_SIMPLE = {"activation": ("tanh", "relu", "sigmoid", "identity")}
_AFTER = {"reset": ("after",)}


def _per_gate(hidden_bias: Mapping[str, str], input_bias: str, **names: str) -> dict[str, Slot]:
    """Slots of a cell with a Dense layer for every gate and side: "ii/kernel", "hi/kernel", ...

    names: {our letter of a gate: theirs}; input_bias: gates, ours, with a bias on the input's side; hidden_bias:
    {gate: our parameter} on the other.
    """
    slots = {}
    for gate, name in names.items():
        slots[f"i{name}/kernel"] = slot(blocks("W_ih", gate))
        slots[f"h{name.rstrip('_')}/kernel"] = slot(blocks("W_hh", gate))
        if gate in input_bias:
            slots[f"i{name}/bias"] = slot(blocks("b", gate))
        if gate in hidden_bias:
            slots[f"h{name.rstrip('_')}/bias"] = slot(blocks(hidden_bias[gate], gate))
    return slots


def _fused(gates: str, bias: str) -> dict[str, Slot]:
    """Slots of a cell with one Dense layer a side, of which `bias` has the bias."""
    return {
        "dense_i/kernel": slot(blocks("W_ih", gates)),
        "dense_h/kernel": slot(blocks("W_hh", gates)),
        f"{bias}/bias": slot(blocks("b", gates)),
    }


_OF_LSTM = dict.fromkeys("ifgo", "b")
LINEN = (
    Form("flax.linen.SimpleCell", Elman, "h", _per_gate({}, "h", h=""), _SIMPLE),
    Form("flax.linen.LSTMCell", LSTM, "ifgo", _per_gate(_OF_LSTM, "", i="i", f="f", g="g", o="o")),
    Form("flax.linen.GRUCell", GRU, "run", _per_gate({"n": "b_hn"}, "run", r="r", u="z", n="n"), _AFTER),
    Form("flax.linen.MGUCell without reset", GRU, "un", _per_gate({}, "un", u="f", n="n"), {"reset": ("none",)}),
)
_OPTIMIZED = Form("flax.nnx.OptimizedLSTMCell", LSTM, "ifgo", _fused("ifgo", "dense_h"))
NNX = (
    Form("flax.nnx.SimpleCell", Elman, "h", _fused("h", "dense_i"), _SIMPLE),
    Form("flax.nnx.LSTMCell", LSTM, "ifgo", _per_gate(_OF_LSTM, "", i="i", f="f_", g="g", o="o")),
    _OPTIMIZED,
    Form("flax.nnx.GRUCell", GRU, "run", _fused("run", "dense_i"), _AFTER),
)


def from_linen(
    params: Mapping[str, Any], *, prefix: str = "", activation: str | None = None
) -> tuple[Cell, dict[str, jax.Array]]:
    """(cell, params) of a flax.linen.SimpleCell, LSTMCell, OptimizedLSTMCell, GRUCell or MGUCell.

    An MGUCell made with reset_gate=False is a GRU(reset="none") here. One with its reset gate is no cell of ours:
    rnnjax.cells.MGU resets before the matmul, and keeps where its gate is 0.

    params: the nested dict of the cell, or of a model.
    prefix: where the cell stands in it, "params/encoder/cell"; what stands elsewhere is left out.
    activation: of a SimpleCell, which its weights do not tell: "tanh", "relu", "sigmoid" or "identity".

    What a module was told beside, residual=True, another gate_fn or activation_fn, can't be seen in weights: it is not
    known here. Raises ValueError, naming the array, its shape and what was expected, for what is none of these cells.
    """
    return _from(LINEN, params, prefix, activation)


def to_linen(cell: Cell, params: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dict of Flax's cell of the same sizes, for `module.apply({"params": ...}, carry, inputs)`.

    LSTMCell and OptimizedLSTMCell take the same one. Raises ValueError, naming what it is, for all that these cells
    have not: other cells and variants, wrappers, stacks.
    """
    return _nested(dump(LINEN, cell, params))


def from_nnx(
    state: Mapping[str, Any], *, prefix: str = "", activation: str | None = None
) -> tuple[Cell, dict[str, jax.Array]]:
    """(cell, params) of a flax.nnx.SimpleCell, LSTMCell, OptimizedLSTMCell or GRUCell.

    state: `nnx.state(module)`, or the nested dict of it. Everything else is as in `from_linen`. The GRUCell of nnx has
    no bias inside the reset: b_hn is 0.
    """
    return _from(NNX, state, prefix, activation)


def to_nnx(cell: Cell, params: Mapping[str, Any], *, optimized: bool = False) -> dict[str, Any]:
    """The nested dict of Flax's cell of the same sizes, for `nnx.update(module, ...)`.

    optimized: an LSTM's in the form of OptimizedLSTMCell, which is not that of LSTMCell in nnx.

    Raises ValueError, naming what it is, for all that these cells have not: other cells and variants, wrappers, stacks,
    a GRU whose b_hn is not zero.
    """
    return _nested(dump((_OPTIMIZED, *NNX) if optimized else NNX, cell, params))


def _from(forms: tuple[Form, ...], tree: Mapping[str, Any], prefix: str, activation: str | None):
    flat = flatten(tree)
    above, own = select(flat, prefix, {name for form in forms for name in form.slots}.__contains__)
    arrays = strip(as_floats({name: flat[name] for name in own}), above)
    if {"if/bias", "hn/bias"} <= set(arrays):
        raise ValueError(
            f"{above}if/bias and {above}hn/bias are of a flax.linen.MGUCell, whose gate resets after the matmul: no "
            "cell here does, so that only one made with reset_gate=False can be converted, to a GRU"
        )
    return load(forms, arrays, lambda name: above + name, activation=activation)


def _nested(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return unflatten({name: jnp.asarray(array) for name, array in arrays.items()})
