"""Sweeps: lists of overrides, each of which makes one run of an experiment's config.

An override is {field: value}, the field dotted and without "config.", as in {"cell_options.lstm.forget_bias": 1.0}.

    sweep("train.seed", range(3))                                        three runs
    product(sweep("model.hidden_size", (32, 64)), sweep("train.seed", range(3)))   six, the last varying fastest
    zip_(sweep("model.hidden_size", (32, 64)), sweep("train.learning_rate", (3e-3, 1e-3)))   two
    chain([{}], sweep("cell_options.lstm.forget_gate", (False,)))        two, the first with the config as it is

An experiment names its sweeps in `SWEEPS` and makes them in `get_sweep(name)`; `launch` runs them.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from rnnjax.train.config import UsageError

Override = dict[str, Any]


def sweep(field: str, values: Iterable[Any]) -> list[Override]:
    """One override a value. Raises UsageError where there is no value."""
    made = [{field: value} for value in values]
    if not made:
        raise UsageError(f"the sweep over {field} has no values: give at least one")
    return made


def product(*sweeps: Sequence[Override]) -> list[Override]:
    """Every combination, the last sweep varying fastest. Raises UsageError where two sweeps set the same field."""
    return [_joined(parts) for parts in itertools.product(*sweeps)]


def zip_(*sweeps: Sequence[Override]) -> list[Override]:
    """The first of each, the second of each, and so on.

    Raises UsageError where the sweeps have different lengths or two set the same field.
    """
    if len({len(one) for one in sweeps}) > 1:
        lengths = ", ".join(f"{_fields(one)} has {len(one)}" for one in sweeps)
        raise UsageError(f"sweeps that go together need as many values each: {lengths}")
    return [_joined(parts) for parts in zip(*sweeps, strict=True)]


def chain(*sweeps: Sequence[Override]) -> list[Override]:
    """The runs of one sweep after those of another."""
    return [dict(override) for one in sweeps for override in one]


def _joined(parts: Iterable[Override]) -> Override:
    joined: Override = {}
    for part in parts:
        if twice := sorted(set(joined) & set(part)):
            raise UsageError(f"two sweeps set {twice[0]}: keep one of them")
        joined |= part
    return joined


def _fields(one: Sequence[Override]) -> str:
    return " and ".join(dict.fromkeys(field for override in one for field in override)) or "an empty sweep"


def as_text(value: Any) -> str:
    """A value as it is typed behind a flag. Raises UsageError for what no flag can hold."""
    if hasattr(value, "item") and not getattr(value, "shape", ()):  # a number of numpy's or JAX's
        value = value.item()
    if isinstance(value, tuple | list):
        return ",".join(map(as_text, value)) or "()"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    if not isinstance(value, int | str) or "\0" in str(value):
        raise UsageError(f"{value!r} can't stand behind a flag: give a bool, int, float, str, None or a tuple of them")
    return str(value)
