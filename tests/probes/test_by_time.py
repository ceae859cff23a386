"""The share of every step in dL/dW and dL/dx_t, of every unroll in a model: against JAX, and against a loop by hand."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rnnjax import layers, unroll
from rnnjax.cells import CELLS, LSTM, Elman, Jordan, TeacherForced
from rnnjax.interop.linen import LinenCell
from rnnjax.interop.nnx import NNXCell
from rnnjax.layers import DropConnect, LearnedCarry, RecurrentDropout, Zoneout
from rnnjax.nn import Embedding, Seq2Seq
from rnnjax.probes import input_gradients, weight_gradients_by_time
from rnnjax.tasks.base import SourceTarget
from rnnjax.testing import TOLERANCE, assert_close, count_compilations, fill_pads, random_like

T, B, X, H = 5, 3, 2, 3
LENGTHS = np.array([T, 2, 0])
ALL = {name: cell(X, H, *([4] if name == "jordan" else [])) for name, cell in CELLS.items()} | {
    "lstm_variant": LSTM(X, H, peepholes=True, projection_size=2),
    "modrelu": Elman(X, H, activation="modrelu"),
    "linen": LinenCell(linen.GRUCell(H), X),
    "nnx": NNXCell(functools.partial(nnx.LSTMCell, X, H)),
}


def made(cell, shape=(T, B, X)):
    params = random_like(cell.init(jax.random.key(0), jnp.float64), 1, scale=0.5)
    return params, random_like(jax.ShapeDtypeStruct(shape, jnp.float64), 2)


def weighted(outputs):
    """A loss that reads every output with another weight."""
    return jnp.vdot(jnp.sin(jnp.arange(outputs.size, dtype=outputs.dtype)), (outputs + jnp.square(outputs)).ravel())


@pytest.mark.parametrize(
    "cell, options",
    [
        *((name, {"lengths": LENGTHS, "reverse": True}) for name in ALL),
        ("elman", {"truncate": 2, "chunk": 3}),
        ("lstm", {"lengths": LENGTHS, "truncate": 2, "chunk": 3}),
    ],
    ids=str,
)
def test_shares_add_up_to_the_gradient(cell, options, x64):
    cell = ALL[cell]
    params, inputs = made(cell)
    if "lengths" in options:
        inputs = fill_pads(inputs, LENGTHS, jnp.nan)

    def loss(params, inputs):
        return weighted(unroll(cell, params, inputs, name="it", **options).outputs)

    shares = weight_gradients_by_time(loss)(params, inputs)["it"]
    want = jax.jit(jax.grad(loss, (0, 1)))(params, inputs)
    assert all(
        share.shape == (T, *leaf.shape) for share, leaf in zip(*map(jax.tree.leaves, (shares, params)), strict=True)
    )
    assert_close(jax.tree.map(lambda share: share.sum(0), shares), want[0], TOLERANCE["float64"])
    assert_close(input_gradients(loss)(params, inputs)["it"], want[1], TOLERANCE["float64"])


def test_a_share_is_the_one_of_its_step_by_hand(x64):
    """dL/dW_hh at t of an Elman network is h_{t-1} outer (dL/dh_t * (1 - h_t^2)), from a loop with one copy of the
    parameters a step."""
    cell = ALL["elman"]
    params, inputs = made(cell)

    def by_loop(copies):
        h, loss = jnp.zeros((B, H)), 0.0
        for t in range(T):
            one = jax.tree.map(lambda leaf, t=t: leaf[t], copies)
            h = jnp.tanh(inputs[t] @ one["W_ih"] + h @ one["W_hh"] + jnp.broadcast_to(one["b"], h.shape))
            loss = loss + jnp.vdot(h, jnp.cos(t * jnp.arange(h.size, dtype=h.dtype)))
        return loss

    def loss(params):
        outputs = unroll(cell, params, inputs).outputs
        weights = [jnp.cos(t * jnp.arange(B * H, dtype=outputs.dtype)) for t in range(T)]
        return jnp.vdot(outputs.ravel(), jnp.concatenate(weights))

    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (T, *leaf.shape)), params)
    assert_close(weight_gradients_by_time(loss)(params)["elman"], jax.grad(by_loop)(copies), TOLERANCE["float64"])


def test_what_a_read_uses_has_its_share(x64):
    """Of Jordan's W_hy every step has one, and of a W that `read` alone uses the loss's own step."""

    class Read(Elman):
        def init(self, key, dtype=jnp.float32):
            return super().init(key, dtype) | {"W_out": jnp.ones((H, 1), dtype)}

        output_size = 1

        def read(self, params, carry, z):
            return carry.h @ params["W_out"]

    cell = Read(X, H)
    params, inputs = made(cell)
    shares = weight_gradients_by_time(lambda p: weighted(unroll(cell, p, inputs).outputs[-1]))(params)["read"]
    assert jnp.all(shares["W_out"][:-1] == 0) and jnp.all(shares["W_out"][-1] != 0)
    assert jnp.all(shares["W_ih"] != 0)


def test_a_pads_output_has_no_share(x64):
    class Read(Elman):
        def read(self, params, carry, z):
            b = jnp.broadcast_to(params["b"], carry.h.shape)
            return carry.h * b + b

    cell = Read(X, H)
    params, inputs = made(cell)

    def loss(params):
        return weighted(unroll(cell, params, inputs, lengths=LENGTHS).outputs)

    shares = weight_gradients_by_time(loss)(params)["read"]
    assert_close(shares["b"].sum(0), jax.grad(loss)(params)["b"], TOLERANCE["float64"])


def test_an_orthogonal_networks_share_is_of_the_matrix_that_its_steps_use(x64):
    cell = Elman(X, H, orthogonal=True)
    params, inputs = cell.init(jax.random.key(0), jnp.float64), made(cell)[1]
    plain = {"W_ih": params["W_ih"], "W_hh": cell.prepare(params)["W_hh"], "b": params["b"]}
    shares, of_plain = (
        weight_gradients_by_time(lambda p, cell=cell: weighted(unroll(cell, p, inputs, name="it").outputs))(p)["it"]
        for cell, p in ((cell, params), (Elman(X, H), plain))
    )
    assert_close(shares, of_plain, TOLERANCE["float64"])


@pytest.mark.parametrize("wrap", [
    LearnedCarry, lambda c: RecurrentDropout(c, 0.5), lambda c: Zoneout(c, 0.3), lambda c: DropConnect(c, 0.5),
], ids=["learned carry", "dropout", "zoneout", "drop connect"])  # fmt: skip
def test_through_wrappers_in_training(wrap, x64):
    cell = wrap(LSTM(X, H))
    params, inputs = made(cell)
    run = functools.partial(layers.run, cell, lengths=LENGTHS, key=jax.random.key(3), name=None)
    shares = weight_gradients_by_time(lambda p, x: weighted(run(p, x).outputs))(params, inputs)["lstm"]
    want = jax.grad(lambda p: weighted(run(p, inputs).outputs))(params)
    for name in ("W_ih", "b"):
        assert_close(shares[name].sum(0), want[name], TOLERANCE["float64"])
    of_inputs = input_gradients(lambda p, x: weighted(run(p, x).outputs))(params, inputs)["lstm"]
    assert_close(of_inputs, jax.grad(lambda x: weighted(run(params, x).outputs))(inputs), TOLERANCE["float64"])
    if not isinstance(cell, DropConnect):  # whose steps see the masked matrix
        assert_close(shares["W_hh"].sum(0), want["W_hh"], TOLERANCE["float64"])


def test_a_stack_has_an_entry_a_layer_and_direction(x64):
    stack = layers.Stack((layers.Bidirectional(LSTM(X, H), LSTM(X, H)), Elman(2 * H, H)))
    params, inputs = made(stack)

    def loss(params, inputs):
        return weighted(layers.run(stack, params, inputs, lengths=LENGTHS).outputs)

    shares = weight_gradients_by_time(loss)(params, inputs)
    assert set(shares) == {"layer_0/forward", "layer_0/backward", "layer_1"}
    sums = jax.tree.map(lambda share: share.sum(0), shares)
    found = {"layer_0": {way: sums[f"layer_0/{way}"] for way in ("forward", "backward")}, "layer_1": sums["layer_1"]}
    want = jax.grad(loss, (0, 1))(params, inputs)
    assert_close(found, want[0], TOLERANCE["float64"])
    of_inputs = input_gradients(loss)(params, inputs)
    assert_close(of_inputs["layer_0/forward"] + of_inputs["layer_0/backward"], want[1], TOLERANCE["float64"])
    assert of_inputs["layer_1"].shape == (T, B, 2 * H) and jnp.all(of_inputs["layer_1"][2:, 1] == 0)


@pytest.mark.full
def test_of_a_seq2seq_with_attention(x64):
    rngs = nnx.Rngs(0)
    encoder = layers.Bidirectional(Elman(3, 2), Elman(3, 2))
    tables = {"source": Embedding(6, 3, rngs=rngs), "target": Embedding(5, 2, rngs=rngs)}
    model = Seq2Seq(encoder, LSTM(2 + 4, 3), 5, **tables, attention="bahdanau", rngs=rngs)
    nnx.update(model, random_like(nnx.state(model, nnx.Param), 1, scale=0.7))
    model = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), model)
    draws = np.random.default_rng(0)
    pair = SourceTarget(draws.integers(0, 6, (3, B)), draws.integers(0, 5, (4, B)))

    def loss(model):
        return weighted(model(pair, lengths=np.array([3, 1, 2])))

    shares = weight_gradients_by_time(loss)(model)
    assert set(shares) == {"encoder/forward", "encoder/backward", "decoder"}
    want = nnx.grad(loss)(model)
    for side in ("forward", "backward"):
        got = jax.tree.map(lambda share: share.sum(0), shares[f"encoder/{side}"])
        assert_close(got, dict(nnx.as_pure(want["encoder"]["params"][side])), TOLERANCE["float64"])
    decoder = shares["decoder"]["cell"]
    assert decoder["W_hh"].shape[0] == 4
    assert_close(decoder["W_hh"].sum(0), nnx.as_pure(want["decoder"]["params"]["cell"]["W_hh"]), TOLERANCE["float64"])


def test_inputs_of_several_arrays_and_whole_numbers(x64):
    cell = Jordan(X, H, 4)
    params, x = made(cell)
    shown = jax.nn.one_hot(jnp.arange(T * B).reshape(T, B) % 4, 4, dtype=jnp.float64)
    loss = lambda p, x: weighted(unroll(cell, p, TeacherForced(x, shown)).outputs)  # noqa: E731
    got = input_gradients(loss)(params, x)["jordan"]
    assert isinstance(got, TeacherForced) and got.feedback.shape == (T, B, 4)
    assert_close(got.x, jax.grad(loss, 1)(params, x), TOLERANCE["float64"])

    class Table(Elman):
        def project(self, params, inputs):
            return params["W_ih"][inputs["word"][..., 0]] * inputs["scale"]

    params = {"W_ih": params["W_ih"][:2, :H], "W_hh": jnp.eye(H), "b": jnp.zeros(H)}
    words = {"word": jnp.zeros((T, B, 1), jnp.int32), "scale": jnp.ones((T, B, 1))}
    got = input_gradients(lambda p: weighted(unroll(Table(X, H), p, words).outputs))(params)["table"]
    assert got["word"] is None and jnp.all(got["scale"] != 0)


def test_a_carry_of_whole_numbers_has_no_gradient_and_its_inputs_have(x64):
    class Count(NamedTuple):
        h: jax.Array
        n: jax.Array

    class Counting(Elman):
        def initial_carry(self, params, batch_shape=()):
            h = super().initial_carry(params, batch_shape).h
            return Count(h, jnp.zeros((*batch_shape, 1), jnp.int32))

        def step(self, params, carry, z):
            return Count(super().step(params, carry, z).h, carry.n + 1)

    cell = Counting(X, H)
    params, inputs = made(Elman(X, H))

    def loss(params, inputs):
        return weighted(unroll(cell, params, inputs).outputs)

    assert_close(input_gradients(loss)(params, inputs)["counting"], jax.grad(loss, 1)(params, inputs), 1e-12)
    with pytest.raises(ValueError, match="holds .n of dtype int32, which has no gradient"):
        weight_gradients_by_time(loss)(params, inputs)


def test_a_second_call_compiles_nothing_and_what_is_hidden_is_refused():
    cell = Elman(X, H)
    params, inputs = cell.init(jax.random.key(0)), jnp.ones((T, B, X))
    inner = jax.jit(lambda p, x: unroll(cell, p, x).outputs)
    for probe in (weight_gradients_by_time, input_gradients):
        of = probe(lambda p, x: (jnp.sum(unroll(cell, p, x).outputs), x), has_aux=True)
        of(params, inputs)
        others = 2 * inputs
        with count_compilations() as compilations:
            of(params, others)
        assert compilations.count == 0
        with pytest.raises(ValueError, match="calls no rnnjax.unroll"):
            probe(lambda p: jnp.sum(p["b"]))(params)
    assert input_gradients(lambda p, x: jnp.sum(inner(p, x)))(params, inputs)["elman"].shape == (T, B, X)
    with pytest.raises(ValueError, match="'elman' runs inside a (pjit|jit), which its parameters"):
        weight_gradients_by_time(lambda p, x: jnp.sum(inner(p, x)))(params, inputs)
