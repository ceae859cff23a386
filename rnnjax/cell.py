"""The Cell contract: everything that a recurrent cell has to say, and nothing about time.

A cell is a frozen dataclass of hyper-parameters with five pure functions. For inputs x_1 ... x_T

    z_t     = project(params, x_t)              what needs no carry; computed for all times in one matmul
    carry_t = step(params, carry_{t-1}, z_t)    one step
    y_t     = read(params, carry_t, z_t)        what the step shows

and `rnnjax.unroll` is the only place that loops over t. An Elman network in full, as a user would write it:

    class Carry(NamedTuple):
        h: jax.Array

    @dataclasses.dataclass(frozen=True)
    class MyCell(Cell):
        input_size: int
        hidden_size: int

        def init(self, key, dtype=jnp.float32):
            wide = (self.input_size + self.hidden_size, self.hidden_size)
            return {"W": 0.1 * jax.random.normal(key, wide).astype(dtype)}

        def initial_carry(self, params, batch_shape=()):
            return Carry(jnp.zeros((*batch_shape, self.hidden_size), params["W"].dtype))

        def step(self, params, carry, z):
            return Carry(jnp.tanh(jnp.concatenate([z, carry.h], -1) @ params["W"]))

Rules that the engine, the probes and the trainer rely on:

- Arrays act on their last axis; every leading axis is batch. A cell never sees time, never asks for the batch size.
- Inputs and z are pytrees whose leaves have time first, so masks, teacher-forcing targets or an attention memory
  come in beside the inputs.
- Everything that the gradient crosses time through is in the carry, a NamedTuple whose fields carry the names of the
  equations. `step` and `read` are apart so that a perturbation of the carry can be added between them and is seen by
  the output.
- `params` is a dict of arrays named as in the equations, constant in time. There are no hidden constants: a forget
  bias is a parameter's initial value.
- The dtype of the parameters is the dtype of the carry and of the outputs (`parameter_dtype`).
- Hyper-parameters that only `init` uses (gain, forget bias) may be traced: neither `init` nor `__post_init__` branches
  on them.
- What is computed from the parameters once and not at every step (an orthogonal matrix from a free one) is `prepare`'s;
  project, step and read are given what it returns, init and initial_carry know the parameters as they are.
- `recurrent` names the parameters, as `prepare` returns them, that the carry is multiplied with: what dropout and
  DropConnect of the recurrence act on.
- `randomize(key, params, inputs)` draws what is random in one unroll of training (dropout masks, `rnnjax.layers`) and
  puts it into parameters and inputs; left out, the cell acts as it does at evaluation.
- A cell may bring its own backward, because its author knows the algebra that autodiff can't simplify:
      carry, kept     = step_and_keep(params, carry, z)                 a step, and of it what the backward wants
      factors         = linearize(params, carries_before, carries, kept)  all local to a step, for many steps at once
      d_carry_before, d_pre = pull(transposed, factors, d_carry)        one transposed step, alone in the loop
      d_params, d_zs  = collect(params, carries_before, kept, d_pre)    the rest, for many steps at once
  where d_carry is dL/dcarry_t with the carry's other fields of the same time held fixed, as probes report it;
  `transposed` is params with every matrix transposed once, outside the loop; d_pre is what of a step `collect` needs,
  mostly dL/d what the nonlinearities are applied to; d_params holds the parameters that `step` uses. A cell without
  them is differentiated by JAX.
- `gates(params, carry, z)` names what in a step is bounded, for whoever looks at how open it stands: an LSTM's i, f, g
  and o. A cell that leaves it out is looked through for sigmoids and tanhs.
- `readout` is True where the output is already a prediction (a Jordan network's y), so that a model adds no head.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

Params = Any
"""A dict of arrays, constant in time."""
Carry = Any
"""A NamedTuple of arrays [*batch, features], fields named as in the equations."""


class Gate(NamedTuple):
    """values [*batch, F] of a gate or of another bounded part of a step, between `low` and `high`."""

    values: jax.Array
    low: float
    high: float


class Cell:
    """Base class of cells: the contract above with the defaults that most cells share."""

    input_size: int
    hidden_size: int
    readout: ClassVar[bool] = False
    recurrent: ClassVar[tuple[str, ...]] = ("W_hh",)

    @functools.cached_property  # not a property, so that a dataclass may have a field of this name
    def output_size(self) -> int:
        """Features of `read`'s output."""
        return self.hidden_size

    def init(self, key: jax.Array, dtype=jnp.float32) -> Params:
        """Draws the parameters: sampled in float32, then cast to `dtype`."""
        raise TypeError(f"{type(self).__name__} has to define init(key, dtype)")

    def initial_carry(self, params: Params, batch_shape: tuple[int, ...] = ()) -> Carry:
        """The carry before the first step, fields [*batch_shape, features] in the dtype of the parameters."""
        raise TypeError(f"{type(self).__name__} has to define initial_carry(params, batch_shape)")

    def prepare(self, params: Params) -> Params:
        """What project, step and read are given as parameters, computed once an unroll."""
        return params

    def randomize(self, key: jax.Array, params: Params, inputs: Any) -> tuple[Params, Any]:
        """(params, inputs) with what is random in one unroll of training; inputs have time first."""
        del key
        return params, inputs

    def project(self, params: Params, inputs: Any) -> Any:
        """The part of a step that needs no carry, for any leading axes at once."""
        del params
        return inputs

    def step(self, params: Params, carry: Carry, z: Any) -> Carry:
        """One step: the carry after it."""
        raise TypeError(f"{type(self).__name__} has to define step(params, carry, z)")

    def read(self, params: Params, carry: Carry, z: Any) -> jax.Array:
        """The output [*batch, output_size] that a step with this carry shows; the carry's first field by default."""
        del params, z
        return jax.tree.leaves(carry)[0]

    def gates(self, params: Params, carry: Carry, z: Any) -> dict[str, Gate] | None:
        """{name as in the equations: Gate} of the step from this carry; None where the cell names none.

        A subclass that overrides `step` alone inherits the gates of another step: who reads them asks `gates_of`.
        """
        del params, carry, z
        return None

    @property
    def label(self) -> str:
        """What probes call an unroll of the cell: its class, in lower case."""
        return type(self).__name__.lower()

    @property
    def brings_backward(self) -> bool:
        """Whether the backward of one's own is that of `step`: the class that defines one of the five defines them all.

        A subclass that overrides `step` alone inherits a backward of another step, which is not taken.
        """
        names = ("step", "step_and_keep", "linearize", "pull", "collect")
        owner = next(base for base in type(self).__mro__ if any(name in vars(base) for name in names))
        return all(name in vars(owner) for name in names)


def gates_of(cell: Cell, params: Params, carry: Carry, z: Any) -> dict[str, Gate] | None:
    """What the cell's `gates` gives; None where it names none of its own step."""
    owner = next(base for base in type(cell).__mro__ if "gates" in vars(base) or "step" in vars(base))
    return cell.gates(params, carry, z) if "gates" in vars(owner) else None


@jax.custom_jvp
def sigmoid(x: jax.Array) -> jax.Array:
    """1 / (1 + exp(-x)) to the last digits of its value, however small.

    Written with an exp that XLA takes for expensive: it fuses its own logistic into every consumer and computes it
    there anew, which makes the forward of a GRU on a CPU three times slower.
    """
    most = 9 if x.dtype == jnp.float16 else 60  # beyond it 1 to the last digit, up to it no overflow
    grown = jnp.exp(jnp.minimum(x, most))
    return grown / (1 + grown)


@sigmoid.defjvp
def _sigmoid_jvp(primals, tangents):
    y = sigmoid(*primals)
    return y, tangents[0] * (y * (1 - y))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "sigmoid": sigmoid,
    "identity": lambda x: x,
    "softmax": jax.nn.softmax,
}


BOUNDS: dict[str, tuple[float, float]] = {"tanh": (-1.0, 1.0), "sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0)}
"""The lowest and the highest value of those activations that are bounded."""


def activated(name: str, values: jax.Array, activation: str) -> dict[str, Gate]:
    """{name: Gate} of what an activation gave; nothing where it is not bounded."""
    return {name: Gate(values, *BOUNDS[activation])} if activation in BOUNDS else {}


SLOPES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": lambda y: 1 - y * y,
    "relu": lambda y: (y > 0).astype(y.dtype),
    "sigmoid": lambda y: y * (1 - y),
    "identity": jnp.ones_like,
}
"""f'(x) of the elementwise activations, as a function of y = f(x)."""


def parameter_dtype(params: Params) -> jnp.dtype:
    """The one dtype of a cell: that of its floating parameters, and so of its carry and outputs.

    float32 where there are none. Raises TypeError where parameters of several floating dtypes are mixed.
    """
    dtypes = {leaf.dtype for leaf in jax.tree.leaves(params) if jnp.issubdtype(leaf.dtype, jnp.floating)}
    if len(dtypes) > 1:
        found = ", ".join(sorted(str(dtype) for dtype in dtypes))
        raise TypeError(f"the parameters mix the dtypes {found}: cast them to one, which the carry then has too")
    return dtypes.pop() if dtypes else jnp.dtype(jnp.float32)


def dot(x: jax.Array, weights: jax.Array) -> jax.Array:
    """x [..., I] @ weights [I, O], accumulated and returned in float32 at least (bfloat16 in, float32 out).

    weights may also be what `rnnjax.layers.RecurrentDropout` puts in place of a matrix, and then know themselves how.
    """
    if hasattr(weights, "dot_from"):
        return weights.dot_from(x)
    wide = jnp.promote_types(jnp.result_type(x, weights), jnp.float32)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # for a matrix XLA copies neither factor of dW = x^T dy
    return jnp.matmul(rows, weights, preferred_element_type=wide).reshape(*x.shape[:-1], weights.shape[-1])


def sum_outer(x: jax.Array, y: jax.Array) -> jax.Array:
    """The sum over all leading axes of the outer products of x [..., I] and y [..., J]: [I, J]."""
    return dot(x.reshape(-1, x.shape[-1]).T, y.reshape(-1, y.shape[-1]))


def add_bias(x: jax.Array, bias: jax.Array) -> jax.Array:
    """x [..., O] + bias [O], with the broadcast spelled out."""
    return x + jnp.expand_dims(bias, range(x.ndim - 1))


def scale(x: jax.Array, weights: jax.Array) -> jax.Array:
    """x [*batch, O] * weights [O], or [*batch, O] where each example has its own, with the broadcast spelled out."""
    return x * jnp.expand_dims(weights, range(x.ndim - weights.ndim))


EPSILON = 1e-5
"""Added to the variance in a layer normalisation, as in torch."""


def normalize(x: jax.Array) -> jax.Array:
    """x [..., F] with mean 0 and variance 1 over the last axis, in float32 at least."""
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + EPSILON)


def check_sizes(cell: Cell, *names: str) -> None:
    """Raises ValueError unless every named field of the cell is a positive integer."""
    for name in names:
        value = getattr(cell, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} of {type(cell).__name__} is {value!r}: expected a whole number of at least 1")


def check_choice(cell: Cell, name: str, choices) -> None:
    """Raises ValueError unless the named field of the cell is one of `choices`."""
    value = getattr(cell, name)
    if value not in choices:
        raise ValueError(f"{name} of {type(cell).__name__} is {value!r}: expected one of {', '.join(choices)}")


def check_chrono(cell: Cell) -> None:
    """Raises ValueError where the cell's `chrono`, the longest time to remember, is a number below 2."""
    value = cell.chrono
    if isinstance(value, int | float) and not 2 <= value < float("inf"):
        raise ValueError(
            f"chrono of {type(cell).__name__} is {value!r}: expected the longest time to remember, at least 2 steps"
        )
