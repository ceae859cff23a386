"""Weights of other libraries: the same numbers there and here, forward and backward, and back again.

What the libraries make of them is pinned in tests/goldens/interop_*.npz; one that is installed runs what we export.
The order and sign of gates, two biases or one, and Haiku's hidden 1 are all in these numbers.
"""

import dataclasses
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interop_matrix import KINDS, LIBRARIES, PINNED, dump, live, load, of_ours, ours

from rnnjax import interop
from rnnjax.cells import GRU, LSTM, Elman
from rnnjax.interop import flax_weights, haiku, keras, torch
from rnnjax.interop.forms import param_shapes
from rnnjax.interop.matching import OF_INIT_ALONE
from rnnjax.layers import Bidirectional, Stack
from rnnjax.testing import TOLERANCE, assert_close

PARTS = ("outputs", "states", "d_inputs", "d_arrays")
LAYERS = {
    ("torch", "rnn_tanh"): Elman(3, 4),
    ("torch", "rnn_relu"): Elman(3, 4, activation="relu"),
    ("torch", "lstm_no_bias"): LSTM(3, 4),
    ("torch", "lstm_projected"): LSTM(3, 4, projection_size=2),
    ("torch", "lstm_2"): Stack((LSTM(3, 4), LSTM(4, 4))),
    ("torch", "gru_bidirectional"): Bidirectional(GRU(3, 4), GRU(3, 4)),
    ("keras", "simple_rnn_linear"): Elman(3, 4, activation="identity"),
    ("keras", "gru_before"): GRU(3, 4, reset="before"),
    ("keras", "gru_before_no_bias"): GRU(3, 4, reset="before"),
    ("keras", "bidirectional_gru_sum"): Bidirectional(GRU(3, 4), GRU(3, 4), merge="sum"),
    ("linen", "mgu_no_reset"): GRU(3, 4, reset="none"),
    ("linen", "optimized_lstm"): LSTM(3, 4),
    ("nnx", "gru"): GRU(3, 4),
    ("haiku", "vanilla_rnn_one_bias"): Elman(3, 4, activation="relu"),
    ("haiku", "gru"): GRU(3, 4, reset="before"),
}


def numbers(result):
    return {part: result[part] for part in PARTS}


@pytest.mark.parametrize(("library", "kind"), KINDS)
def test_gives_the_librarys_own_outputs_states_and_gradients(library, kind, x64):
    want = PINNED[library][kind]
    assert want["arrays"].keys() == want["d_arrays"].keys()
    assert_close(numbers(ours(library, kind, want["arrays"])), numbers(want), TOLERANCE["float64"])


@pytest.mark.parametrize(("library", "kind"), [("torch", "lstm"), ("keras", "gru")])
def test_does_so_in_float32(library, kind):
    want = PINNED[library][kind]
    got = ours(library, kind, want["arrays"], jnp.float32)
    assert got["outputs"].dtype == jnp.float32
    assert_close(numbers(got), numbers(want), TOLERANCE["float32"])


@pytest.mark.parametrize(("library", "kind"), LAYERS)
def test_the_layer_is_told_by_names_and_shapes(library, kind, x64):
    layer, params = load(library, kind, PINNED[library][kind]["arrays"])
    assert layer == LAYERS[library, kind]
    expected = jax.eval_shape(layer.init, jax.random.key(0))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, expected)


@pytest.mark.parametrize(("library", "kind"), KINDS)
def test_what_is_dumped_loads_as_it_was(library, kind, x64):
    pinned = PINNED[library][kind]["arrays"]
    layer, params = load(library, kind, pinned)
    dumped = dump(library, kind, layer, params)
    if kind != "vanilla_rnn_one_bias":  # is dumped with two
        assert {name: (a.shape, a.dtype) for name, a in dumped.items()} == {
            name: (a.shape, a.dtype) for name, a in pinned.items()
        }
    again, same = load(library, "vanilla_rnn" if "one_bias" in kind else kind, dumped)
    assert again == layer
    exact = (library, kind) != ("haiku", "lstm")  # where 1 is taken off a bias and added again
    assert_close(same, params, 0 if exact else TOLERANCE["float64"])


def marked(library, kind):
    """Flax's cells compile; what is dumped is what is loaded, so that one of each will do between long checks."""
    slow = library in ("linen", "nnx") and kind != "gru"
    return pytest.param(library, kind, marks=[pytest.mark.full] if slow else [])


@pytest.mark.parametrize(("library", "kind"), [marked(*pair) for pair in KINDS if pair[1] != "vanilla_rnn_one_bias"])
def test_the_library_runs_what_we_dump(library, kind, x64):
    """With weights of ours, loaded as strictly as the library can: its numbers are ours."""
    if importlib.util.find_spec({"linen": "flax", "nnx": "flax"}.get(library, library)) is None:
        pytest.skip(f"{library} is not installed")
    want = live(library)(kind, {name: np.array(array) for name, array in of_ours(library, kind).items()})
    assert_close(numbers(ours(library, kind, want["arrays"])), numbers(want), TOLERANCE["float64"])


def test_torchs_two_biases_add_up_but_for_that_inside_the_reset(x64):
    arrays = PINNED["torch"]["gru"]["arrays"]
    _, params = interop.from_torch(arrays)
    b_ih, b_hh = arrays["bias_ih_l0"], arrays["bias_hh_l0"]
    assert_close(params["b"], np.concatenate([b_ih[:8] + b_hh[:8], b_ih[8:]]), 0)
    assert_close(params["b_hn"], b_hh[8:], 0)


def test_haikus_hidden_one_is_in_the_forget_bias_alone(x64):
    arrays = PINNED["haiku"]["lstm"]["arrays"]["lstm/linear/b"]
    _, params = interop.from_haiku({"lstm/linear": {"w": np.zeros((7, 16)), "b": arrays}}, prefix="lstm")
    i, g, f, o = np.split(arrays, 4)
    assert_close(params["b"], np.concatenate([i, f + 1, g, o]), 0)


def test_haikus_update_gate_is_turned(x64):
    _, params = interop.from_haiku(
        {"gru": {"w_i": np.ones((3, 12)), "w_h": np.ones((4, 12)), "b": np.ones(12)}}, prefix="gru"
    )
    assert np.unique(params["W_hh"], axis=0).tolist() == [[1] * 4 + [-1] * 4 + [1] * 4]  # r, u, n


def test_a_model_s_dict_is_read_under_a_prefix():
    lstm = {f"encoder.lstm.{name}": np.float32(a) for name, a in PINNED["torch"]["lstm"]["arrays"].items()}
    model = lstm | {"head.weight": np.ones((2, 4), np.float32), "steps": np.int64(3)}
    for prefix in ("encoder.lstm.", "encoder.lstm"):
        layer, params = interop.from_torch(model, prefix=prefix)
        assert layer == LSTM(3, 4)
    cell = {"encoder": {"cell": interop.to_linen(layer, params), "norm": {"scale": np.ones(4)}}}
    again, same = interop.from_linen({"params": cell}, prefix="params/encoder/cell")
    assert again == layer
    assert_close(same, params, 0)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_the_dtype_of_the_arrays_stays(dtype):
    arrays = {name: array.astype(dtype) for name, array in PINNED["haiku"]["lstm"]["arrays"].items()}
    cell, params = load("haiku", "lstm", arrays)
    assert {leaf.dtype for leaf in params.values()} == {jnp.dtype(dtype)}
    assert {array.dtype for array in dump("haiku", "lstm", cell, params).values()} == {jnp.dtype(dtype)}
    assert_close(params["W_ih"][:, :4], arrays["lstm/linear/w"][:3, :4], 0)


def test_what_torch_holds_is_taken_as_it_is():
    torch = pytest.importorskip("torch")
    module = torch.nn.LSTM(3, 4)
    for name, value in (
        ("requires grad", dict(module.named_parameters())),
        ("bfloat16", module.bfloat16().state_dict()),
    ):
        _, params = interop.from_torch(value)
        want = module.float().weight_hh_l0.detach().numpy().T
        assert_close(params["W_hh"], want, TOLERANCE["bfloat16"] if name == "bfloat16" else 0)
    assert params["b"].dtype == jnp.bfloat16


def test_a_state_of_nnx_is_taken_and_given_back():
    nnx = pytest.importorskip("flax.nnx")
    cell = nnx.LSTMCell(3, 4, rngs=nnx.Rngs(1))
    ours, params = interop.from_nnx(nnx.state(cell))
    other = nnx.LSTMCell(3, 4, rngs=nnx.Rngs(2))
    nnx.update(other, interop.to_nnx(ours, params))
    assert_close(nnx.to_pure_dict(nnx.state(other)), nnx.to_pure_dict(nnx.state(cell)), 0)


FORMS = {
    form.name: form
    for module in (torch, keras, haiku)
    for form in module.FORMS
} | {form.name: form for form in (*flax_weights.LINEN, *flax_weights.NNX)}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_of_a_cell_that_the_form_names(name):
    """Each block of each parameter stands in the table, none that is not there."""
    form = FORMS[name]
    sizes = dict(zip(form.sizes, (3, 4, 2), strict=False))
    cell = form.cell(**sizes, **{option: values[0] for option, values in form.options.items()})
    for param, leaf in jax.eval_shape(cell.init, jax.random.key(0)).items():
        assert not form.order(param) or leaf.shape[-1] // len(form.order(param)) in (4, 2)
        assert form.order(param) or (name, param) == ("flax.nnx.GRUCell", "b_hn")


@pytest.mark.parametrize("field", OF_INIT_ALONE)
def test_a_field_that_is_not_compared_changes_no_step(field):
    value = {"input_init": "identity", "recurrent_init": "identity", "chrono": 5.0}.get(field, 2.5)
    rng = np.random.default_rng(1)
    cells = [cls(4, 4) for cls in (Elman, LSTM, GRU) if field in cls.__dataclass_fields__]
    assert cells
    for cell in cells:
        params = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in param_shapes(cell).items()}
        other = dataclasses.replace(cell, **{field: value})
        carry = jax.tree.map(lambda leaf: leaf + 0.5, cell.initial_carry(params, (2,)))
        steps = [c.step(params, carry, c.project(params, np.ones((2, 4)))) for c in (other, cell)]
        assert_close(*steps, 0)
        assert_close(LIBRARIES["torch"].dump(other, params), LIBRARIES["torch"].dump(cell, params), 0)
