"""Greedy and beam search: the likeliest sequences of a model that gives the next symbol's probabilities."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.unroll.sequence import zero_where_not


class Hypotheses(NamedTuple):
    """What a search has found, the best first along K; of a greedy search without the axis K.

    symbols: [T, B, K], without the start; `stop` from the end on.
    lengths: [B, K], symbols before `stop`; T where there was none.
    scores: [B, K], log probability in nats, `stop` included, over the number of symbols to the power asked for; -inf
        where there are fewer sequences than K.
    weights: [T, B, K, S], where the model looked when it wrote each symbol, 0 from the end on (`stop` itself has some);
        None where it does not look.
    """

    symbols: jax.Array
    lengths: jax.Array
    scores: jax.Array
    weights: Any


class _Search(NamedTuple):
    """A search at step t. total, length [B, K] and finished; symbols, parents [T, B, K]; shown, leaves [T, B, K, ...].

    parents say which row of the beam of the step before a symbol continues: sequences are read off at the end, and
    what has been written is never moved.
    """

    t: jax.Array
    carry: Any
    total: jax.Array
    length: jax.Array
    finished: jax.Array
    symbols: jax.Array
    parents: jax.Array
    shown: Any


def beam_search(
    advance: Callable[[jax.Array, Any], tuple[jax.Array, Any, Any]],
    carry: Any,
    *,
    size: int,
    start: int,
    stop: int,
    max_length: int,
    length_power: float = 0.0,
) -> Hypotheses:
    """The `size` best sequences that a beam of as many finds for every row; greedy search with a beam of 1.

    A sequence is as good as its log probability over (its number of symbols, `stop` included) ** length_power; one that
    has ended keeps its place in the beam while none is better. Ends when all have ended, and cuts off at `max_length`.

    advance: (symbols int [B * K], carry) -> (log probabilities of the next symbol [B * K, V], carry, what is kept of
        the step as `weights`: a tree of leaves [B * K, ...]).
    carry: where each row starts, leaves [B, ...].
    length_power: 0 for the log probability itself, 1 for its mean over symbols.
    """
    rows = jax.tree.leaves(carry)[0].shape[0]
    carry = jax.tree.map(lambda leaf: jnp.repeat(leaf, size, axis=0), carry)
    shapes = jax.eval_shape(advance, jnp.zeros(rows * size, jnp.int32), carry)
    vocabulary = shapes[0].shape[-1]

    def step(search: _Search) -> _Search:
        last = jnp.where(search.t == 0, start, search.symbols[jnp.maximum(search.t - 1, 0)])
        log_p, carry, shown = advance(last.reshape(-1), search.carry)
        silent = jnp.where(jnp.arange(vocabulary) == stop, 0.0, -jnp.inf).astype(log_p.dtype)[None, None]
        log_p = jnp.where(search.finished[..., None], silent, log_p.reshape(rows, size, vocabulary))
        total = search.total[..., None] + log_p
        length = search.length + ~search.finished
        scores = total / _power(length, length_power, total.dtype)[..., None]
        _, best = jax.lax.top_k(scores.reshape(rows, -1), size)
        parent, symbol = jnp.divmod(best, vocabulary)
        carry, shown = jax.tree.map(lambda leaf: leaf.reshape(rows, size, *leaf.shape[1:]), (carry, shown))
        carry = jax.tree.map(lambda leaf: _take(leaf, parent).reshape(rows * size, *leaf.shape[2:]), carry)
        shown = jax.tree.map(lambda leaf: _take(leaf, parent), zero_where_not(~search.finished, shown))
        return _Search(
            search.t + 1,
            carry,
            jnp.take_along_axis(total.reshape(rows, -1), best, axis=1),
            _take(length, parent),
            _take(search.finished, parent) | (symbol == stop),
            search.symbols.at[search.t].set(symbol),
            search.parents.at[search.t].set(parent),
            jax.tree.map(lambda all, now: all.at[search.t].set(now), search.shown, shown),
        )

    first = _first(carry, shapes, (max_length, rows, size), stop)
    last = jax.lax.while_loop(lambda search: (search.t < max_length) & ~jnp.all(search.finished), step, first)
    return _read_off(last, length_power)


def _first(carry: Any, shapes: tuple, sizes: tuple[int, int, int], stop: int) -> _Search:
    """Before the first step: a row's beam holds one sequence to continue, and others that are impossible.

    shapes: of what `advance` gives. sizes: (T, B, K).
    """
    _, rows, size = sizes
    only = jnp.where(jnp.arange(size) == 0, 0.0, -jnp.inf).astype(shapes[0].dtype)
    return _Search(
        t=jnp.zeros((), jnp.int32),
        carry=carry,
        total=jnp.broadcast_to(only[None], (rows, size)),
        length=jnp.zeros((rows, size), jnp.int32),
        finished=jnp.zeros((rows, size), bool),
        symbols=jnp.full(sizes, stop, jnp.int32),
        parents=jnp.broadcast_to(jnp.arange(size, dtype=jnp.int32)[None, None], sizes),
        shown=jax.tree.map(lambda leaf: jnp.zeros((*sizes, *leaf.shape[1:]), leaf.dtype), shapes[2]),
    )


def _read_off(search: _Search, length_power: float) -> Hypotheses:
    """The sequences behind the last beam, from their ends to their starts."""

    def back(row, now):
        symbols, parents, shown = now
        return _take(parents, row), jax.tree.map(lambda leaf: _take(leaf, row), (symbols, shown))

    steps = (search.symbols, search.parents, search.shown)
    beam = jnp.broadcast_to(jnp.arange(search.total.shape[1], dtype=jnp.int32)[None], search.total.shape)
    _, (symbols, shown) = jax.lax.scan(back, beam, steps, reverse=True)
    scores = search.total / _power(search.length, length_power, search.total.dtype)
    return Hypotheses(symbols, search.length - search.finished, scores, shown)


def _power(length: jax.Array, power: float, dtype: Any) -> jax.Array:
    return jnp.maximum(length, 1).astype(dtype) ** power


def _take(leaf: jax.Array, rows: jax.Array) -> jax.Array:
    """leaf [B, K, ...] at rows [B, K] of each beam."""
    return jnp.take_along_axis(leaf, rows.reshape(*rows.shape, *[1] * (leaf.ndim - 2)), axis=1)
