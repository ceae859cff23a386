"""Omega and its gradient are the paper's, for every cell and wrapper, and descent on it keeps the gradient's norm."""

import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree

import rnnjax.probes.omega
from rnnjax import probes, unroll
from rnnjax.cells import CELLS, GRU, LSTM, Elman, Jordan, TeacherForced
from rnnjax.layers import DropConnect, InputDropout, LearnedCarry, RecurrentDropout, Zoneout
from rnnjax.nn import RNN
from rnnjax.probes import value_and_grad_with_omega
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, fill_pads, flat_carry, random_like

T, B, X, H = 6, 3, 2, 4
ELMAN = Elman(X, H)
MORE = {"jordan": {"output_size": 3}, "indrnn": {"activation": "tanh"}}


def made(cell, dtype=jnp.float64):
    return cell.init(jax.random.key(0), dtype), jax.random.normal(jax.random.key(1), (T, B, X), dtype)


def loss_of(cell, **options):
    """A loss that reads every output with another weight."""

    def loss(params, inputs):
        outputs = unroll(cell, params, inputs, **options).outputs
        return jnp.vdot(jnp.sin(jnp.arange(outputs.size, dtype=outputs.dtype)), jnp.square(outputs).ravel())

    return loss


def transitions(length, reverse=False, truncate=None):
    """(step before, step) of every pair that the gradient passes between."""
    order = range(length)[:: -1 if reverse else 1]
    pairs = zip(order, order[1:], strict=False)
    return [(before, t) for before, t in pairs if not truncate or before // truncate == t // truncate]


def elmans(params, inputs, carries, d, lengths=(T,) * B, **options):
    """(Omega, transitions, gradient) of an Elman network by equations 9 and 10, from h_t and dL/dh_t.

    dh_{t+1}/dh_t = diag(1 - h_{t+1}^2) W_hh^T; its derivative is taken by hand, h_t and d held fixed.
    """
    inputs, carries, d = (np.asarray(array) for array in (inputs, carries, d))
    W_hh, omega, count = np.asarray(params["W_hh"]), 0.0, 0
    gradient = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    for row, length in enumerate(lengths):
        for before, t in transitions(length, **options):
            h, ours = carries[t, row], d[t, row]
            pulled = W_hh @ (ours * (1 - h**2))
            ratio = np.linalg.norm(pulled) / np.linalg.norm(ours)
            omega, count = omega + (ratio - 1) ** 2, count + 1
            back = 2 * (ratio - 1) / ratio / np.linalg.norm(ours) ** 2 * pulled
            through = (W_hh.T @ back) * ours * -2 * h * (1 - h**2)
            gradient["W_hh"] += np.outer(back, ours * (1 - h**2)) + np.outer(carries[before, row], through)
            gradient["W_ih"] += np.outer(inputs[t, row], through)
            gradient["b"] += through
    return omega, count, gradient


@pytest.mark.parametrize("lengths, options", [
    ([T, T, T], {}),
    ([T, 3, 1], {"truncate": 2}),
    ([T, 5, 0], {"truncate": 4, "reverse": True, "chunk": 3}),
], ids=str)  # fmt: skip
def test_of_an_elman_network_it_is_the_papers(lengths, options, x64):
    params, inputs = made(ELMAN)
    loss = loss_of(ELMAN, lengths=jnp.array(lengths), **options)

    @jax.jit
    def measure(params, inputs):
        carries = unroll(ELMAN, params, inputs, lengths=jnp.array(lengths), **options).carries
        (d,) = probes.carry_gradients(loss)(params, inputs).values()
        return value_and_grad_with_omega(loss)(params, inputs), jax.value_and_grad(loss)(params, inputs), carries.h, d.h

    padded = fill_pads(inputs, lengths, jnp.nan)
    (value, gradients, (omega, count, omega_gradients)), plain, carries, d = measure(params, padded)
    assert_close((value, gradients), plain, TOLERANCE["float64"])
    pairs = {name: value for name, value in options.items() if name in ("reverse", "truncate")}
    want = elmans(params, inputs, carries, d, lengths, **pairs)
    assert_close((omega, omega_gradients), (want[0], want[2]), TOLERANCE["float64"])
    assert count == want[1] > 0 and jnp.issubdtype(count.dtype, jnp.integer)


QUICK = [LSTM(X, H), DropConnect(Elman(X, H), 0.3)]
SLOW = [
    *[cell(X, H, **MORE.get(name, {})) for name, cell in CELLS.items() if name != "lstm"],
    Elman(X, H, orthogonal=True),
    InputDropout(Elman(X, H), 0.3),
    RecurrentDropout(GRU(X, H), 0.3, mask="step"),
    Zoneout(LSTM(X, H), (0.2, 0.4)),
    LearnedCarry(Elman(X, H)),
]


@pytest.mark.parametrize(
    "cell",
    [*QUICK, *[pytest.param(cell, marks=pytest.mark.full) for cell in SLOW]],
    ids=lambda cell: type(cell).__name__,
)
def test_of_every_cell_it_is_that_of_whole_jacobians(cell, x64):
    """And its gradient that of finite differences, carries and d being frozen."""
    params, inputs = made(cell)
    params, key, rows = random_like(params, 3, scale=0.5), jax.random.key(7), inputs.shape[1]

    def loss(params, inputs):
        return loss_of(cell)(*cell.randomize(key, params, inputs))

    @jax.jit
    def measure(params):
        carries = unroll(cell, *cell.randomize(key, params, inputs)).carries
        (d,) = probes.carry_gradients(loss)(params, inputs).values()
        return value_and_grad_with_omega(loss)(params, inputs)[2], carries, d

    (omega, count, omega_gradients), carries, d = measure(params)
    unflatten = ravel_pytree(jax.tree.map(lambda leaf: leaf[0, 0], carries))[1]

    @jax.jit
    def jacobians(params):
        params, drawn = cell.randomize(key, params, inputs)
        params = cell.prepare(params)

        def of_step(before, z):
            step = lambda flat: ravel_pytree(cell.step(params, unflatten(flat), z))[0]  # noqa: E731
            return jax.jacfwd(step)(ravel_pytree(before)[0])

        zs = jax.tree.map(lambda leaf: leaf[1:], cell.project(params, drawn))
        return jax.vmap(jax.vmap(of_step))(jax.tree.map(lambda leaf: leaf[:-1], carries), zs)

    def want(params):
        J, ours = np.asarray(jacobians(params)), np.asarray(flat_carry(d))[1:]
        there = [(t, row) for t in range(T - 1) for row in range(rows) if ours[t, row].any()]
        ratios = [np.linalg.norm(ours[at] @ J[at]) / np.linalg.norm(ours[at]) for at in there]
        return np.square(np.array(ratios) - 1).sum(), len(there)

    assert_close((omega, count), want(params), TOLERANCE["float64"])
    assert omega > 1e-2
    step, direction = 1e-5, random_like(params, 5)
    ends = [want(jax.tree.map(lambda leaf, v, s=s: leaf + s * v, params, direction))[0] for s in (step, -step)]
    slope = sum(map(jnp.vdot, jax.tree.leaves(omega_gradients), jax.tree.leaves(direction)))
    assert_close(slope, (ends[0] - ends[1]) / (2 * step), TOLERANCE["finite differences"])


def test_it_flows_back_to_the_parameters_of_the_loss(x64):
    params, inputs = made(ELMAN)
    _, _, (omega, _, want) = value_and_grad_with_omega(loss_of(ELMAN))(params, inputs)
    own = {"half": jax.tree.map(lambda leaf: leaf / 2, params), "head": jnp.ones(3), "of": np.tanh}

    def loss(own, inputs):
        value = loss_of(ELMAN)(jax.tree.map(lambda leaf: 2 * leaf, own["half"]), inputs) + own["head"].sum()
        return value, (value, own["head"])

    (value, (again, head)), gradients, got = value_and_grad_with_omega(loss, has_aux=True)(own, inputs)
    assert value == again and jnp.all(head == 1) and jnp.all(gradients["head"] == 1)
    assert_close(got[0], omega, TOLERANCE["float64"])
    doubled = jax.tree.map(lambda d: 2 * d, want)
    assert_close(got[2], {"half": doubled, "head": jnp.zeros(3), "of": None}, TOLERANCE["float64"])


def test_several_unrolls_add_up_and_inputs_are_constants(x64):
    upper = Elman(H, H)
    params, inputs = made(ELMAN)
    params = {"lower": params, "upper": random_like(upper.init(jax.random.key(0), jnp.float64), 4, scale=0.4)}

    def runs(params, inputs):
        between = unroll(ELMAN, params["lower"], inputs)
        backwards = unroll(upper, params["upper"], between.outputs, reverse=True)
        return between, backwards, unroll(upper, params["upper"], between.outputs + backwards.outputs)

    def loss(params, inputs):
        return jnp.square(runs(params, inputs)[2].outputs).sum()

    _, _, (omega, count, got) = value_and_grad_with_omega(loss)(params, inputs)
    d = probes.carry_gradients(loss)(params, inputs)
    between, backwards, last = jax.tree.map(np.asarray, jax.jit(runs)(params, inputs))
    summed = between.outputs + backwards.outputs
    parts = [
        elmans(params["lower"], inputs, between.carries.h, d["elman"].h),
        elmans(params["upper"], between.outputs, backwards.carries.h, d["elman_1"].h, reverse=True),
        elmans(params["upper"], summed, last.carries.h, d["elman_2"].h),
    ]
    want = {"lower": parts[0][2], "upper": jax.tree.map(np.add, parts[1][2], parts[2][2])}
    assert_close((omega, got), (sum(part[0] for part in parts), want), TOLERANCE["float64"])
    assert count == sum(part[1] for part in parts) == 3 * (T - 1) * B


def test_no_magnitude_of_the_loss_changes_it_and_nan_is_not_hidden():
    params, inputs = made(ELMAN, jnp.float32)
    run = value_and_grad_with_omega(lambda params, inputs, scale: scale * loss_of(ELMAN)(params, inputs))
    _, _, want = run(params, inputs, jnp.float32(1))
    for scale in (1e-30, 1e20):
        assert_close(run(params, inputs, jnp.float32(scale))[2], want, TOLERANCE["float32"])
    assert jnp.isnan(run(params, inputs, jnp.float32(jnp.nan))[2][0])


def test_no_ratio_is_too_small():
    """Of a W_hh of 1e-25, whose square float32 does not have: ratio and W_hh shrink together, so the slope stays."""
    params, inputs = made(ELMAN, jnp.float32)
    run = value_and_grad_with_omega(loss_of(ELMAN))
    _, _, (want, _, want_gradients) = run(params | {"W_hh": 1e-10 * params["W_hh"]}, inputs)
    _, _, (omega, count, gradients) = run(params | {"W_hh": 1e-25 * params["W_hh"]}, inputs)
    assert omega == want == count and jnp.abs(gradients["W_hh"]).max() > 0.1
    assert_close(gradients["W_hh"], want_gradients["W_hh"], TOLERANCE["float32"])


def test_what_has_no_gradient_does_not_count():
    params, inputs = made(ELMAN, jnp.float32)

    @value_and_grad_with_omega
    def run(params, inputs, weights):
        return jnp.vdot(weights, unroll(ELMAN, params, inputs).outputs.sum((1, 2)))

    _, _, (omega, count, _) = run(params, inputs, jnp.eye(T)[2])
    assert count == 2 * B and omega > 0
    _, _, (omega, count, gradients) = run(params, inputs, jnp.zeros(T))
    assert count == 0 and omega == 0 and not any(map(jnp.any, jax.tree.leaves(gradients)))
    _, _, (omega, count, _) = run(params, inputs[:0], jnp.ones(0))
    assert count == 0 and omega == 0


def test_where_a_step_lets_no_gradient_pass_the_derivative_is_0():
    cell = Jordan(X, H, H)
    params, inputs = made(cell, jnp.float32)
    shown = TeacherForced(inputs, jnp.ones((T, B, H)))
    _, _, (omega, count, gradients) = value_and_grad_with_omega(loss_of(cell))(params, shown)
    assert omega == count == (T - 1) * B
    assert not any(map(jnp.any, jax.tree.leaves(gradients)))


def test_in_blocks_of_time_it_is_the_same(monkeypatch, x64):
    params, inputs = made(ELMAN)
    _, _, want = value_and_grad_with_omega(loss_of(ELMAN))(params, inputs)
    asked = []
    monkeypatch.setattr(rnnjax.probes.omega, "fitting", lambda tree, time, megabytes: asked.append(time) or 4)
    assert_close(value_and_grad_with_omega(loss_of(ELMAN))(params, inputs)[2], want, TOLERANCE["float64"])
    assert asked == [T]


def test_under_jit_scan_and_vmap():
    params, inputs = made(ELMAN, jnp.float32)
    run = value_and_grad_with_omega(loss_of(ELMAN))
    want = run(params, inputs)
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    mapped = jax.vmap(run, in_axes=(0, None))
    _, found = jax.lax.scan(lambda _, x: (None, mapped(several, x)), None, jnp.stack([2 * inputs, inputs]))
    assert_close(jax.tree.map(lambda leaf: leaf[1, 0], found), want, TOLERANCE["float32"])


@pytest.mark.full
def test_inside_shard_map_every_device_has_its_own_rows():
    """In a process of its own: the number of devices is set before JAX starts."""
    code = """
        import jax, jax.numpy as jnp
        from jax.sharding import AxisType, PartitionSpec as P
        import rnnjax.probes.omega
        from rnnjax import probes, unroll
        from rnnjax.cells import LSTM
        from rnnjax.testing import TOLERANCE, assert_close
        jax.config.update("jax_num_cpu_devices", 2)
        jax.config.update("jax_enable_x64", True)
        mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
        inputs = jax.random.normal(jax.random.key(1), (5, 4, 3), jnp.float64)
        lengths = jnp.array([5, 3, 4, 1])
        rnnjax.probes.omega.fitting = lambda *_: 2  # steps in a block, so that there are several
        cell = LSTM(3, 4)
        params = cell.init(jax.random.key(0), jnp.float64)
        def loss(params, inputs, lengths):
            return jnp.square(unroll(cell, params, inputs, lengths=lengths).outputs).sum()
        run = probes.value_and_grad_with_omega(loss)
        def of_share(params, inputs, lengths):
            value, gradients, (omega, count, omega_gradients) = run(params, inputs, lengths)
            value, omega, count = jax.lax.psum((value, omega, count), "data")
            return value, gradients, (omega, count, omega_gradients)
        split = jax.shard_map(of_share, mesh=mesh, in_specs=(P(), P(None, "data"), P("data")), out_specs=P())
        assert_close(jax.jit(split)(params, inputs, lengths), run(params, inputs, lengths), TOLERANCE["float64"])
        print("own")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout.strip() == "own", done.stderr


def test_a_second_call_compiles_nothing():
    params, inputs = made(ELMAN, jnp.float32)
    others = jax.tree.map(jnp.zeros_like, params), inputs + 1
    run = value_and_grad_with_omega(loss_of(ELMAN))
    run(params, inputs)
    with count_compilations() as compilations:
        run(*others)
    assert compilations.count == 0


def test_bfloat16_gives_its_own_gradients_and_a_wide_sum():
    params, inputs = made(ELMAN, jnp.float32)
    run = value_and_grad_with_omega(loss_of(ELMAN))
    _, _, (want, want_count, _) = run(params, inputs)
    _, _, (omega, count, gradients) = run(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params), inputs)
    assert omega.dtype == jnp.float32 and {leaf.dtype for leaf in gradients.values()} == {jnp.dtype(jnp.bfloat16)}
    assert count == want_count
    np.testing.assert_allclose(omega, want, rtol=0.1)


@pytest.mark.parametrize("wrap, where", [
    (jax.jit, "jit"),
    (jax.checkpoint, "remat|checkpoint"),
    (lambda f: lambda p, x: jax.lax.map(lambda y: f(p, y), x[None]).sum(), "scan"),
], ids=["jit", "checkpoint", "map"])  # fmt: skip
def test_what_can_not_be_reached_is_refused_by_name(wrap, where):
    params, inputs = made(ELMAN, jnp.float32)
    with pytest.raises(ValueError, match=rf"unroll 'inner' runs inside a p?({where})"):
        value_and_grad_with_omega(wrap(loss_of(ELMAN, name="inner")))(params, inputs)
    with pytest.raises(ValueError, match=r"calls no rnnjax.unroll"):
        value_and_grad_with_omega(lambda p, x: x.sum())(params, inputs)


class _Model(nnx.Module):
    """Batch statistics, a cell, a head."""

    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(X, rngs=rngs)
        self.rnn = RNN(ELMAN, rngs=rngs)
        self.head = nnx.Linear(H, 1, rngs=rngs)

    def __call__(self, inputs):
        return self.head(self.rnn(self.norm(inputs)).outputs)


def test_flax_models_need_no_change():
    graph, params, rest = nnx.split(_Model(nnx.Rngs(0)), nnx.Param, ...)
    inputs = made(ELMAN, jnp.float32)[1]

    def loss(params, inputs):
        model = nnx.merge(graph, params, rest, copy=True)
        return jnp.square(model(inputs)).sum()

    value, gradients, (omega, count, omega_gradients) = value_and_grad_with_omega(loss)(params, inputs)
    assert_close((value, gradients), jax.jit(jax.value_and_grad(loss))(params, inputs), TOLERANCE["float32"])
    assert count == (T - 1) * B and omega > 0
    assert not jnp.any(omega_gradients["head"]["kernel"][...])
    assert jnp.any(omega_gradients["rnn"]["params"]["W_hh"][...])


def test_descent_on_it_alone_brings_the_ratio_to_1():
    cell = Elman(X, 16, gain=0.5)  # 0.5 times an orthogonal matrix: what goes back a step is halved, at least
    params, inputs = cell.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (20, 8, X))

    def loss(params):
        return 0.5 * jnp.square(unroll(cell, params, inputs).outputs[-1]).sum()

    def descend(params, _):
        _, _, (omega, count, gradients) = value_and_grad_with_omega(loss)(params)
        return jax.tree.map(lambda leaf, d: leaf - 0.3 * d / count, params, gradients), omega / count

    trained, found = jax.jit(lambda params: jax.lax.scan(descend, params, None, length=150))(params)
    assert found[0] > 0.25 and found[-1] < 0.03

    @jax.jit
    def slope(params):
        norms = probes.gradient_norms(probes.carry_gradients(loss)(params))["elman"]["carry"]
        return probes.slope(probes.by_distance(norms)).mean()

    assert slope(params) < np.log(0.5) and abs(slope(trained)) < 0.1
