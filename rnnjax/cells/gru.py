"""The gated recurrent unit, with the reset gate after or before the recurrent matmul."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import (
    Cell,
    Gate,
    add_bias,
    check_choice,
    check_chrono,
    check_sizes,
    dot,
    parameter_dtype,
    sigmoid,
    sum_outer,
)
from rnnjax.initializers import INITIALIZERS, chrono_bias, draw


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
    n = tanh(z_n + (r * h_{t-1}) W_n)           reset="before" it (Cho et al. 2014), or
    n = tanh(z_n + h_{t-1} W_n)                 reset="none", without it,
    where [z_r, z_u, z_n] = x_t W_ih + b. Without update_gate h_t = n.

    Parameters, gates in the order r, u, n, with no block for one that is not there: W_ih [I, 3H], W_hh [H, 3H], b [3H]
    and, with reset="after", b_hn [H]. Source: Cho et al. 2014, arXiv:1406.1078.

    input_size: I, features of x_t.
    hidden_size: H, features of h_t.
    reset: where the reset gate stands, after or before the recurrent matmul, or none.
    input_init: how each gate's block of W_ih is drawn, a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how each gate's block of W_hh is drawn.
    gain: the factor on W_hh.
    update_gate: whether there is u.
    update_bias: the initial value of b's update part, which keeps h_{t-1} where it is large; the rest of b starts at 0.
    chrono: the longest time to remember, in steps; b's update part starts at log U(1, chrono - 1) (Tallec, Ollivier
      2018) in place of update_bias.
    """

    input_size: int
    hidden_size: int
    reset: str = "after"
    input_init: str = "lecun_normal"
    recurrent_init: str = "orthogonal"
    gain: float = 1.0
    update_gate: bool = True
    update_bias: float = 0.0
    chrono: float | None = None

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size")
        check_choice(self, "reset", ("after", "before", "none"))
        check_choice(self, "input_init", INITIALIZERS)
        check_choice(self, "recurrent_init", INITIALIZERS)
        check_chrono(self)
        for name, refused, reason in (
            ("reset", self.reset == "none", "with no gate left it is rnnjax.cells.Elman"),
            ("chrono", self.chrono is not None, "it is the bias of that gate"),
        ):
            if refused and not self.update_gate:
                told = f"{name} of {type(self).__name__} is {getattr(self, name)!r} but update_gate is False"
                raise ValueError(f"{told}: {reason}")

    @property
    def brings_backward(self):
        return self._has_both and super().brings_backward

    def init(self, key, dtype=jnp.float32):
        input_key, recurrent_key = jax.random.split(key)
        inputs, hidden = self.input_size, self.hidden_size
        bias = self._initial_bias(jax.random.split(key, 3)[2], dtype)
        gates = bias.size // hidden
        params = {
            "W_ih": draw(self.input_init, input_key, (inputs, hidden), gates=gates, dtype=dtype),
            "W_hh": draw(self.recurrent_init, recurrent_key, (hidden, hidden), gates, gain=self.gain, dtype=dtype),
            "b": bias,
        }
        return params | {"b_hn": jnp.zeros(hidden, dtype)} if self.reset == "after" else params

    def _initial_bias(self, key, dtype):
        zeros, update = jnp.zeros(self.hidden_size, dtype), jnp.full(self.hidden_size, self.update_bias, dtype)
        if self.chrono is not None:
            update = chrono_bias(key, self.hidden_size, self.chrono).astype(dtype)
        return jnp.concatenate([zeros] * (self.reset != "none") + [update] * self.update_gate + [zeros])

    def initial_carry(self, params, batch_shape=()):
        return GRUCarry(h=jnp.zeros((*batch_shape, self.hidden_size), parameter_dtype(params)))

    def project(self, params, inputs):
        return add_bias(dot(inputs, params["W_ih"]), params["b"])

    def step(self, params, carry, z):
        if self._has_both:
            return self.step_and_keep(params, carry, z)[0]
        gate, n = self._with_one_gate(params, carry.h, z)
        return GRUCarry(h=gate * carry.h + (1 - gate) * n if self.update_gate else n)

    def gates(self, params, carry, z):
        if self._has_both:
            r, u, n, _ = self.step_and_keep(params, carry, z)[1]
            opened = {"r": r, "u": u}
        else:
            gate, n = self._with_one_gate(params, carry.h, z)
            opened = {"u" if self.update_gate else "r": gate}
        return {name: Gate(gate, 0.0, 1.0) for name, gate in opened.items()} | {"n": Gate(n, -1.0, 1.0)}

    @property
    def _has_both(self):
        return self.reset != "none" and self.update_gate

    def _with_one_gate(self, params, h, z):
        """(r or u, n), whichever of the gates there is; its block stands before n's."""
        z_gate, z_n = jnp.split(z, 2, axis=-1)
        if self.reset == "before":
            W_r, W_n = params["W_hh"][:, : self.hidden_size], params["W_hh"][:, self.hidden_size :]
            r = sigmoid(z_gate + dot(h, W_r))
            return r, jnp.tanh(z_n + dot((r * h).astype(h.dtype), W_n))
        into_gate, into_n = jnp.split(dot(h, params["W_hh"]), 2, axis=-1)
        gate = sigmoid(z_gate + into_gate)
        if self.reset == "after":
            return gate, jnp.tanh(z_n + gate * add_bias(into_n, params["b_hn"]))
        return gate, jnp.tanh(z_n + into_n)

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

    def pull(self, transposed, factors, d_carry):
        d_h, gates = d_carry.h, 2 * self.hidden_size
        d_u, d_n = d_h * factors.of_u, d_h * factors.of_n
        if self.reset == "after":
            d_r = d_h * factors.of_r
            d_before = dot(jnp.concatenate([d_r, d_u, d_n * factors.r], -1), transposed["W_hh"])
        else:
            d_reset = dot(d_n, transposed["W_hh"][gates:])
            d_r = d_reset * factors.of_r
            d_before = d_reset * factors.r + dot(jnp.concatenate([d_r, d_u], -1), transposed["W_hh"][:gates])
        return GRUCarry(h=d_h * factors.u + d_before), jnp.concatenate([d_r, d_u, d_n], -1)

    def collect(self, params, carries_before, kept, d_zs):
        h, r = carries_before.h, kept[0]
        d_gates, d_n = d_zs[..., : 2 * self.hidden_size], d_zs[..., 2 * self.hidden_size :]
        if self.reset == "after":
            d_n = d_n * r
            of_gates, of_n = sum_outer(h, d_gates), sum_outer(h, d_n)
            d_b = d_n.sum(axis=range(d_n.ndim - 1))
            return {"W_hh": jnp.concatenate([of_gates, of_n], axis=1), "b_hn": d_b}, d_zs
        of_n = sum_outer((r * h).astype(h.dtype), d_n)
        return {"W_hh": jnp.concatenate([sum_outer(h, d_gates), of_n], axis=1)}, d_zs
