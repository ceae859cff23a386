"""unroll is the Python loop, whatever the lengths, the direction and the pads; and it names what does not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnjax import reference_unroll, unroll
from rnnjax.cells import CELLS, GRU, LSTM, Elman, ElmanCarry, Jordan, LSTMCarry
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, fill_pads

SIZES = {"input_size": 3, "hidden_size": 4}
ALL = [Jordan(**SIZES, output_size=2) if name == "jordan" else cell(**SIZES) for name, cell in CELLS.items()]
every_cell = pytest.mark.parametrize("cell", ALL, ids=list(CELLS))


def made(cell, time=5, batch=(2,), dtype=jnp.float64):
    return cell.init(jax.random.key(0), dtype), jax.random.normal(jax.random.key(1), (time, *batch, 3), dtype)


@every_cell
@pytest.mark.parametrize("reverse", [False, True])
def test_a_padded_row_is_the_row_alone(cell, reverse, x64):
    params, inputs = made(cell)
    alone = unroll(cell, params, inputs[:2, 1], reverse=reverse)
    for pad in (0.0, 1e6, jnp.nan, jnp.inf):
        got = unroll(cell, params, fill_pads(inputs, [5, 2], pad), lengths=jnp.array([5, 2]), reverse=reverse)
        assert_close(got.outputs[:2, 1], alone.outputs, TOLERANCE["float64"])
        assert_close(jax.tree.map(lambda leaf: leaf[1], got.carry), alone.carry, TOLERANCE["float64"])
        assert jnp.all(got.outputs[2:, 1] == 0)


@every_cell
def test_length_zero_returns_the_given_carry_and_no_gradient(cell, x64):
    params, inputs = made(cell)
    carry = jax.tree.map(lambda leaf: leaf + 0.5, cell.initial_carry(params, (2,)))
    inputs = fill_pads(inputs, [0, 2], jnp.nan)

    def loss(params, inputs):
        result = unroll(cell, params, inputs, carry, lengths=jnp.array([0, 2]))
        return jnp.square(result.outputs).sum(), result

    gradients, result = jax.grad(loss, (0, 1), has_aux=True)(params, inputs)
    for got, start in zip(result.carry, carry, strict=True):
        np.testing.assert_array_equal(got[0], start[0])
    assert jnp.all(result.outputs[:, 0] == 0)
    assert jnp.all(gradients[1][:, 0] == 0) and jnp.all(gradients[1][2:] == 0) and jnp.any(gradients[1][:2, 1] != 0)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


@every_cell
@pytest.mark.parametrize("reverse", [False, True])
def test_no_time_returns_the_initial_carry(cell, reverse, x64):
    params, inputs = made(cell, time=0)
    for lengths in (None, jnp.array([0, 0])):
        got = unroll(cell, params, inputs, lengths=lengths, reverse=reverse)
        assert got.outputs.shape == (0, 2, cell.output_size)
        assert_close(got, reference_unroll(cell, params, inputs, lengths=lengths, reverse=reverse), 0)
        assert_close(got.carry, cell.initial_carry(params, (2,)), 0)


@pytest.mark.parametrize("method", ["auto", "scan"])
@pytest.mark.parametrize("time, batch", [(5, 0), (0, 2), (0, 0)])
def test_what_is_empty_has_no_gradient(time, batch, method, x64):
    params, inputs = made(ALL[2], time=time, batch=(batch,))

    def loss(params, inputs):
        lengths = jnp.zeros(batch, jnp.int32)
        result = unroll(ALL[2], params, inputs, lengths=lengths, method=method, chunk=2, truncate=3)
        assert result.outputs.shape == (time, batch, 4)
        return result.outputs.sum()

    assert all(jnp.all(leaf == 0) for leaf in jax.tree.leaves(jax.grad(loss, (0, 1))(params, inputs)))


@pytest.mark.parametrize("method", ["auto", "scan"])
@every_cell
def test_what_is_not_a_number_shows(cell, method, x64):
    """From its own step on and in its own row alone; lengths hide no valid step."""
    params, inputs = made(cell)
    inputs = inputs.at[1, 0].set(jnp.nan)
    outputs = unroll(cell, params, inputs, lengths=jnp.array([4, 3]), method=method).outputs
    shown = np.isnan(np.asarray(outputs)).any(axis=-1)
    assert shown[:, 0].tolist() == [False, True, True, True, False] and not shown[:, 1].any()


@every_cell
def test_a_carry_continues_where_it_was_returned(cell, x64):
    params, inputs = made(cell, time=7)
    first = unroll(cell, params, inputs[:3])
    second = unroll(cell, params, inputs[3:], first.carry)
    whole = unroll(cell, params, inputs)
    assert_close(jnp.concatenate([first.outputs, second.outputs]), whole.outputs, 0)
    assert_close(second.carry, whole.carry, 0)


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 4), min_size=2, max_size=2),
    reverse=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_lengths_are_the_loops(lengths, reverse, seed):
    with jax.enable_x64(True):
        params, _ = made(ALL[3])
        inputs = jax.random.normal(jax.random.key(seed), (4, 2, 3), jnp.float64)
        got = unroll(ALL[3], params, fill_pads(inputs, lengths, jnp.nan), lengths=np.array(lengths), reverse=reverse)
        want = reference_unroll(ALL[3], params, inputs, lengths=np.array(lengths), reverse=reverse)
        assert_close(got, want, TOLERANCE["float64"])


def test_lengths_of_two_batch_axes_and_of_none(x64):
    params, inputs = made(ALL[1], batch=(2, 3))
    lengths = np.array([[5, 0, 1], [2, 3, 4]])
    got = unroll(ALL[1], params, inputs, lengths=lengths)
    assert_close(got, reference_unroll(ALL[1], params, inputs, lengths=lengths), TOLERANCE["float64"])
    one = unroll(ALL[1], params, inputs[:, 1, 0], lengths=jnp.array(2))
    assert_close(one.outputs, got.outputs[:, 1, 0], TOLERANCE["float64"])


@pytest.mark.parametrize("reverse", [False, True])
def test_higher_and_forward_derivatives(reverse, x64):
    cell = ALL[2]
    params, inputs = made(cell, time=3)
    lengths = np.array([3, 1])

    def loss(engine, **method):
        return lambda x: jnp.square(engine(cell, params, x, lengths=lengths, reverse=reverse, **method).outputs).sum()

    direction = jax.random.normal(jax.random.key(2), inputs.shape, inputs.dtype)

    def forward(f):
        return jax.jvp(f, (inputs,), (direction,))[1]

    def twice(f):
        return jax.grad(lambda x: jnp.vdot(jax.grad(f)(x), direction))(inputs)

    def forward_over_reverse(f):
        return jax.jvp(jax.grad(f), (inputs,), (direction,))[1]

    for derivative in (forward, twice, forward_over_reverse):
        want = derivative(loss(reference_unroll))
        assert_close(derivative(loss(unroll, method="scan")), want, TOLERANCE["float64"])
        if derivative is twice:
            assert_close(derivative(loss(unroll)), want, TOLERANCE["float64"])


def test_traced_lengths_out_of_range_are_clipped(x64):
    params, inputs = made(ALL[0])
    run = jax.jit(lambda lengths: unroll(ALL[0], params, inputs, lengths=lengths))
    assert_close(
        run(jnp.array([9, -3])),
        unroll(ALL[0], params, inputs, lengths=jnp.array([5, 0])),
        TOLERANCE["float64"],
    )


def test_nan_in_a_valid_input_shows(x64):
    params, inputs = made(ALL[2])
    outputs = unroll(ALL[2], params, inputs.at[1, 0, 0].set(jnp.nan), lengths=jnp.array([5, 5])).outputs
    assert jnp.isnan(outputs[1:, 0]).all() and jnp.isfinite(outputs[:, 1]).all()


def test_carry_and_outputs_have_the_dtype_of_the_parameters(x64):
    wider_and_narrower = ((jnp.bfloat16, jnp.float32), (jnp.float32, jnp.float64), (jnp.float64, jnp.bfloat16))
    for dtype, other in wider_and_narrower:
        for cell in ALL:
            params, _ = made(cell, dtype=dtype)
            carry = jax.tree.map(lambda leaf, d=other: leaf.astype(d), cell.initial_carry(params, (2,)))
            result = unroll(cell, params, jnp.ones((3, 2, 3), other), carry, lengths=jnp.array([3, 1]))
            assert {leaf.dtype for leaf in jax.tree.leaves(result)} == {jnp.dtype(dtype)}


def test_integer_inputs_are_taken_as_they_are():
    params, _ = made(ALL[0], dtype=jnp.float32)
    onehot = np.eye(3, dtype=np.int8)[np.array([[0, 1], [2, 2]])]
    assert_close(
        unroll(ALL[0], params, onehot),
        unroll(ALL[0], params, onehot.astype(np.float32)),
        TOLERANCE["float32"],
    )


def test_same_shapes_compile_once():
    params, inputs = made(ALL[2], dtype=jnp.float32)
    run = jax.jit(lambda p, x, n: unroll(ALL[2], p, x, lengths=n).outputs)
    lengths, other_inputs, longer = np.array([3, 4]), inputs + 1, np.ones((6, 2, 3), np.float32)
    run(params, inputs, np.array([5, 2]))
    with count_compilations() as compilations:
        run(params, other_inputs, lengths)
    assert compilations.count == 0
    with count_compilations() as compilations:
        run(params, longer, lengths)
    assert compilations.count == 1


ELMAN = Elman(3, 4)
X = np.ones((5, 2, 3), np.float32)


@pytest.mark.parametrize("change, error, message", [
    ({"lengths": [5, 7]}, ValueError, "lengths[1] is 7 but the inputs have only 5 steps"),
    ({"lengths": [-1, 2]}, ValueError, "lengths[0] is -1 but a length is at least 0"),
    ({"lengths": [1.0, 2.0]}, TypeError, "lengths have the dtype float64: expected whole numbers of steps"),
    ({"lengths": [True, False]}, TypeError, "lengths have the dtype bool"),
    ({"lengths": [1, 2, 3]}, ValueError, "lengths have the shape (3,): expected (2,)"),
    ({"lengths": 3}, ValueError, "lengths have the shape (): expected (2,)"),
    ({"inputs": np.ones((5, 2, 4))}, ValueError, "inputs have 4 features (shape (5, 2, 4)) but Elman(input_size=3"),
    ({"inputs": np.ones(5)}, ValueError, "inputs has the shape (5,): expected [T, *batch, features]"),
    ({"inputs": ()}, ValueError, "inputs hold no array"),
    ({"inputs": (X, X[:4])}, ValueError, "inputs[1] has the leading axes (4, 2) but another input has (5, 2)"),
    ({"carry": ElmanCarry(np.zeros((3, 4)))}, ValueError, "carry.h has the shape (3, 4): expected (2, 4)"),
    ({"carry": ElmanCarry(np.zeros((2, 4), int))}, TypeError, "carry.h has the dtype int"),
    ({"carry": LSTMCarry(np.zeros((2, 4)), np.zeros((2, 4)))}, ValueError, "the carry given to Elman is a"),
    ({"carry": np.zeros((2, 4))}, ValueError, "expected PyTreeDef(CustomNode(namedtuple[ElmanCarry]"),
])  # fmt: skip
@pytest.mark.parametrize("engine", [unroll, reference_unroll])
def test_what_does_not_fit_is_named(engine, change, error, message):
    arguments = {"inputs": X, "carry": None, "lengths": None} | change
    with pytest.raises(error) as raised:
        engine(ELMAN, ELMAN.init(jax.random.key(0)), **arguments)
    assert message in str(raised.value)


def test_parameters_of_two_dtypes_are_refused(x64):
    params = ELMAN.init(jax.random.key(0))
    with pytest.raises(TypeError, match="mix the dtypes float32, float64"):
        unroll(ELMAN, params | {"b": params["b"].astype(jnp.float64)}, X)


def test_gru_forms_differ(x64):
    after, before = GRU(3, 4), GRU(3, 4, reset="before")
    params, inputs = made(after)
    difference = unroll(after, params, inputs).outputs - unroll(before, params, inputs).outputs
    assert jnp.abs(difference).max() > 1e-3


def test_lstm_output_is_h():
    params, inputs = made(LSTM(3, 4), dtype=jnp.float32)
    result = unroll(LSTM(3, 4), params, inputs)
    np.testing.assert_array_equal(result.outputs, result.carries.h)
    assert jnp.any(result.carries.h != result.carries.c)
