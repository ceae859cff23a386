"""From one sequence to another: an encoder reads, a decoder writes and, with attention, looks back at what was read."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax import layers
from rnnjax.cell import Cell
from rnnjax.nn.attention import Additive, Attentive, Memory, Multiplicative, attend
from rnnjax.nn.parts import Encoded, linear
from rnnjax.nn.rnn import RNN, as_module
from rnnjax.nn.search import Hypotheses, beam_search
from rnnjax.tasks.base import SourceTarget, widen
from rnnjax.unroll import Unrolled

ATTENTIONS = (None, "bahdanau", "luong")


class Read(NamedTuple):
    """What the encoder leaves to the decoder, leaves [B, ...].

    memory: what attention looks at; None without.
    context: [B, F], c of the whole source, all that a decoder without attention has.
    carry: where the decoder starts.
    """

    memory: Memory | None
    context: jax.Array
    carry: Any


class Written(NamedTuple):
    """logits [T, B, V] of the next symbol; carry, to go on with; weights [T, B, S], None without attention."""

    logits: jax.Array
    carry: Any
    weights: jax.Array | None


class Seq2Seq(nnx.Module):
    """Reads a source sequence with one layer and writes a target sequence with one cell, symbol after symbol.

        c = tanh(W [final carry of the encoder])      every field of every cell, of both directions
        s_0 = tanh(W' c)                              every field of the decoder's carry
        s_t = step of the decoder with [y_{t-1}, c_t], or with y_{t-1} alone for Luong
        logits_t = head of tanh(W'' [s_t, c_t])

    attention=None: the fixed context vector, c_t = c at every step (Cho et al. 2014, arXiv:1406.1078: c starts the
    decoder, is fed at every step and is read by the output). "bahdanau": c_t is looked up by s_{t-1} before the step
    (Bahdanau et al. 2015, `Additive` with hidden_size units). "luong": it is looked up by s_t after the step and not
    fed (Luong et al. 2015, `Multiplicative`).

    encoder: a layer of `rnnjax.layers` whose outputs, of F features, are what is looked at.
    decoder: a Cell, also one in wrappers. Its input_size is `target.features`, and F more where c_t is fed.
    output_size: V, target symbols.
    source, target: what makes vectors of the symbols that are read and fed, modules of `rnnjax.nn.encoders`.
    attention: None, "bahdanau" or "luong".
    dropout: the probability that a feature is dropped in training, of the vectors of the symbols and of what the head
        sees.
    rngs: the stream "params" draws the parameters, in training "dropout" the masks.
    dtype: that of all parameters, and so of the outputs; float64 needs jax_enable_x64.

    Training is teacher-forced, by one unroll for each cell: probes call them "encoder" (and what stands in it) and
    "decoder". A source of length 0 has a final carry, that where the encoder starts, and a context c_t of 0.

    Raises ValueError where sizes don't fit.
    """

    def __init__(
        self,
        encoder: layers.Layer,
        decoder: Cell,
        output_size: int,
        *,
        source: Callable,
        target: Callable,
        attention: str | None = None,
        dropout: float = 0.0,
        rngs: nnx.Rngs,
        dtype: Any = jnp.float32,
    ):
        if attention not in ATTENTIONS:
            raise ValueError(f"attention is {attention!r}: expected None, bahdanau or luong")
        _check_sizes(encoder, decoder, source, target, fed=attention != "luong")
        features = encoder.output_size
        self.attention, self.output_size = attention, output_size
        self.source, self.target = Encoded(source, 1, dropout), Encoded(target, 1, dropout)
        self.encoder = RNN(encoder, rngs=rngs, name="encoder", dtype=dtype)
        start = jax.eval_shape(lambda key: decoder.initial_carry(decoder.init(key)), jax.random.key(0))
        cell = decoder
        if attention == "bahdanau":
            cell = Attentive(decoder, Additive(start[0].shape[-1], features, decoder.hidden_size))
        self.decoder = _Decoder(cell, rngs=rngs, name="decoder", dtype=dtype)
        self.score = None
        if attention == "luong":
            self.score = Multiplicative(decoder.output_size, features)
            self.score_params = as_module(self.score.init(rngs.params(), dtype))
        summary = jax.eval_shape(lambda: encoder.initial_carry(self.encoder.arrays()))
        self.summarize = linear(sum(leaf.size for leaf in jax.tree.leaves(summary)), features, dtype, rngs)
        self.start = linear(features, sum(field.size for field in start), dtype, rngs)
        self.combine = linear(decoder.output_size + features, decoder.hidden_size, dtype, rngs)
        self.head = linear(decoder.hidden_size, output_size, dtype, rngs)

    def __call__(
        self, inputs: SourceTarget, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None
    ) -> jax.Array:
        """source [S, B], target [T, B] of ids, lengths [B] of the sources -> logits [T, B, V].

        target: what the decoder is fed, the symbol that starts a sequence first. What a source holds at its pads
        changes nothing; a target's pads hold ids that there are, and the loss leaves them out.
        """
        read = self.read(inputs.source, lengths=lengths, rngs=rngs)
        return self.write(inputs.target, read, rngs=rngs).logits

    def read(self, source: Any, *, lengths: jax.Array | None = None, rngs: nnx.Rngs | None = None) -> Read:
        """What the decoder needs of source [S, B]."""
        unrolled = self.encoder(self.source.encode(source, lengths, rngs), lengths=lengths, rngs=rngs)
        context = jnp.tanh(self.summarize(jnp.concatenate(jax.tree.leaves(unrolled.carry), axis=-1)))
        memory = None
        if self.attention == "luong":
            memory = self.score.remember(self._score_arrays(), unrolled.outputs, lengths)
        if self.attention == "bahdanau":
            cell, params = self.decoder.layer, self.decoder.arrays()
            memory = cell.attention.remember(params["attention"], unrolled.outputs, lengths)
        return Read(memory, context, self._start(context))

    def write(self, target: Any, read: Read, carry: Any = None, *, rngs: nnx.Rngs | None = None) -> Written:
        """target [T, B], fed -> logits and weights at every step, and the carry to go on with.

        Windows of a target one after the other, of one step each or of more, give what the whole gives.

        carry: as the window before returned it; `read.carry` by default.
        """
        carry = read.carry if carry is None else carry
        x = self.target.encode(target, None, rngs)
        fixed = jnp.broadcast_to(read.context, (*x.shape[:-1], read.context.shape[-1]))
        if self.attention is None:
            x = jnp.concatenate([x, fixed], axis=-1)
        memory = {"memory": read.memory} if self.attention == "bahdanau" else {}
        unrolled = self.decoder(x, carry, beside=memory, rngs=rngs)
        seen, weights = self._look(read, carry, unrolled, fixed)
        combined = jnp.tanh(self.combine(seen))
        return Written(self.head(self.target.drop(combined, rngs)), unrolled.carry, weights)

    def _look(self, read: Read, carry: Any, unrolled: Unrolled, fixed: jax.Array) -> tuple[jax.Array, Any]:
        """([s_t, c_t], the weights that made c_t), [T, B, ...] each."""
        outputs = unrolled.outputs
        if self.attention is None:
            return jnp.concatenate([outputs, fixed], axis=-1), None
        if self.attention == "luong":
            weights = self.score.weights(self._score_arrays(), read.memory, outputs)
            return jnp.concatenate([outputs, attend(read.memory, weights)], axis=-1), weights
        queries = jnp.concatenate([carry[0][None], unrolled.carries[0]])[:-1]  # of the step before
        cell, params = self.decoder.layer, self.decoder.arrays()
        return outputs, cell.attention.weights(params["attention"], read.memory, queries)

    def stream(self, inputs: Any, carry: Any, **options: Any) -> Any:
        """Raises ValueError: what is written first may need what is read last."""
        raise ValueError(
            "Seq2Seq reads a whole source before it writes: it can't stream. Call greedy or beam, or read once and "
            "then write, step by step"
        )

    def greedy(
        self, source: Any, *, lengths: jax.Array | None = None, start: int, stop: int, max_length: int
    ) -> Hypotheses:
        """The likeliest symbol at each step, for source [S, B]: symbols [T, B], lengths and scores [B], weights
        [T, B, S]; see `Hypotheses`. Nothing is dropped. Compiled once for all sources of a shape."""
        found = self.beam(
            source, lengths=lengths, size=1, start=start, stop=stop, max_length=max_length, length_power=0.0
        )
        return Hypotheses(
            found.symbols[..., 0],
            found.lengths[..., 0],
            found.scores[..., 0],
            None if found.weights is None else found.weights[:, :, 0],
        )

    def beam(
        self,
        source: Any,
        *,
        lengths: jax.Array | None = None,
        size: int,
        start: int,
        stop: int,
        max_length: int,
        length_power: float = 1.0,
    ) -> Hypotheses:
        """The `size` best sequences that beam search finds for source [S, B]; see `rnnjax.nn.search.beam_search`.

        start, stop: the symbols that begin and end a target. max_length: symbols at most, `stop` included.
        """
        for name, value in (("size", size), ("max_length", max_length)):
            if value < 1:
                raise ValueError(f"{name} is {value}: expected at least 1")
        for name, symbol in (("start", start), ("stop", stop)):
            if not 0 <= symbol < self.output_size:
                raise ValueError(f"{name} is {symbol}: expected one of the {self.output_size} target symbols")
        model = nnx.clone(self)
        model.eval()
        graph, state = nnx.split(model)
        asked = (size, start, stop, max_length, float(length_power))
        return _beam(graph, asked, state, jnp.asarray(source), None if lengths is None else jnp.asarray(lengths))

    def _start(self, context: jax.Array) -> Any:
        """The decoder's carry at the start, drawn from c."""
        cell = self.decoder.layer
        attentive = isinstance(cell, Attentive)
        params = self.decoder.arrays()
        like = cell.cell.initial_carry(params["cell"]) if attentive else cell.initial_carry(params)
        ends = [sum(field.size for field in like[: i + 1]) for i in range(len(like))]
        fields = jnp.split(jnp.tanh(self.start(context)), ends[:-1], axis=-1)
        return cell.start(type(like)(*fields)) if attentive else type(like)(*fields)

    def _score_arrays(self):
        return nnx.to_pure_dict(nnx.state(self.score_params))


def _check_sizes(encoder: layers.Layer, decoder: Cell, source: Callable, target: Callable, *, fed: bool) -> None:
    """Raises ValueError unless both read what they are given; fed: the decoder is given the context too."""
    if encoder.input_size != source.features:
        raise ValueError(f"encoder has input_size {encoder.input_size}: expected {source.features}, as source gives")
    context = encoder.output_size if fed else 0
    if decoder.input_size != target.features + context:
        raise ValueError(
            f"decoder has input_size {decoder.input_size}: expected {target.features + context}, {target.features} of "
            "target" + (f" and {context} of the context" if fed else "")
        )


class _Decoder(RNN):
    """An RNN whose cell has parameters beside the module's own, a memory."""

    def __call__(self, inputs, carry, *, beside: dict[str, Any], rngs: nnx.Rngs | None = None) -> Unrolled:
        key = self._key(rngs)
        return layers.run(self.layer, self.arrays() | beside, inputs, carry, key=key, name=self.name)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _beam(graph, asked, state, source, lengths):
    size, start, stop, max_length, length_power = asked
    model = nnx.merge(graph, state)
    read = model.read(source, lengths=lengths)
    for_each = jax.tree.map(lambda leaf: jnp.repeat(leaf, size, axis=0), read)  # the same in all of a row's beam

    def advance(symbols, carry):
        written = model.write(symbols[None], for_each, carry)
        log_p = jax.nn.log_softmax(widen(written.logits[0]))
        return log_p, written.carry, None if written.weights is None else written.weights[0]

    return beam_search(
        advance,
        read.carry,
        size=size,
        start=start,
        stop=stop,
        max_length=max_length,
        length_power=length_power,
    )
