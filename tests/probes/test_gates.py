"""What gates were doing, against numpy on what a loop by hand has opened, for every cell and in whole models."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rnnjax import layers, probes, unroll
from rnnjax.cell import Cell, sigmoid
from rnnjax.cells import CELLS, GRU, LSTM, MGU, Elman, ElmanCarry, IndRNN, Jordan
from rnnjax.interop.linen import LinenCell
from rnnjax.interop.nnx import NNXCell
from rnnjax.layers import DropConnect, LearnedCarry, RecurrentDropout, Wrapper, Zoneout
from rnnjax.nn import Embedding, Seq2Seq
from rnnjax.tasks.base import SourceTarget
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, fill_pads, random_like

T, B, X, H = 6, 3, 2, 3
LENGTHS = np.array([T, 2, 0])
NAMED = {
    "elman": (Elman(X, H), {"h"}),
    "elman sigmoid": (Elman(X, H, activation="sigmoid"), {"h"}),
    "jordan": (Jordan(X, H, 2), {"h", "y"}),
    "indrnn": (IndRNN(X, H, activation="tanh"), {"h"}),
    "mgu": (MGU(X, H), {"f", "n"}),
    "gru": (GRU(X, H), {"r", "u", "n"}),
    "gru before": (GRU(X, H, reset="before"), {"r", "u", "n"}),
    "gru none": (GRU(X, H, reset="none"), {"u", "n"}),
    "gru no update": (GRU(X, H, update_gate=False), {"r", "n"}),
    "lstm": (LSTM(X, H), {"i", "f", "g", "o"}),
    "lstm coupled": (LSTM(X, H, coupled=True), {"f", "g", "o"}),
    "lstm peepholes": (LSTM(X, H, peepholes=True, output_gate=False), {"i", "f", "g"}),
    "lstm identity": (LSTM(X, H, input_activation="identity"), {"i", "f", "o"}),
}


def made(cell, scale=2.0):
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 1, scale=scale)
    return params, random_like(jax.ShapeDtypeStruct((T, B, X), jnp.float64), 2)


def statistics(cell, params, inputs, **options):
    found = probes.recorded(lambda p, x: unroll(cell, p, x, name="it", **options))(params, inputs)
    return probes.gate_statistics(found)["it"]


def by_numpy(values, low, high):
    """Statistics of rows of [T, F], which have lengths of their own."""
    share = [(row - low) / (high - low) for row in values]
    every = np.concatenate(share)
    at = [np.concatenate([row[t : t + 1] for row in share]) for t in range(T)]
    ends = (lambda s: s < 0.1, lambda s: s > 0.9)
    raw = np.concatenate(values)
    return probes.GateStatistics(
        *np.array([[np.mean(s) * (high - low) + low, np.mean(ends[0](s)), np.mean(ends[1](s))] for s in at]).T,
        raw.mean(0),
        ends[0](every).mean(0),
        ends[1](every).mean(0),
        np.histogram(every, 20, (0, 1))[0] / every.size,
        np.linspace(low, high, 21),
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_statistics_are_those_of_the_gates_of_a_loop(reverse, x64):
    cell = LSTM(X, H)
    params, inputs = made(cell)
    f = []
    for row, length in enumerate(LENGTHS):
        carry, opened = cell.initial_carry(params), np.zeros((length, H))
        for t in range(length)[:: -1 if reverse else 1]:
            z = inputs[t, row] @ params["W_ih"] + params["b"]
            opened[t] = jax.nn.sigmoid(z + carry.h @ params["W_hh"])[H : 2 * H]
            carry = cell.step(params, carry, z)
        f.append(opened)
    dirty = fill_pads(inputs, LENGTHS, jnp.nan)
    got = statistics(cell, params, dirty, lengths=LENGTHS, reverse=reverse)["f"]
    assert_close(got, by_numpy(f, 0.0, 1.0), TOLERANCE["float64"])


PLACES = {  # of every named gate among the sigmoids and tanhs of the step; two may stand in one sigmoid
    "elman": {"h": "tanh"},
    "elman sigmoid": {"h": "sigmoid"},
    "jordan": {"h": "tanh"},
    "indrnn": {"h": "tanh"},
    "mgu": {"f": "sigmoid", "n": "tanh"},
    "gru": {"r": ("sigmoid", 0), "u": ("sigmoid", 1), "n": "tanh"},
    "gru before": {"r": ("sigmoid", 0), "u": ("sigmoid", 1), "n": "tanh"},
    "gru none": {"u": "sigmoid", "n": "tanh"},
    "gru no update": {"r": "sigmoid", "n": "tanh"},
    "lstm": {"i": ("sigmoid", 0), "f": ("sigmoid", 1), "g": "tanh", "o": "sigmoid_1"},
    "lstm coupled": {"f": "sigmoid", "g": "tanh", "o": "sigmoid_1"},
    "lstm peepholes": {"f": "sigmoid", "i": "sigmoid_1", "g": "tanh"},
    "lstm identity": {"i": "sigmoid_1", "f": "sigmoid", "o": "sigmoid_2"},
}


@pytest.mark.parametrize("name", NAMED)
def test_the_named_gates_are_those_found_in_the_step(name, x64):
    cell, names = NAMED[name]
    params, inputs = made(cell, 0.7)
    named = statistics(cell, params, inputs)
    assert set(named) == names
    found = statistics(nameless(cell), params, inputs)
    for gate, place in PLACES[name].items():
        place, half = place if isinstance(place, tuple) else (place, None)
        units = slice(None) if half is None else slice(half * H, (half + 1) * H)
        for part in ("unit_mean", "unit_low", "unit_high"):
            want = getattr(found[place], part)[units]
            assert_close(getattr(named[gate], part), want, TOLERANCE["float64"], f"{name} {gate} {part}")


def nameless(cell):
    """The same cell, which names no gate."""
    return type("Nameless", (type(cell),), {"gates": Cell.gates})(**vars_of(cell))


def test_jordan_feeds_back_a_softmax(x64):
    cell = Jordan(X, H, 2)
    params, inputs = made(cell)
    before = np.concatenate([np.zeros((1, B, 2)), unroll(cell, params, inputs).carries.y[:-1]])
    assert_close(statistics(cell, params, inputs)["y"].unit_mean, jax.nn.softmax(before).mean((0, 1)), 1e-12)


def vars_of(cell):
    return {field.name: getattr(cell, field.name) for field in dataclasses.fields(cell)}


def test_every_cell_of_the_table_names_its_gates():
    assert {type(cell) for cell, _ in NAMED.values()} == set(CELLS.values())


@pytest.mark.parametrize("cell, names", [
    (LinenCell(linen.GRUCell(H), X), ["sigmoid", "sigmoid_1", "tanh"]),
    (LinenCell(linen.OptimizedLSTMCell(H), X), ["sigmoid", "sigmoid_1", "sigmoid_2", "tanh", "tanh_1"]),
    (NNXCell(functools.partial(nnx.SimpleCell, X, H)), ["tanh"]),
])  # fmt: skip
def test_a_cell_of_flax_is_looked_through(cell, names):
    params = cell.init(jax.random.key(0))
    assert sorted(statistics(cell, params, jnp.ones((T, B, X)))) == names


def test_a_users_cell_is_looked_through_also_inside_its_own_jit_and_checkpoint(x64):
    class Mine(Cell):
        input_size, hidden_size = X, H

        def init(self, key, dtype=jnp.float32):
            return {"W": jnp.ones((X, H), dtype)}

        def initial_carry(self, params, batch_shape=()):
            return ElmanCarry(jnp.zeros((*batch_shape, H), params["W"].dtype))

        def step(self, params, carry, z):
            @jax.jit
            def opened(a):
                return sigmoid(a) * jax.checkpoint(jax.nn.sigmoid)(a)

            return ElmanCarry(jnp.tanh(carry.h + opened(z @ params["W"])))

    cell = Mine()
    inputs = made(Elman(X, H))[1]
    params = cell.init(jax.random.key(0), jnp.float64)
    found = statistics(cell, params, inputs)
    assert sorted(found) == ["sigmoid", "sigmoid_1", "tanh"]
    want = 1 / (1 + np.exp(-np.asarray(inputs @ params["W"])))
    for name in ("sigmoid", "sigmoid_1"):
        assert_close(found[name].mean, want.mean((1, 2)), TOLERANCE["float64"])
    assert_close(found["tanh"].unit_mean, unroll(cell, params, inputs).outputs.mean((0, 1)), TOLERANCE["float64"])


@pytest.mark.parametrize("wrap", [
    LearnedCarry, lambda c: RecurrentDropout(c, 0.5), lambda c: Zoneout(c, 0.3), lambda c: DropConnect(c, 0.5),
], ids=["learned carry", "dropout", "zoneout", "drop connect"])  # fmt: skip
def test_in_a_stack_of_wrapped_cells_in_training(wrap, x64):
    stack = layers.Stack((layers.Bidirectional(wrap(LSTM(X, H)), wrap(GRU(X, H))),))
    params, inputs = made(stack)
    run = functools.partial(layers.run, stack, lengths=LENGTHS, key=jax.random.key(3))
    found = probes.gate_statistics(probes.recorded(run)(params, inputs))
    assert set(found["layer_0/forward"]) == {"i", "f", "g", "o"} and set(found["layer_0/backward"]) == {"r", "u", "n"}
    for gates in found.values():
        for one in gates.values():
            assert np.isclose(one.histogram.sum(), 1) and np.all(np.isfinite(one.mean))


def test_saturation_of_a_bias_is_seen_and_no_gate_is_an_error():
    cell = LSTM(X, H, forget_bias=10.0)
    got = statistics(cell, cell.init(jax.random.key(0)), jnp.ones((T, B, X)))
    assert jnp.all(got["f"].unit_high == 1) and jnp.all(got["f"].high == 1) and jnp.all(got["f"].low == 0)
    with pytest.raises(ValueError, match="no cell has a gate.*relu"):
        relu = Elman(X, H, activation="relu")
        statistics(relu, relu.init(jax.random.key(0)), jnp.ones((T, B, X)))
    none = statistics(cell, cell.init(jax.random.key(0)), jnp.ones((T, B, X)), lengths=jnp.array([2, 1, 0]))["f"]
    assert jnp.all(jnp.isnan(none.mean[2:])) and jnp.all(jnp.isfinite(none.mean[:2]))


def test_a_cell_that_overrides_its_step_is_looked_through(x64):
    """The gates that it inherits are another step's."""

    class Coupled(LSTM):
        def step(self, params, carry, z):
            return super().step(params, carry, 10 * z)

    class Sharper(Wrapper):
        def step(self, params, carry, z):
            return self.cell.step(params, carry, 10 * z)

    params, inputs = made(LSTM(X, H), 0.3)
    want = statistics(LSTM(X, H), params | {"W_ih": 10 * params["W_ih"], "b": 10 * params["b"]}, inputs)
    for cell in (Coupled(X, H), Sharper(LSTM(X, H)), Zoneout(Coupled(X, H), 0.0), LearnedCarry(Coupled(X, H))):
        given = params | {"h_0": jnp.zeros(H), "c_0": jnp.zeros(H)} if isinstance(cell, LearnedCarry) else params
        found = statistics(cell, given, inputs)
        assert "f" not in found
        assert_close(found["sigmoid"].unit_mean[H:], want["f"].unit_mean, TOLERANCE["float64"])


def test_masks_of_recurrent_dropout_are_those_of_the_gates(x64):
    """All that the recurrent matrices meet is dropped: these are the gates of a network without them."""
    cell = RecurrentDropout(GRU(X, H), 0.999999)
    params, inputs = made(GRU(X, H))
    run = functools.partial(layers.run, cell, inputs=inputs, key=jax.random.key(3))
    dropped = probes.gate_statistics(probes.recorded(run)(params))["gru"]
    alone = statistics(GRU(X, H), params | {"W_hh": jnp.zeros((H, 3 * H))}, inputs)
    assert_close(dropped["u"].unit_mean, alone["u"].unit_mean, 1e-9)


@pytest.mark.full
def test_the_gates_of_a_decoder_with_attention():
    draws = np.random.default_rng(0)
    pair = SourceTarget(draws.integers(0, 6, (3, B)), draws.integers(0, 5, (4, B)))
    found = []
    for cell in (LSTM(2 + 4, 3), nameless(LSTM(2 + 4, 3))):
        rngs = nnx.Rngs(0)
        tables = {"source": Embedding(6, 3, rngs=rngs), "target": Embedding(5, 2, rngs=rngs)}
        encoder = layers.Bidirectional(Elman(3, 2), Elman(3, 2))
        model = Seq2Seq(encoder, cell, 5, **tables, attention="bahdanau", rngs=rngs)
        ran = probes.recorded(lambda model: model(pair, lengths=np.array([3, 1, 2])))(model)
        found.append(probes.gate_statistics(ran)["decoder"])
    named, looked = found
    assert set(named) == {"i", "f", "g", "o"} and named["f"].mean.shape == (4,)
    both = [gate for gate in looked.values() if gate.unit_mean.shape == (6,)]
    assert len(both) == 1, "i and f in one sigmoid"
    assert_close(named["f"].unit_mean, both[0].unit_mean[3:], 1e-6)


class Mine(Cell):
    """A cell from nothing, whose step a test gives."""

    input_size, hidden_size = X, H

    def __init__(self, step):
        self._step = step

    def init(self, key, dtype=jnp.float32):
        return {"W": jnp.ones((X, H), dtype), "tau": jnp.arange(H, dtype=dtype)}

    def initial_carry(self, params, batch_shape=()):
        return ElmanCarry(jnp.zeros((*batch_shape, H), params["W"].dtype))

    def step(self, params, carry, z):
        return ElmanCarry(self._step(params, carry.h, z))


def test_what_has_no_axis_of_examples_is_the_same_for_all(x64):
    def step(params, h, x):
        return h + jnp.broadcast_to(jax.nn.sigmoid(params["tau"]), h.shape) * (x @ params["W"])

    cell = Mine(step)
    params = cell.init(jax.random.key(0), jnp.float64)
    for batch in ((B,), (H + 1,), (2, 2), ()):
        inputs = random_like(jax.ShapeDtypeStruct((T, *batch, X), jnp.float64), 2)
        assert_close(statistics(cell, params, inputs)["sigmoid"].unit_mean, jax.nn.sigmoid(params["tau"]), 1e-12)


def test_a_gate_in_a_loop_of_the_step_is_refused_and_one_in_project_found():
    def looping(params, h, x):
        return jax.lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h + x @ params["W"]), h)

    cell = Mine(looping)
    params = cell.init(jax.random.key(0))
    with pytest.raises(ValueError, match="a step has a tanh inside a (while|scan)"):
        statistics(cell, params, jnp.ones((T, B, X)))

    class Projecting(Mine):
        def project(self, params, inputs):
            return jax.nn.sigmoid(inputs)

    cell = Projecting(lambda params, h, x: jnp.tanh(h + x @ params["W"]))
    assert sorted(statistics(cell, params, jnp.ones((T, B, X)))) == ["sigmoid", "tanh"]


def test_a_histogram_counts_beyond_what_float32_does():
    cell = IndRNN(1, 2, activation="tanh")
    params = {"W_ih": jnp.ones((1, 2)), "u": jnp.zeros(2), "b": jnp.zeros(2)}
    inputs = jnp.full((3, 6_000_000, 1), 3.0).at[0].set(0.0)
    found = statistics(cell, params, inputs)["h"]
    assert_close(found.histogram[np.array([10, 19])], np.array([1, 2]) / 3, 1e-6)
    assert np.isclose(found.histogram.sum(), 1)


@pytest.mark.parametrize("shape", [(0, 2), (4, 0), (4,), (3, 2, 2)])
def test_any_batch_and_none(shape):
    cell = GRU(X, H)
    found = statistics(cell, cell.init(jax.random.key(0)), jnp.ones((*shape, X)))["u"]
    assert found.mean.shape == shape[:1] and found.unit_mean.shape == (H,)
    assert np.isclose(found.histogram.sum(), 0 if 0 in shape else 1)


def test_a_second_call_compiles_nothing():
    for cell in (LSTM(X, H), LinenCell(linen.GRUCell(H), X)):
        params, inputs = cell.init(jax.random.key(0)), jnp.ones((T, B, X))
        run = probes.recorded(lambda p, x, cell=cell: unroll(cell, p, x))
        others = 2 * inputs
        for probe in (probes.gate_statistics, probes.unroll_jacobians, probes.unroll_spectra):
            probe(run(params, inputs))
            with count_compilations() as compilations:
                probe(run(params, others))
            assert compilations.count == 0, probe


def test_a_cell_that_is_no_value_is_refused():
    def run(gain):
        return unroll(Elman(X, H, gain=gain), Elman(X, H).init(jax.random.key(0)), jnp.ones((T, B, X))).outputs

    with pytest.raises(ValueError, match="the gain of the cell of unroll 'elman' is traced"):
        probes.recorded(run)(jnp.ones(()))
