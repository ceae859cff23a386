"""Weights of the recurrent layers of Keras 3, to and from. Keras itself is never imported."""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnnjax.cell import Cell
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.data.hdf5 import list_hdf5, read_hdf5
from rnnjax.interop.arrays import as_floats, quoted
from rnnjax.interop.convert import dump, load, part_of
from rnnjax.interop.forms import Form, blocks, slot, without_bias
from rnnjax.layers import Bidirectional

NAMES = ("kernel", "recurrent_kernel", "bias")  # the order of get_weights


def _form(name: str, cell: type[Cell], gates: str, order: str, *bias: tuple, **others: Any) -> Form:
    slots = {
        "kernel": slot(blocks("W_ih", order)),
        "recurrent_kernel": slot(blocks("W_hh", order)),
        "bias": slot(*(bias or (blocks("b", order),))),
    }
    return Form(f"keras.layers.{name}", cell, gates, slots, **others)


_SIMPLE_RNN = _form("SimpleRNN", Elman, "h", "h", options={"activation": ("tanh", "relu", "sigmoid", "identity")})
_LSTM = _form("LSTM", LSTM, "ifgo", "ifgo")
_BIASES = (blocks("b", "urn"), blocks("b", "ur") + blocks("b_hn", "n"))
_GRU = _form("GRU", GRU, "run", "urn", *_BIASES, options={"reset": ("after",)})
_GRU_BEFORE = _form("GRU with reset_after=False", GRU, "run", "urn", options={"reset": ("before",)})
FORMS = (_SIMPLE_RNN, _LSTM, _GRU, _GRU_BEFORE)
WITHOUT_BIAS = (
    without_bias(_SIMPLE_RNN),
    without_bias(_LSTM),
    dataclasses.replace(without_bias(_GRU), options={"reset": ("after", "before")}),
)


def from_keras(
    weights: Sequence[Any] | str | os.PathLike,
    *,
    layer: str | None = None,
    activation: str | None = None,
    reset: str | None = None,
    merge: str = "concat",
) -> tuple[Cell | Bidirectional, dict[str, Any]]:
    """(layer, params) of a SimpleRNN, LSTM or GRU, or of a Bidirectional around one, to be run by `rnnjax.layers.run`.

    weights: what `layer.get_weights()` returns, or the path of a .weights.h5 file, which is read by h5py.
    layer: where the layer stands in the file, "layers/lstm"; not needed where it holds one recurrent layer only.
    activation: of a SimpleRNN, which its weights do not tell: "tanh", "relu", "sigmoid", or Keras's "linear", here
        "identity".
    reset: "after" or "before", of a GRU made with use_bias=False; where there are biases they tell it.
    merge: "concat" or "sum", of a Bidirectional.

    Layers that stand on top of each other are converted one by one and put into a `rnnjax.layers.Stack`. Other
    activations than Keras's defaults, and dropout, can't be seen in weights: they are not known here.

    Raises ValueError, naming the array, its shape and what was expected, for what is none of these layers, and
    DataError, a ValueError too, for a file that can't be read; ImportError for a file where h5py is missing.
    """
    if isinstance(weights, str | os.PathLike):
        named = _read(weights, layer)
    elif layer is not None:
        raise ValueError(f"layer is {layer!r}, but the weights are no file: leave it out")
    else:
        named = {f"weights[{i}]": value for i, value in enumerate(weights)}
    groups = {2: [2], 3: [3], 4: [2, 2], 6: [3, 3]}.get(len(named))
    if groups is None:
        raise ValueError(
            f"there are {len(named)} arrays: expected 3 ({', '.join(NAMES)}), or 2 without bias, or twice as many of a "
            "Bidirectional"
        )
    arrays, loaded = as_floats(named), []
    for count in groups:
        labels = dict(zip(NAMES, list(named)[len(loaded) * count :][:count], strict=False))
        own = {name: arrays[label] for name, label in labels.items()}
        told = {name: f"{label} ({name})" for name, label in labels.items()}.get
        loaded.append(load((*FORMS, *WITHOUT_BIAS), own, told, activation=activation, reset=reset))
    if len(loaded) == 1:
        return loaded[0]
    (forward, of_forward), (backward, of_backward) = loaded
    return Bidirectional(forward, backward, merge), {"forward": of_forward, "backward": of_backward}


def to_keras(layer: Cell | Bidirectional, params: Mapping[str, Any], *, bias: bool = True) -> list[np.ndarray]:
    """The list that `set_weights` of Keras's layer of the same sizes takes, in the dtype of the parameters.

    bias: False for a layer made with use_bias=False; the biases have to be zero then. With True, of the two rows of a
        GRU's bias the second is zero but for n.

    Raises ValueError, naming what it is, for all that these layers have not: other cells and variants, wrappers. A
    Stack is several layers of Keras: convert them one by one.
    """
    forms = FORMS if bias else WITHOUT_BIAS
    if isinstance(layer, Bidirectional):
        sides = ("forward", "backward")
        parts = [dump(forms, getattr(layer, side), *part_of(params, side)) for side in sides]
    else:
        parts = [dump(forms, layer, params)]
    return [array for part in parts for array in part.values()]


def _read(path: str | os.PathLike, layer: str | None) -> dict[str, np.ndarray]:
    """{path in the file: array} of a layer's weights, in the order of get_weights."""
    if os.fspath(path).endswith(".keras"):
        raise ValueError(f"{path} is a zip archive: unzip it, and give the model.weights.h5 that is in it")
    names = list_hdf5(path)
    inside = re.compile(r"(.+?)(?:/(?:forward|backward)_layer)?/cell/vars/\d+")
    held = sorted({match[1] for match in map(inside.fullmatch, names) if match})
    if layer is None and len(held) != 1:
        raise ValueError(f"{path} holds {len(held)} recurrent layers: say layer=, one of {quoted(held) or 'none'}")
    layer = held[0] if layer is None else layer.strip("/")
    for folders in (("forward_layer/cell", "backward_layer/cell"), ("cell",), ("",)):
        groups = [[name for name in names if _is_in(name, f"{layer}/{folder}".strip("/"))] for folder in folders]
        if all(groups):
            return read_hdf5(path, [name for group in groups for name in sorted(group)])
    raise ValueError(f"{path} holds no recurrent layer {layer!r}: expected one of {quoted(held) or 'none'}")


def _is_in(name: str, folder: str) -> bool:
    return re.fullmatch(r"\d", name.removeprefix(f"{folder}/vars/")) is not None
