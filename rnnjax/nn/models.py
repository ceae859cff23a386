"""The models that are built of recurrent layers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax import layers
from rnnjax.nn.parts import Encoded, is_traced, last_valid, linear
from rnnjax.nn.rnn import RNN
from rnnjax.unroll.sequence import check_lengths


class SequenceModel(Encoded):
    """A recurrent layer and a linear head, from a sequence to a value at every step or one at the last.

    layer: a Cell, a layers.Bidirectional or a layers.Stack.
    output_size: O, features of the outputs.
    encoder: what makes vectors of the inputs, a module of `rnnjax.nn.encoders`; None where they are vectors.
    window: how many neighbours, its own place included, the layer sees at each step; odd.
    dropout: the probability that a feature is dropped in training, of the encoder's outputs and of what the head sees.
        Of other places the layer says it itself, by `rnnjax.layers.InputDropout` and its kind.
    reads_last: give the output at each example's last valid step only, [B, O], instead of [T, B, O]. Of a Bidirectional
        layer on top, the backward half is read at the first step, where it ends.
    output_bias: [O], what the head's bias starts at; zeros by default. A readout cell keeps its own.
    rngs: the stream "params" draws the parameters, in training "dropout" the masks.
    dtype: that of all parameters, and so of the outputs; float64 needs jax_enable_x64.

    A cell that is a readout itself (Jordan) gets no head. In a Stack or a Bidirectional layer its y is a feature like
    any other and gets one. Probes call the unrolls as `rnnjax.layers.run` does.

    Raises ValueError where a cell that reads out has another size than `output_size`, where the layer's inputs are not
    what the encoder gives, and where reads_last meets directions that are summed.
    """

    def __init__(
        self,
        layer: layers.Layer,
        output_size: int,
        *,
        encoder: Callable | None = None,
        window: int = 1,
        dropout: float = 0.0,
        reads_last: bool = False,
        output_bias: jax.Array | None = None,
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        super().__init__(encoder, window, dropout)
        if layer.readout and layer.output_size != output_size:
            raise ValueError(
                f"output_size is {output_size} but {layer!r} reads out {layer.output_size} itself: make them equal"
            )
        if encoder is not None and layer.input_size != window * encoder.features:
            raise ValueError(
                f"input_size of {layer!r} is {layer.input_size}: expected {window * encoder.features}, a window of "
                f"{window} vectors of {encoder.features} features"
            )
        self.reads_last, self.output_size = reads_last, output_size
        self.backward_size = _backward_size(layer) if reads_last else 0
        self.rnn = RNN(layer, rngs=rngs, dtype=dtype)
        self.head = None if layer.readout else self._make_head(layer.output_size, output_size, dtype, rngs)
        if self.head is not None and output_bias is not None:
            self.head.bias[...] = jnp.asarray(output_bias, dtype)

    def __call__(self, inputs: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None) -> Any:
        """inputs [T, B, I], or [T, B] of ids for an encoder, lengths [B] -> [T, B, O], or [B, O] with `reads_last`.

        An example of length 0 has no last step: the head sees zeros there.
        """
        outputs = self.rnn(self.encode(inputs, lengths, rngs), lengths=lengths, rngs=rngs).outputs
        if not self.reads_last:
            return self._read_out(outputs, rngs)
        last = last_valid(outputs, lengths)
        if self.backward_size and outputs.shape[0]:
            last = jnp.concatenate([last[..., : -self.backward_size], outputs[0][..., -self.backward_size :]], -1)
        return self._read_out(last[None], rngs)[0]

    def stream(
        self, inputs: Any, carry: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None
    ) -> tuple[Any, Any]:
        """A window of longer sequences, (outputs [T, B, O], carry): goes on with `carry` and returns the final one.

        Windows one after the other, of one step each or of more, give what a call gives on the whole, but for masks,
        which each window draws anew. Of a model that reads the last step only, the output at t is that of the sequence
        as if it ended there. A row that has ended has length 0: its carry is held.

        carry: as the window before returned it, or `initial_carry` where sequences start.

        Outside of jit it compiles itself, once for each shape. Raises ValueError for a layer that reads backwards and
        for a window of neighbours.
        """
        self.check_streams()
        if (where := reads_backwards(self.rnn.layer)) is not None:
            raise ValueError(
                f"{where} is Bidirectional, which reads from the end: it can't go on where a window stopped. Call the "
                "model on whole sequences"
            )
        if is_traced((nnx.state(self), inputs, carry, lengths)):
            return self._stream(inputs, carry, lengths, rngs)
        if lengths is not None:  # while their values are known
            lengths = _known(lengths, inputs)
        return _compiled_stream(self, inputs, carry, lengths, rngs)

    def _stream(self, inputs, carry, lengths, rngs):
        unrolled = self.rnn(self.encode(inputs, lengths, rngs), carry, lengths=lengths, rngs=rngs)
        return self._read_out(unrolled.outputs, rngs), unrolled.carry

    def initial_carry(self, batch_size: int) -> Any:
        """Where each of so many sequences starts, leaves [B, ...]."""
        return self.rnn.layer.initial_carry(self.rnn.arrays(), (batch_size,))

    def _make_head(self, features: int, output_size: int, dtype: Any, rngs: nnx.Rngs) -> nnx.Module:
        return linear(features, output_size, dtype, rngs)

    def _read_out(self, outputs: jax.Array, rngs: nnx.Rngs | None) -> Any:
        return outputs if self.head is None else self.head(self.drop(outputs, rngs))


@nnx.jit
def _compiled_stream(model, inputs, carry, lengths, rngs):
    return model._stream(inputs, carry, lengths, rngs)


def _known(lengths: jax.Array, inputs: Any) -> jax.Array:
    time, batch = jnp.shape(jax.tree.leaves(inputs)[0])[:2]
    return check_lengths(lengths, time, (batch,))


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


def reads_backwards(layer: layers.Layer) -> str | None:
    """Where in the layer a cell reads backwards, in words; None where none does."""
    if isinstance(layer, layers.Stack):
        found = [i for i, part in enumerate(layer.layers) if isinstance(part, layers.Bidirectional)]
        return f"layer_{found[0]} of the Stack" if found else None
    return "the layer" if isinstance(layer, layers.Bidirectional) else None
