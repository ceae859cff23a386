"""Time in blocks: `over_blocks` itself, and `truncate` and `chunk` of unroll against the loop."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import Cell, probes, reference_unroll, unroll
from rnnjax.cells import GRU, LSTM, Elman, ElmanCarry, Jordan
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, fill_pads, random_like
from rnnjax.unroll import blocks

TIME = 7


@dataclasses.dataclass(frozen=True)
class Plain(Elman):
    """Without a backward of its own."""

    def step(self, params, carry, z):
        return super().step(params, carry, z)


OTHERS = [
    Elman(3, 4),
    GRU(3, 4),
    GRU(3, 4, reset="before"),
    Jordan(3, 5, 4, feedback="sigmoid"),
    LSTM(3, 4, coupled=True),
]
CELLS = [Plain(3, 4), LSTM(3, 4), *(pytest.param(cell, marks=pytest.mark.full) for cell in OTHERS)]


def point(cell):
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 1, 0.5)
    inputs = jax.random.normal(jax.random.key(2), (TIME, 2, 3), jnp.float64)
    return params, inputs, random_like(cell.initial_carry(params, (2,)), 3)


def value_and_gradients(run, cell, lengths, **options):
    """(results, gradients of parameters, inputs and first carry) for a loss of outputs, final carry and carries."""
    params, inputs, carry = point(cell)
    if lengths is not None:
        inputs = fill_pads(inputs, lengths, jnp.nan)
        lengths = jnp.array(lengths)

    def loss(params, inputs, carry):
        result = run(cell, params, inputs, carry, lengths=lengths, **options)
        return sum(map(jnp.vdot, jax.tree.leaves(result), jax.tree.leaves(random_like(result, 4)))), result

    gradients, result = jax.grad(loss, (0, 1, 2), has_aux=True)(params, inputs, carry)
    return result, gradients


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_truncation_is_that_of_the_loop(cell, reverse, x64):
    for lengths, truncate in (([7, 4], 3), ([6, 3], 3), (None, 1), ([5, 0], 2), (None, 50)):
        want = value_and_gradients(reference_unroll, cell, lengths, reverse=reverse, truncate=truncate)
        got = value_and_gradients(unroll, cell, lengths, reverse=reverse, truncate=truncate)
        assert_close(got, want, TOLERANCE["float64"], f"truncate={truncate}, lengths={lengths}")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_chunks_change_nothing(cell, reverse, x64):
    for lengths, options in (
        ([7, 4], {"chunk": 3}),
        (None, {"chunk": 8}),
        (None, {"chunk": 2, "truncate": 5}),
        (None, {"chunk": 3, "method": "scan"}),
    ):
        truncate = options.get("truncate")
        want = value_and_gradients(reference_unroll, cell, lengths, reverse=reverse, truncate=truncate)
        got = value_and_gradients(unroll, cell, lengths, reverse=reverse, **options)
        assert_close(got, want, TOLERANCE["float64"], f"{options}, lengths={lengths}")


def test_no_gradient_crosses_a_multiple(x64):
    cell = LSTM(3, 4)
    params, inputs, _ = point(cell)
    gradient = jax.grad(lambda x: unroll(cell, params, x, truncate=3).outputs[4].sum())(inputs)
    reached = np.abs(np.asarray(gradient)).sum(axis=(1, 2)) > 0
    assert list(reached) == [False, False, False, True, True, False, False]


def test_a_carry_that_was_given_keeps_its_gradient(x64):
    cell = GRU(3, 4)
    params, inputs, carry = point(cell)
    for reverse, shown in ((False, slice(0, 3)), (True, slice(6, 7))):
        gradient = jax.grad(
            lambda c, r=reverse, s=shown: unroll(cell, params, inputs, c, truncate=3, reverse=r).outputs[s].sum()
        )(carry)
        assert np.all(np.abs(gradient.h) > 0)


def test_the_probe_sees_what_truncation_leaves(x64):
    cell = Elman(3, 4)
    params, inputs, _ = point(cell)

    def loss(params):
        return unroll(cell, params, inputs, truncate=3, chunk=2).outputs[5].sum()

    gradients = probes.carry_gradients(loss)(params)["elman"].h
    assert [bool(jnp.any(gradients[t] != 0)) for t in range(TIME)] == [False, False, False, True, True, True, False]
    whole = probes.carry_gradients(lambda p: unroll(cell, p, inputs).outputs[5].sum())(params)["elman"].h
    assert_close(gradients[3:6], whole[3:6], TOLERANCE["float64"])


@pytest.mark.parametrize("name", ["truncate", "chunk"])
def test_steps_are_whole_numbers(name):
    params = Elman(3, 4).init(jax.random.key(0))
    inputs = jnp.zeros((5, 2, 3))
    for value, error in ((0, ValueError), (-3, ValueError), (2.0, TypeError), (True, TypeError), ("3", TypeError)):
        with pytest.raises(error, match=rf"{name} is .*{value}"):
            unroll(Elman(3, 4), params, inputs, **{name: value})


def test_a_sequence_without_steps_has_blocks_too():
    cell = LSTM(3, 4)
    params = cell.init(jax.random.key(0))
    result = unroll(cell, params, jnp.zeros((0, 2, 3)), truncate=2, chunk=3)
    assert result.outputs.shape == (0, 2, 4) and result.carry.h.shape == (2, 4)


def test_blocks_compile_once():
    cell = LSTM(3, 4)
    run = jax.jit(jax.grad(lambda p, x: unroll(cell, p, x, chunk=4, truncate=8).outputs.sum()))
    params = cell.init(jax.random.key(0))
    run(params, jnp.zeros((30, 2, 3)))
    with count_compilations() as compilations:
        run(params, jnp.ones((30, 2, 3)))
    assert compilations.count == 0


def test_forward_mode_goes_through_chunks(x64):
    cell = GRU(3, 4)
    params, inputs, _ = point(cell)

    def loss(params, **options):
        return jnp.square(unroll(cell, params, inputs, method="scan", **options).outputs).sum()

    tangent = random_like(params, 5)
    got = jax.jvp(lambda p: loss(p, chunk=3), (params,), (tangent,))
    assert_close(got, jax.jvp(loss, (params,), (tangent,)), TOLERANCE["float64"])


def temporary_bytes(cell, time, **options):
    """What XLA's compiled training step takes for temporaries."""
    params = jax.eval_shape(cell.init, jax.random.key(0))
    inputs = jax.ShapeDtypeStruct((time, 8, cell.input_size), jnp.float32)

    def loss(params, inputs):
        return jnp.square(unroll(cell, params, inputs, **options).outputs).sum()

    compiled = jax.jit(jax.value_and_grad(loss)).lower(params, inputs).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("cell", [Elman(8, 32), LSTM(8, 32), GRU(8, 32), Plain(8, 32)], ids=repr)
def test_chunks_bound_the_memory_of_a_step(cell):
    plain, chunked = temporary_bytes(cell, 4000, method="scan"), temporary_bytes(cell, 4000, chunk=64)
    outputs = 4000 * 8 * cell.hidden_size * 4
    assert chunked < plain
    assert chunked < 3.5 * outputs  # the outputs and their gradient stand there whatever is done


class Silent(Cell):
    """A cell whose steps want nothing of the inputs but their number."""

    input_size, hidden_size = 3, 4

    def init(self, key, dtype=jnp.float32):
        return {"W_hh": jnp.eye(4, dtype=dtype)}

    def initial_carry(self, params, batch_shape=()):
        return ElmanCarry(jnp.ones((*batch_shape, 4), params["W_hh"].dtype))

    def project(self, params, inputs):
        return ()

    def step(self, params, carry, z):
        return ElmanCarry(2 * carry.h @ params["W_hh"])


def test_zs_may_be_empty():
    cell = Silent()
    result = unroll(cell, cell.init(jax.random.key(0)), jnp.zeros((5, 2, 3)))
    assert_close(result.outputs[:, 0, 0], 2.0 ** jnp.arange(1, 6), TOLERANCE["float32"])


def test_a_block_is_a_divisor_where_one_is_near():
    of = lambda time: blocks.fitting(jax.ShapeDtypeStruct((time, 32, 1024), jnp.float32), time, 4)  # noqa: E731
    assert (of(100), of(101), of(5), of(64)) == (25, 32, 5, 32)
    assert blocks.fitting(jax.ShapeDtypeStruct((5, 0, 4), jnp.float32), 5, 4) == 5
    assert blocks.fitting((), 5, 4) == 5
