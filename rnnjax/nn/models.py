"""The models that are built of recurrent layers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax.cell import Cell
from rnnjax.nn.rnn import RNN


class SequenceModel(nnx.Module):
    """Recurrent layers and a linear head, from a sequence to a value at every step or one at the last.

    cells: the layers from the bottom up; the outputs of one are the inputs of the next.
    output_size: O, features of the outputs.
    reads_last: give the output at each example's last valid step only, [B, O], instead of [T, B, O].
    rngs: the stream "params" draws the parameters.
    output_bias: [O], what the head's bias starts at; zeros by default. A readout cell keeps its own.

    A single cell that is a readout itself (Jordan) gets no head. In a stack its y is a feature like any other and gets
    one. Probes call layer i `layer_i`, or, where there is one layer, by its cell's class.

    Raises ValueError where a layer's inputs are not as wide as the outputs below it, or where a cell that reads out has
    another size than `output_size`.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        output_size: int,
        *,
        reads_last: bool = False,
        output_bias: jax.Array | None = None,
        rngs: nnx.Rngs,
    ):
        cells = tuple(cells)
        _check_stack(cells, output_size)
        names = [None] if len(cells) == 1 else [f"layer_{i}" for i in range(len(cells))]
        self.layers = nnx.List(RNN(cell, rngs=rngs, name=name) for cell, name in zip(cells, names, strict=True))
        self.reads_last = reads_last
        has_head = len(cells) > 1 or not cells[0].readout
        self.head = nnx.Linear(cells[-1].output_size, output_size, rngs=rngs) if has_head else None
        if has_head and output_bias is not None:
            self.head.bias[...] = jnp.asarray(output_bias)

    def __call__(self, inputs: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None) -> jax.Array:
        """inputs [T, B, I], lengths [B] -> [T, B, O], or [B, O] with `reads_last`.

        An example of length 0 has no last step: the head sees zeros there.
        """
        del rngs  # nothing here is random
        outputs = inputs
        for layer in self.layers:
            outputs = layer(outputs, lengths=lengths).outputs
        if self.reads_last:
            outputs = last_valid(outputs, lengths)
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


def _check_stack(cells: tuple[Cell, ...], output_size: int) -> None:
    if not cells:
        raise ValueError("cells is empty: a SequenceModel needs at least one")
    for i, (below, above) in enumerate(zip(cells[:-1], cells[1:], strict=True)):
        if above.input_size != below.output_size:
            raise ValueError(
                f"cells[{i + 1}] has input_size {above.input_size}: "
                f"expected {below.output_size}, what cells[{i}] puts out"
            )
    if len(cells) == 1 and cells[0].readout and cells[0].output_size != output_size:
        raise ValueError(
            f"output_size is {output_size} but {cells[0]!r} reads out {cells[0].output_size} itself: make them equal"
        )
