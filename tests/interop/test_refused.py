"""What a library can't express is refused by name on the way out; what is none of its layers, on the way in."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import interop
from rnnjax.cells import GRU, LSTM, MGU, Elman, Jordan
from rnnjax.interop import (
    from_haiku,
    from_keras,
    from_linen,
    from_nnx,
    from_torch,
    to_haiku,
    to_keras,
    to_linen,
    to_nnx,
    to_torch,
)
from rnnjax.layers import Bidirectional, LearnedCarry, Stack, Zoneout

EVERY = ("torch", "keras", "linen", "nnx", "haiku")


def zeros(layer, **others):
    """Parameters of zeros, with others in their place."""
    shapes = jax.eval_shape(layer.init, jax.random.key(0))
    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, np.float32), shapes) | others


def dump(library, layer, params=None, **options):
    return getattr(interop, f"to_{library}")(layer, zeros(layer) if params is None else params, **options)


@pytest.mark.parametrize("library", EVERY)
@pytest.mark.parametrize(
    ("layer", "told"),
    [
        (LSTM(3, 4, peepholes=True), "LSTM(input_size=3, hidden_size=4, peepholes=True) can't be a "),
        (LSTM(3, 4, coupled=True), "coupled False"),
        (LSTM(3, 4, output_activation="identity"), "output_activation 'tanh'"),
        (LSTM(3, 4, layer_norm=True), "layer_norm False"),
        (GRU(3, 4, update_gate=False), "update_gate True"),
        (Elman(3, 4, activation="modrelu"), "Elman(input_size=3, hidden_size=4, activation='modrelu') can't be a "),
        (Elman(3, 4, orthogonal=True), "orthogonal False"),
        (
            Jordan(3, 4, 2),
            "Jordan(input_size=3, hidden_size=4, output_size=2) can't be converted: expected one of Elman",
        ),
        (MGU(3, 4), "MGU"),
        (LearnedCarry(LSTM(3, 4)), "LearnedCarry(cell=LSTM(input_size=3, hidden_size=4)) can't be converted"),
        (Zoneout(GRU(3, 4), 0.1), "Zoneout"),
    ],
)
def test_what_none_of_them_has(library, layer, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        dump(library, layer)


@pytest.mark.parametrize(
    ("library", "layer", "told"),
    [
        ("torch", GRU(3, 4, reset="before"), "reset='before') can't be a torch.nn.GRU, which has reset 'after'"),
        ("torch", Elman(3, 4, activation="sigmoid"), "a torch.nn.RNN, which has activation 'tanh' or 'relu'"),
        ("torch", Bidirectional(GRU(3, 4), GRU(3, 4), merge="sum"), "merge of Bidirectional"),
        ("torch", Bidirectional(GRU(3, 4), GRU(3, 5)), "params['backward'] is of GRU(input_size=3, hidden_size=5)"),
        ("torch", Stack((GRU(4, 4), GRU(4, 4)), residual=True), "residual of Stack"),
        ("torch", Stack((GRU(3, 4), GRU(4, 4)), layer_norm=True), "layer_norm of Stack"),
        ("torch", Stack((GRU(3, 4), LSTM(4, 4))), "params['layer_1'] is of LSTM(input_size=4, hidden_size=4)"),
        ("torch", Stack((GRU(3, 4), GRU(4, 5))), "params['layer_1'] is of GRU(input_size=4, hidden_size=5)"),
        ("torch", Stack((Elman(3, 4), Elman(4, 4, activation="relu"))), "params['layer_1'] is of Elman"),
        ("torch", Stack((GRU(3, 4), LearnedCarry(GRU(4, 4)))), "LearnedCarry(cell=GRU"),
        ("keras", LSTM(3, 4, projection_size=2), "projection_size None"),
        ("keras", Stack((GRU(3, 4),)), "Stack(layers=(GRU(input_size=3, hidden_size=4))) can't be converted"),
        ("linen", GRU(3, 4, reset="before"), "which has reset 'after', or a flax.linen.MGUCell without"),
        ("linen", LSTM(3, 4, projection_size=2), "projection_size None"),
        ("linen", Bidirectional(GRU(3, 4), GRU(3, 4)), "Bidirectional"),
        ("nnx", GRU(3, 4, reset="before"), "a flax.nnx.GRUCell, which has reset 'after'"),
        ("nnx", Stack((GRU(3, 4),)), "Stack"),
        ("haiku", Elman(3, 4), "a haiku.VanillaRNN, which has activation 'relu'"),
        ("haiku", GRU(3, 4), "GRU(input_size=3, hidden_size=4) can't be a haiku.GRU, which has reset 'before'"),
    ],
)  # fmt: skip
def test_what_this_one_has_not(library, layer, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        dump(library, layer)


@pytest.mark.parametrize(
    ("library", "options", "name"),
    [
        ("nnx", {}, "b_hn"),
        ("torch", {"bias": False}, "b"),
        ("torch", {"bias": False}, "b_hn"),
        ("keras", {"bias": False}, "b_hn"),
    ],
)
def test_a_bias_that_there_is_no_place_for(library, options, name):
    cell = GRU(3, 4)
    dump(library, cell, **options)
    params = zeros(cell)
    params[name][3] = 1e-30
    with pytest.raises(ValueError, match=rf"params\['{name}'\] is not zero, and a \S+GRU"):
        dump(library, cell, params, **options)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({}, r"params holds : expected 'W_hh', 'W_ih', 'b', 'b_hn' of GRU"),
        (None, r"params holds a NoneType"),
        (zeros(GRU(3, 4), extra=np.zeros(2)), "'extra'"),
        (zeros(GRU(3, 4), b=np.zeros(4)), r"params\['b'\] has the shape \[4\]: expected \[12\] of GRU"),
    ],
)
def test_parameters_that_are_not_the_cells(params, told):
    for library in ("torch", "keras", "linen"):
        with pytest.raises(ValueError, match=told):
            getattr(interop, f"to_{library}")(GRU(3, 4), params)


def test_parameters_of_a_layer_that_are_missing():
    stack = Stack((GRU(3, 4), GRU(4, 4)))
    params = zeros(stack)
    with pytest.raises(ValueError, match="params holds 'layer_0': expected 'layer_1' too"):
        to_torch(stack, {"layer_0": params["layer_0"]})
    both = Bidirectional(GRU(3, 4), GRU(3, 4))
    for to in (to_torch, to_keras):
        with pytest.raises(ValueError, match="expected 'backward' too"):
            to(both, {"forward": params["layer_0"]})


# The way in.

LSTM_STATE = to_torch(LSTM(3, 4), zeros(LSTM(3, 4)))
GRU_2 = to_torch(Stack((GRU(3, 4), GRU(4, 4))), zeros(Stack((GRU(3, 4), GRU(4, 4)))))
PAIR = to_torch(Bidirectional(GRU(3, 4), GRU(3, 4)), zeros(Bidirectional(GRU(3, 4), GRU(3, 4))))
GRU_2_UPPER = {name: array for name, array in GRU_2.items() if name.endswith("_l1")}
RNN_STATE = to_torch(Elman(3, 4), zeros(Elman(3, 4)))


def without(state, *names):
    return {name: array for name, array in state.items() if name not in names}


def f32(*shape):
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({}, "nothing found under the prefix ''"),
        (without(LSTM_STATE, "bias_hh_l0"), "not the arrays of a torch.nn.RNN or torch.nn.L.*: 'bias_hh_l0' missing"),
        (without(LSTM_STATE, "weight_hh_l0"), "'weight_hh_l0' missing"),
        (LSTM_STATE | {"weight_hr_l0": f32(2, 4)}, r"weight_hh_l0 has the shape \[16, 4\]: expected \[16, 2\] in a"),
        (LSTM_STATE | {"head.weight": f32(2, 4)}, "'head.weight' not expected"),
        (LSTM_STATE | {"weight_ih_l01": f32(16, 3)}, "'weight_ih_l01' not expected"),
        ({f"a.lstm.{name}": array for name, array in LSTM_STATE.items()}, "not expected: say prefix=, one of 'a.l"),
        (LSTM_STATE | {"weight_hh_l0": f32(18, 4)}, r"weight_hh_l0 has the shape \[18, 4\]: expected \[n \* 4, 4\]"),
        (LSTM_STATE | {"weight_hh_l0": f32(18, 4)}, r"for n gates, one of 1 \(torch.nn.RNN\), 3 \(torch.nn.GRU\), 4"),
        (LSTM_STATE | {"weight_hh_l0": f32(16)}, r"weight_hh_l0 has the shape \[16\]: expected a matrix"),
        (LSTM_STATE | {"weight_hh_l0": f32(0, 0)}, r"weight_hh_l0 has the shape \[0, 0\]: expected a matrix"),
        (LSTM_STATE | {"weight_ih_l0": f32(15, 3)}, r"\[15, 3\]: expected \[16, 3\] in a torch.nn.LSTM of input"),
        (LSTM_STATE | {"bias_ih_l0": f32(16, 1)}, r"bias_ih_l0 has the shape \[16, 1\]: expected \[16\]"),
        (LSTM_STATE | {"bias_hh_l0": f32(20)}, r"bias_hh_l0 has the shape \[20\]: expected \[16\]"),
        (LSTM_STATE | {"bias_hh_l0": np.zeros(16, int)}, r"bias_hh_l0 is int64 \[16\]: expected one of float16"),
        (LSTM_STATE | {"bias_hh_l0": np.zeros(16, complex)}, r"bias_hh_l0 is complex128"),
        (LSTM_STATE | {"bias_hh_l0": np.array(["a"] * 16)}, r"bias_hh_l0 is <U1 \[16\]"),
        (LSTM_STATE | {"bias_hh_l0": [0.0] * 16}, "bias_hh_l0 is a list"),
        (LSTM_STATE | {"bias_hh_l0": None}, "bias_hh_l0 is a NoneType"),
        (LSTM_STATE | {"bias_hh_l0": np.zeros(16, np.float16)}, "bias_hh_l0 is float16 but weight_ih_l0 float32"),
        ({name: array.astype(float) for name, array in LSTM_STATE.items()}, "weight_ih_l0 is float64, which JAX would"),
        (without(GRU_2, *LSTM_STATE), "weight_ih_l0 is missing: there are only '_l1'"),
        (GRU_2 | {"weight_ih_l1": f32(12, 5)}, r"weight_ih_l1 has the shape \[12, 5\]: expected 4 columns, "),
        (LSTM_STATE | GRU_2_UPPER, r"\*_l1 is .* GRU\(.*\): expected kind, sizes and biases of \*_l0, LSTM"),
        (without(GRU_2, "bias_ih_l1", "bias_hh_l1"), r"\*_l1 is .*: expected kind, sizes and biases"),
        (without(PAIR, *LSTM_STATE), "weight_ih_l0 is missing: there are only '_l0_reverse'"),
        (PAIR | {"weight_ih_l0_reverse": f32(12, 5)}, "expected 3 columns, as in the other direction"),
        (RNN_STATE, "do not tell its activation: say activation='tanh' or activation='relu'"),
        (3, "state is a int"),
        ([1], "state is a list"),
        ({3: f32(2)}, "state is a dict"),
        ("model.pt", r"torch.load\(path, weights_only=True\)"),
        ("nowhere.safetensors", "nowhere.safetensors: no such file"),
    ],
)  # fmt: skip
def test_what_is_no_module_of_torch(state, told):
    with pytest.raises(ValueError, match=told) as caught:
        from_torch(state)
    assert len(str(caught.value)) < 600


def test_choices_that_the_weights_leave_open():
    assert from_torch(RNN_STATE, activation="relu")[0] == Elman(3, 4, activation="relu")
    for state, choice in ((RNN_STATE, "sigmoid"), (LSTM_STATE, "tanh")):
        with pytest.raises(ValueError, match=f"activation is '{choice}', but a torch.nn"):
            from_torch(state, activation=choice)
    with pytest.raises(ValueError, match="do not tell its reset: say reset='after' or reset='before'"):
        from_keras([f32(3, 12), f32(4, 12)])
    with pytest.raises(ValueError, match=r"reset is 'before', but a keras.layers.GRU has 'after'"):
        from_keras([f32(3, 12), f32(4, 12), f32(2, 12)], reset="before")


def test_a_name_that_goes_on_and_on_is_cut():
    with pytest.raises(ValueError) as caught:
        from_torch(LSTM_STATE | {"x" * 10_000: f32(1)} | {f"other{i}": f32(1) for i in range(100)})
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("weights", "told"),
    [
        ([], "there are 0 arrays: expected 3"),
        ([f32(3, 16)] * 5, "there are 5 arrays"),
        ([f32(3, 16), f32(4, 16), f32(12)], r"weights\[2\] \(bias\) has the shape \[12\]: expected \[16\]"),
        ([f32(3, 16), f32(4, 20), f32(16)], r"weights\[1\] \(recurrent_kernel\) .*: expected \[4, n \* 4\]"),
        ([f32(3, 12), f32(4, 12), f32(3, 12)], r"weights\[2\] \(bias\) has the shape \[3, 12\]"),
        ([f32(3, 16), f32(4, 16), f32(16), f32(3, 16), f32(4, 16), f32(15)], r"weights\[5\] \(bias\) .* \[15\]"),
        ([f32(3, 16), f32(4, 16), 1.0], r"weights\[2\] is a float"),
    ],
)  # fmt: skip
def test_what_is_no_layer_of_keras(weights, told):
    with pytest.raises(ValueError, match=told):
        from_keras(weights)


def test_a_layer_of_a_file_without_a_file():
    with pytest.raises(ValueError, match="layer is 'lstm', but the weights are no file"):
        from_keras([f32(3, 16), f32(4, 16), f32(16)], layer="lstm")


def test_what_is_no_cell_of_flax_or_haiku():
    gru = to_linen(GRU(3, 4), zeros(GRU(3, 4)))
    with pytest.raises(ValueError, match="nothing found under the prefix 'decoder': say prefix=, one of 'encoder/'"):
        from_linen({"encoder": gru}, prefix="decoder")
    with pytest.raises(ValueError, match="say prefix=, one of 'encoder/'"):
        from_linen({"encoder": gru})
    with pytest.raises(ValueError, match="not the arrays of a flax.linen.GRUCell.*'iz/kernel' missing"):
        from_linen(gru | {"iz": {"bias": f32(4)}})
    with pytest.raises(ValueError, match=r"encoder/hn/kernel has the shape \[4, 5\]: expected \[4, 4\]"):
        from_linen({"encoder": gru | {"hn": {"kernel": f32(4, 5), "bias": f32(4)}}}, prefix="encoder")
    mgu = {name: {"kernel": f32(3 if name[0] == "i" else 4, 4), "bias": f32(4)} for name in ("if", "in", "hn")}
    with pytest.raises(ValueError, match="hn/bias are of a flax.linen.MGUCell, whose gate resets after the matmul"):
        from_linen(mgu | {"hf": {"kernel": f32(4, 4)}})
    with pytest.raises(ValueError, match="'if/kernel' not expected"):  # which is if_ there
        from_nnx(to_linen(LSTM(3, 4), zeros(LSTM(3, 4))))
    with pytest.raises(ValueError, match=r"dense_h/kernel has the shape \[4, 8\]: expected \[4, n \* 4\]"):
        from_nnx({"dense_i": {"kernel": f32(3, 8), "bias": f32(8)}, "dense_h": {"kernel": f32(4, 8)}})
    with pytest.raises(
        ValueError, match=r"lstm/linear/w has the shape \[4, 16\]: expected \[input \+ hidden, 4 \* hidden\]"
    ):
        from_haiku({"lstm/linear": {"w": f32(4, 16), "b": f32(16)}}, prefix="lstm")
    with pytest.raises(ValueError, match="say prefix=, one of 'lstm/', 'other/lstm/'"):
        from_haiku(
            {name: {"w": f32(7, 16), "b": f32(16)} for name in ("lstm/linear", "other/lstm/linear")}, prefix="gru"
        )


def test_weights_that_are_not_finite_are_weights():
    state = LSTM_STATE | {
        "bias_ih_l0": np.full(16, np.nan, np.float32),
        "weight_ih_l0": np.full((16, 3), np.inf, np.float32),
    }
    _, params = from_torch(state)
    assert jnp.isnan(params["b"]).all() and jnp.isinf(params["W_ih"]).all()
    assert np.isnan(to_haiku(LSTM(3, 4), params)["lstm/linear"]["b"]).all()
    assert set(to_nnx(LSTM(3, 4), params, optimized=True)) == {"dense_i", "dense_h"}
