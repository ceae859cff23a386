"""Attention: which steps of a source sequence a decoder looks at.

A `Memory` is what is looked at, the outputs of an encoder. An attention scores each of its steps against a query, and

    a_t = softmax of the scores over the source's own steps      weights [T, *batch, S]
    c_t = sum over s of a_ts m_s                                 the context, [T, *batch, F]

`Additive` and `Multiplicative` are the two scores; `Attentive` is a cell that looks before every step.
"""

import collections
import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import check_sizes, dot, gates_of, parameter_dtype
from rnnjax.initializers import draw
from rnnjax.layers import Wrapper, is_random
from rnnjax.unroll.sequence import check_lengths, valid_steps


class Memory(NamedTuple):
    """keys [*batch, S, A], what queries are scored against; values [*batch, S, F], 0 at pads; valid [*batch, S]."""

    keys: jax.Array
    values: jax.Array
    valid: jax.Array


@dataclasses.dataclass(frozen=True)
class _Attention:
    """query_size: Q, features of a query.
    memory_size: F, features of a step of the memory.
    """

    query_size: int
    memory_size: int

    def __post_init__(self):
        check_sizes(self, *(field.name for field in dataclasses.fields(self)))

    def remember(self, params: Any, outputs: jax.Array, lengths: jax.Array | None = None) -> Memory:
        """The memory of an encoder's outputs [S, *batch, F]; pads may hold anything.

        lengths: [*batch] whole numbers of steps, S by default. A row of length 0 has weights and a context of 0.
        """
        steps, *batch = outputs.shape[:-1]
        lengths = jnp.full(batch, steps, jnp.int32) if lengths is None else check_lengths(lengths, steps, tuple(batch))
        valid = jnp.moveaxis(valid_steps(lengths, steps), 0, -1)
        values = jnp.where(valid[..., None], jnp.moveaxis(outputs, 0, -2), 0)  # 0 * NaN would reach the context
        return Memory(dot(values, params["W_memory"]).astype(values.dtype), values, valid)

    def weights(self, params: Any, memory: Memory, queries: jax.Array) -> jax.Array:
        """Queries [T, *batch, Q] -> [T, *batch, S], exactly 0 at pads; in float32 at least."""
        return masked_softmax(self.scores(params, memory, queries), memory.valid[None])

    def scores(self, params: Any, memory: Memory, queries: jax.Array) -> jax.Array:
        """Queries [T, *batch, Q] -> [T, *batch, S], what the softmax is taken of."""
        raise TypeError(f"{type(self).__name__} has to define scores(params, memory, queries)")


@dataclasses.dataclass(frozen=True)
class Additive(_Attention):
    """score(q, m) = v . tanh(q W_query + m W_memory).

    Parameters: W_query [Q, A], W_memory [F, A], v [A]. Source: Bahdanau, Cho, Bengio 2015, arXiv:1409.0473, appendix
    A.1.2.

    query_size: Q, features of a query.
    memory_size: F, features of a step of the memory.
    size: A, hidden units of the score.
    """

    size: int

    def init(self, key: jax.Array, dtype=jnp.float32) -> dict[str, jax.Array]:
        """Draws the parameters."""
        keys = jax.random.split(key, 3)
        return {
            "W_query": draw("lecun_normal", keys[0], (self.query_size, self.size), dtype=dtype),
            "W_memory": draw("lecun_normal", keys[1], (self.memory_size, self.size), dtype=dtype),
            "v": draw("lecun_normal", keys[2], (self.size, 1), dtype=dtype)[:, 0],
        }

    def scores(self, params, memory, queries):
        queries = dot(queries, params["W_query"]).astype(memory.keys.dtype)
        return dot(jnp.tanh(queries[..., None, :] + memory.keys[None]), params["v"][:, None])[..., 0]


@dataclasses.dataclass(frozen=True)
class Multiplicative(_Attention):
    """score(q, m) = q . m W_memory.

    Parameters: W_memory [F, Q]. Source: Luong, Pham, Manning 2015, arXiv:1508.04025, equation 8 ("general").

    query_size: Q, features of a query.
    memory_size: F, features of a step of the memory.
    """

    def init(self, key: jax.Array, dtype=jnp.float32) -> dict[str, jax.Array]:
        """Draws the parameters."""
        return {"W_memory": draw("lecun_normal", key, (self.memory_size, self.query_size), dtype=dtype)}

    def scores(self, params, memory, queries):
        return _einsum("t...q,...sq->t...s", queries, memory.keys)


def masked_softmax(scores: jax.Array, valid: jax.Array) -> jax.Array:
    """The softmax over the last axis of what is valid, 0 elsewhere and where nothing is."""
    scores = scores.astype(jnp.promote_types(scores.dtype, jnp.float32))
    valid = jnp.broadcast_to(valid, scores.shape)
    largest = jnp.max(scores, axis=-1, keepdims=True, where=valid, initial=jnp.finfo(scores.dtype).min)
    grown = jnp.where(valid, jnp.exp(jnp.where(valid, scores - jax.lax.stop_gradient(largest), 0)), 0)
    total = jnp.sum(grown, axis=-1, keepdims=True)
    return grown / jnp.where(total > 0, total, 1)


def attend(memory: Memory, weights: jax.Array) -> jax.Array:
    """The contexts [T, *batch, F] of weights [T, *batch, S], in the dtype of the memory."""
    values = memory.values
    return _einsum("t...s,...sf->t...f", weights.astype(values.dtype), values).astype(values.dtype)


def _einsum(equation: str, a: jax.Array, b: jax.Array) -> jax.Array:
    wide = jnp.promote_types(jnp.result_type(a, b), jnp.float32)
    return jnp.einsum(equation, a, b, preferred_element_type=wide)


@dataclasses.dataclass(frozen=True)
class Attentive(Wrapper):
    """Looks at a memory before every step and feeds what it saw to the cell inside, beside the input.

        a_t = softmax(score(s_{t-1}, m)), c_t = sum_s a_ts m_s, s_t = step of the cell with [x_t, c_t]

    where the query s_{t-1} is the first field of the cell's carry. The output is [the cell's output, c_t]. The carry
    has the fields of the cell's, and c_t as `context` [*batch, F]: s_t is a function of s_{t-1} and x_t alone, and the
    context crosses to the output only.

    Parameters {"cell": those of the cell, "attention": those of the attention} and, beside what `init` draws,
    "memory": the `Memory` of the batch that is unrolled. What drops something goes inside, around the cell; an
    InputDropout there masks x and not the context. Source: Bahdanau, Cho, Bengio 2015, arXiv:1409.0473.

    cell: the Cell inside; its inputs are x and c, so that its input_size is that of x and F together.
    attention: `Additive` or `Multiplicative`, with the size of the query that of the carry's first field.
    """

    attention: _Attention

    def __post_init__(self):
        super().__post_init__()
        if self.cell.input_size <= self.attention.memory_size:
            raise ValueError(
                f"cell of Attentive has input_size {self.cell.input_size}: expected that of its own inputs and the "
                f"{self.attention.memory_size} features of the memory together"
            )
        query = self._carry_like[0].shape[-1]
        if self.attention.query_size != query:
            raise ValueError(
                f"attention of Attentive has query_size {self.attention.query_size}: expected {query}, the features of "
                f"{self._carry_like._fields[0]} in the carry of {self.cell!r}"
            )

    @functools.cached_property
    def _carry_like(self) -> Any:
        return jax.eval_shape(lambda key: self.cell.initial_carry(self.cell.init(key)), jax.random.key(0))

    @property
    def input_size(self):
        return self.cell.input_size - self.attention.memory_size

    @property
    def output_size(self):
        return self.cell.output_size + self.attention.memory_size

    @property
    def readout(self):
        return False

    @property
    def recurrent(self):
        return ()

    @property
    def is_random(self):
        return is_random(self.cell)

    def init(self, key, dtype=jnp.float32):
        cell_key, attention_key = jax.random.split(key)
        return {"cell": self.cell.init(cell_key, dtype), "attention": self.attention.init(attention_key, dtype)}

    def initial_carry(self, params, batch_shape=()):
        return self.start(self.cell.initial_carry(params["cell"], batch_shape))

    def start(self, carry: Any) -> Any:
        """A carry of the cell, with a context of 0."""
        shape = (*carry[0].shape[:-1], self.attention.memory_size)
        return _with_context(type(carry))(*carry, jnp.zeros(shape, carry[0].dtype))

    def prepare(self, params):
        return params | {"cell": self.cell.prepare(params["cell"])}

    def randomize(self, key, params, inputs):
        inside, inputs = self.cell.randomize(key, params["cell"], inputs)
        return params | {"cell": inside}, inputs

    def project(self, params, inputs):
        del params  # the cell's inputs are whole only when the context is there
        return inputs

    def step(self, params, carry, z):
        context = self._context(params, carry)
        after = self.cell.step(params["cell"], self._inside(carry), self._project(params, z, context))
        return type(carry)(*after, context)

    def gates(self, params, carry, z):
        z = self._project(params, z, self._context(params, carry))
        return gates_of(self.cell, params["cell"], self._inside(carry), z)

    def _context(self, params, carry):
        weights = self.attention.weights(params["attention"], params["memory"], carry[0][None])
        return attend(params["memory"], weights)[0]

    def read(self, params, carry, z):
        inside = self._inside(carry)
        shown = self.cell.read(params["cell"], inside, self._project(params, z, carry.context))
        dtype = parameter_dtype(params)
        return jnp.concatenate([shown.astype(dtype), carry.context], axis=-1)

    def _inside(self, carry):
        return type(self._carry_like)(*carry[:-1])

    def _project(self, params, z, context):
        """What the cell projects [x, context] to; x is the first of the inputs, as in InputDropout."""
        (x, *rest), structure = jax.tree.flatten(z)
        both = jnp.concatenate([x, context.astype(x.dtype)], axis=-1)
        return self.cell.project(params["cell"], jax.tree.unflatten(structure, [both, *rest]))


@functools.cache
def _with_context(carry: type) -> type:
    """The NamedTuple of a carry's fields and `context`."""
    return collections.namedtuple("AttentiveCarry", (*carry._fields, "context"))
