"""Weights of torch.nn.RNN, LSTM and GRU, to and from. torch itself is never imported."""

import dataclasses
import functools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rnnjax.cell import Cell
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.data.safetensors import list_safetensors, read_safetensors
from rnnjax.interop.arrays import as_floats, described, quoted, select, strip
from rnnjax.interop.convert import dump, load, part_of
from rnnjax.interop.forms import Form, blocks, slot, without_bias
from rnnjax.interop.matching import form_of
from rnnjax.layers import Bidirectional, Stack

NAME = re.compile(r"(weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)(_l(?:0|[1-9]\d{0,3})(?:_reverse)?)")


def _form(name: str, cell: type[Cell], gates: str, hidden_bias: tuple | None = None, **others: Any) -> Form:
    slots = {
        "weight_ih": slot(blocks("W_ih", gates), transposed=True),
        "weight_hh": slot(blocks("W_hh", gates), transposed=True),
        "bias_ih": slot(blocks("b", gates)),
        "bias_hh": slot(hidden_bias or blocks("b", gates)),
    }
    return Form(f"torch.nn.{name}", cell, gates, slots, **others)


_LSTM = _form("LSTM", LSTM, "ifgo")
_PROJECTED = Form(
    "torch.nn.LSTM with proj_size",
    LSTM,
    "ifgo",
    {**_LSTM.slots, "weight_hr": slot(blocks("W_hr", "o"), transposed=True)},
    sizes=("input_size", "hidden_size", "projection_size"),
)
FORMS = (
    _form("RNN", Elman, "h", options={"activation": ("tanh", "relu")}),
    _LSTM,
    _form("GRU", GRU, "run", blocks("b", "ru") + blocks("b_hn", "n"), options={"reset": ("after",)}),
    _PROJECTED,
)
WITHOUT_BIAS = tuple(map(without_bias, FORMS))


def from_torch(
    state: Mapping[str, Any] | str | os.PathLike, *, prefix: str = "", activation: str | None = None
) -> tuple[Cell | Bidirectional | Stack, dict[str, Any]]:
    """(layer, params) of a torch.nn.RNN, LSTM or GRU, to be run by `rnnjax.layers.run`, time first.

    The layer is a cell for one layer of one direction, a Bidirectional for one of two, and a Stack of either for more.
    torch's two biases of a gate add up to one of ours; that of a GRU's n inside the reset stands alone. Dropout between
    layers is no weight, and so is not known here.

    state: {name: array or tensor}, as `module.state_dict()` returns it, or the path of a .safetensors file. torch's own
        files are pickles, which are programs: `torch.load(path, weights_only=True)` returns what can be given here.
    prefix: where the module stands in a larger one, "encoder.lstm."; names that begin otherwise are left out.
    activation: "tanh" or "relu", torch's `nonlinearity`, which the weights of an RNN do not tell.

    Raises ValueError, naming the tensor, its shape and what was expected, for what is none of these modules, and
    DataError, a ValueError too, for a file that can't be read.
    """
    prefix, arrays = _select(state, prefix)
    parts = _by_suffix(arrays, prefix)
    loaded = {}
    for suffix, arrays in parts.items():
        label = functools.partial(_label, prefix, suffix)
        loaded[suffix] = load((*FORMS, *WITHOUT_BIAS), arrays, label, activation=activation)
    cells = {suffix: cell for suffix, (cell, _) in loaded.items()}
    count = 2 if "_l0_reverse" in cells else 1
    _check_alike(cells, parts, prefix, count)
    layers, params = [], []
    for i in range(0, len(cells), count):
        pair, values = zip(*list(loaded.values())[i : i + count], strict=True)
        layers.append(Bidirectional(*pair) if count == 2 else pair[0])
        params.append({"forward": values[0], "backward": values[1]} if count == 2 else values[0])
    if len(layers) == 1:
        return layers[0], params[0]
    return Stack(tuple(layers)), {f"layer_{k}": values for k, values in enumerate(params)}


def to_torch(
    layer: Cell | Bidirectional | Stack, params: Mapping[str, Any], *, bias: bool = True
) -> dict[str, np.ndarray]:
    """{name: array} that torch's module of the same sizes takes, in the dtype of the parameters:

        module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})

    bias: False for a module made with bias=False; the biases have to be zero then. With True ours is bias_ih, and
        bias_hh is zero but for that of a GRU's n.

    Raises ValueError, naming what it is, for all that these modules have not: other cells, activations and variants,
    wrappers, summed directions, residual or normalised stacks, layers that are not alike.
    """
    forms, arrays, cells = FORMS if bias else WITHOUT_BIAS, {}, []
    layers = _layers(layer, params)
    for k, (part, values, where) in enumerate(layers):
        if isinstance(part, Bidirectional) != isinstance(layers[0][0], Bidirectional):
            raise ValueError(f"{where} is of {described(part)}: expected the directions of {described(layers[0][0])}")
        for suffix, cell, own, place in _directions(part, values, where):
            cells.append(cell)
            if _kind(forms, cell) != _kind(forms, cells[0]):
                raise ValueError(
                    f"{place} is of {described(cell)}: expected what {described(cells[0])} is, but for inputs"
                )
            found = dump(forms, cell, own, place)
            arrays |= {f"{name}_l{k}{suffix}": array for name, array in found.items()}
    return arrays


def _layers(layer: Any, params: Mapping[str, Any]) -> list[tuple]:
    """(layer, params, what messages call them) of each layer."""
    if not isinstance(layer, Stack):
        return [(layer, params, "params")]
    for field in dataclasses.fields(layer):
        if field.name != "layers" and getattr(layer, field.name) != field.default:
            raise ValueError(
                f"{field.name} of {described(layer)} is {getattr(layer, field.name)!r}: torch's modules have "
                f"{field.default!r} only"
            )
    return [(part, *part_of(params, f"layer_{k}")) for k, part in enumerate(layer.layers)]


def _directions(part: Any, params: Mapping[str, Any], where: str) -> list[tuple]:
    """(suffix, cell, params, what messages call them) of each direction."""
    if not isinstance(part, Bidirectional):
        return [("", part, params, where)]
    if part.merge != "concat":
        raise ValueError(f"merge of {described(part)} is {part.merge!r}: torch's modules have 'concat' only")
    sides = {"": "forward", "_reverse": "backward"}
    return [(suffix, getattr(part, side), *part_of(params, side, where)) for suffix, side in sides.items()]


def _kind(forms: tuple[Form, ...], cell: Cell) -> tuple:
    """What all cells of one torch module share."""
    form = form_of(forms, cell)
    return form.name, *(getattr(cell, field) for field in (*form.sizes, *form.options) if field != "input_size")


def _select(state: Any, prefix: str) -> tuple[str, dict[str, Any]]:
    """(prefix with its dot, {name after it: array}); of a file, no byte of other tensors is read."""
    if isinstance(state, Mapping) and all(isinstance(name, str) for name in state):
        prefix, own = select(state, prefix, NAME.fullmatch, separator=".")
        return prefix, strip(as_floats({name: state[name] for name in own}), prefix)
    if not isinstance(state, str | os.PathLike):
        raise ValueError(
            f"state is a {type(state).__name__}: expected {{name: tensor}}, or the path of a .safetensors file"
        )
    path = pathlib.Path(state)
    if path.suffix != ".safetensors":
        raise ValueError(
            f"{path} is no .safetensors file. torch's own files are pickles, which can run any program: open one you "
            "trust by torch.load(path, weights_only=True), and give what that returns"
        )
    prefix, own = select(list_safetensors(path), prefix, NAME.fullmatch, separator=".")
    return prefix, strip(as_floats(read_safetensors(path, own)), prefix)


def _by_suffix(arrays: Mapping[str, Any], prefix: str) -> dict[str, dict[str, Any]]:
    """{"_l0": {"weight_ih": array, ...}, "_l0_reverse": ..., "_l1": ...}, complete and in this order."""
    found: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        kind, suffix = NAME.fullmatch(name).groups()
        found.setdefault(suffix, {})[kind] = array
    sides = ("", "_reverse") if any(suffix.endswith("_reverse") for suffix in found) else ("",)
    count = len({suffix.removesuffix("_reverse") for suffix in found})
    suffixes = [f"_l{k}{side}" for k in range(count) for side in sides]
    for suffix in suffixes:
        if suffix not in found:
            raise ValueError(f"{_label(prefix, suffix, 'weight_ih')} is missing: there are only {quoted(found)}")
    return {suffix: found[suffix] for suffix in suffixes}


def _check_alike(cells: dict[str, Cell], parts: dict[str, dict[str, Any]], prefix: str, count: int) -> None:
    """All layers and directions are of one kind, and the inputs of a layer are the outputs of that below."""
    forms, first = (*FORMS, *WITHOUT_BIAS), cells["_l0"]
    for suffix, cell in cells.items():
        if _kind(forms, cell) != _kind(forms, first) or set(parts[suffix]) != set(parts["_l0"]):
            shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in parts[suffix].items())
            raise ValueError(
                f"{prefix}*{suffix} is {shapes}, {described(cell)}: expected kind, sizes and biases of {prefix}*_l0, "
                f"{described(first)}"
            )
        lowest = suffix.startswith("_l0")
        inputs = first.input_size if lowest else count * first.output_size
        if cell.input_size != inputs:
            name, shape = _label(prefix, suffix, "weight_ih"), list(parts[suffix]["weight_ih"].shape)
            source = "as in the other direction" if lowest else "the outputs of the layer below"
            raise ValueError(f"{name} has the shape {shape}: expected {inputs} columns, {source}")


def _label(prefix: str, suffix: str, name: str) -> str:
    return f"{prefix}{name}{suffix}"
