"""Texts that a language model writes: one symbol at a time, in memory that does not grow."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rnnjax.nn.text_models import LanguageModel


class Sampler:
    """Draws what a model goes on with. Compiled once, whatever is read and however long it writes.

    model: as it evaluates; its parameters are those of now.
    """

    def __init__(self, model: LanguageModel):
        self._start = model.initial_carry(1)
        graph, state = nnx.split(model)

        @jax.jit
        def advance(state, carry, symbol, key, temperature):
            logits, carry = nnx.merge(graph, state).stream(symbol[None, None], carry)
            logits = logits[0, 0].astype(jnp.float32)
            drawn = jax.random.categorical(key, logits / jnp.where(temperature > 0, temperature, 1))
            return jnp.where(temperature > 0, drawn, jnp.argmax(logits)), carry

        self._advance = lambda *arguments: advance(state, *arguments)

    def __call__(self, read: Sequence[int], *, key: jax.Array, temperature: float = 1.0) -> Iterator[int]:
        """The symbols after those of `read`, without end: each is drawn from softmax(logits / temperature), or is the
        likeliest where temperature is 0, and read in turn.

        Raises ValueError where nothing is read, or temperature is below 0.
        """
        if not len(read):
            raise ValueError("read is empty: expected one symbol at least, such as that of the start")
        if not temperature >= 0:
            raise ValueError(f"temperature is {temperature}: expected at least 0")
        return self._drawn(read, key, np.float32(temperature))

    def _drawn(self, read, key, temperature) -> Iterator[int]:
        carry, place = self._start, 0
        for symbol in read:
            last, carry = self._advance(carry, np.int32(symbol), jax.random.fold_in(key, place), temperature)
            place += 1
        while True:
            yield int(last)
            last, carry = self._advance(carry, last.astype(jnp.int32), jax.random.fold_in(key, place), temperature)
            place += 1
