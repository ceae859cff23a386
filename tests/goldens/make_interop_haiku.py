"""Writes interop_haiku.npz: Haiku's own VanillaRNN, LSTM and GRU in float64, forward and backward.

Run where dm-haiku is installed: python tests/goldens/make_interop_haiku.py. The numbers are Haiku's definition: a new
file is due when more is to be compared, and never because a test fails.
"""

import haiku as hk
import interop_case as case
import jax
import jax.numpy as jnp

CORES = {
    "vanilla_rnn": lambda: hk.VanillaRNN(case.HIDDEN),
    "vanilla_rnn_one_bias": lambda: hk.VanillaRNN(case.HIDDEN, double_bias=False),
    "lstm": lambda: hk.LSTM(case.HIDDEN),
    "gru": lambda: hk.GRU(case.HIDDEN),
}


def transformed(kind):
    def unroll(inputs):
        core = CORES[kind]()
        return hk.dynamic_unroll(core, inputs, core.initial_state(inputs.shape[1]))

    return hk.without_apply_rng(hk.transform(unroll))


def nested(arrays):
    """{module: {name: array}} of {"module/name": array}."""
    found = {}
    for name, array in arrays.items():
        module, _, last = name.rpartition("/")
        found.setdefault(module, {})[last] = array
    return found


def flat(params):
    return {f"{module}/{name}": array for module, inside in params.items() for name, array in inside.items()}


def shapes(kind):
    params = jax.eval_shape(transformed(kind).init, jax.random.key(0), jnp.zeros((2, case.BATCH, case.INPUT)))
    return {name: leaf.shape for name, leaf in flat(params).items()}


def run(kind, arrays):
    """Applies the arrays: what `interop_case.save` wants of a kind."""

    def loss(arrays, inputs):
        outputs, state = transformed(kind).apply(nested(arrays), inputs)
        found = [outputs, *jax.tree.leaves(state)]
        return sum(jnp.vdot(value, case.factors(value.shape)) for value in found), found

    with jax.enable_x64(True):
        arrays = jax.tree.map(jnp.asarray, arrays)
        inputs = jnp.asarray(case.INPUTS)
        (d_arrays, d_inputs), (outputs, *states) = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(arrays, inputs)
    return {"arrays": arrays, "outputs": outputs, "states": states, "d_inputs": d_inputs, "d_arrays": d_arrays}


if __name__ == "__main__":
    case.save("haiku", {kind: run(kind, case.draw(shapes(kind))) for kind in CORES})
