"""The model of skip-gram: two tables of vectors."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax.nn.encoders import Embedding
from rnnjax.tasks.skipgram import SkipGramOutputs


class WordVectors(nnx.Module):
    """A vector of every word as a centre, in `encoder`, which other models can take over, and one as a context.

    As in the authors' code the first are drawn evenly from -1 / 2D .. 1 / 2D and the second are 0, so that the loss
    starts at (1 + k) log 2. Source: Mikolov et al. 2013, "Distributed representations of words and phrases and their
    compositionality".

    size: V, how many words there are. features: D of a vector.
    rngs: the stream "params" draws the centres.
    dtype: that of the tables.
    """

    def __init__(self, size: int, features: int, *, rngs: nnx.Rngs, dtype: Any = jnp.float32):
        most = 0.5 / features
        drawn = jax.random.uniform(rngs.params(), (size, features), jnp.float32, -most, most)
        self.encoder = Embedding(size, features, vectors=drawn, dtype=dtype)
        self.contexts = Embedding(size, features, vectors=jnp.zeros((size, features)), dtype=dtype)

    def __call__(
        self, inputs: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None
    ) -> SkipGramOutputs:
        """Centres [T, B] -> their vectors [T, B, D], and all of the context table [V, D]."""
        del lengths, rngs
        return SkipGramOutputs(self.encoder(inputs), self.contexts.table[...])
