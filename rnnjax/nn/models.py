"""The models that are built of recurrent layers."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax import layers
from rnnjax.nn.rnn import RNN


class SequenceModel(nnx.Module):
    """A recurrent layer and a linear head, from a sequence to a value at every step or one at the last.

    layer: a Cell, a layers.Bidirectional or a layers.Stack.
    output_size: O, features of the outputs.
    reads_last: give the output at each example's last valid step only, [B, O], instead of [T, B, O]. Of a Bidirectional
        layer on top, the backward half is read at the first step, where it ends.
    rngs: the stream "params" draws the parameters, in training "dropout" the masks.
    output_bias: [O], what the head's bias starts at; zeros by default. A readout cell keeps its own.
    dtype: that of all parameters, and so of the outputs; float64 needs jax_enable_x64.

    A cell that is a readout itself (Jordan) gets no head. In a Stack or a Bidirectional layer its y is a feature like
    any other and gets one. Probes call the unrolls as `rnnjax.layers.run` does.

    Raises ValueError where a cell that reads out has another size than `output_size`, and where reads_last meets
    directions that are summed.
    """

    def __init__(
        self,
        layer: layers.Layer,
        output_size: int,
        *,
        reads_last: bool = False,
        output_bias: jax.Array | None = None,
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        if layer.readout and layer.output_size != output_size:
            raise ValueError(
                f"output_size is {output_size} but {layer!r} reads out {layer.output_size} itself: make them equal"
            )
        self.reads_last, self.output_size = reads_last, output_size
        self.backward_size = _backward_size(layer) if reads_last else 0
        self.rnn = RNN(layer, rngs=rngs, dtype=dtype)
        self.head = None if layer.readout else _linear(layer.output_size, output_size, dtype, rngs)
        if self.head is not None and output_bias is not None:
            self.head.bias[...] = jnp.asarray(output_bias, dtype)

    def __call__(self, inputs: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None) -> jax.Array:
        """inputs [T, B, I], lengths [B] -> [T, B, O], or [B, O] with `reads_last`.

        An example of length 0 has no last step: the head sees zeros there.
        """
        outputs = self.rnn(inputs, lengths=lengths, rngs=rngs).outputs
        if self.reads_last:
            last = last_valid(outputs, lengths)
            if self.backward_size and outputs.shape[0]:
                last = jnp.concatenate([last[..., : -self.backward_size], outputs[0][..., -self.backward_size :]], -1)
            outputs = last
        return self._read_out(outputs)

    def stream(
        self, inputs: Any, carry: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None
    ) -> tuple[jax.Array, Any]:
        """A window of longer sequences, (outputs [T, B, O], carry): goes on with `carry` and returns the final one.

        Windows one after the other give what a call gives on the whole, but for masks, which each window draws anew. A
        row that has ended has length 0: its carry is held.

        carry: as the window before returned it, or `initial_carry` where sequences start.

        Raises ValueError for a layer that reads backwards and for a model that reads the last step only.
        """
        if self.reads_last:
            raise ValueError(
                "reads_last is True but a window need not hold a row's last step: call the model on whole sequences"
            )
        if (where := _reads_backwards(self.rnn.layer)) is not None:
            raise ValueError(
                f"{where} is Bidirectional, which reads from the end: it can't go on where a window stopped. Call the "
                "model on whole sequences"
            )
        unrolled = self.rnn(inputs, carry, lengths=lengths, rngs=rngs)
        return self._read_out(unrolled.outputs), unrolled.carry

    def initial_carry(self, batch_size: int) -> Any:
        """Where each of so many sequences starts, leaves [B, ...]."""
        return self.rnn.layer.initial_carry(self.rnn.arrays(), (batch_size,))

    def _read_out(self, outputs: jax.Array) -> jax.Array:
        return outputs if self.head is None else self.head(outputs)


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


def _backward_size(layer: layers.Layer) -> int:
    """How many of the last features come from a cell that reads backwards."""
    top = layer.layers[-1] if isinstance(layer, layers.Stack) else layer
    if not isinstance(top, layers.Bidirectional):
        return 0
    if top.merge == "sum":
        raise ValueError(
            "reads_last is True but the layer on top sums its directions, which end at different steps: merge by concat"
        )
    return top.backward.output_size


def _reads_backwards(layer: layers.Layer) -> str | None:
    """Where in the layer a cell reads backwards, in words; None where none does."""
    if isinstance(layer, layers.Stack):
        found = [i for i, part in enumerate(layer.layers) if isinstance(part, layers.Bidirectional)]
        return f"layer_{found[0]} of the Stack" if found else None
    return "the layer" if isinstance(layer, layers.Bidirectional) else None


def _linear(inputs: int, outputs: int, dtype, rngs: nnx.Rngs) -> nnx.Linear:
    def draw(key, shape, dtype):
        return nnx.initializers.lecun_normal()(key, shape, jnp.float32).astype(dtype)

    return nnx.Linear(inputs, outputs, kernel_init=draw, param_dtype=dtype, rngs=rngs)
