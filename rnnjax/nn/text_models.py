"""The models of text: a tagger, a classifier, a language model. Each is a SequenceModel that takes ids."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax import layers
from rnnjax.nn.encoders import Embedding
from rnnjax.nn.models import SequenceModel, reads_backwards
from rnnjax.tasks.crf import CRFScores


class Tagger(SequenceModel):
    """A tag at every step: logits [T, B, C], or with `crf` the `CRFScores` of whole sequences of tags.

    crf: score tags together with the tag before by transitions [C, C], start [C] and end [C], which start at 0;
        `rnnjax.tasks.crf` has the loss and the best tags.

    All else is as in SequenceModel; a stream gives the logits as they come.
    """

    def __init__(
        self,
        layer: layers.Layer,
        output_size: int,
        *,
        encoder: Callable | None = None,
        window: int = 1,
        dropout: float = 0.0,
        crf: bool = False,
        output_bias: jax.Array | None = None,
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        super().__init__(
            layer,
            output_size,
            encoder=encoder,
            window=window,
            dropout=dropout,
            output_bias=output_bias,
            rngs=rngs,
            dtype=dtype,
        )
        self.crf = crf
        if crf:
            self.transitions = nnx.Param(jnp.zeros((output_size, output_size), dtype))
            self.start = nnx.Param(jnp.zeros(output_size, dtype))
            self.end = nnx.Param(jnp.zeros(output_size, dtype))

    def _read_out(self, outputs, rngs):
        logits = super()._read_out(outputs, rngs)
        return CRFScores(logits, self.transitions[...], self.start[...], self.end[...]) if self.crf else logits


class TextClassifier(SequenceModel):
    """One answer for a sequence, [B, C]: a linear layer of where the top layer ends, in each of its directions.

    The lesson that everyone writes, embedding, dropout, n layers in both directions, the last states side by side, a
    linear layer, but for padding, which here changes nothing. A stream gives the answer for the words so far.
    `rnnjax.interop.text_classifier_from_torch` takes the weights of the lesson's.
    """

    def __init__(
        self,
        layer: layers.Layer,
        output_size: int,
        *,
        encoder: Callable | None = None,
        window: int = 1,
        dropout: float = 0.0,
        output_bias: jax.Array | None = None,
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        super().__init__(
            layer,
            output_size,
            encoder=encoder,
            window=window,
            dropout=dropout,
            reads_last=True,
            output_bias=output_bias,
            rngs=rngs,
            dtype=dtype,
        )


class LanguageModel(SequenceModel):
    """The logits of the next word or character at every step, [T, B, V], with a carry that goes on by `stream`.

    layer: reads from the start only, or the model would see what it guesses.
    output_size: V, how many words there are.
    encoder: an Embedding of V words that fits the layer by default.
    tied: the head is the embedding's table and a bias, logits_t = table h_t + bias: the layer has to put out as many
        features as a row has. Source: Press, Wolf 2017, "Using the output embedding to improve language models".

    All else is as in SequenceModel. Raises ValueError for a layer that reads backwards, and where `tied` and the sizes
    or the encoder don't fit.
    """

    def __init__(
        self,
        layer: layers.Layer,
        output_size: int,
        *,
        encoder: Callable | None = None,
        tied: bool = True,
        dropout: float = 0.0,
        output_bias: jax.Array | None = None,
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        if encoder is None:
            encoder = Embedding(output_size, layer.input_size, rngs=rngs, dtype=dtype)
        if (where := reads_backwards(layer)) is not None:
            raise ValueError(f"{where} is Bidirectional: it would see the words that a language model guesses")
        if tied:
            _check_tied(layer, output_size, encoder)
        self.tied = tied
        super().__init__(
            layer, output_size, encoder=encoder, dropout=dropout, output_bias=output_bias, rngs=rngs, dtype=dtype
        )

    def _make_head(self, features, output_size, dtype, rngs):
        return Bias(output_size, dtype) if self.tied else super()._make_head(features, output_size, dtype, rngs)

    def _read_out(self, outputs, rngs):
        if not self.tied:
            return super()._read_out(outputs, rngs)
        return self.head(self.drop(outputs, rngs) @ self.encoder.table[...].T)


class Bias(nnx.Module):
    """x [..., F] + bias [F], 0 at the start."""

    def __init__(self, features: int, dtype: Any = jnp.float32):
        self.bias = nnx.Param(jnp.zeros(features, dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + jnp.expand_dims(self.bias[...], range(x.ndim - 1))


def _check_tied(layer: layers.Layer, output_size: int, encoder: Callable) -> None:
    if layer.readout:
        raise ValueError(f"tied is True but {layer!r} reads out itself and has no head: take tied=False")
    if not isinstance(encoder, Embedding):
        raise ValueError(f"tied is True but the encoder is a {type(encoder).__name__}: expected an Embedding")
    if (encoder.size, encoder.features) != (output_size, layer.output_size):
        raise ValueError(
            f"tied is True but the table is [{encoder.size}, {encoder.features}]: expected [{output_size}, "
            f"{layer.output_size}], words and features that the layer puts out; or take tied=False"
        )
