"""Networks without recurrence, that recurrent ones are compared with: one of each word, one of the whole sentence."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rnnjax.cell import ACTIVATIONS
from rnnjax.nn.parts import Encoded, context_window, linear


class _Hidden(Encoded):
    """An encoder and one hidden layer of units, y = head(f(W x + b)); base class."""

    def __init__(self, encoder, hidden_size, sizes, *, window, dropout, activation, rngs, dtype):
        super().__init__(encoder, window, dropout)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is {activation!r}: expected one of {', '.join(ACTIVATIONS)}")
        inputs, outputs = sizes
        self.activation = activation
        self.hidden = linear(inputs, hidden_size, dtype, rngs)
        self.head = linear(hidden_size, outputs, dtype, rngs)

    def _answer(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        """x [T, B, F] -> [T, B, outputs]."""
        hidden = self.hidden(x.astype(self.hidden.kernel.dtype))
        return self.head(self.drop(ACTIVATIONS[self.activation](hidden), rngs))


class FeedForward(_Hidden):
    """Each step by itself, y_t = W_2 f(W_1 [x_{t-w} .. x_{t+w}] + b_1) + b_2: only a window shows order.

    encoder: what makes vectors of the ids, a module of `rnnjax.nn.encoders`.
    hidden_size: units of the hidden layer.
    output_size: C, features of the outputs [T, B, C].
    window: 2 w + 1, how many neighbours a step sees, itself included.
    dropout: of the encoder's outputs and of the hidden units, in training.
    activation: f, a name in `rnnjax.cell.ACTIVATIONS`.
    rngs: the stream "params" draws the parameters, in training "dropout" the masks.
    dtype: that of the parameters, and so of the outputs.
    """

    def __init__(
        self,
        encoder: Callable,
        hidden_size: int,
        output_size: int,
        *,
        window: int = 1,
        dropout: float = 0.0,
        activation: str = "tanh",
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        sizes = (window * encoder.features, output_size)
        options = {"window": window, "dropout": dropout, "activation": activation, "rngs": rngs, "dtype": dtype}
        super().__init__(encoder, hidden_size, sizes, **options)

    def __call__(self, inputs: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None) -> jax.Array:
        """inputs [T, B] of ids, lengths [B] -> [T, B, C]; what stands at pads means nothing."""
        return self._answer(_without_pads(self.encode(inputs, lengths, rngs), lengths), rngs)

    def stream(
        self, inputs: Any, carry: tuple = (), *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None
    ) -> tuple[jax.Array, tuple]:
        """(outputs, carry), as a recurrent model's; there is nothing to carry. Raises ValueError with a window."""
        self.check_streams()
        return self(inputs, lengths=lengths, rngs=rngs), carry

    def initial_carry(self, batch_size: int) -> tuple:
        """Nothing."""
        del batch_size
        return ()


class FlatFeedForward(_Hidden):
    """The whole sentence at once, its vectors side by side: every place of a word has weights of its own.

    length: of the longest sentence, in steps; shorter ones are filled up with zeros.
    reads_last: give one answer for the sentence, [B, C], instead of one for each of its words, [T, B, C].

    All else is as in FeedForward, but that it can't stream.
    """

    def __init__(
        self,
        encoder: Callable,
        hidden_size: int,
        output_size: int,
        *,
        length: int,
        reads_last: bool = False,
        dropout: float = 0.0,
        activation: str = "tanh",
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"length of FlatFeedForward is {length!r}: expected a whole number of at least 1")
        sizes = (length * encoder.features, output_size if reads_last else length * output_size)
        options = {"dropout": dropout, "activation": activation, "rngs": rngs, "dtype": dtype}
        super().__init__(encoder, hidden_size, sizes, window=1, **options)
        self.length, self.output_size, self.reads_last = length, output_size, reads_last

    def __call__(self, inputs: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None) -> jax.Array:
        """inputs [T, B] of ids with T up to `length` -> [T, B, C], or [B, C] with `reads_last`.

        Raises ValueError for a longer T.
        """
        time, batch = jnp.shape(inputs)[:2]
        if time > self.length:
            raise ValueError(
                f"the inputs have {time} steps{_longest(lengths)}: expected at most {self.length}, the length of "
                "FlatFeedForward; make it with a larger one or leave the sentence out"
            )
        x = _without_pads(self.encode(inputs, lengths, rngs), lengths)
        x = jnp.pad(x, [(0, self.length - time), (0, 0), (0, 0)])
        answers = self._answer(jnp.moveaxis(x, 0, 1).reshape(1, batch, -1), rngs)[0]
        if self.reads_last:
            return answers
        return jnp.moveaxis(answers.reshape(batch, self.length, self.output_size)[:, :time], 1, 0)

    def stream(self, inputs: Any, carry: Any, **options: Any) -> Any:
        """Raises ValueError: its weights stand at the places of a whole sentence."""
        raise ValueError("FlatFeedForward reads a whole sentence at once: it can't stream. Call it on whole sequences")


def _without_pads(x: jax.Array, lengths: jax.Array | None) -> jax.Array:
    return context_window(x, 1, lengths)


def _longest(lengths: jax.Array | None) -> str:
    """Which row is the longest, where the lengths are known."""
    if lengths is None or isinstance(lengths, jax.core.Tracer) or not np.size(lengths):
        return ""
    row = int(np.argmax(lengths))
    return f", row {row} of {int(lengths[row])} words"
