"""A wrapper is its equation around any cell: in training with masks, and at evaluation the cell inside."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import Cell, reference_unroll, unroll
from rnnjax.cells import CELLS, GRU, LSTM, Elman, IndRNN, Jordan, TeacherForced
from rnnjax.layers import DropConnect, InputDropout, LearnedCarry, RecurrentDropout, Wrapper, Zoneout, is_random, run
from rnnjax.testing import TOLERANCE, assert_close, check_cell, fill_pads, random_like

KEY = jax.random.key(7)
INSIDE = [
    Elman(3, 4, orthogonal=True),
    Jordan(3, 5, 4),
    LSTM(3, 4),
    LSTM(3, 4, gate_recurrence=True, peepholes=True),
    GRU(3, 4),
    GRU(3, 4, reset="before"),
    IndRNN(3, 4),
]
WRAPPERS = {
    "input": lambda cell: InputDropout(cell, 0.4),
    "input a step": lambda cell: InputDropout(cell, 0.4, "step"),
    "recurrent": lambda cell: RecurrentDropout(cell, 0.4),
    "recurrent a step": lambda cell: RecurrentDropout(cell, 0.2, "step"),
    "zoneout": lambda cell: Zoneout(cell, 0.3),
    "drop connect": lambda cell: DropConnect(cell, 0.4),
    "learned": LearnedCarry,
    "all": lambda cell: Zoneout(
        InputDropout(RecurrentDropout(DropConnect(LearnedCarry(cell), 0.2), 0.4), 0.3, "step"), 0.2
    ),
    "all, the other way round": lambda cell: LearnedCarry(
        DropConnect(RecurrentDropout(Zoneout(InputDropout(cell, 0.3), 0.2), 0.4, "step"), 0.2)
    ),
}


def name_of(cell):
    options = [str(f.name) for f in dataclasses.fields(cell) if f.name != "cell" and getattr(cell, f.name) != f.default]
    return " ".join([type(cell).__name__, *options[2:]])


def made(cell, time=5, batch=(2,), dtype=jnp.float64, key=None):
    """(params, inputs), randomized where there is a key."""
    params = random_like(jax.eval_shape(lambda: cell.init(KEY, dtype)), 3, scale=0.4)
    inputs = random_like(jax.ShapeDtypeStruct((time, *batch, cell.input_size), dtype), 1)
    return (params, inputs) if key is None else cell.randomize(key, params, inputs)


def gradients(engine, cell, params, inputs, **options):
    """(result, gradients of params, inputs and first carry) of a random functional of everything that comes out."""
    carry = random_like(cell.initial_carry(params, (2,)), 4)
    weights = jax.tree.leaves(random_like(jax.eval_shape(lambda: unroll(cell, params, inputs, carry)), 5))

    def loss(params, inputs, carry):
        result = engine(cell, params, inputs, carry, **options)
        return sum(map(jnp.vdot, jax.tree.leaves(result), weights)), result

    return jax.grad(loss, (0, 1, 2), has_aux=True)(params, inputs, carry)


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_of_the_table_can_be_wrapped(name):
    cell = WRAPPERS["all"](CELLS[name](3, 5, 4) if name == "jordan" else CELLS[name](3, 4))

    def trained(key, inputs):
        return run(cell, cell.init(key), inputs, key=key)

    assert jax.eval_shape(trained, KEY, jnp.ones((5, 2, 3))).outputs.shape == (5, 2, 4)


@pytest.mark.parametrize(
    "wrap, inside",
    [("all", LSTM(3, 4)), ("all, the other way round", Elman(3, 4))],
    ids=["all, LSTM", "the other way round, Elman"],
)
def test_with_masks_it_is_the_loop_in_values_and_gradients(wrap, inside, x64):
    """With NaN in the pads; of parameters, inputs, masks and first carry, by the backward that the cell brings."""
    check_gradients(WRAPPERS[wrap](inside), KEY, False, "auto")
    assert WRAPPERS[wrap](inside).brings_backward


def check_gradients(cell, key, reverse, *methods):
    params, inputs = made(cell, key=key)
    lengths = np.array([5, 3])
    options = {"lengths": lengths, "reverse": reverse}
    want, result = gradients(reference_unroll, cell, params, inputs, **options)
    dirty = fill_pads(inputs, lengths, jnp.nan)
    for method in methods:
        run_it = jax.jit(lambda p, x, m=method: gradients(unroll, cell, p, x, **options, method=m))
        got, also = run_it(params, dirty)
        assert_close(also, result, TOLERANCE["float64"], method)
        assert_close(got, want, TOLERANCE["float64"], method)


@pytest.mark.full
@pytest.mark.parametrize("inside", INSIDE, ids=name_of)
@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("key, reverse", [(None, False), (KEY, True)], ids=["evaluated", "trained in reverse"])
def test_each_alone_is_the_loop_by_either_backward(wrap, inside, key, reverse, x64):
    cell = WRAPPERS[wrap](inside)
    check_gradients(cell, key, reverse, "auto", "scan")
    assert cell.brings_backward == inside.brings_backward


@pytest.mark.parametrize("wrap", ["recurrent", "drop connect"])
def test_at_evaluation_it_is_the_cell_inside_to_the_bit(wrap):
    inside, lengths = GRU(3, 4), np.array([5, 3])
    cell = WRAPPERS[wrap](inside)
    params, inputs = made(cell, dtype=jnp.float32)
    want = unroll(inside, params, inputs, lengths=lengths)
    assert_close(unroll(cell, params, inputs, lengths=lengths), want, 0)
    assert_close(run(cell, params, inputs, lengths=lengths), want, 0)
    assert jnp.any(run(cell, params, inputs, lengths=lengths, key=KEY).outputs != want.outputs)


def test_at_rate_0_it_is_the_cell_inside_to_the_bit_and_draws_nothing():
    inside = LSTM(3, 4)
    nested = Zoneout(RecurrentDropout(InputDropout(DropConnect(inside, 0), 0.0), 0.0, "step"), (0.0, 0.0))
    params, inputs = made(inside, dtype=jnp.float32)
    assert not is_random(nested) and is_random(InputDropout(nested, 0.1)) and is_random(Zoneout(inside, (0, 0.1)))
    for key in (None, KEY):
        assert_close(run(nested, params, inputs, key=key), unroll(inside, params, inputs), 0)


def test_a_wrapper_at_rate_0_leaves_the_masks_of_others_alone(x64):
    usual, with_zero = Zoneout(LSTM(3, 4), 0.3), RecurrentDropout(Zoneout(LSTM(3, 4), 0.3), 0.0)
    params, inputs = made(usual)
    drawn = with_zero.randomize(KEY, params, inputs)[1]
    assert_close(unroll(with_zero, params, drawn), unroll(usual, params, drawn), 0)
    assert jnp.any(unroll(usual, params, drawn).outputs != unroll(usual, params, inputs).outputs)


def test_input_dropout_masks_the_inputs_and_not_a_teachers_feedback(x64):
    cell = InputDropout(Jordan(3, 5, 4), 0.5, "step")
    params, x = made(cell)
    feedback = jax.random.normal(jax.random.key(2), (5, 2, 4))
    mask = made(cell, key=KEY)[1] / x
    got = run(cell, params, TeacherForced(x, feedback), key=KEY)
    assert_close(got, unroll(cell.cell, params, TeacherForced(x * mask, feedback)), TOLERANCE["float64"])
    assert_close(run(cell, params, x, key=KEY), unroll(cell.cell, params, x * mask), TOLERANCE["float64"])


def numbers(cell, key=KEY):
    """(params, x, masks by name) in numpy, with what `unroll` makes of them."""
    params, noisy = made(cell, key=key)
    outputs = unroll(cell, params, noisy).outputs
    return jax.tree.map(np.asarray, (params, noisy.inputs, noisy.masks, outputs))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("mask", ["sequence", "step"])
@pytest.mark.parametrize("reset", ["after", "before"])
def test_recurrent_dropout_of_a_gru_leaves_its_leak_alone(reset, mask, x64):
    params, x, masks, outputs = numbers(RecurrentDropout(GRU(3, 4, reset=reset), 0.5, mask))
    W_hh, h = params["W_hh"], np.zeros((2, 4))
    for t in range(5):
        z, m = x[t] @ params["W_ih"] + params["b"], masks["W_hh"][t]
        r, u = np.split(sigmoid(z[:, :8] + (h * m) @ W_hh[:, :8]), 2, axis=1)
        if reset == "after":
            n = np.tanh(z[:, 8:] + r * ((h * m) @ W_hh[:, 8:] + params["b_hn"]))
        else:
            n = np.tanh(z[:, 8:] + (r * h * m) @ W_hh[:, 8:])
        h = u * h + (1 - u) * n
        assert_close(outputs[t], h, TOLERANCE["float64"])


def test_recurrent_dropout_of_an_lstm_leaves_its_memory_alone(x64):
    params, x, masks, outputs = numbers(RecurrentDropout(LSTM(3, 4), 0.5))
    h = c = np.zeros((2, 4))
    for t in range(5):
        z = x[t] @ params["W_ih"] + (h * masks["W_hh"][t]) @ params["W_hh"] + params["b"]
        i, f, g, o = np.split(z, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        assert_close(outputs[t], h, TOLERANCE["float64"])


def test_recurrent_dropout_of_a_vector_of_weights(x64):
    params, x, masks, outputs = numbers(RecurrentDropout(IndRNN(3, 4), 0.5, "step"))
    h = np.zeros((2, 4))
    for t in range(5):
        h = np.maximum(x[t] @ params["W_ih"] + params["u"] * masks["u"][t] * h + params["b"], 0)
        assert_close(outputs[t], h, TOLERANCE["float64"])
    assert np.any(masks["u"] == 0) and np.any(outputs > 0)


def test_recurrent_dropout_masks_what_a_teacher_feeds_back(x64):
    cell, lengths = RecurrentDropout(Jordan(3, 5, 4), 0.5, "step"), np.array([5, 3])
    params, x = made(cell)
    feedback = random_like(jax.ShapeDtypeStruct((5, 2, 4), jnp.float64), 2)
    _, forced = cell.randomize(KEY, params, TeacherForced(x, feedback))
    masked = TeacherForced(x, feedback * forced.masks["W_yh"])

    @jax.jit
    def results(forced, masked):
        return gradients(unroll, cell, params, forced, lengths=lengths), gradients(unroll, cell.cell, params, masked)

    (got, trained), (_, by_hand) = results(fill_pads(forced, lengths, jnp.nan), masked)
    assert_close(got, gradients(reference_unroll, cell, params, forced, lengths=lengths)[0], TOLERANCE["float64"])
    assert_close(trained.outputs[:3], by_hand.outputs[:3], TOLERANCE["float64"])


def test_zoneout_keeps_the_masked_units_and_mixes_at_evaluation(x64):
    cell, rates = Zoneout(LSTM(3, 4), (0.3, 0.6)), (0.3, 0.6)
    params, noisy = made(cell, key=KEY)
    trained, evaluated = unroll(cell, params, noisy).carries, unroll(cell, params, noisy.inputs).carries
    before, mean = cell.initial_carry(params, (2,)), cell.initial_carry(params, (2,))
    for t in range(5):
        z = cell.cell.project(params, noisy.inputs[t])
        after = cell.cell.step(params, before, z)
        before = type(after)(*[np.where(m[t], b, a) for m, b, a in zip(noisy.masks, before, after, strict=True)])
        assert_close(jax.tree.map(lambda leaf, t=t: leaf[t], trained), before, TOLERANCE["float64"])
        after = cell.cell.step(params, mean, z)
        mean = type(after)(*[r * b + (1 - r) * a for r, b, a in zip(rates, mean, after, strict=True)])
        assert_close(jax.tree.map(lambda leaf, t=t: leaf[t], evaluated), mean, TOLERANCE["float64"])


def test_zoneouts_evaluation_is_the_mean_over_masks_of_one_step():
    cell = Zoneout(GRU(3, 4), 0.3)
    params, inputs = made(cell, time=1, batch=(1,), dtype=jnp.float32)
    carry = random_like(cell.initial_carry(params, (20_000,)), 2)
    carry = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), carry)
    many = jnp.broadcast_to(inputs, (1, 20_000, 3))
    drawn = run(cell, params, many, carry, key=KEY).outputs[0]
    want = run(cell, params, many, carry).outputs[0, 0]
    np.testing.assert_allclose(
        drawn.mean(axis=0), want, atol=5 * 0.5 * float(jnp.ptp(drawn, axis=0).max()) / 20_000**0.5
    )


def test_drop_connect_is_the_cell_with_masked_matrices(x64):
    inside = LSTM(3, 4, gate_recurrence=True)
    cell = DropConnect(inside, 0.5)
    params, inputs = made(cell, key=KEY)
    masks = {name: params.pop(f"{name}.mask") for name in ("W_hh", "W_gates")}
    assert all(jnp.any(mask == 0) and mask.shape == params[name].shape for name, mask in masks.items())
    want = unroll(inside, params | {name: params[name] * mask for name, mask in masks.items()}, inputs)
    assert_close(run(cell, params, inputs, key=KEY), want, TOLERANCE["float64"])


def test_drop_connect_twice_of_a_matrix_that_is_prepared(x64):
    inside = Elman(3, 4, orthogonal=True)
    cell = DropConnect(DropConnect(inside, 0.3), 0.3)
    params, inputs = made(cell, key=KEY)
    mask = params.pop("W_hh.mask")
    prepared = inside.prepare(params)
    want = unroll(Elman(3, 4), prepared | {"W_hh": prepared["W_hh"] * mask}, inputs)
    assert_close(run(cell, params, inputs, key=KEY), want, TOLERANCE["float64"])


def test_a_learned_carry_is_a_parameter_for_every_row(x64):
    inside, cell = LSTM(3, 4), LearnedCarry(LSTM(3, 4))
    params = cell.init(jax.random.key(0), jnp.float64)
    assert {name: leaf.shape for name, leaf in params.items() if name.endswith("_0")} == {"h_0": (4,), "c_0": (4,)}
    assert not params["h_0"].any() and not params["c_0"].any()
    params, inputs = made(cell)
    start = inside.initial_carry(params, (2,))
    start = start._replace(h=jnp.stack([params["h_0"]] * 2), c=jnp.stack([params["c_0"]] * 2))

    def loss(params, start, cell):
        result = unroll(cell, params, inputs, start, lengths=np.array([0, 3]))
        return result.carry.c.sum() + jnp.square(result.outputs).sum(), result

    gradient = jax.jit(jax.grad(loss, (0, 1), has_aux=True), static_argnums=2)
    (got, _), learned = gradient(params, None, cell)
    (_, want), given = gradient(params, start, inside)
    assert_close(learned, given, 0)
    assert_close((got["h_0"], got["c_0"]), (want.h.sum(axis=0), want.c.sum(axis=0)), TOLERANCE["float64"])
    assert jnp.all(want.c[0] == 1) and jnp.all(want.c[1] != 1)
    with pytest.raises(ValueError, match="has a parameter c_0 already"):
        LearnedCarry(cell).init(KEY)


def test_one_dtype_through_all_of_it(x64, dtype=jnp.bfloat16):
    cell = WRAPPERS["all"](GRU(3, 4))
    params, inputs = made(cell, dtype=jnp.float64)
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), params)
    for given in (inputs, inputs.astype(jnp.bfloat16), jnp.sign(inputs).astype(jnp.int8)):
        shapes = [jax.eval_shape(lambda x, k=key: run(cell, params, x, key=k), given) for key in (KEY, None)]
        assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype(dtype)}
    want = run(cell, jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params), inputs, key=KEY)
    got = run(cell, params, inputs, key=KEY)
    assert_close(got.outputs, want.outputs, TOLERANCE[jnp.dtype(dtype).name])


def test_vmap_over_rows_and_keys(x64):
    cell = Zoneout(RecurrentDropout(Elman(3, 4), 0.4, "step"), 0.3)
    params, inputs = made(cell)
    keys = jax.random.split(KEY)

    @jax.jit
    def results(inputs, keys):
        return (
            jax.vmap(lambda x, key: run(cell, params, x, key=key).outputs, in_axes=(1, 0))(inputs, keys)[1],
            run(cell, params, inputs[:, 1], key=keys[1]).outputs,
        )

    assert_close(*results(inputs, keys), TOLERANCE["float64"])


@pytest.mark.full
@pytest.mark.parametrize("inside", [LSTM(3, 4), GRU(3, 4, reset="before"), Jordan(3, 5, 4)], ids=name_of)
def test_grad_of_grad(inside, x64):
    cell = WRAPPERS["all"](inside)
    params, inputs = made(cell)

    def slope(method):
        def of_loss(params):
            loss = lambda p: jnp.square(run(cell, p, inputs, key=KEY, method=method).outputs).sum()  # noqa: E731
            return sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(jax.grad(loss)(params)))

        return jax.jit(jax.grad(of_loss))(params)

    assert_close(slope("auto"), slope("scan"), TOLERANCE["float64"])


@dataclasses.dataclass(frozen=True)
class Strict(Elman):
    """A user's cell that looks at all of its parameters."""

    def prepare(self, params):
        assert params.keys() == {"W_ih", "W_hh", "b"}
        return params


@pytest.mark.parametrize("key", [None, KEY])
def test_the_cell_inside_is_given_its_own_parameters_alone(key):
    cell = Zoneout(DropConnect(LearnedCarry(Strict(3, 4)), 0.3), 0.3)
    jax.eval_shape(lambda inputs: run(cell, cell.init(KEY), inputs, key=key), jnp.ones((5, 2, 3)))


@dataclasses.dataclass(frozen=True)
class Halved(Wrapper):
    """A user's wrapper with a step of its own, and no backward for it."""

    def step(self, params, carry, z):
        return jax.tree.map(lambda leaf: leaf / 2, super().step(params, carry, z))


class Doubled(Wrapper):
    """Another projection, which a backward of the step does not care about."""

    def project(self, params, inputs):
        return super().project(params, 2 * inputs)


def test_a_step_of_ones_own_does_not_inherit_the_backward(x64):
    assert not Halved(GRU(3, 4)).brings_backward and Doubled(GRU(3, 4)).brings_backward
    assert not Zoneout(Halved(GRU(3, 4)), 0.5).brings_backward
    for cell in (Doubled(Elman(3, 4)), RecurrentDropout(Halved(Elman(3, 4)), 0.3)):
        params, inputs = made(cell, key=KEY)
        got, want = (gradients(engine, cell, params, inputs) for engine in (unroll, reference_unroll))
        assert_close(got, want, TOLERANCE["float64"])


def test_a_wrapper_shows_the_sizes_of_the_cell_inside():
    for inside in (Jordan(3, 5, 4), LSTM(3, 6, projection_size=2)):
        cell = WRAPPERS["all"](inside)
        for field in ("input_size", "hidden_size", "output_size", "readout", "recurrent"):
            assert getattr(cell, field) == getattr(inside, field)
        assert hash(cell) == hash(WRAPPERS["all"](inside)) and cell == WRAPPERS["all"](inside)


class _Carry(NamedTuple):
    h: jax.Array


@dataclasses.dataclass(frozen=True)
class _Joint(Cell):
    """A cell whose one matrix multiplies inputs and carry together, with no `recurrent` that says so."""

    input_size: int = 3
    hidden_size: int = 4

    def init(self, key, dtype=jnp.float32):
        return {"W": jax.random.normal(key, (7, 4), dtype)}

    def initial_carry(self, params, batch_shape=()):
        return _Carry(jnp.zeros((*batch_shape, 4), params["W"].dtype))

    def step(self, params, carry, z):
        return _Carry(jnp.tanh(jnp.concatenate([z, carry.h], -1) @ params["W"]))


@pytest.mark.parametrize("wrap", ["recurrent", "drop connect"])
def test_a_cell_that_does_not_name_its_recurrent_matrix_is_told_so(wrap):
    with pytest.raises(ValueError, match=r"recurrent of _Joint.* is \('W_hh',\): expected .* among {'W': \(7, 4\)}"):
        run(WRAPPERS[wrap](_Joint()), _Joint().init(KEY), jnp.ones((2, 1, 3)), key=KEY)


@pytest.mark.parametrize("rate", [-0.1, 1, 1.0, 2, float("nan"), True, "0.5", None, (0.1, 0.2)])
def test_a_rate_is_at_least_0_and_below_1(rate):
    for wrapper in (InputDropout, RecurrentDropout, DropConnect):
        with pytest.raises(ValueError, match=f"rate of {wrapper.__name__} is .*: expected at least 0 and less than 1"):
            wrapper(GRU(3, 4), rate)
    for rates in (rate, (0.1, rate)) if rate != (0.1, 0.2) else ():
        with pytest.raises(ValueError, match="rate of Zoneout is"):
            Zoneout(LSTM(3, 4), rates)


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: InputDropout(GRU(3, 4), 0.1, "time"), ValueError, "mask of InputDropout is 'time': expected one of"),
        (lambda: RecurrentDropout(GRU(3, 4), 0.1, None), ValueError, "mask of RecurrentDropout is None"),
        (lambda: InputDropout(0.1, GRU(3, 4)), TypeError, "cell of InputDropout is 0.1: expected a Cell"),
        (lambda: run(Zoneout(LSTM(3, 4), (0.1,)), *made(LSTM(3, 4), dtype=jnp.float32)), ValueError,
         r"rate of Zoneout is \(0.1,\): expected one number, or one for each of h, c"),
        (lambda: run(RecurrentDropout(GRU(3, 4), 0.1), GRU(3, 4).init(KEY), jnp.ones((5, 2, 4)), key=KEY), ValueError,
         r"inputs have 4 features \(shape \(5, 2, 4\)\) but RecurrentDropout.* has input_size 3"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def with_masks(cell):
    """A make_inputs for check_cell: inputs with the masks of one training call beside them."""

    def make_inputs(key, shape, dtype):
        params = cell.init(key, dtype)
        inputs = jax.random.normal(key, (*shape, cell.input_size), dtype)
        return cell.randomize(jax.random.fold_in(key, 1), params, inputs)[1]

    return make_inputs


FOR_LONG = [Jordan(3, 5, 4), LSTM(3, 4), GRU(3, 4), GRU(3, 4, reset="before"), Elman(3, 4, orthogonal=True)]


@pytest.mark.full
@pytest.mark.parametrize("inside", FOR_LONG, ids=name_of)
@pytest.mark.parametrize("wrap", ["zoneout", "learned", "all"])
def test_every_wrapper_keeps_the_contract(wrap, inside):
    check_cell(WRAPPERS[wrap](inside))


@pytest.mark.full
@pytest.mark.parametrize("inside", FOR_LONG, ids=name_of)
@pytest.mark.parametrize("wrap", ["recurrent a step", "zoneout", "all, the other way round"])
def test_every_wrapper_keeps_the_contract_with_masks(wrap, inside):
    cell = WRAPPERS[wrap](inside)
    check_cell(cell, make_inputs=with_masks(cell))
