"""A cell's own backward is JAX's, whatever the chunks; who overrides a step inherits none; devices may split it."""

import dataclasses
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax import reference_unroll, unroll
from rnnjax.cells import CELLS, GRU, LSTM, Elman, ElmanCarry, Jordan, TeacherForced
from rnnjax.testing import TOLERANCE, assert_close, fill_pads, random_like
from rnnjax.unroll import adjoint

ALL = [
    Elman(3, 4),
    Jordan(3, 5, 4),
    LSTM(3, 4),
    GRU(3, 4),
    GRU(3, 4, reset="before"),
]


def gradients(cell, method, inputs, lengths, reverse):
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 3, scale=0.4)
    carry = random_like(cell.initial_carry(params, (2,)), 4)
    weights = random_like(jax.eval_shape(lambda: unroll(cell, params, inputs, carry)), 5)

    def loss(params, inputs, carry):
        result = unroll(cell, params, inputs, carry, lengths=lengths, reverse=reverse, method=method)
        return sum(map(jnp.vdot, jax.tree.leaves(result), jax.tree.leaves(weights)))

    return jax.jit(jax.grad(loss, (0, 1, 2)))(params, inputs, carry)


def test_those_that_bring_their_own_are_all_tried():
    own = {name for name, cls in CELLS.items() if "linearize" in vars(cls)}
    assert own == {"elman", "jordan", "lstm", "gru"} and {type(cell) for cell in ALL} == {CELLS[name] for name in own}
    assert all(cell.brings_backward for cell in ALL)


@pytest.mark.parametrize("cell", ALL, ids=repr)
def test_it_is_jaxs_in_chunks_of_any_size(cell, x64, monkeypatch):
    inputs = fill_pads(jax.random.normal(jax.random.key(1), (7, 2, 3), jnp.float64), [7, 4], jnp.nan)
    lengths = jnp.array([7, 4])
    for reverse, sizes in ((False, (1, 3, 100)), (True, (3,))):  # chunks of one step; some and a rest; one for all
        want = gradients(cell, "scan", inputs, lengths, reverse)
        for steps in sizes:
            monkeypatch.setattr(adjoint, "fitting", lambda *_, steps=steps: steps)
            got = gradients(cell, "auto", inputs, lengths, reverse)
            assert_close(got, want, TOLERANCE["float64"], f"{steps} steps, reverse={reverse}")


def test_teacher_forcing_has_one_too(x64):
    cell = Jordan(3, 5, 4, feedback="sigmoid")
    keys = jax.random.split(jax.random.key(1))
    inputs = TeacherForced(
        *(jax.random.normal(key, (5, 2, n), jnp.float64) for key, n in zip(keys, (3, 4), strict=True))
    )
    got, want = (gradients(cell, method, inputs, jnp.array([5, 3]), False) for method in ("auto", "scan"))
    assert_close(got, want, TOLERANCE["float64"])


@dataclasses.dataclass(frozen=True)
class Leaky(Elman):
    """Another step, and no backward for it."""

    def step(self, params, carry, z):
        return ElmanCarry(0.9 * carry.h + 0.1 * super().step(params, carry, z).h)


@dataclasses.dataclass(frozen=True)
class Renamed(Elman):
    """Another projection, which a backward of the step does not care about."""

    def project(self, params, inputs):
        return super().project(params, 2 * inputs)


def test_a_step_of_ones_own_does_not_inherit_the_backward_of_another(x64):
    assert not Leaky(3, 4).brings_backward and Renamed(3, 4).brings_backward
    inputs = jax.random.normal(jax.random.key(1), (5, 2, 3), jnp.float64)
    for cell in (Leaky(3, 4), Renamed(3, 4)):
        params = cell.init(jax.random.key(0), jnp.float64)
        got, want = (
            jax.grad(lambda p, e=engine, c=cell: jnp.square(e(c, p, inputs).outputs).sum())(params)
            for engine in (unroll, reference_unroll)
        )
        assert_close(got, want, TOLERANCE["float64"])


def test_small_gates_keep_their_digits():
    """exp(-20) is 2e-9: a sigmoid made of a tanh would be 0 there, and with it the gradient."""
    cell = LSTM(2, 3, forget_bias=-20.0, gain=0.0)
    params = cell.init(jax.random.key(0))
    first = jax.grad(lambda c: unroll(cell, params, jnp.zeros((1, 1, 2)), c).carry.c.sum())
    np.testing.assert_allclose(first(cell.initial_carry(params, (1,))).c, np.exp(-20.0), rtol=1e-5)


@dataclasses.dataclass(frozen=True)
class Normalising(Elman):
    """Divides its inputs by their norm, which has no derivative at 0."""

    def project(self, params, inputs):
        return super().project(params, inputs / jnp.linalg.norm(inputs, axis=-1, keepdims=True))


def test_pads_harm_no_cell_that_has_no_derivative_at_zero(x64):
    cell, lengths = Normalising(3, 4), np.array([6, 2, 0, 1])
    params = cell.init(jax.random.key(0), jnp.float64)
    clean = jax.random.normal(jax.random.key(1), (6, 4, 3), jnp.float64)
    got, want = (
        jax.grad(lambda p, e=engine, x=x: jnp.square(e(cell, p, x, lengths=lengths).outputs).sum())(params)
        for engine, x in ((unroll, fill_pads(clean, lengths, jnp.nan)), (reference_unroll, clean))
    )
    assert_close(got, want, TOLERANCE["float64"])


def test_no_valid_step_at_all(x64):
    params = ALL[-1].init(jax.random.key(0), jnp.float64)
    inputs = jnp.full((3, 2, 3), jnp.nan)
    loss = lambda p, x: unroll(ALL[-1], p, x, lengths=jnp.array([0, 0])).carry.h.sum()  # noqa: E731
    assert all(jnp.all(leaf == 0) for leaf in jax.tree.leaves(jax.grad(loss, (0, 1))(params, inputs)))


@pytest.mark.full
def test_shard_map_splits_the_batch_with_one_all_reduce():
    """In a process of its own: the number of devices is set before the backend starts."""
    code = """
        import jax, jax.numpy as jnp
        from jax.sharding import AxisType, PartitionSpec as P
        from rnnjax import unroll
        from rnnjax.cells import CELLS
        from rnnjax.testing import TOLERANCE, assert_close
        jax.config.update("jax_num_cpu_devices", 4)
        jax.config.update("jax_enable_x64", True)
        mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
        inputs = jax.random.normal(jax.random.key(1), (6, 8, 3), jnp.float64)
        lengths = jnp.arange(8) % 7
        for name, cls in CELLS.items():
            cell = cls(3, 4, 2) if name == "jordan" else cls(3, 4)
            params = cell.init(jax.random.key(0), jnp.float64)
            for method in ("auto", "scan"):
                def loss(params, inputs, lengths):
                    return jnp.square(unroll(cell, params, inputs, lengths=lengths, method=method).outputs).sum()
                def whole(params, inputs, lengths):
                    return jax.grad(lambda p: jax.lax.psum(loss(p, inputs, lengths), "data"))(params)
                specs = (P(), P(None, "data"), P("data"))
                split = jax.jit(jax.shard_map(whole, mesh=mesh, in_specs=specs, out_specs=P()))
                want = jax.grad(loss)(params, inputs, lengths)
                assert_close(split(params, inputs, lengths), want, TOLERANCE["float64"], f"{name} {method}")
                text = split.lower(params, inputs, lengths).compile().as_text()
                assert text.count(" all-reduce(") == 1, text.count(" all-reduce(")
        print("split")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout.strip() == "split", done.stderr
