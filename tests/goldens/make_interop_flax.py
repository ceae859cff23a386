"""Writes interop_linen.npz and interop_nnx.npz: Flax's own cells in float64, forward and backward.

Run as python tests/goldens/make_interop_flax.py. The numbers are Flax's definition: a new file is due when more is to
be compared, and never because a test fails.
"""

import functools

import flax.linen as nn
import interop_case as case
import jax
import jax.numpy as jnp
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict

F64 = {"dtype": jnp.float64, "param_dtype": jnp.float64}
LINEN = {
    "simple": lambda: nn.SimpleCell(case.HIDDEN, **F64),
    "simple_relu": lambda: nn.SimpleCell(case.HIDDEN, activation_fn=nn.relu, **F64),
    "lstm": lambda: nn.LSTMCell(case.HIDDEN, **F64),
    "optimized_lstm": lambda: nn.OptimizedLSTMCell(case.HIDDEN, **F64),
    "gru": lambda: nn.GRUCell(case.HIDDEN, **F64),
    "mgu_no_reset": lambda: nn.MGUCell(case.HIDDEN, reset_gate=False, **F64),
}
NNX = {
    "simple": nnx.SimpleCell,
    "simple_relu": functools.partial(nnx.SimpleCell, activation_fn=nnx.relu),
    "lstm": nnx.LSTMCell,
    "optimized_lstm": nnx.OptimizedLSTMCell,
    "gru": nnx.GRUCell,
}


def make_nnx(kind):
    return NNX[kind](case.INPUT, case.HIDDEN, rngs=nnx.Rngs(0), **F64)


def first(kind):
    """The carry to start from, (c, h) of an LSTM."""
    zeros = jnp.zeros((case.BATCH, case.HIDDEN), jnp.float64)
    return (zeros, zeros) if "lstm" in kind else zeros


def shapes(library, kind):
    with jax.enable_x64(True):
        if library == "linen":
            tree = LINEN[kind]().init(jax.random.key(0), first(kind), jnp.zeros((case.BATCH, case.INPUT)))["params"]
        else:
            tree = nnx.to_pure_dict(nnx.state(make_nnx(kind)))
        return {name: leaf.shape for name, leaf in flatten_dict(tree, sep="/").items()}


def run(library, kind, arrays):
    """Puts the arrays into the cell and steps through time: what `interop_case.save` wants of a kind."""

    def loss(arrays, inputs):
        tree = unflatten_dict(arrays, sep="/")
        if library == "linen":
            step = functools.partial(LINEN[kind]().apply, {"params": tree})
        else:
            step = make_nnx(kind)
            nnx.update(step, tree)
        carry, outputs = jax.lax.scan(step, first(kind), inputs)
        found = [outputs, *(carry[::-1] if isinstance(carry, tuple) else (carry,))]
        return sum(jnp.vdot(value, case.factors(value.shape)) for value in found), found

    with jax.enable_x64(True):
        arrays = jax.tree.map(jnp.asarray, arrays)
        inputs = jnp.asarray(case.INPUTS)
        (d_arrays, d_inputs), (outputs, *states) = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(arrays, inputs)
    return {"arrays": arrays, "outputs": outputs, "states": states, "d_inputs": d_inputs, "d_arrays": d_arrays}


if __name__ == "__main__":
    for library, kinds in (("linen", LINEN), ("nnx", NNX)):
        case.save(library, {kind: run(library, kind, case.draw(shapes(library, kind))) for kind in kinds})
