"""A module is a layer and its parameters; it draws masks while it trains, and says what it needs for that."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax import layers, unroll
from rnnjax.cells import CELLS, GRU, LSTM, Elman, Jordan, TeacherForced
from rnnjax.layers import InputDropout, LearnedCarry, RecurrentDropout, Zoneout, run
from rnnjax.nn import RNN, Bidirectional, Stack
from rnnjax.probes.unrolls import discover
from rnnjax.testing import assert_close

INPUTS = np.random.default_rng(0).normal(size=(5, 2, 3)).astype(np.float32)
LENGTHS = np.array([5, 2])
KEY = jax.random.key(7)
BOTH = layers.Bidirectional(Elman(3, 4), GRU(3, 4), "sum")


def dropped(size=3):
    return InputDropout(RecurrentDropout(Elman(size, 4), 0.5), 0.5)


def arrays(tree):
    return nnx.to_pure_dict(nnx.state(tree))


@pytest.mark.parametrize("name", CELLS)
def test_rnn_is_unroll_of_its_parameters(name):
    cell = Jordan(3, 4, 2) if name == "jordan" else CELLS[name](3, 4)
    module = RNN(cell, rngs=nnx.Rngs(0))
    params = cell.init(nnx.Rngs(0).params())
    assert_close(arrays(module.params), params, 0)
    got = module(INPUTS, lengths=LENGTHS, reverse=True)
    assert_close(got, unroll(cell, params, INPUTS, lengths=LENGTHS, reverse=True), 0)
    assert_close(module(INPUTS, got.carry), unroll(cell, params, INPUTS, got.carry), 0)


def test_rnn_takes_what_its_cell_takes():
    forced = TeacherForced(INPUTS, np.ones((5, 2, 4), np.float32))
    assert RNN(Jordan(3, 6, 4), rngs=nnx.Rngs(0))(forced).outputs.shape == (5, 2, 4)


@pytest.mark.parametrize(
    "make, layer",
    [
        (lambda **options: Bidirectional(Elman(3, 4), GRU(3, 4), "sum", **options), BOTH),
        (lambda **options: Stack([BOTH, Elman(4, 4)], residual=False, layer_norm=True, **options),
         layers.Stack((BOTH, Elman(4, 4)), layer_norm=True)),
    ],
    ids=["Bidirectional", "Stack"],
)  # fmt: skip
def test_bidirectional_and_stack_are_run_of_their_parameters(make, layer):
    module = make(rngs=nnx.Rngs(0), name="encoder")
    assert module.layer == layer and isinstance(module, RNN)
    params = layer.init(nnx.Rngs(0).params())
    assert_close(arrays(module.params), params, 0)
    got = module(INPUTS, lengths=LENGTHS)
    assert_close(got, run(layer, params, INPUTS, lengths=LENGTHS), 0)
    assert_close(module(INPUTS, got.carry).carry, run(layer, params, INPUTS, got.carry).carry, 0)
    by_hand = discover(lambda: run(layer, params, INPUTS, name="encoder"))
    assert list(discover(lambda: module(INPUTS))) == list(by_hand) and all(name[:8] == "encoder/" for name in by_hand)


def test_single_steps_are_the_call():
    module = Stack([Zoneout(Elman(3, 4), 0.3), LearnedCarry(Elman(4, 4))], rngs=nnx.Rngs(0))
    module.eval()
    whole, carry = module(INPUTS).outputs, None
    for t in range(2):
        output, carry = module.advance(carry, INPUTS[t])
        assert_close(output, whole[t], 1e-6)


def test_masks_are_drawn_in_training_and_not_at_evaluation():
    module = Stack([dropped(), dropped(4)], rngs=nnx.Rngs(0))
    call = nnx.jit(lambda module, rngs: module(INPUTS, rngs=rngs).outputs)
    params = arrays(module.params)
    assert_close(
        call(module, nnx.Rngs(KEY)), run(module.layer, params, INPUTS, key=nnx.Rngs(KEY).dropout()).outputs, 1e-6
    )
    rngs = nnx.Rngs(dropout=KEY)
    first, second, again = call(module, rngs), call(module, rngs), call(module, nnx.Rngs(dropout=KEY))
    assert jnp.any(first != second)  # the stream has moved on
    assert_close(first, again, 0)
    module.eval()
    plain = run(layers.Stack((Elman(3, 4), Elman(4, 4))), params, INPUTS).outputs
    assert_close(call(module, None), plain, 1e-6)
    assert_close(call(module, rngs), plain, 1e-6)
    module.train()
    assert_close(call(module, nnx.Rngs(dropout=KEY)), first, 0)


def test_training_without_rngs_is_refused_where_there_are_masks_to_draw():
    for make in (
        RNN,
        lambda cell, rngs: Bidirectional(Elman(3, 4), cell, rngs=rngs),
        lambda cell, rngs: Stack([cell], rngs=rngs),
    ):
        module = make(dropped(), rngs=nnx.Rngs(0))
        with pytest.raises(ValueError, match=r"draws masks in training: call the module with rngs=nnx.Rngs\(key\)"):
            module(INPUTS)
        module.eval()
        jax.eval_shape(module, INPUTS)
    for cell in (Elman(3, 4), LearnedCarry(Elman(3, 4)), InputDropout(Elman(3, 4), 0.0)):
        jax.eval_shape(RNN(cell, rngs=nnx.Rngs(0)), INPUTS)


def test_a_users_cell_with_masks_of_its_own_is_known_by_its_randomize():
    class Noisy(Elman):
        def randomize(self, key, params, inputs):
            return params, inputs + jax.random.normal(key, inputs.shape, inputs.dtype)

    module = RNN(Noisy(3, 4), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="Noisy.* draws masks"):
        module(INPUTS)
    with_noise = module(INPUTS, rngs=nnx.Rngs(KEY), reverse=True).outputs
    module.eval()
    assert jnp.any(with_noise != module(INPUTS, reverse=True).outputs)


def test_truncation_chunks_and_method_are_passed_through():
    module = RNN(Elman(3, 4), rngs=nnx.Rngs(0))
    graph, params = nnx.split(module)

    def gradient(**options):
        loss = lambda params: jnp.square(nnx.merge(graph, params)(INPUTS, **options).outputs[-1]).sum()  # noqa: E731
        return jax.jit(jax.grad(loss))(params)["params"]["W_hh"][...]

    whole = gradient()
    assert_close(gradient(chunk=2, method="scan"), whole, 1e-5)
    assert jnp.abs(gradient(truncate=1) - whole).max() > 1e-4
    with pytest.raises(ValueError, match="chunk is 0"):
        module(INPUTS, chunk=0)
    with pytest.raises(ValueError, match="method is 'loop'"):
        module(INPUTS, reverse=True, method="loop")


def test_only_a_cell_is_turned_round():
    with pytest.raises(ValueError, match="reverse is True but the layer is Bidirectional"):
        Bidirectional(Elman(3, 4), Elman(3, 4), rngs=nnx.Rngs(0))(INPUTS, reverse=True)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float64])
def test_a_module_has_one_dtype(dtype, x64):
    for module in (
        RNN(dropped(), rngs=nnx.Rngs(0), dtype=dtype),
        Stack([BOTH, LearnedCarry(LSTM(4, 4))], layer_norm=True, rngs=nnx.Rngs(0), dtype=dtype),
    ):
        result = jax.eval_shape(lambda x, m=module: m(x, lengths=LENGTHS, rngs=nnx.Rngs(KEY)), INPUTS)
        assert {leaf.dtype for leaf in jax.tree.leaves((arrays(module), result))} == {jnp.dtype(dtype)}


def test_a_module_is_split_and_merged_as_any_other():
    module = Bidirectional(dropped(), Elman(3, 4), rngs=nnx.Rngs(0))
    module.eval()
    graph, params = nnx.split(module, nnx.Param)
    assert {"/".join(map(str, path)) for path, _ in nnx.to_flat_state(params)} == {
        f"params/{side}/{name}" for side in ("forward", "backward") for name in ("W_ih", "W_hh", "b")
    }
    assert_close(nnx.merge(graph, params)(INPUTS), module(INPUTS), 0)
