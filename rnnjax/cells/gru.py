"""The gated recurrent unit, with the reset gate after or before the recurrent matmul."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Cell, add_bias, check_choice, check_sizes, dot, parameter_dtype, sigmoid, sum_outer
from rnnjax.initializers import INITIALIZERS, draw


class GRUFactors(NamedTuple):
    """Of a step's backward: the slopes of the gates' pre-activations, [*, H] each, and the gates r and u.

    of_u, of_n: d pre-activation / dh. of_r: d pre-activation / dh with reset="after"; with "before", whose r stands in
    front of a matmul, d pre-activation / d (r * h_{t-1}).
    """

    of_r: jax.Array
    of_u: jax.Array
    of_n: jax.Array
    r: jax.Array
    u: jax.Array


class GRUCarry(NamedTuple):
    """h [*batch, H], the hidden state."""

    h: jax.Array


@dataclasses.dataclass(frozen=True)
class GRU(Cell):
    """h_t = u * h_{t-1} + (1 - u) * n, y_t = h_t, with r, u = sigmoid(z_r + h_{t-1} W_r), sigmoid(z_u + h_{t-1} W_u),
    n = tanh(z_n + r * (h_{t-1} W_n + b_hn))    reset="after" the matmul (cuDNN, torch, Keras), or
    n = tanh(z_n + (r * h_{t-1}) W_n)           reset="before" it (Cho et al. 2014),
    where [z_r, z_u, z_n] = x_t W_ih + b.

    Parameters, gates in the order r, u, n: W_ih [I, 3H], W_hh [H, 3H], b [3H] and, with reset="after", b_hn [H].
    Source: Cho et al. 2014, arXiv:1406.1078.

    input_size: I, features of x_t.
    hidden_size: H, features of h_t.
    reset: whether the reset gate stands after or before the recurrent matmul.
    input_init: how each gate's block of W_ih is drawn, a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how each gate's block of W_hh is drawn.
    gain: the factor on W_hh.
    """

    input_size: int
    hidden_size: int
    reset: str = "after"
    input_init: str = "lecun_normal"
    recurrent_init: str = "orthogonal"
    gain: float = 1.0

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size")
        check_choice(self, "reset", ("after", "before"))
        check_choice(self, "input_init", INITIALIZERS)
        check_choice(self, "recurrent_init", INITIALIZERS)

    def init(self, key, dtype=jnp.float32):
        input_key, recurrent_key = jax.random.split(key)
        inputs, hidden = self.input_size, self.hidden_size
        params = {
            "W_ih": draw(self.input_init, input_key, (inputs, hidden), gates=3, dtype=dtype),
            "W_hh": draw(self.recurrent_init, recurrent_key, (hidden, hidden), gates=3, gain=self.gain, dtype=dtype),
            "b": jnp.zeros(3 * hidden, dtype),
        }
        return params | {"b_hn": jnp.zeros(hidden, dtype)} if self.reset == "after" else params

    def initial_carry(self, params, batch_shape=()):
        return GRUCarry(h=jnp.zeros((*batch_shape, self.hidden_size), parameter_dtype(params)))

    def project(self, params, inputs):
        return add_bias(dot(inputs, params["W_ih"]), params["b"])

    def step(self, params, carry, z):
        return self.step_and_keep(params, carry, z)[0]

    def step_and_keep(self, params, carry, z):
        h, hidden = carry.h, self.hidden_size
        z_gates, z_n = z[..., : 2 * hidden], z[..., 2 * hidden :]
        if self.reset == "after":
            recurrent = dot(h, params["W_hh"])
            r, u = jnp.split(sigmoid(z_gates + recurrent[..., : 2 * hidden]), 2, axis=-1)
            into_n = add_bias(recurrent[..., 2 * hidden :], params["b_hn"])
            n = jnp.tanh(z_n + r * into_n)
        else:
            W_gates, W_n = params["W_hh"][:, : 2 * hidden], params["W_hh"][:, 2 * hidden :]
            r, u = jnp.split(sigmoid(z_gates + dot(h, W_gates)), 2, axis=-1)
            into_n = None
            n = jnp.tanh(z_n + dot((r * h).astype(h.dtype), W_n))
        return GRUCarry(h=u * h + (1 - u) * n), (r, u, n, into_n)

    def linearize(self, params, carries_before, carries, kept):
        r, u, n, into_n = kept
        h = carries_before.h
        of_n = (1 - u) * (1 - n * n)
        of_r = (h if into_n is None else of_n * into_n) * r * (1 - r)
        return GRUFactors(of_r, (h - n) * u * (1 - u), of_n, r, u)

    def pull(self, params, factors, d_carry):
        into_zs, into_recurrent, d_reset = self._before_activations(params, factors, d_carry.h)
        W_hh = params["W_hh"] if self.reset == "after" else params["W_hh"][:, : 2 * self.hidden_size]
        d_before = d_carry.h * factors.u + dot(into_recurrent, W_hh.T)
        return GRUCarry(h=d_before if d_reset is None else d_before + d_reset * factors.r)

    def collect(self, params, factors, carries_before, kept, d_carries):
        h = carries_before.h
        d_zs, into_recurrent, _ = self._before_activations(params, factors, d_carries.h)
        if self.reset == "after":
            d_n = into_recurrent[..., 2 * self.hidden_size :]
            return {"W_hh": sum_outer(h, into_recurrent), "b_hn": d_n.sum(axis=range(d_n.ndim - 1))}, d_zs
        of_n = sum_outer((factors.r * h).astype(h.dtype), d_zs[..., 2 * self.hidden_size :])
        return {"W_hh": jnp.concatenate([sum_outer(h, into_recurrent), of_n], axis=1)}, d_zs

    def _before_activations(self, params, factors, d_h):
        """dL/d of zs [*, 3H]; of what is added to them by h_{t-1} W_hh; and, with reset="before", of r * h_{t-1}."""
        d_u, d_n = d_h * factors.of_u, d_h * factors.of_n
        if self.reset == "after":
            d_r = d_h * factors.of_r
            return jnp.concatenate([d_r, d_u, d_n], -1), jnp.concatenate([d_r, d_u, d_n * factors.r], -1), None
        d_reset = dot(d_n, params["W_hh"][:, 2 * self.hidden_size :].T)
        d_r = d_reset * factors.of_r
        return jnp.concatenate([d_r, d_u, d_n], -1), jnp.concatenate([d_r, d_u], -1), d_reset
