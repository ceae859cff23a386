"""Which form it is: of arrays by their names and shapes, of a cell by its class and fields."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnnjax.cell import Cell
from rnnjax.interop.arrays import described, quoted
from rnnjax.interop.forms import Form, param_shapes

Label = Callable[[str], str]
"""From a slot's name to what messages call the caller's array."""
OF_INIT_ALONE = ("input_init", "recurrent_init", "gain", "forget_bias", "update_bias", "chrono")
"""Fields of a cell that say how its parameters are drawn, and nothing of what it does with them."""


def choose(forms: Sequence[Form], arrays: Mapping[str, Any], label: Label = str) -> Form:
    """The form that has these names and, where several have, as many gates and axes. Raises ValueError for none."""
    named = [form for form in forms if set(form.slots) == set(arrays)]
    if not named:
        form = min(forms, key=lambda form: len(set(form.slots) ^ set(arrays)))
        missing, extra = set(form.slots) - set(arrays), set(arrays) - set(form.slots)
        told = [f"{quoted(map(label, missing))} missing"] if missing else []
        told += [f"{quoted(map(label, extra))} not expected"] if extra else []
        kinds = " or ".join(other.name for other in forms if set(other.slots) == set(form.slots))
        expected = ", ".join(map(label, form.slots))
        raise ValueError(f"these are not the arrays of a {kinds}, {expected}: {'; '.join(told)}")
    if len(named) == 1:
        return named[0]
    name = named[0].holder("W_hh")
    rows, columns = _matrix(named[0], "W_hh", arrays, label)
    fitting = [form for form in named if columns == rows * len(form.slots[name].rows[0])]
    if not fitting:
        gates = {len(form.slots[name].rows[0]): form.name for form in reversed(named)}
        counts = ", ".join(f"{n} ({kind})" for n, kind in sorted(gates.items()))
        expected = f"[n * {rows}, {rows}]" if named[0].slots[name].transposed else f"[{rows}, n * {rows}]"
        raise ValueError(
            f"{label(name)} has the shape {list(arrays[name].shape)}: expected {expected} for n gates, one of {counts}"
        )
    axes = {name: array.ndim for name, array in arrays.items()}
    same = [form for form in fitting if axes == {name: slot.axes for name, slot in form.slots.items()}]
    return (same or fitting)[0]


def form_of(forms: Sequence[Form], cell: Cell) -> Form:
    """The first form of a cell. Raises ValueError that says what of the cell they have not."""
    candidates = [form for form in forms if form.cell is type(cell)]
    if not candidates:
        names = ", ".join(dict.fromkeys(form.cell.__name__ for form in forms))
        raise ValueError(f"{described(cell)} can't be converted: expected one of {names}, and no wrapper around it")
    params, told = set(param_shapes(cell)), []
    for form in candidates:
        differences = _differences(form, cell)
        if not differences:
            if {block.param for block in form.blocks()} <= params:
                return form
            continue
        has = " and ".join(f"{field} {' or '.join(map(repr, values))}" for field, values in differences)
        told.append(f"a {form.name}, which has {has}")
    raise ValueError(f"{described(cell)} can't be {', or '.join(told)}")


def options_of(form: Form, choices: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `form.options`, by the caller's choice where the weights leave one."""
    for field, given in choices.items():
        if given is not None and given not in form.options.get(field, ()):
            has = " or ".join(map(repr, form.options.get(field, ()))) or "no choice of it"
            raise ValueError(f"{field} is {given!r}, but a {form.name} has {has}")
    found = {}
    for field, values in form.options.items():
        found[field] = values[0] if len(values) == 1 else choices.get(field)
        if found[field] is None:
            ways = " or ".join(f"{field}={value!r}" for value in values)
            raise ValueError(f"the weights of a {form.name} do not tell its {field}: say {ways}")
    return found


def sizes_of(form: Form, arrays: Mapping[str, Any], label: Label) -> dict[str, int]:
    """The values of `form.sizes`."""
    rows, columns = _matrix(form, "W_ih", arrays, label)
    name = form.holder("W_ih")
    if len(form.slots[name].rows) == 2:  # W_hh stands below W_ih, and has as many rows as there are columns a gate
        gates = len(form.slots[name].rows[0])
        hidden = columns // gates
        if not 1 <= hidden < rows or columns % gates:
            raise ValueError(
                f"{label(name)} has the shape {list(arrays[name].shape)}: expected [input + hidden, {gates} * hidden]"
            )
        return {"input_size": rows - hidden, "hidden_size": hidden}
    if "projection_size" in form.sizes:
        hidden, projected = _matrix(form, "W_hr", arrays, label)
        return {"input_size": rows, "hidden_size": hidden, "projection_size": projected}
    return {"input_size": rows, "hidden_size": _matrix(form, "W_hh", arrays, label)[0]}


def _matrix(form: Form, param: str, arrays: Mapping[str, Any], label: Label) -> tuple[int, int]:
    """(rows, columns), turned as ours are, of the array that begins with `param`."""
    name = form.holder(param)
    shape = arrays[name].shape
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{label(name)} has the shape {list(shape)}: expected a matrix of at least one row and column")
    return shape[::-1] if form.slots[name].transposed else shape


def _differences(form: Form, cell: Cell) -> list[tuple[str, tuple]]:
    """(field, values that the form has) of every field of the cell that it can't express."""
    given = {option: getattr(cell, option) for option in form.options}
    found = [(option, values) for option, values in form.options.items() if given[option] not in values]
    options = {
        option: given[option] if given[option] in values else values[0] for option, values in form.options.items()
    }
    plain = form.cell(**{size: getattr(cell, size) for size in form.sizes}, **options)
    for field in dataclasses.fields(cell):
        known = field.name in OF_INIT_ALONE or field.name in form.options
        if not known and getattr(cell, field.name) != getattr(plain, field.name):
            found.append((field.name, (getattr(plain, field.name),)))
    return found
