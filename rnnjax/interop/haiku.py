"""Weights of haiku.VanillaRNN, LSTM and GRU, to and from. Haiku itself is never imported."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.interop.arrays import as_floats, flatten, select, strip
from rnnjax.interop.convert import dump, load
from rnnjax.interop.forms import Form, blocks, slot

_RELU = {"activation": ("relu",)}
_ONE_BIAS = {
    "linear/w": slot(blocks("W_ih", "h")),
    "linear/b": slot(blocks("b", "h")),
    "linear_1/w": slot(blocks("W_hh", "h")),
}
FORMS = (
    Form("haiku.VanillaRNN", Elman, "h", {**_ONE_BIAS, "linear_1/b": slot(blocks("b", "h"))}, _RELU),
    Form("haiku.VanillaRNN with double_bias=False", Elman, "h", _ONE_BIAS, _RELU),
    Form(
        "haiku.LSTM",
        LSTM,
        "ifgo",
        {
            "linear/w": slot(blocks("W_ih", "igfo"), blocks("W_hh", "igfo")),
            "linear/b": slot(blocks("b", "igfo", shifts={"f": 1.0})),  # its forward pass adds 1 to f's
        },
    ),
    Form(
        "haiku.GRU",
        GRU,
        "run",
        {  # its z is 1 - u, the sigmoid of the negative
            "w_i": slot(blocks("W_ih", "urn", negated="u")),
            "w_h": slot(blocks("W_hh", "urn", negated="u")),
            "b": slot(blocks("b", "urn", negated="u")),
        },
        {"reset": ("before",)},
    ),
)
MODULES = {Elman: "vanilla_rnn", LSTM: "lstm", GRU: "gru"}
"""What Haiku calls a module that was given no name."""


def from_haiku(params: Mapping[str, Mapping[str, Any]], *, prefix: str) -> tuple[Cell, dict[str, jax.Array]]:
    """(cell, params) of a haiku.VanillaRNN, LSTM or GRU.

    params: the dict of the whole model, {module: {name: array}}.
    prefix: the module's name in it, such as "lstm" or "encoder/~/lstm"; the others are left out.

    VanillaRNN's activation is relu, and its two biases add up to one. To the bias of the LSTM's forget gate comes the 1
    that its forward pass adds, and its rounding. The GRU's update gate is turned: u is 1 - z.

    Raises ValueError, naming the array, its shape and what was expected, for what is none of these modules.
    """
    flat = flatten(params)
    above, own = select(flat, prefix, {name for form in FORMS for name in form.slots}.__contains__)
    arrays = as_floats({name: flat[name] for name in own})
    return load(FORMS, strip(arrays, above), lambda name: above + name)


def to_haiku(cell: Cell, params: Mapping[str, Any], *, prefix: str | None = None) -> dict[str, dict[str, jax.Array]]:
    """{module: {name: array}} of Haiku's module of the same sizes, in the dtype of the parameters.

    prefix: the module's name; Haiku's own by default, "lstm" of an LSTM.

    Of VanillaRNN's two biases the second is zero. Raises ValueError, naming what it is, for all that these modules have
    not: other cells, activations and variants, a GRU whose reset stands after the matmul, wrappers, stacks.
    """
    arrays = dump(FORMS, cell, params)
    prefix = MODULES[type(cell)] if prefix is None else prefix
    found: dict[str, dict[str, jax.Array]] = {}
    for name, array in arrays.items():
        module, _, last = f"{prefix}/{name}".rpartition("/")
        found.setdefault(module, {})[last] = jnp.asarray(array)
    return found
