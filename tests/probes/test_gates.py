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
from rnnjax.layers import DropConnect, LearnedCarry, RecurrentDropout, Zoneout
from rnnjax.testing import TOLERANCE, assert_close, fill_pads, random_like

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


@pytest.mark.parametrize("name", NAMED)
def test_the_named_gates_are_what_the_step_is_made_of(name, x64):
    """A named gate is among the sigmoids and tanhs that are found in the step of a cell that names none."""
    cell, names = NAMED[name]
    params, inputs = made(cell, 0.7)
    named = statistics(cell, params, inputs)
    assert set(named) == names
    nameless = type("Nameless", (type(cell),), {"gates": Cell.gates})(**vars_of(cell))
    found = statistics(nameless, params, inputs)
    everything = np.sort(np.concatenate([np.ravel(one.unit_mean) for one in found.values()]))
    for gate, one in named.items():
        if (name, gate) in (("jordan", "y"),):  # a softmax
            continue
        for value in np.ravel(one.unit_mean):
            assert np.min(np.abs(everything - value)) < 1e-12, (name, gate)


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
    stack = layers.Stack(
        (layers.Bidirectional(wrap(LSTM(X, H)), wrap(GRU(X, H))), wrap(LinenCell(linen.GRUCell(H), 2 * H)))
        if wrap is LearnedCarry
        else (layers.Bidirectional(wrap(LSTM(X, H)), wrap(GRU(X, H))),)
    )
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
