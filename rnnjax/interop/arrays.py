"""What a caller hands in, brought to one form: flat names, and arrays of one floating dtype."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DTYPES = ("float16", "bfloat16", "float32", "float64")


def as_floats(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays of numpy or JAX in their own dtype, which is one floating dtype for all: nothing is cast.

    Takes arrays of numpy and JAX, tensors of torch and variables of Flax. Raises ValueError, naming the array, where
    one is none of floats, where dtypes differ, and for float64 where jax_enable_x64 is off and would cut it.
    """
    found = {name: _as_float(name, value) for name, value in arrays.items()}
    first = next(iter(found), None)
    for name, array in found.items():
        if array.dtype != found[first].dtype:
            raise ValueError(f"{name} is {array.dtype} but {first} {found[first].dtype}: cast the weights to one dtype")
    return found


def _as_float(name: str, value: Any) -> Any:
    if hasattr(value, "detach"):  # a tensor of torch, wherever it lies
        value = value.detach().cpu()
        value = jnp.from_dlpack(value, copy=True) if str(value.dtype) == "torch.bfloat16" else value.numpy()
    elif hasattr(value, "get_value"):  # an nnx.Variable
        value = value.get_value()
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        raise ValueError(f"{name} is a {type(value).__name__}: expected an array of floating numbers")
    if str(value.dtype) not in DTYPES:
        raise ValueError(f"{name} is {value.dtype} {list(value.shape)}: expected one of {', '.join(DTYPES)}")
    if str(value.dtype) == "float64" and not jax.config.jax_enable_x64:
        raise ValueError(
            f"{name} is float64, which JAX would cut to float32: cast the weights, or call this in "
            "jax.enable_x64(True) to keep them"
        )
    return value if isinstance(value, jax.Array) else np.asarray(value)


def select(
    names: Iterable[str], prefix: str, is_known: Callable[[str], Any], separator: str = "/"
) -> tuple[str, list[str]]:
    """(prefix with the separator, the names that begin with it).

    Raises ValueError where there are none, or one of which `is_known` does not know what follows the prefix; tells of
    other prefixes under which there is something known.
    """
    above = f"{prefix.removesuffix(separator)}{separator}" if prefix else ""
    own = [name for name in names if name.startswith(above)]
    unknown = [name for name in own if not is_known(name.removeprefix(above))]
    if own and not unknown:
        return above, own
    places = {_place(name, is_known, separator) for name in names} - {"", above}
    found = f"{quoted(unknown)} not expected" if unknown else f"nothing found under the prefix {prefix!r}"
    raise ValueError(found + (f": say prefix=, one of {quoted(places)}" if places else ""))


def _place(name: str, is_known: Callable[[str], Any], separator: str) -> str:
    """The shortest prefix, with its separator, after which something known follows; "" where there is none."""
    cuts = [at for at, letter in enumerate(name[:1000], start=1) if letter == separator]
    return next((name[:at] for at in cuts if is_known(name[at:])), "")


def flatten(tree: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """{"a/b/c": leaf} of nested mappings."""
    flat = {}
    for key, value in tree.items():
        flat |= flatten(value, f"{above}{key}/") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return flat


def strip(named: Mapping[str, Any], above: str) -> dict[str, Any]:
    """The same without the prefix `above`."""
    return {name.removeprefix(above): value for name, value in named.items()}


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dicts of {"a/b/c": leaf}."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *above, last = name.split("/")
        inside = tree
        for key in above:
            inside = inside.setdefault(key, {})
        inside[last] = value
    return tree


def quoted(names: Any, most: int = 5) -> str:
    """Names, which may come from anyone's file, for one line of a message: the first few, each cut where it is long."""
    names = sorted(map(str, names))
    shown = [repr(name if len(name) <= 60 else f"{name[:60]}...") for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def described(layer: Any) -> str:
    """A cell or layer for one line of a message: the class, and the fields that are not as they are by default."""
    if isinstance(layer, tuple):
        return f"({', '.join(map(described, layer))})"
    if not dataclasses.is_dataclass(layer):
        return repr(layer)
    values = {field: getattr(layer, field.name) for field in dataclasses.fields(layer)}
    told = (f"{field.name}={described(value)}" for field, value in values.items() if value != field.default)
    return f"{type(layer).__name__}({', '.join(told)})"
