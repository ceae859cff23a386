"""The long short-term memory with forget gate, and its variants."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import (
    Cell,
    Gate,
    activated,
    add_bias,
    check_choice,
    check_chrono,
    check_sizes,
    dot,
    normalize,
    parameter_dtype,
    scale,
    sigmoid,
    sum_outer,
)
from rnnjax.cells.lstm_variants import carry_with, check_options, variant_params, variant_step
from rnnjax.initializers import INITIALIZERS, chrono_bias, draw


class LSTMFactors(NamedTuple):
    """Of a step's backward: gates [*, 4H], d pre-activation / d (c, c, c, h); shown [*, H], dh / dc; kept [*, H], f."""

    gates: jax.Array
    shown: jax.Array
    kept: jax.Array


class LSTMCarry(NamedTuple):
    """h [*batch, H], the hidden state that the output shows, and c [*batch, H], the memory cell."""

    h: jax.Array
    c: jax.Array


@dataclasses.dataclass(frozen=True)
class LSTM(Cell):
    """c_t = f * c_{t-1} + i * g, h_t = o * tanh(c_t), y_t = h_t, with i, f, o = sigmoid of z_i, z_f, z_o and
    g = tanh(z_g), where [z_i, z_f, z_g, z_o] = x_t W_ih + h_{t-1} W_hh + b.

    Parameters, gates in the order i, f, g, o: W_ih [I, 4H], W_hh [H, 4H], b [4H].
    Source: Hochreiter, Schmidhuber 1997; forget gate of Gers, Schmidhuber, Cummins 2000.

    Variants change the equations only where they say so. Those in capitals are named by Greff et al. 2017.

    NIG, NFG, NOG: without input_gate, forget_gate, output_gate the gate is 1 and has no block in W_ih, W_hh and b.
    NIAF, NOAF: g = z_g with input_activation="identity"; h_t = o * c_t with output_activation="identity".
    CIFG: coupled, i = 1 - f, and i has no block.
    FGR: gate_recurrence adds [i, f, o] of t-1 times W_gates [3H, 3H] to [z_i, z_f, z_o]; the carry holds the gates
      too, 0 at the start. Without forget_gate it is the recurrence of 1997.
    Peepholes (Gers, Schmidhuber 2000): p_i * c_{t-1}, p_f * c_{t-1}, p_o * c_t are added to z_i, z_f, z_o; p_ [H] each.
    Projection (Sak, Senior, Beaufays 2014): h_t = (o * tanh(c_t)) W_hr, W_hr [H, P] and W_hh [P, 4H].
    Layer normalisation (Ba, Kiros, Hinton 2016): z = scale_ih * N(x_t W_ih) + scale_hh * N(h_{t-1} W_hh) + b and
      h_t = o * tanh(scale_c * N(c_t) + shift_c), where N(a) = (a - mean(a)) / sqrt(var(a) + 1e-5) over the last axis,
      scale_ih, scale_hh [4H], scale_c, shift_c [H].
    Chrono (Tallec, Ollivier 2018): b starts at log U(1, chrono - 1) for f, and at its negative for i.

    input_size: I, features of x_t.
    hidden_size: H, features of c_t, and of h_t where it is not projected.
    forget_bias: the initial value of b's forget part; the rest of b starts at 0.
    input_init: how each gate's block of W_ih is drawn, and W_hr; a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how each gate's block of W_hh is drawn, and each pair's of W_gates.
    gain: the factor on W_hh and W_gates.
    input_gate: whether there is i.
    forget_gate: whether there is f.
    output_gate: whether there is o.
    input_activation: what z_g goes through, tanh or identity.
    output_activation: what c_t is shown through, tanh or identity.
    peepholes: whether the gates see c.
    coupled: whether i = 1 - f.
    gate_recurrence: whether the gates see the gates of the step before.
    projection_size: P, features of h_t, where it is projected.
    layer_norm: whether what is added up, and c_t where it is shown, are normalised.
    chrono: the longest time to remember, in steps, from which b starts in place of forget_bias.
    """

    input_size: int
    hidden_size: int
    forget_bias: float = 1.0
    input_init: str = "lecun_normal"
    recurrent_init: str = "orthogonal"
    gain: float = 1.0
    input_gate: bool = True
    forget_gate: bool = True
    output_gate: bool = True
    input_activation: str = "tanh"
    output_activation: str = "tanh"
    peepholes: bool = False
    coupled: bool = False
    gate_recurrence: bool = False
    projection_size: int | None = None
    layer_norm: bool = False
    chrono: float | None = None

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size")
        if self.projection_size is not None:
            check_sizes(self, "projection_size")
        check_choice(self, "input_activation", ("tanh", "identity"))
        check_choice(self, "output_activation", ("tanh", "identity"))
        check_choice(self, "input_init", INITIALIZERS)
        check_choice(self, "recurrent_init", INITIALIZERS)
        check_chrono(self)
        check_options(self)

    @functools.cached_property
    def output_size(self):
        return self.hidden_size if self.projection_size is None else self.projection_size

    @functools.cached_property
    def blocks(self) -> tuple[str, ...]:
        """Those of i, f, g, o that have a block in W_ih, W_hh and b, in this order."""
        there = {"i": self.input_gate and not self.coupled, "f": self.forget_gate, "g": True, "o": self.output_gate}
        return tuple(name for name, is_there in there.items() if is_there)

    @functools.cached_property
    def gate_names(self) -> tuple[str, ...]:
        """The blocks without g."""
        return tuple(name for name in self.blocks if name != "g")

    @functools.cached_property
    def standard(self) -> bool:
        """Whether the step is that of the first equations, which comes with a backward of its own."""
        added = self.peepholes or self.gate_recurrence or self.layer_norm or self.projection_size is not None
        return len(self.blocks) == 4 and self.input_activation == self.output_activation == "tanh" and not added

    @property
    def recurrent(self):
        return ("W_hh", "W_gates") if self.gate_recurrence else ("W_hh",)

    @property
    def brings_backward(self):
        return self.standard and super().brings_backward

    def init(self, key, dtype=jnp.float32):
        input_key, recurrent_key = jax.random.split(key)
        bias_key, projection_key, gates_key = jax.random.split(key, 5)[2:]
        hidden, count = self.hidden_size, len(self.blocks)
        recurrent = (self.output_size, hidden)
        return {
            "W_ih": draw(self.input_init, input_key, (self.input_size, hidden), gates=count, dtype=dtype),
            "W_hh": draw(self.recurrent_init, recurrent_key, recurrent, gates=count, gain=self.gain, dtype=dtype),
            "b": self._initial_bias(bias_key, dtype),
            **variant_params(self, projection_key, gates_key, dtype),
        }

    def _initial_bias(self, key, dtype):
        zeros, forget = jnp.zeros(self.hidden_size, dtype), jnp.full(self.hidden_size, self.forget_bias, dtype)
        parts = {"i": zeros, "f": forget, "g": zeros, "o": zeros}
        if self.chrono is not None:
            forget = chrono_bias(key, self.hidden_size, self.chrono).astype(dtype)
            parts |= {"i": -forget, "f": forget}
        return jnp.concatenate([parts[name] for name in self.blocks])

    def initial_carry(self, params, batch_shape=()):
        dtype = parameter_dtype(params)
        zeros = jnp.zeros((*batch_shape, self.hidden_size), dtype)
        h = jnp.zeros((*batch_shape, self.output_size), dtype)
        if self.gate_recurrence:
            return carry_with(*self.gate_names)(h, zeros, *[zeros for _ in self.gate_names])
        return LSTMCarry(h=h, c=zeros)

    def project(self, params, inputs):
        z = dot(inputs, params["W_ih"])
        if self.layer_norm:
            z = scale(normalize(z), params["scale_ih"])
        return add_bias(z, params["b"])

    def step(self, params, carry, z):
        if self.standard:
            return self.step_and_keep(params, carry, z)[0]
        h, c, gates = variant_step(self, params, carry, z)
        return type(carry)(h, c, *[gates[name] for name in self.gate_names if self.gate_recurrence])

    def step_and_keep(self, params, carry, z):
        i, f, g, o = gates = _gates(z + dot(carry.h, params["W_hh"]))
        c = f * carry.c + i * g
        return LSTMCarry(h=o * jnp.tanh(c), c=c), gates

    def gates(self, params, carry, z):
        if self.standard:
            opened = dict(zip(self.blocks, self.step_and_keep(params, carry, z)[1], strict=True))
        else:
            opened = variant_step(self, params, carry, z)[2]
        return {name: Gate(opened[name], 0.0, 1.0) for name in self.gate_names} | activated(
            "g", opened["g"], self.input_activation
        )

    def linearize(self, params, carries_before, carries, kept):
        i, f, g, o = kept
        shown = jnp.tanh(carries.c)
        gates = [g * i * (1 - i), carries_before.c * f * (1 - f), i * (1 - g * g), shown * o * (1 - o)]
        return LSTMFactors(jnp.concatenate(gates, axis=-1), o * (1 - shown * shown), f)

    def pull(self, transposed, factors, d_carry):
        d_c = d_carry.c + d_carry.h * factors.shown
        d_zs = jnp.concatenate([d_c, d_c, d_c, d_carry.h], axis=-1) * factors.gates
        return LSTMCarry(h=dot(d_zs, transposed["W_hh"]), c=d_c * factors.kept), d_zs

    def collect(self, params, carries_before, kept, d_zs):
        return {"W_hh": sum_outer(carries_before.h, d_zs)}, d_zs


def _gates(before):
    """i, f, g, o."""
    hidden = before.shape[-1] // 4
    i, f = jnp.split(sigmoid(before[..., : 2 * hidden]), 2, axis=-1)
    return i, f, jnp.tanh(before[..., 2 * hidden : 3 * hidden]), sigmoid(before[..., 3 * hidden :])
