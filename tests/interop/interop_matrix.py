"""How far apart we and each library are: outputs, final states and all gradients of the same weights.

`python tests/interop/interop_matrix.py` prints the table. "from" runs a library's pinned weights here and compares with
its pinned numbers; "to" runs weights of ours in the library itself, where it is installed.
"""

import functools
import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "goldens"))

import interop_case as case
import jax
import jax.numpy as jnp
import numpy as np

from rnnjax import interop
from rnnjax.interop.arrays import flatten, unflatten
from rnnjax.layers import run


class Library(NamedTuple):
    """A library's two functions on {name: array}, and what its kinds of layer ask of them.

    given: {kind: arguments of from_}; asked: {kind: arguments of to_}; module: of tests/goldens, with the library live.
    """

    load: Callable
    dump: Callable
    given: dict[str, dict[str, Any]]
    asked: dict[str, dict[str, Any]]
    module: str
    live: Callable


def two_levels(arrays):
    found = {}
    for name, array in arrays.items():
        module, _, last = name.rpartition("/")
        found.setdefault(module, {})[last] = array
    return found


NO_BIAS = {"bias": False}
LIBRARIES = {
    "torch": Library(
        interop.from_torch,
        interop.to_torch,
        {"rnn_tanh": {"activation": "tanh"}, "rnn_relu": {"activation": "relu"}},
        {"lstm_no_bias": NO_BIAS, "gru_no_bias": NO_BIAS},
        "torch",
        lambda module, kind, arrays: module.run(kind, arrays),
    ),
    "keras": Library(
        lambda arrays, **given: interop.from_keras(list(arrays.values()), **given),
        lambda *args, **asked: {str(i): array for i, array in enumerate(interop.to_keras(*args, **asked))},
        {
            "simple_rnn": {"activation": "tanh"},
            "simple_rnn_relu": {"activation": "relu"},
            "simple_rnn_sigmoid": {"activation": "sigmoid"},
            "simple_rnn_linear": {"activation": "identity"},
            "gru_no_bias": {"reset": "after"},
            "gru_before_no_bias": {"reset": "before"},
            "bidirectional_gru_sum": {"merge": "sum"},
        },
        {"lstm_no_bias": NO_BIAS, "gru_no_bias": NO_BIAS, "gru_before_no_bias": NO_BIAS},
        "keras",
        lambda module, kind, arrays: module.run(kind, arrays),
    ),
    "linen": Library(
        lambda arrays, **given: interop.from_linen(unflatten(arrays), **given),
        lambda *args, **asked: flatten(interop.to_linen(*args, **asked)),
        {"simple": {"activation": "tanh"}, "simple_relu": {"activation": "relu"}},
        {},
        "flax",
        lambda module, kind, arrays: module.run("linen", kind, arrays),
    ),
    "nnx": Library(
        lambda arrays, **given: interop.from_nnx(unflatten(arrays), **given),
        lambda *args, **asked: flatten(interop.to_nnx(*args, **asked)),
        {"simple": {"activation": "tanh"}, "simple_relu": {"activation": "relu"}},
        {"optimized_lstm": {"optimized": True}},
        "flax",
        lambda module, kind, arrays: module.run("nnx", kind, arrays),
    ),
    "haiku": Library(
        lambda arrays, **given: interop.from_haiku(two_levels(arrays), **given),
        lambda *args, **asked: flatten(interop.to_haiku(*args, **asked)),
        {
            "vanilla_rnn": {"prefix": "vanilla_rnn"},
            "vanilla_rnn_one_bias": {"prefix": "vanilla_rnn"},
            "lstm": {"prefix": "lstm"},
            "gru": {"prefix": "gru"},
        },
        {},
        "haiku",
        lambda module, kind, arrays: module.run(kind, arrays),
    ),
}
PINNED = {library: case.read(library) for library in LIBRARIES}
KINDS = [(library, kind) for library, kinds in PINNED.items() for kind in kinds]


def load(library, kind, arrays):
    """(layer, params) of {name: array}."""
    return LIBRARIES[library].load(arrays, **LIBRARIES[library].given.get(kind, {}))


def dump(library, kind, layer, params):
    """{name: array}."""
    return LIBRARIES[library].dump(layer, params, **LIBRARIES[library].asked.get(kind, {}))


def live(library):
    """(kind, arrays) -> what the library itself makes of them. Raises ImportError where it is not installed."""
    module = importlib.import_module(f"make_interop_{LIBRARIES[library].module}")
    return lambda kind, arrays: LIBRARIES[library].live(module, kind, arrays)


@functools.partial(jax.jit, static_argnums=0)  # once for a layer, whatever library its weights are from
def gradients(layer, params, inputs):
    """((outputs, *states), gradients of params and inputs)."""

    def loss(params, inputs):
        result = run(layer, params, inputs)
        found = [result.outputs, *jax.tree.leaves(result.carry)]
        return sum(jnp.vdot(value, jnp.asarray(case.factors(value.shape), value.dtype)) for value in found), found

    return jax.grad(loss, (0, 1), has_aux=True)(params, inputs)[::-1]


def ours(library, kind, arrays, dtype=jnp.float64):
    """What we make of the same arrays, in the form of `case.save`: the gradients are in the library's own arrays."""
    arrays = {name: np.asarray(array, dtype) for name, array in arrays.items()}
    layer, params = load(library, kind, arrays)
    (outputs, *states), (d_params, d_inputs) = gradients(layer, params, jnp.asarray(case.INPUTS, dtype))
    (d_arrays,) = jax.vjp(lambda arrays: load(library, kind, arrays)[1], arrays)[1](d_params)
    return {"arrays": arrays, "outputs": outputs, "states": states, "d_inputs": d_inputs, "d_arrays": d_arrays}


def of_ours(library, kind):
    """Random weights of our own layer, in the library's arrays."""
    layer, params = load(library, kind, PINNED[library][kind]["arrays"])
    rng = np.random.default_rng(3)
    params = jax.tree.map(lambda leaf: 0.3 * rng.standard_normal(leaf.shape), params)
    lacking = ("b", "b_hn") if "no_bias" in kind else ("b_hn",) if (library, kind) == ("nnx", "gru") else ()
    if lacking:  # what the library has no place for
        params = {name: leaf * 0 if name in lacking else leaf for name, leaf in params.items()}
    return dump(library, kind, layer, params)


def differences(got, want):
    """Largest absolute differences of (outputs, states, gradients)."""

    def largest(a, b):
        return max(
            float(np.max(np.abs(np.asarray(x, float) - np.asarray(y, float)))) for x, y in zip(a, b, strict=True)
        )

    gradients = [[found["d_inputs"], *(found["d_arrays"][name] for name in want["d_arrays"])] for found in (got, want)]
    return (
        largest([got["outputs"]], [want["outputs"]]),
        largest(got["states"], want["states"]),
        largest(*gradients),
    )


def main():
    print(f"{'library':8}{'layer':32}{'way':6}{'outputs':>10}{'states':>10}{'gradients':>11}{'in float32':>12}")
    for library, kind in KINDS:
        with jax.enable_x64(True):
            pinned = PINNED[library][kind]
            rows = {"from": pinned}
            try:
                if kind != "vanilla_rnn_one_bias":  # which is dumped with two
                    rows["to"] = live(library)(kind, of_ours(library, kind))
            except ImportError as error:
                print(f"{library:8}{kind:32}to    {error}")
            for way, want in rows.items():
                found = differences(ours(library, kind, want["arrays"]), want)
                single = max(differences(ours(library, kind, want["arrays"], jnp.float32), want))
                print(f"{library:8}{kind:32}{way:6}" + "".join(f"{value:10.1e}" for value in found) + f"{single:13.1e}")


if __name__ == "__main__":
    main()
