"""The Jordan network: the output feeds back."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import (
    ACTIVATIONS,
    SLOPES,
    Cell,
    activated,
    add_bias,
    check_choice,
    check_sizes,
    dot,
    parameter_dtype,
    sum_outer,
)
from rnnjax.initializers import INITIALIZERS, draw


class JordanCarry(NamedTuple):
    """y [*batch, O], the previous output before its feedback activation."""

    y: jax.Array


class TeacherForced(NamedTuple):
    """Inputs of a Jordan network that is shown given values in place of its own last output.

    x [T, *batch, I] are the inputs; feedback [T, *batch, O] stands for g(y_{t-1}) at each t: what is shown, after the
    feedback activation, for example the one-hot target of the step before. No gradient crosses time then.
    """

    x: Any
    feedback: Any


@dataclasses.dataclass(frozen=True)
class Jordan(Cell):
    """h_t = f(x_t W_ih + g(y_{t-1}) W_yh + b_h), y_t = h_t W_hy + b_y.

    The output y_t is the prediction (logits where g is softmax or sigmoid), so `readout` is True; y_0 = 0. Inputs may
    be `TeacherForced(x, feedback)`. Parameters: W_ih [I, H], W_yh [O, H], b_h [H], W_hy [H, O], b_y [O].
    Source: Jordan 1986, "Serial order"; with softmax feedback as in Mesnil et al. 2013.

    input_size: I, features of x_t.
    hidden_size: H, features of h_t.
    output_size: O, features of y_t.
    activation: f, one of tanh, relu, sigmoid, identity.
    feedback: g, one of softmax, sigmoid, tanh, identity.
    input_init: how W_ih and the output's W_hy are drawn, a name in rnnjax.initializers.INITIALIZERS.
    recurrent_init: how the feedback's W_yh is drawn.
    gain: the factor on W_yh.
    """

    input_size: int
    hidden_size: int
    output_size: int
    activation: str = "tanh"
    feedback: str = "softmax"
    input_init: str = "lecun_normal"
    recurrent_init: str = "orthogonal"
    gain: float = 1.0

    readout: ClassVar[bool] = True
    recurrent: ClassVar[tuple[str, ...]] = ("W_yh",)

    def __post_init__(self):
        check_sizes(self, "input_size", "hidden_size", "output_size")
        check_choice(self, "activation", ("tanh", "relu", "sigmoid", "identity"))
        check_choice(self, "feedback", ("softmax", "sigmoid", "tanh", "identity"))
        check_choice(self, "input_init", INITIALIZERS)
        check_choice(self, "recurrent_init", INITIALIZERS)

    def init(self, key, dtype=jnp.float32):
        input_key, feedback_key, output_key = jax.random.split(key, 3)
        inputs, hidden, outputs = self.input_size, self.hidden_size, self.output_size
        return {
            "W_ih": draw(self.input_init, input_key, (inputs, hidden), dtype=dtype),
            "W_yh": draw(self.recurrent_init, feedback_key, (outputs, hidden), gain=self.gain, dtype=dtype),
            "b_h": jnp.zeros(hidden, dtype),
            "W_hy": draw(self.input_init, output_key, (hidden, outputs), dtype=dtype),
            "b_y": jnp.zeros(outputs, dtype),
        }

    def initial_carry(self, params, batch_shape=()):
        return JordanCarry(y=jnp.zeros((*batch_shape, self.output_size), parameter_dtype(params)))

    def project(self, params, inputs):
        if isinstance(inputs, TeacherForced):
            z = self.project(params, inputs.x) + dot(inputs.feedback, params["W_yh"])
            return TeacherForced(x=z, feedback=None)
        return add_bias(dot(inputs, params["W_ih"]), params["b_h"])

    def step(self, params, carry, z):
        return self.step_and_keep(params, carry, z)[0]

    def step_and_keep(self, params, carry, z):
        fed, h = _hidden(self, params, carry, z)
        return JordanCarry(y=add_bias(dot(h, params["W_hy"]), params["b_y"])), (fed, h)

    def gates(self, params, carry, z):
        fed, h = _hidden(self, params, carry, z)
        shown = {} if fed is None else activated("y", fed, self.feedback)
        return activated("h", h, self.activation) | shown

    def linearize(self, params, carries_before, carries, kept):
        return kept

    def pull(self, transposed, factors, d_carry):
        fed, h = factors
        d_zs = dot(d_carry.y, transposed["W_hy"]) * SLOPES[self.activation](h)
        if fed is None:
            return jax.tree.map(jnp.zeros_like, d_carry), (d_zs, d_carry.y)
        d_fed = dot(d_zs, transposed["W_yh"])
        if self.feedback == "softmax":
            d_before = fed * (d_fed - jnp.sum(fed * d_fed, axis=-1, keepdims=True))
        else:
            d_before = d_fed * SLOPES[self.feedback](fed)
        return JordanCarry(y=d_before), (d_zs, d_carry.y)

    def collect(self, params, carries_before, kept, d_pre):
        fed, h = kept
        d_zs, d_y = d_pre
        d_params = {"W_hy": sum_outer(h, d_y), "b_y": d_y.sum(axis=range(d_y.ndim - 1))}
        if fed is None:
            return d_params, TeacherForced(x=d_zs, feedback=None)
        return d_params | {"W_yh": sum_outer(fed, d_zs)}, d_zs


def _hidden(cell, params, carry, z):
    """(what is fed back, None where a teacher did it in `project`; h)."""
    activate = ACTIVATIONS[cell.activation]
    if isinstance(z, TeacherForced):
        return None, activate(z.x).astype(carry.y.dtype)
    fed = ACTIVATIONS[cell.feedback](carry.y)
    return fed, activate(z + dot(fed, params["W_yh"])).astype(carry.y.dtype)
