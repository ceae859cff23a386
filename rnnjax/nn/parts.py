"""What models share around their layers: the encoder and dropout before them, the last step and the head after them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax.layers.masks import row_masks, scaled
from rnnjax.unroll.sequence import check_lengths, valid_steps, zero_where_not


class Encoded(nnx.Module):
    """A model whose inputs go through an encoder, dropout and a window of neighbours first; base class.

    encoder: a module of `rnnjax.nn.encoders`, or any that makes [T, B, features] of the inputs and has `features`; None
        where the inputs are vectors already. Of inputs that are several arrays the first is encoded, a Jordan network's
        x and not the teacher's feedback.
    window: how many neighbours, its own place included, each step sees; odd.
    dropout: the probability that a feature is dropped, of the encoder's outputs and of what the head sees, drawn for
        every row and step in training, by the stream "dropout". Inputs without encoder are left alone.

    Raises ValueError where a field is not that.
    """

    def __init__(self, encoder: Callable | None, window: int, dropout: float):
        if isinstance(window, bool) or not isinstance(window, int) or window < 1 or window % 2 == 0:
            raise ValueError(f"window is {window!r}: expected an odd number of steps, 1 for none but the step itself")
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout!r}: expected at least 0 and less than 1")
        self.encoder, self.window, self.dropout = encoder, window, dropout
        self.deterministic = False

    def encode(self, inputs: Any, lengths: jax.Array | None, rngs: nnx.Rngs | None) -> Any:
        """What the layers see: [T, B, window * features] in place of the first of the inputs."""
        if self.encoder is None and self.window == 1:
            return inputs
        (x, *rest), structure = jax.tree.flatten(inputs)
        if self.encoder is not None:
            x = self.drop(self.encoder(x), rngs)
        if self.window > 1:
            x = context_window(x, self.window, lengths)
        return jax.tree.unflatten(structure, [x, *rest])

    def drop(self, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
        """x [T, B, F] with features dropped in training. Raises ValueError where rngs are needed and there are none."""
        if self.deterministic or not self.dropout:
            return x
        if rngs is None:
            raise ValueError(
                f"dropout is {self.dropout} and the model trains: call it with rngs=nnx.Rngs(key), with another key at "
                "each step, or with none after .eval()"
            )
        kept = row_masks(rngs.dropout(), self.dropout, x, x.shape[-1], each_step=True)
        return x * scaled(kept, self.dropout, x.dtype)

    def check_streams(self) -> None:
        """Raises ValueError where a step sees what comes after it."""
        if self.window > 1:
            raise ValueError(
                f"window is {self.window}, so that a step waits for the {self.window // 2} after it: it can't stream. "
                "Call the model on whole sequences"
            )


def context_window(x: jax.Array, size: int, lengths: jax.Array | None = None) -> jax.Array:
    """[T, B, F] -> [T, B, size * F]: at t the steps t - size // 2 .. t + size // 2 side by side, the earliest first.

    What stands before a row's first step and after its last valid one is 0, whatever x holds there. size is odd.
    """
    if lengths is not None:
        x = zero_where_not(valid_steps(check_lengths(lengths, x.shape[0], x.shape[1:-1]), x.shape[0]), x)
    half = size // 2
    padded = jnp.pad(x, [(half, half)] + [(0, 0)] * (x.ndim - 1))
    return jnp.concatenate([padded[i : i + x.shape[0]] for i in range(size)], axis=-1)


def last_valid(values: jax.Array, lengths: jax.Array | None = None) -> jax.Array:
    """[T, B, F] -> [B, F], the values at t = length - 1 (t = T - 1 without lengths); zeros for length 0."""
    if values.shape[0] == 0:
        return jnp.zeros(values.shape[1:], values.dtype)
    if lengths is None:
        return values[-1]
    lengths = jnp.clip(jnp.asarray(lengths).astype(jnp.int32), 0, values.shape[0])
    at = jnp.expand_dims(jnp.maximum(lengths - 1, 0), (0, -1))
    found = jnp.take_along_axis(values, at, axis=0)[0]
    return jnp.where(jnp.expand_dims(lengths > 0, -1), found, 0)


def linear(inputs: int, outputs: int, dtype: Any, rngs: nnx.Rngs) -> nnx.Linear:
    """x @ kernel + bias, its kernel drawn in float32 whatever the dtype."""

    def draw(key, shape, dtype):
        return nnx.initializers.lecun_normal()(key, shape, jnp.float32).astype(dtype)

    return nnx.Linear(inputs, outputs, kernel_init=draw, param_dtype=dtype, rngs=rngs)


def is_traced(tree: Any) -> bool:
    """Whether any array of the tree has no value yet."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))
