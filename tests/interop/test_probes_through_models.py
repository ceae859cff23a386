"""The probe gives one answer through every framework that calls unroll, and the way out where one scans by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from rnnjax import probes, unroll
from rnnjax.cells import LSTM, LSTMCarry
from rnnjax.interop.linen import RNN, LinenCell, RNNCell
from rnnjax.interop.nnx import NNXCell, parameters
from rnnjax.interop.nnx import RNNCell as NNXRNNCell
from rnnjax.layers import Bidirectional, Stack
from rnnjax.nn import RNN as NNXRNN
from rnnjax.testing import TOLERANCE, assert_close

T, B, X, H = 5, 2, 3, 4
CELL = LSTM(X, H)
LENGTHS = np.array([T, 2])
GRU = linen.GRUCell(H)
NNX_GRU = nnx.GRUCell(X, H, rngs=nnx.Rngs(0))


def draw(cell, dtype=jnp.float32):
    return cell.init(jax.random.key(0), dtype), jax.random.normal(jax.random.key(1), (T, B, X), dtype)


class Tagger(linen.Module):
    """A model of Flax with our layer in it."""

    def setup(self):
        self.encoder = RNN(CELL)
        self.head = linen.Dense(2, kernel_init=linen.initializers.ones)

    def __call__(self, inputs):
        return self.head(self.encoder(inputs, lengths=LENGTHS).outputs)


def of_linen(params, inputs):
    head = {"kernel": jnp.ones((H, 2), inputs.dtype), "bias": jnp.zeros(2, inputs.dtype)}
    return jnp.square(Tagger().apply({"params": {"encoder": params, "head": head}}, inputs)).sum()


def of_nnx(params, inputs):
    module = NNXRNN(CELL, rngs=nnx.Rngs(0), name="encoder")
    nnx.update(module, {"params": params})
    return jnp.square(with_head(module(inputs, lengths=LENGTHS).outputs)).sum()


def of_equinox(params, inputs):
    equinox = pytest.importorskip("equinox")

    class Encoder(equinox.Module):
        params: dict

        @equinox.filter_jit
        def __call__(self, inputs):
            return unroll(CELL, self.params, inputs, lengths=LENGTHS, name="encoder").outputs

    return jnp.square(with_head(Encoder(params)(inputs))).sum()


def of_plain_jax(params, inputs):
    return jnp.square(with_head(unroll(CELL, params, inputs, lengths=LENGTHS, name="encoder").outputs)).sum()


def with_head(outputs):
    return outputs @ jnp.ones((H, 2), outputs.dtype)


def loop(params, inputs):
    """dL/de_t by differentiating a Python loop in which e_t is added to the carry of every valid step."""

    def loss(perturbation):
        total = 0.0
        for row, length in enumerate(LENGTHS):
            carry = CELL.initial_carry(params)
            for t in range(length):
                carry = CELL.step(params, carry, CELL.project(params, inputs[t, row]))
                carry = jax.tree.map(lambda c, e, t=t, row=row: c + e[t, row], carry, perturbation)
                total += jnp.square(with_head(carry.h)).sum()
        return total

    zeros = jnp.zeros((T, B, H), inputs.dtype)
    return jax.jit(jax.grad(loss))(LSTMCarry(zeros, zeros))


@pytest.mark.parametrize("loss", [of_plain_jax, of_linen, of_nnx, of_equinox])
def test_one_answer_through_every_framework(loss, x64):
    params, inputs = draw(CELL, jnp.float64)
    got = probes.carry_gradients(loss)(params, inputs)
    assert list(got) == ["encoder"]
    assert_close(got["encoder"], loop(params, inputs), TOLERANCE["float64"])


def test_every_layer_of_a_linen_model_has_its_name():
    stack = Stack((Bidirectional(CELL, CELL), LSTM(2 * H, H)))

    class Model(linen.Module):
        @linen.compact
        def __call__(self, inputs):
            return RNN(CELL)(inputs).outputs.sum() + RNN(stack, name="deep")(inputs).outputs.sum()

    inputs = jnp.ones((T, B, X))
    variables = jax.eval_shape(Model().init, jax.random.key(0), inputs)
    names = probes.unrolls.discover(lambda: Model().apply(jax.tree.map(jnp.ones_like, variables), inputs))
    assert list(names) == ["RNN_0", "deep/layer_0/forward", "deep/layer_0/backward", "deep/layer_1"]


def scanned_by_linen(params, inputs):
    return linen.RNN(GRU, time_major=True).apply({"params": {"cell": params}}, inputs).sum()


def scanned_by_nnx(params, inputs):
    return nnx.RNN(nnx.merge(nnx.graphdef(NNX_GRU), params), time_major=True)(inputs).sum()


def ours_scanned_by_linen(params, inputs):
    return linen.RNN(RNNCell(CELL), time_major=True).apply({"params": {"cell": params}}, inputs).sum()


def ours_scanned_by_nnx(params, inputs):
    cell = NNXRNNCell(CELL, rngs=nnx.Rngs(0))
    nnx.update(cell, {"params": params})
    return nnx.RNN(cell, time_major=True)(inputs).sum()


@pytest.mark.parametrize("loss, cell", [
    (scanned_by_linen, LinenCell(GRU, X)),
    (scanned_by_nnx, NNXCell(NNX_GRU)),
    (ours_scanned_by_linen, CELL),
    (ours_scanned_by_nnx, CELL),
])  # fmt: skip
def test_a_model_that_scans_by_itself_is_refused_with_the_way_out(loss, cell):
    params, inputs = draw(cell)
    with pytest.raises(ValueError) as raised:
        probes.carry_gradients(loss)(params, inputs)
    message = str(raised.value)
    assert f"{loss.__name__} calls no rnnjax.unroll" in message and "It scans by itself" in message
    for way in ("interop.linen.LinenCell", "interop.nnx.NNXCell", "interop.linen.RNN"):
        assert way in message


def test_what_holds_no_scan_is_told_so():
    with pytest.raises(ValueError) as raised:
        probes.carry_gradients(lambda params, inputs: inputs.sum())(*draw(CELL))
    assert "calls no rnnjax.unroll" in str(raised.value) and "scans" not in str(raised.value)


def test_beside_an_unroll_a_foreign_scan_may_stand():
    params, inputs = draw(CELL)

    def loss(params, inputs):
        return scanned_by_linen(draw(LinenCell(GRU, X))[0], inputs) + unroll(CELL, params, inputs).outputs.sum()

    assert list(probes.unrolls.discover(lambda: loss(params, inputs))) == ["lstm"]


@pytest.mark.parametrize("cell, loss", [(LinenCell(GRU, X), scanned_by_linen), (NNXCell(NNX_GRU), scanned_by_nnx)])
def test_the_way_out_gives_the_carries_of_the_same_model(cell, loss):
    params, inputs = draw(cell)

    def ours(params, inputs):
        return unroll(cell, params, inputs, name="it").outputs.sum()

    value, gradients, carries = probes.value_and_grad(ours)(params, inputs)
    want = jax.jit(jax.value_and_grad(loss))(params, inputs)
    assert_close((value, gradients), want, TOLERANCE["float32"])
    assert carries["it"].h.shape == (T, B, H)
    assert_close(carries["it"].h[-1], np.ones((B, H)), TOLERANCE["float32"])
    assert jnp.all(carries["it"].h[0] != 1)


def test_weights_of_a_module_are_probed_as_they_are():
    cell, params = NNXCell(NNX_GRU), parameters(NNX_GRU)
    gradients = jax.eval_shape(
        probes.carry_gradients(lambda params, x: unroll(cell, params, x).outputs.sum()), params, jnp.ones((T, B, X))
    )
    assert gradients["nnxcell"].h.shape == (T, B, H)
