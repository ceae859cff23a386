"""Layers: a cell, two cells that read a sequence in both directions, or several layers on top of each other.

A layer is a value like a cell; `run` takes it over a sequence with `unroll`, layer by layer. Probes call each unroll by
where its parameters stand, "layer_1/backward" for `params["layer_1"]["backward"]`, after the `name` that `run` was
given. A cell alone is called by its class, whatever it is wrapped in.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from rnnjax.cell import Carry, Cell, Params, add_bias, check_choice, normalize, scale
from rnnjax.layers import wrappers
from rnnjax.unroll import Unrolled, unroll
from rnnjax.unroll.sequence import check_inputs, check_lengths, valid_steps, zero_where_not


class Directions(NamedTuple):
    """What belongs to the two cells of a Bidirectional layer."""

    forward: Any
    backward: Any


@dataclasses.dataclass(frozen=True)
class Bidirectional:
    """Two cells over one sequence, the second from its end (of each row's valid steps) to its start.

    Parameters {"forward": {...}, "backward": {...}}, carry Directions(forward, backward).
    Source: Schuster, Paliwal 1997.

    forward: the Cell that reads from the start.
    backward: the Cell that reads from the end.
    merge: "concat" the outputs, forward first, or their "sum".
    """

    forward: Cell
    backward: Cell
    merge: str = "concat"

    readout: ClassVar[bool] = False

    def __post_init__(self):
        check_choice(self, "merge", ("concat", "sum"))
        forward, backward = self.forward, self.backward
        if forward.input_size != backward.input_size:
            raise ValueError(
                f"backward of Bidirectional has input_size {backward.input_size} but forward has {forward.input_size}: "
                "both read the same inputs"
            )
        if self.merge == "sum" and forward.output_size != backward.output_size:
            raise ValueError(
                f"merge of Bidirectional is 'sum' but forward puts out {forward.output_size} features and backward "
                f"{backward.output_size}: make them equal, or merge by concat"
            )

    @property
    def input_size(self) -> int:
        return self.forward.input_size

    @property
    def output_size(self) -> int:
        """Features of the merged outputs."""
        return self.forward.output_size + (self.backward.output_size if self.merge == "concat" else 0)

    def init(self, key: jax.Array, dtype=jnp.float32) -> Params:
        """Draws the parameters of both."""
        forward_key, backward_key = jax.random.split(key)
        return {"forward": self.forward.init(forward_key, dtype), "backward": self.backward.init(backward_key, dtype)}

    def initial_carry(self, params: Params, batch_shape: tuple[int, ...] = ()) -> Directions:
        """Where both start."""
        return Directions(
            self.forward.initial_carry(params["forward"], batch_shape),
            self.backward.initial_carry(params["backward"], batch_shape),
        )


@dataclasses.dataclass(frozen=True)
class Stack:
    """Layers from the bottom up: the outputs of one are the inputs of the next.

    Parameters {"layer_0": {...}, "layer_1": {...}} and, with layer_norm, "norm_0": {"scale" [O], "bias" [O]} and so on.
    The carry is a tuple of the layers' carries. Dropout between two layers is InputDropout around the upper one's cell.

    layers: Cells or Bidirectional layers.
    residual: whether a layer's inputs are added to its outputs, He et al. 2016; all sizes have to be equal.
    layer_norm: whether each layer's outputs are normalised, Ba et al. 2016, before its inputs are added.
    """

    layers: tuple[Cell | Bidirectional, ...]
    residual: bool = False
    layer_norm: bool = False

    readout: ClassVar[bool] = False

    def __post_init__(self):
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise ValueError("layers of Stack is empty: expected at least one")
        for i, (below, above) in enumerate(zip(self.layers[:-1], self.layers[1:], strict=True)):
            if above.input_size != below.output_size:
                raise ValueError(
                    f"layer_{i + 1} of Stack has input_size {above.input_size}: expected {below.output_size}, what "
                    f"layer_{i} puts out"
                )
        for i, layer in enumerate(self.layers):
            if self.residual and layer.input_size != layer.output_size:
                raise ValueError(
                    f"residual of Stack is True but layer_{i} has input_size {layer.input_size} and output_size "
                    f"{layer.output_size}: make them equal, or put that layer below the Stack"
                )

    @property
    def input_size(self) -> int:
        return self.layers[0].input_size

    @property
    def output_size(self) -> int:
        return self.layers[-1].output_size

    def init(self, key: jax.Array, dtype=jnp.float32) -> Params:
        """Draws the parameters of every layer; norms start as scale 1 and bias 0."""
        params = {f"layer_{i}": layer.init(jax.random.fold_in(key, i), dtype) for i, layer in enumerate(self.layers)}
        for i, layer in enumerate(self.layers if self.layer_norm else ()):
            size = layer.output_size
            params[f"norm_{i}"] = {"scale": jnp.ones(size, dtype), "bias": jnp.zeros(size, dtype)}
        return params

    def initial_carry(self, params: Params, batch_shape: tuple[int, ...] = ()) -> tuple:
        """Where every layer starts."""
        return tuple(layer.initial_carry(params[f"layer_{i}"], batch_shape) for i, layer in enumerate(self.layers))


Layer = Cell | Bidirectional | Stack


def is_random(layer: Layer) -> bool:
    """Whether training draws masks, so that it wants a key."""
    if isinstance(layer, Stack):
        return any(map(is_random, layer.layers))
    if isinstance(layer, Bidirectional):
        return is_random(layer.forward) or is_random(layer.backward)
    return wrappers.is_random(layer)


def run(
    layer: Layer,
    params: Params,
    inputs: Any,
    carry: Any = None,
    *,
    lengths: jax.Array | None = None,
    key: jax.Array | None = None,
    truncate: int | None = None,
    chunk: int | None = None,
    method: str = "auto",
    name: str | None = None,
) -> Unrolled:
    """A layer over a sequence, by one `unroll` for every cell in it.

    key: given in training, when masks are drawn from it, another for every cell; None at evaluation. In shard_map every
        device may be given the same.
    name: what probes put before the names of the unrolls, "encoder/layer_0/forward".

    All else is as in `unroll`: inputs [T, *batch, input_size], or what else the lowest cell takes; outputs are 0 where
    t >= length. Raises ValueError for a carry that is not that of `layer.initial_carry`, and as `unroll` does.
    """
    if carry is not None and isinstance(layer, Bidirectional | Stack):
        _check_carry(layer, params, carry, jnp.shape(jax.tree.leaves(inputs)[0])[1:-1])
    options = {"lengths": lengths, "truncate": truncate, "chunk": chunk, "method": method}
    return _run(layer, params, inputs, carry, key, name, options)


def advance(layer: Layer, params: Params, carry: Any, inputs: Any) -> tuple[jax.Array, Any]:
    """One step, for inputs that come one at a time: (output [*batch, output_size], carry), as `run` gives them.

    inputs: [*batch, input_size], or what else the lowest cell takes. carry: as the step before returned it, or None to
    start. Raises ValueError for a layer that reads backwards, since the end of the sequence is not there yet.
    """
    parts = layer.layers if isinstance(layer, Stack) else (layer,)
    for i, part in enumerate(parts):
        if isinstance(part, Bidirectional):
            where = f"layer_{i} of the Stack" if isinstance(layer, Stack) else "the layer"
            raise ValueError(f"{where} is Bidirectional, which reads from the end: it can't advance by single steps")
    result = run(layer, params, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], inputs), carry)
    return result.outputs[0], result.carry


def run_cell(
    cell: Cell, params: Params, inputs: Any, carry: Carry | None, key, name: str | None, **options
) -> Unrolled:
    """`unroll` of a cell, with its masks drawn first where there is a key."""
    if key is not None:
        inputs, _, _ = check_inputs(cell, params, inputs)  # while they are what a caller gave
        params, inputs = cell.randomize(key, params, inputs)
    return unroll(cell, params, inputs, carry, name=name, **options)


def _run(layer, params, inputs, carry, key, name, options):
    if isinstance(layer, Stack):
        return _run_stack(layer, params, inputs, carry, key, name, options)
    if isinstance(layer, Bidirectional):
        return _run_bidirectional(layer, params, inputs, carry, key, name, options)
    return run_cell(layer, params, inputs, carry, key, name, **options)


def _run_bidirectional(layer, params, inputs, carry, key, name, options):
    carry = Directions(None, None) if carry is None else carry
    keys = (None, None) if key is None else jax.random.split(key)
    forward, backward = (
        run_cell(cell, params[side], inputs, start, key, _join(name, side), reverse=side == "backward", **options)
        for cell, start, key, side in zip((layer.forward, layer.backward), carry, keys, Directions._fields, strict=True)
    )
    both = Directions(forward, backward)
    outputs = [result.outputs for result in both]
    outputs = jnp.concatenate(outputs, axis=-1) if layer.merge == "concat" else outputs[0] + outputs[1]
    carry, carries = (Directions(*(getattr(result, of) for result in both)) for of in ("carry", "carries"))
    return Unrolled(outputs, carry, carries)


def _run_stack(stack, params, inputs, carry, key, name, options):
    results, outputs = [], inputs
    for i, layer in enumerate(stack.layers):
        place, below = f"layer_{i}", outputs
        layer_key = None if key is None else jax.random.fold_in(key, i)
        start = None if carry is None else carry[i]
        results.append(_run(layer, params[place], below, start, layer_key, _join(name, place), options))
        outputs = results[-1].outputs
        if stack.layer_norm:
            outputs = _normalised(params[f"norm_{i}"], outputs)
        if stack.residual:
            outputs = outputs + jnp.asarray(jax.tree.leaves(below)[0]).astype(outputs.dtype)
        if options["lengths"] is not None and (stack.layer_norm or stack.residual):  # else they are 0 at pads already
            lengths = check_lengths(options["lengths"], outputs.shape[0], outputs.shape[1:-1])
            outputs = zero_where_not(valid_steps(lengths, outputs.shape[0]), outputs)
    return Unrolled(outputs, tuple(result.carry for result in results), tuple(result.carries for result in results))


def _normalised(params: Params, x: jax.Array) -> jax.Array:
    """x [..., O] with mean 0 and variance 1 over its features, times scale, plus bias."""
    return add_bias(scale(normalize(x), params["scale"]), params["bias"]).astype(x.dtype)


def _join(name: str | None, place: str) -> str:
    return place if name is None else f"{name}/{place}"


def _check_carry(layer: Bidirectional | Stack, params: Params, carry: Any, batch_shape: tuple[int, ...]) -> None:
    """Raises ValueError, naming the layer, unless the carry has the structure and shapes of `layer.initial_carry`."""
    expected = jax.eval_shape(lambda: layer.initial_carry(params, batch_shape))
    parts = [("a Bidirectional layer", carry, expected)]
    if isinstance(layer, Stack):
        count = len(layer.layers)
        if type(carry) is not tuple or len(carry) != count:  # a NamedTuple is the carry of a cell
            raise ValueError(
                f"the carry given to a Stack of {count} layers is a {jax.tree.structure(carry)}: expected a tuple of "
                f"{count}, one for each layer"
            )
        parts = [(f"layer_{i}", *part) for i, part in enumerate(zip(carry, expected, strict=True))]
    for where, given, like in parts:
        if jax.tree.structure(given) != jax.tree.structure(like):
            raise ValueError(
                f"the carry given to {where} is a {jax.tree.structure(given)}: expected {jax.tree.structure(like)}, as "
                "initial_carry returns"
            )
        for (path, leaf), want in zip(jax.tree_util.tree_leaves_with_path(given), jax.tree.leaves(like), strict=True):
            if jnp.shape(leaf) != want.shape:
                raise ValueError(
                    f"the carry given to {where} has {jax.tree_util.keystr(path)} of the shape {jnp.shape(leaf)}: "
                    f"expected {want.shape} for inputs of batch {batch_shape}"
                )
