"""dL/dcarry_t is the Python loop's, through jit, vmap and any number of unrolls; and what it can't see it refuses."""

import dataclasses
import functools
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax import probes, unroll
from rnnjax.cell import parameter_dtype
from rnnjax.cells import CELLS, GRU, Elman, Jordan
from rnnjax.nn import RNN
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, fill_pads

T, B, X, H = 6, 3, 2, 4
ALL = [Jordan(X, H, H) if name == "jordan" else cell(X, H) for name, cell in CELLS.items()]
every_cell = pytest.mark.parametrize("cell", ALL, ids=list(CELLS))


def made(cell, dtype=jnp.float64):
    return cell.init(jax.random.key(0), dtype), jax.random.normal(jax.random.key(1), (T, B, X), dtype)


def loop_gradients(cell, params, inputs, lengths, loss_of_outputs):
    """dL/de_t by differentiating a Python loop in which e_t is added to the carry of every valid step."""
    carry = cell.initial_carry(params, (B,))
    zeros = jax.tree.map(lambda leaf: jnp.zeros((T, *leaf.shape), leaf.dtype), carry)

    def loss(perturbation):
        outputs = []
        for row in range(B):
            state = jax.tree.map(lambda leaf, r=row: leaf[r], carry)
            shown = []
            for t in range(T):
                if t < lengths[row]:
                    z = cell.project(params, inputs[t, row])
                    state = cell.step(params, state, z)
                    state = jax.tree.map(lambda s, e, t=t, r=row: s + e[t, r], state, perturbation)
                    shown.append(cell.read(params, state, z))
                else:
                    shown.append(jnp.zeros(cell.output_size, parameter_dtype(params)))
            outputs.append(jnp.stack(shown))
        return loss_of_outputs(jnp.stack(outputs, axis=1))

    return jax.grad(loss)(zeros)


@every_cell
@pytest.mark.parametrize("lengths", [[T] * B, [T, 2, 0]], ids=["full", "padded"])
@pytest.mark.parametrize("reads", ["last", "every"])
def test_equals_the_python_loop(cell, lengths, reads, x64):
    params, inputs = made(cell)
    weights = jax.random.normal(jax.random.key(2), (T, B, H), jnp.float64)
    weights = weights if reads == "every" else weights.at[:-1].set(0)

    def of_outputs(outputs):
        return jnp.vdot(jnp.square(outputs), weights)

    def loss(params, inputs):
        return of_outputs(unroll(cell, params, inputs, lengths=jnp.array(lengths), name="it").outputs)

    got = probes.carry_gradients(loss)(params, fill_pads(inputs, lengths, jnp.nan))
    assert list(got) == ["it"]
    assert_close(got["it"], loop_gradients(cell, params, inputs, lengths, of_outputs), TOLERANCE["float64"])
    for leaf in got["it"]:
        for row, length in enumerate(lengths):
            assert jnp.all(leaf[length:, row] == 0)


def test_an_lstm_whose_loss_reads_h_alone_has_no_gradient_of_the_last_c(x64):
    params, inputs = made(ALL[2])
    gradients = probes.carry_gradients(lambda p, x: unroll(ALL[2], p, x).carry.h.sum())(params, inputs)["lstm"]
    assert jnp.all(gradients.c[-1] == 0) and jnp.all(gradients.h[-1] == 1) and jnp.all(gradients.c[:-1] != 0)


def test_value_and_grad_is_jaxs_with_the_carries_beside_it(x64):
    params, inputs = made(ALL[3])

    def loss(params, inputs, scale):
        outputs = unroll(ALL[3], params, inputs).outputs
        return scale * jnp.square(outputs).sum(), outputs

    value, gradients, carries = probes.value_and_grad(loss, has_aux=True)(params, inputs, scale=2.0)
    want_value, want_gradients = jax.value_and_grad(loss, has_aux=True)(params, inputs, 2.0)
    assert_close((value, gradients), (want_value, want_gradients), TOLERANCE["float64"])
    assert_close(carries, probes.carry_gradients(loss, has_aux=True)(params, inputs, scale=2.0), 0)


def stacked(params, inputs):
    """Three unrolls, two of them of one name, the last one jitted inside."""
    first = unroll(ALL[0], params["elman"], inputs).outputs
    second = unroll(ALL[0], params["elman"], jnp.flip(inputs, 0)).outputs
    top = jax.jit(lambda p, x: unroll(Elman(H, H), p, x, name="top").outputs)(params["top"], first + second)
    return jnp.square(top).sum()


def test_every_unroll_gets_its_own_entry(x64):
    params = {"elman": made(ALL[0])[0], "top": Elman(H, H).init(jax.random.key(4), jnp.float64)}
    inputs = made(ALL[0])[1]
    got = probes.carry_gradients(stacked)(params, inputs)
    assert list(got) == ["elman", "elman_1", "top"]
    top = got["top"].h
    # dL/d first at t is what flows from the top's inputs: checked by the weights' gradient, dL/dW_ih summed over t.
    first = unroll(ALL[0], params["elman"], inputs).outputs + unroll(ALL[0], params["elman"], inputs[::-1]).outputs
    into = top * (1 - unroll(Elman(H, H), params["top"], first).outputs ** 2)
    gradient = jax.grad(stacked)(params, inputs)["top"]["W_ih"]
    assert_close(jnp.einsum("tbi,tbh->ih", first, into), gradient, TOLERANCE["float64"])
    assert jnp.abs(got["elman"].h - got["elman_1"].h).max() > 1e-3


def test_names_stay_unique():
    params, inputs = made(ALL[0], jnp.float32)

    def loss(params, inputs):
        return sum(unroll(ALL[0], params, inputs, name=name).outputs.sum() for name in ("a", "a_1", "a", "a"))

    assert list(probes.carry_gradients(loss)(params, inputs)) == ["a", "a_1", "a_2", "a_3"]


def test_under_jit_vmap_and_grad(x64):
    params, inputs = made(ALL[3])

    def loss(params, inputs):
        return jnp.square(unroll(ALL[3], params, inputs).outputs).sum()

    gradients = probes.carry_gradients(loss)
    want = gradients(params, inputs)["gru"].h
    assert_close(jax.jit(gradients)(params, inputs)["gru"].h, want, TOLERANCE["float64"])
    mapped = jax.vmap(gradients, in_axes=(None, 1), out_axes=1)(params, inputs)["gru"].h
    assert_close(mapped, want, TOLERANCE["float64"])
    several = jax.vmap(gradients, in_axes=(0, None))(
        jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params), inputs
    )
    assert_close(several["gru"].h[0], want, TOLERANCE["float64"])

    def size(inputs):
        return jnp.square(gradients(params, inputs)["gru"].h).sum()

    step = 1e-5
    direction = jax.random.normal(jax.random.key(3), inputs.shape, inputs.dtype)
    difference = (size(inputs + step * direction) - size(inputs - step * direction)) / (2 * step)
    assert_close(jnp.vdot(jax.grad(size)(inputs), direction), difference, TOLERANCE["finite differences"])


@jax.jit
def traced_before(params, inputs):
    return unroll(ALL[2], params, inputs).outputs


def test_a_function_that_was_jitted_and_traced_before_is_seen(x64):
    params, inputs = made(ALL[2])

    def through(params, inputs):
        return jnp.square(traced_before(params, inputs)).sum()

    def plain(params, inputs):
        return jnp.square(unroll(ALL[2], params, inputs).outputs).sum()

    for _ in range(2):
        traced_before(params, inputs)
        jax.jit(jax.grad(through))(params, inputs)
        got = probes.carry_gradients(through)(params, inputs)
        assert_close(got, probes.carry_gradients(plain)(params, inputs), TOLERANCE["float64"])
        assert jnp.abs(got["lstm"].c).max() > 1e-3
    # And the plain call is what it was: the probe's trace is not the one that JAX reuses.
    assert_close(traced_before(params, inputs), unroll(ALL[2], params, inputs).outputs, TOLERANCE["float64"])


def test_remat_is_seen(x64):
    params, inputs = made(ALL[0])

    def loss(params, inputs):
        return jnp.square(jax.checkpoint(lambda x: unroll(ALL[0], params, x).outputs)(inputs)).sum()

    plain = probes.carry_gradients(lambda p, x: jnp.square(unroll(ALL[0], p, x).outputs).sum())
    assert_close(probes.carry_gradients(loss)(params, inputs), plain(params, inputs), TOLERANCE["float64"])


def test_a_second_call_compiles_nothing():
    params, inputs = made(ALL[2], jnp.float32)
    others, other_inputs = jax.tree.map(jnp.zeros_like, params), inputs + 1
    for probe in (probes.carry_gradients, probes.value_and_grad):
        run = probe(lambda p, x: unroll(ALL[2], p, x).outputs.sum())
        run(params, inputs)
        with count_compilations() as compilations:
            run(params, other_inputs)
            run(others, inputs)
        assert compilations.count == 0


def test_leaves_that_are_no_arrays_are_kept():
    params, inputs = made(ALL[0], jnp.float32)

    def loss(model, inputs, power):
        return model["head"](unroll(ALL[0], model["cell"], inputs).outputs ** power).sum()

    got = probes.carry_gradients(loss)({"cell": params, "head": jnp.tanh}, inputs, 2)
    assert jnp.abs(got["elman"].h).max() > 0


def test_without_a_handler_nothing_is_traced():
    params, inputs = made(ALL[0], jnp.float32)
    text = str(jax.make_jaxpr(lambda p, x: unroll(ALL[0], p, x, method="scan").outputs)(params, inputs))
    assert "rnnjax" not in text and text.count("add") == 3


def refused(loss):
    params, inputs = made(ALL[0], jnp.float32)
    with pytest.raises(ValueError) as raised:
        probes.carry_gradients(loss)(params, inputs)
    return str(raised.value)


def run(params, inputs):
    return unroll(ALL[0], params, inputs, name="inner").outputs.sum()


@jax.custom_vjp
def with_rule(params, inputs):
    return run(params, inputs)


with_rule.defvjp(lambda p, x: (run(p, x), (p, x)), lambda kept, ct: jax.tree.map(jnp.ones_like, kept))


@jax.custom_jvp
def with_forward_rule(inputs):
    return run(made(ALL[0], jnp.float32)[0], inputs)


with_forward_rule.defjvp(lambda primals, tangents: (with_forward_rule(*primals), jnp.sum(tangents[0])))
twice = jax.jit(run)


@pytest.mark.parametrize("loss, where", [
    (lambda p, x: jax.lax.scan(lambda s, _: (s + run(p, x), None), 0.0, None, length=3)[0], "scan"),
    (lambda p, x: jax.lax.fori_loop(0, 3, lambda i, s: s + run(p, x), 0.0), "scan|while"),
    (lambda p, x: jax.lax.while_loop(lambda s: s < 1, lambda s: s + run(p, x) ** 2 + 1, 0.0), "while"),
    (lambda p, x: jax.lax.cond(x[0, 0, 0] > 0, run, lambda p, x: 0.0, p, x), "cond"),
    (lambda p, x: jax.vmap(run, in_axes=(None, 1))(p, x).sum(), "vmap"),
    (lambda p, x: jax.vmap(run, in_axes=(0, None))(jax.tree.map(lambda a: jnp.stack([a, a]), p), x).sum(), "vmap"),
    (lambda p, x: jax.lax.map(lambda row: run(p, row), jnp.moveaxis(x, 1, 0)).sum(), "scan|lax.map"),
    (with_rule, "custom_vjp"),
    (lambda p, x: with_forward_rule(x), "custom_jvp"),
    (lambda p, x: twice(p, x) + twice(p, 2 * x), "called more than once"),
    (lambda p, x: jax.vmap(lambda y: jax.jit(run)(p, y), in_axes=1)(x).sum(), "vmap"),
])  # fmt: skip
def test_what_would_be_summed_in_silence_is_refused_by_name(loss, where):
    message = refused(loss)
    assert "'inner'" in message and any(word in message for word in where.split("|")), message


def test_a_function_without_unroll_is_refused():
    assert "calls no rnnjax.unroll" in refused(lambda p, x: x.sum())
    hidden = refused(lambda p, x: jax.lax.scan(lambda h, y: (jnp.tanh(h + y), None), x[0], x)[0].sum())
    assert "scans by itself" in hidden


def test_a_loss_that_is_no_scalar_is_refused():
    params, inputs = made(ALL[0], jnp.float32)
    with pytest.raises(TypeError, match="scalar"):
        probes.carry_gradients(lambda p, x: unroll(ALL[0], p, x).outputs)(params, inputs)


def test_partial_functions_and_methods_can_be_probed():
    params, inputs = made(ALL[0], jnp.float32)
    assert list(probes.carry_gradients(functools.partial(run, inputs=inputs))(params)) == ["inner"]


class _Noisy(nnx.Module):
    """Batch statistics that change in the forward pass, and dropout."""

    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(X, rngs=rngs)
        self.rnn = RNN(GRU(X, H), rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, inputs):
        return self.dropout(self.rnn(self.norm(inputs)).outputs)


@pytest.mark.parametrize("wrap", [lambda f: f, nnx.jit, nnx.remat], ids=["plain", "jit", "remat"])
def test_flax_models_need_no_change(wrap):
    model, inputs = _Noisy(nnx.Rngs(0)), made(ALL[0], jnp.float32)[1]

    def loss(model, inputs):
        return jnp.square(wrap(lambda m, x: m(x))(model, inputs)).sum()

    got = probes.carry_gradients(loss)(model, inputs)["gru"].h
    assert got.shape == (T, B, H) and jnp.isfinite(got).all() and jnp.any(got != 0)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    split = probes.value_and_grad(lambda params, rest, inputs: loss(nnx.merge(graph, params, rest), inputs))
    _, gradients, carries = split(params, rest, inputs)
    np.testing.assert_allclose(carries["gru"].h, got, rtol=1e-5, atol=1e-6)
    assert gradients["rnn"]["params"]["W_hh"][...].shape == (H, 3 * H)


def test_equinox_models_need_no_change():
    equinox = pytest.importorskip("equinox")

    class Model(equinox.Module):
        params: dict
        activation: Callable

        def __call__(self, inputs):
            return self.activation(unroll(ALL[0], self.params, inputs).outputs)

    params, inputs = made(ALL[0], jnp.float32)
    got = probes.carry_gradients(lambda m, x: m(x).sum())(Model(params, jnp.sin), inputs)
    assert jnp.any(got["elman"].h != 0)


def test_equal_leaves_of_other_types_are_told_apart():
    params, inputs = made(ALL[0], jnp.float32)
    scaled = probes.carry_gradients(lambda p, x, k: (100.0 if k is True else 1.0) * unroll(ALL[0], p, x).outputs.sum())
    one, true = (scaled(params, inputs, k)["elman"].h for k in (1, True))
    np.testing.assert_allclose(true, 100 * one, rtol=1e-4)


class _Counting(NamedTuple):
    h: jax.Array
    n: jax.Array


@dataclasses.dataclass(frozen=True)
class _Counter(Elman):
    def initial_carry(self, params, batch_shape=()):
        return _Counting(super().initial_carry(params, batch_shape).h, jnp.zeros(batch_shape, jnp.int32))

    def step(self, params, carry, z):
        return _Counting(super().step(params, carry, z).h, carry.n + 1)


def test_a_carry_of_whole_numbers_is_refused_by_field():
    params, inputs = made(ALL[0], jnp.float32)
    with pytest.raises(ValueError, match=r"carry of unroll '_counter' holds .n of dtype int32"):
        probes.carry_gradients(lambda p, x: unroll(_Counter(X, H), p, x).outputs.sum())(params, inputs)


def test_the_unrolls_of_an_inner_probe_are_its_own():
    params, inputs = made(ALL[0], jnp.float32)

    def loss(params, inputs):
        inner = probes.carry_gradients(lambda p: unroll(ALL[0], p, inputs, name="inner").outputs.sum())(params)
        return unroll(ALL[0], params, inputs, name="outer").outputs.sum() + jnp.square(inner["inner"].h).sum()

    assert list(probes.carry_gradients(loss)(params, inputs)) == ["outer"]


def test_inside_shard_map_every_device_has_its_own_rows():
    """In a process of its own: the number of devices is set before JAX starts."""
    code = """
        import jax, jax.numpy as jnp
        from jax.sharding import AxisType, PartitionSpec as P
        from rnnjax import probes, unroll
        from rnnjax.cells import LSTM, MGU
        from rnnjax.testing import TOLERANCE, assert_close
        jax.config.update("jax_num_cpu_devices", 2)
        jax.config.update("jax_enable_x64", True)
        mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
        inputs = jax.random.normal(jax.random.key(1), (5, 4, 3), jnp.float64)
        for cell in (LSTM(3, 4), MGU(3, 4)):
            params = cell.init(jax.random.key(0), jnp.float64)
            def loss(params, inputs):
                return jnp.square(unroll(cell, params, inputs, name="it").outputs).sum()
            probe = probes.carry_gradients(loss)
            specs = dict(in_specs=(P(), P(None, "data")), out_specs=P(None, "data"))
            split = jax.jit(jax.shard_map(probe, mesh=mesh, **specs))(params, inputs)
            assert_close(split, probe(params, inputs), TOLERANCE["float64"], str(cell))
        print("own")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout.strip() == "own", done.stderr
