"""From whole numbers to vectors: what stands for a word, a character or a word's letter trigrams.

An encoder has `features` and is called with ids, time first: int [T, B] -> [T, B, features], or what axes there are.
The id -1 stands for nothing and gives zeros. Any other id that the encoder has no row for gives NaN, so that it shows
in the loss; a model cuts off what stands behind the end of a row, so that pads may hold anything.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx


class OneHot(nnx.Module):
    """1 at the id's place and 0 elsewhere: float32 [..., size].

    size: how many ids there are, and so `features`.
    """

    def __init__(self, size: int):
        self.size = self.features = _whole("size of OneHot", size)

    def __call__(self, ids: Any) -> jax.Array:
        """ids [...] -> [..., size]. Raises TypeError where the ids are no whole numbers."""
        ids = _ids(ids)
        return _nan_where_unknown(ids, self.size, jax.nn.one_hot(ids, self.size, dtype=jnp.float32))


class Embedding(nnx.Module):
    """A row of a trained table for each id: the one-hot vector times the table, without the product.

    The table [size, features] starts at N(0, 1 / features), rows of length 1 on average, so that of a table that is the
    head of a language model too the first logits are as large as the outputs are.

    size: how many ids there are.
    vectors: [size, features], what the table starts at in place of draws.
    rngs: the stream "params" draws the table.
    dtype: that of the table, and so of the vectors.

    Raises ValueError for vectors of another shape.
    """

    def __init__(
        self, size: int, features: int, *, vectors: Any = None, rngs: nnx.Rngs | None = None, dtype: Any = jnp.float32
    ):
        self.size, self.features = _whole("size of Embedding", size), _whole("features of Embedding", features)
        if vectors is None and rngs is None:
            raise ValueError("Embedding has neither vectors nor rngs: give the one to start from, or draw by the other")
        if vectors is not None and np.shape(vectors) != (size, features):
            raise ValueError(
                f"vectors have the shape {np.shape(vectors)}: expected {(size, features)}, a row for each of {size} ids"
            )
        self.table = nnx.Param(_table(size, features, rngs, dtype) if vectors is None else jnp.asarray(vectors, dtype))

    def __call__(self, ids: Any) -> jax.Array:
        """ids [...] -> [..., features]. Raises TypeError where the ids are no whole numbers."""
        return _rows(self.table[...], _ids(ids))


class Trigrams(nnx.Module):
    """The sum of the table's rows for all indices of a word: its summed multi-hot vector times the table.

    size: how many indices there are, that of `rnnjax.text.TrigramHashing`. The table starts as that of `Embedding`.
    """

    def __init__(self, size: int, features: int, *, rngs: nnx.Rngs, dtype: Any = jnp.float32):
        self.size, self.features = _whole("size of Trigrams", size), _whole("features of Trigrams", features)
        self.table = nnx.Param(_table(size, features, rngs, dtype))

    def __call__(self, indices: Any) -> jax.Array:
        """indices [..., K], filled up with -1, -> [..., features]. Raises TypeError as `Embedding` does."""
        return _rows(self.table[...], _ids(indices)).sum(-2)


def _table(size: int, features: int, rngs: nnx.Rngs, dtype: Any) -> jax.Array:
    draws = jax.random.normal(rngs.params(), (size, features), jnp.float32) / math.sqrt(features)
    return draws.astype(dtype)


def _rows(table: jax.Array, ids: jax.Array) -> jax.Array:
    size = table.shape[0]
    known = (ids >= 0) & (ids < size)
    found = table.at[jnp.where(known, ids, 0)].get(mode="promise_in_bounds")
    return _nan_where_unknown(ids, size, jnp.where(known[..., None], found, 0))


def _nan_where_unknown(ids: jax.Array, size: int, vectors: jax.Array) -> jax.Array:
    unknown = (ids < -1) | (ids >= size)
    return jnp.where(unknown[..., None], jnp.nan, vectors)


def _ids(ids: Any) -> jax.Array:
    ids = jnp.asarray(ids)
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise TypeError(f"ids have the dtype {ids.dtype}: expected whole numbers, as Vocabulary.encode returns them")
    return ids


def _whole(what: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{what} is {value!r}: expected a whole number of at least 1")
    return value
