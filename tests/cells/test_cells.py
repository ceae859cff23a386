"""Every cell of CELLS, and every choice it has, keeps the contract; and a broken cell is found."""

import dataclasses
import json
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import Cell, unroll
from rnnjax.cells import CELLS, GRU, LSTM, MGU, Elman, IndRNN, Jordan, TeacherForced
from rnnjax.testing import TOLERANCE, assert_close, check_cell

GOLDENS = pathlib.Path(__file__).parent.parent / "goldens"
VARIANTS = [
    Elman(3, 5),
    Elman(3, 5, activation="relu"),
    Jordan(3, 5, 4),
    LSTM(3, 5, forget_bias=2.0),
    GRU(3, 5, reset="after"),
    MGU(3, 5),
    IndRNN(3, 5),
]


STANDARD = [
    *(Elman(3, 5, activation=name) for name in ("sigmoid", "identity")),
    *(Elman(3, 5, activation=name, recurrent_init="identity") for name in ("relu", "identity")),  # IRNN and linear
    Elman(3, 5, orthogonal=True, gain=0.9),
    *(Jordan(3, 5, 4, feedback=name) for name in ("sigmoid", "tanh", "identity")),
    Jordan(3, 5, 4, activation="sigmoid"),
    LSTM(1, 1),
    LSTM(3, 5, chrono=20.0),
    GRU(3, 5, reset="before"),
    GRU(3, 5, chrono=20.0, update_bias=1.0),
    GRU(2, 1),
]
OTHER = [
    *(Elman(3, 5, activation="modrelu", orthogonal=orthogonal) for orthogonal in (False, True)),
    *(LSTM(3, 5, **{f"{name}_gate": False}) for name in ("input", "forget", "output")),
    *(LSTM(3, 5, **{f"{name}_activation": "identity"}) for name in ("input", "output")),
    *(LSTM(3, 5, **{name: True}) for name in ("peepholes", "coupled", "gate_recurrence", "layer_norm")),
    LSTM(3, 5, projection_size=4),
    LSTM(3, 5, peepholes=True, coupled=True, projection_size=4),
    LSTM(3, 5, forget_gate=False, gate_recurrence=True),
    LSTM(3, 5, input_gate=False, forget_gate=False, output_gate=False),
    LSTM(3, 5, peepholes=True, coupled=True, gate_recurrence=True, projection_size=4, layer_norm=True, chrono=9.0),
    GRU(3, 5, reset="none"),
    *(GRU(3, 5, reset=name, update_gate=False) for name in ("after", "before")),
    *(IndRNN(3, 5, activation=name) for name in ("tanh", "sigmoid", "identity")),
    MGU(2, 1),
]
MORE = [*STANDARD, *OTHER]


def short(cell):
    """The cell with those of its options that are not the default."""
    given = {
        field.name: getattr(cell, field.name)
        for field in dataclasses.fields(cell)
        if field.default is not getattr(cell, field.name)
    }
    return f"{type(cell).__name__}({', '.join(f'{name}={value}' for name, value in given.items())})"


def test_every_cell_of_the_table_is_tried():
    assert {type(cell) for cell in VARIANTS} == set(CELLS.values())


@pytest.mark.parametrize("cell", VARIANTS, ids=short)
def test_keeps_the_contract(cell):
    check_cell(cell)


@pytest.mark.full
@pytest.mark.parametrize("cell", MORE, ids=short)
def test_every_other_choice_keeps_it_too(cell):
    check_cell(cell)


PINNED = json.loads((GOLDENS / "parameter_shapes.json").read_text())


@pytest.mark.parametrize("name", PINNED)
def test_parameter_tree_is_pinned(name):
    # To change a tree on purpose, edit the file in the same commit: saved runs of the old tree can't be read any more.
    cell = CELLS[name.split()[0]](**PINNED[name]["sizes"])
    got = {key: list(leaf.shape) for key, leaf in jax.eval_shape(cell.init, jax.random.key(0)).items()}
    assert got == PINNED[name]["parameters"]


def test_the_tree_of_every_cell_is_pinned():
    assert set(CELLS) <= set(PINNED)


@pytest.mark.parametrize("cell", [*VARIANTS, *MORE], ids=short)
def test_recurrent_names_weights_of_the_carry(cell):
    params = jax.eval_shape(cell.init, jax.random.key(0))
    prepared = jax.eval_shape(cell.prepare, params)
    sizes = {leaf.shape[0] for leaf in jax.eval_shape(cell.initial_carry, params)}
    of_gates = cell.hidden_size * len(getattr(cell, "gate_names", ()))
    assert {prepared[name].shape[0] for name in cell.recurrent} <= sizes | {of_gates}


def test_only_the_standard_algebra_brings_its_own_backward():
    assert all(cell.brings_backward for cell in STANDARD)
    assert not any(cell.brings_backward for cell in OTHER)


def test_readout_is_jordans_alone():
    assert {name for name, cell in CELLS.items() if cell.readout} == {"jordan"}


def test_lstm_forget_bias_is_the_initial_value_and_nothing_else(x64):
    params = LSTM(3, 8, forget_bias=1.5).init(jax.random.key(0))
    np.testing.assert_array_equal(params["b"], np.repeat([0, 1.5, 0, 0], 8))


def test_hyper_parameters_of_init_may_be_traced():
    def forget(bias, gain):
        params = dataclasses.replace(LSTM(2, 3), forget_bias=bias, gain=gain).init(jax.random.key(0))
        return params["b"][3], jnp.linalg.norm(params["W_hh"][:, :3])

    biases, norms = jax.vmap(forget)(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(biases, [0, 1])
    np.testing.assert_allclose(norms, [3**0.5, 2 * 3**0.5], rtol=1e-6)


def test_float64_parameters_are_the_float32_draws(x64):
    for cell in (*VARIANTS, *MORE):
        narrow, wide = (cell.init(jax.random.key(3), dtype) for dtype in (jnp.float32, jnp.float64))
        for name in narrow:
            np.testing.assert_array_equal(np.asarray(narrow[name], np.float64), wide[name])


def test_jordan_feeds_back_the_activated_output(x64):
    cell = Jordan(1, 2, 3, feedback="softmax")
    params = {
        name: jax.random.normal(jax.random.key(i), leaf.shape, jnp.float64)
        for i, (name, leaf) in enumerate(cell.init(jax.random.key(0)).items())
    }
    x = jax.random.normal(jax.random.key(9), (3, 1), jnp.float64)
    y, outputs = np.zeros(3), []
    for t in range(3):
        fed = np.exp(y) / np.exp(y).sum()
        h = np.tanh(np.asarray(x[t]) @ params["W_ih"] + fed @ params["W_yh"] + params["b_h"])
        y = np.asarray(h @ params["W_hy"] + params["b_y"])
        outputs.append(y)
    assert_close(unroll(cell, params, x).outputs, np.stack(outputs), TOLERANCE["float64"])


def test_teacher_forcing_with_the_own_outputs_is_the_free_run(x64):
    cell = Jordan(3, 5, 4, feedback="sigmoid")
    params = cell.init(jax.random.key(0), jnp.float64)
    x = jax.random.normal(jax.random.key(1), (6, 2, 3), jnp.float64)
    free = unroll(cell, params, x).outputs
    fed = jax.nn.sigmoid(jnp.concatenate([jnp.zeros_like(free[:1]), free[:-1]]))
    assert_close(unroll(cell, params, TeacherForced(x, fed)).outputs, free, TOLERANCE["float64"])
    other = unroll(cell, params, TeacherForced(x, jnp.zeros_like(fed)), lengths=jnp.array([6, 4])).outputs
    assert jnp.abs(other[1:4] - free[1:4]).max() > 1e-3
    gradient = jax.grad(lambda x: unroll(cell, params, TeacherForced(x, fed)).outputs[-1].sum())(x)
    assert jnp.all(gradient[:-1] == 0) and jnp.all(gradient[-1] != 0)


def test_a_teacher_forced_jordan_keeps_the_contract_but_for_memory():
    with pytest.raises(AssertionError, match="does not depend on every input"):
        check_cell(
            Jordan(3, 5, 4),
            make_inputs=lambda key, shape, dtype: TeacherForced(
                jax.random.normal(key, (*shape, 3), dtype), jnp.zeros((*shape, 4), dtype)
            ),
        )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (lambda: Elman(3, 0), "hidden_size of Elman is 0: expected a whole number of at least 1"),
        (lambda: LSTM(-1, 2), "input_size of LSTM is -1"),
        (lambda: GRU(2, 2.5), "hidden_size of GRU is 2.5"),
        (lambda: GRU(2, True), "hidden_size of GRU is True"),
        (lambda: Jordan(3, 2, 0), "output_size of Jordan is 0"),
        (lambda: Elman(3, 2, activation="tahn"), "activation of Elman is 'tahn': expected one of tanh, relu"),
        (lambda: GRU(3, 2, reset="both"), "reset of GRU is 'both': expected one of after, before, none"),
        (
            lambda: GRU(3, 2, reset="none", update_gate=False),
            "reset of GRU is 'none' but update_gate is False: with no",
        ),
        (
            lambda: GRU(3, 2, chrono=5.0, update_gate=False),
            "chrono of GRU is 5.0 but update_gate is False: it is the b",
        ),
        (
            lambda: GRU(3, 2, chrono=1.5),
            "chrono of GRU is 1.5: expected the longest time to remember, at least 2 steps",
        ),
        (lambda: LSTM(3, 2, chrono=float("nan")), "chrono of LSTM is nan: expected"),
        (
            lambda: LSTM(3, 2, chrono=9, forget_gate=False),
            "chrono of LSTM is 9 but forget_gate is False: it is the bias",
        ),
        (
            lambda: LSTM(3, 2, coupled=True, input_gate=False),
            "coupled of LSTM is True but input_gate is False: i = 1 - f",
        ),
        (
            lambda: LSTM(3, 2, coupled=True, forget_gate=False),
            "coupled of LSTM is True but forget_gate is False: i = 1",
        ),
        (
            lambda: LSTM(3, 2, peepholes=True, input_gate=False, forget_gate=False, output_gate=False),
            "peepholes of LSTM is True but input_gate is False and forget_gate is False and output_gate is False: a",
        ),
        (
            lambda: LSTM(3, 2, gate_recurrence=True, input_gate=False, forget_gate=False, output_gate=False),
            "gate_recurrence of LSTM is True but input_gate is False and forget_gate is False and output_gate is False",
        ),
        (
            lambda: LSTM(3, 1, layer_norm=True),
            "layer_norm of LSTM is True but hidden_size is 1: one feature normalises",
        ),
        (lambda: LSTM(3, 2, projection_size=0), "projection_size of LSTM is 0: expected a whole number of at least 1"),
        (
            lambda: LSTM(3, 2, input_activation="relu"),
            "input_activation of LSTM is 'relu': expected one of tanh, ident",
        ),
        (lambda: LSTM(3, 2, output_activation="relu"), "output_activation of LSTM is 'relu': expected one of tanh, id"),
        (
            lambda: Elman(3, 2, orthogonal=True, recurrent_init="identity"),
            "recurrent_init of Elman is 'identity' but orthogonal is True, which has a draw of its own",
        ),
        (lambda: IndRNN(3, 2, activation="modrelu"), "activation of IndRNN is 'modrelu': expected one of relu, tanh"),
        (lambda: MGU(3, 0), "hidden_size of MGU is 0"),
        (
            lambda: LSTM(3, 2, recurrent_init="ortho"),
            "recurrent_init of LSTM is 'ortho': expected one of orthogonal",
        ),
        (lambda: Jordan(3, 2, 2, feedback="relu"), "feedback of Jordan is 'relu'"),
    ],
)
def test_bad_hyper_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        arguments()


class _Carry(NamedTuple):
    h: jax.Array


@dataclasses.dataclass(frozen=True)
class _Minimal(Cell):
    """A user's first cell: no project, no read."""

    input_size: int
    hidden_size: int
    fault: str = ""

    def init(self, key, dtype=jnp.float32):
        return {"W": 0.3 * jax.random.normal(key, (self.input_size + self.hidden_size, self.hidden_size), dtype)}

    def initial_carry(self, params, batch_shape=()):
        return _Carry(jnp.zeros((*batch_shape, self.hidden_size), params["W"].dtype))

    def step(self, params, carry, z):
        if self.fault == "forgets":
            carry = _Carry(jnp.zeros_like(carry.h))
        if self.fault == "mixes the batch" and z.ndim > 1:
            z = z - z.mean(axis=0, keepdims=True)
        h = jnp.tanh(jnp.concatenate([z, carry.h], axis=-1) @ params["W"])
        if self.fault == "stops the gradient":
            h = jax.lax.stop_gradient(h)
        return _Carry(h)

    def read(self, params, carry, z):
        return carry.h.astype(jnp.float32)[..., :-1] if self.fault == "drops a feature" else carry.h


def test_a_users_cell_keeps_the_contract():
    check_cell(_Minimal(3, 4), parameter_shapes={"W": (7, 4)})


@pytest.mark.parametrize(
    "fault, found",
    [
        ("forgets", "does not depend on every input"),
        ("mixes the batch", "loop|batch"),
        ("stops the gradient", "does not depend on every input"),
        ("drops a feature", "outputs have the shape"),
    ],
)
def test_a_broken_cell_is_found(fault, found):
    with pytest.raises(AssertionError, match=found):
        check_cell(_Minimal(3, 4, fault))


def test_a_wrong_tree_is_found():
    with pytest.raises(AssertionError, match="init gives"):
        check_cell(_Minimal(3, 4), parameter_shapes={"W": (8, 4)})
