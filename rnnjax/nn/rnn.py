"""A layer and its parameters, as a Flax NNX module."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import rnnjax.layers
from rnnjax.cell import Cell
from rnnjax.layers.stack import run_cell
from rnnjax.unroll import Unrolled


class RNN(nnx.Module):
    """`rnnjax.layers.run` of a layer whose parameters are the module's.

    layer: a Cell, also one in wrappers, a layers.Bidirectional or a layers.Stack; `params` holds its parameters as
        nnx.Param under the names that `layer.init` gives them.
    rngs: the stream "params" draws them.
    name: what probes call the unroll of a cell, and put before the names of several; see `rnnjax.layers.run`.
    dtype: that of the parameters, and so of carry and outputs; float64 needs jax_enable_x64.

    What is random, dropout and its kind, is drawn while the module trains, as it does from the start and after
    `.train()`, and not after `.eval()`.
    """

    def __init__(
        self, layer: rnnjax.layers.Layer, *, rngs: nnx.Rngs, name: str | None = None, dtype: Any = jnp.float32
    ):
        self.layer = layer
        self.name = name
        self.params = as_module(layer.init(rngs.params(), dtype))
        self.deterministic = False

    def __call__(
        self,
        inputs: Any,
        carry: Any = None,
        *,
        lengths: jax.Array | None = None,
        rngs: nnx.Rngs | None = None,
        reverse: bool = False,
        truncate: int | None = None,
        chunk: int | None = None,
        method: str = "auto",
    ) -> Unrolled:
        """inputs [T, *batch, input_size] or what else the lowest cell takes; all as in `rnnjax.unroll`.

        rngs: the stream "dropout" draws the masks of a training call, anew in each.

        Raises ValueError where a layer that draws masks is trained without rngs, and where reverse is asked of anything
        but a cell.
        """
        options = {"lengths": lengths, "truncate": truncate, "chunk": chunk, "method": method}
        params, key = self.arrays(), self._key(rngs)
        if not reverse:
            return rnnjax.layers.run(self.layer, params, inputs, carry, key=key, name=self.name, **options)
        if isinstance(self.layer, rnnjax.layers.Bidirectional | rnnjax.layers.Stack):
            raise ValueError(f"reverse is True but the layer is {self.layer!r}: only a cell has a direction of its own")
        return run_cell(self.layer, params, inputs, carry, key, self.name, reverse=True, **options)

    def advance(self, carry: Any, inputs: Any) -> tuple[jax.Array, Any]:
        """One step at evaluation, (output, carry); see `rnnjax.layers.advance`."""
        return rnnjax.layers.advance(self.layer, self.arrays(), carry, inputs)

    def arrays(self) -> dict[str, Any]:
        """The parameters as `layer.init` returns them."""
        return nnx.to_pure_dict(nnx.state(self.params))

    def _key(self, rngs: nnx.Rngs | None) -> jax.Array | None:
        if self.deterministic or not rnnjax.layers.is_random(self.layer):
            return None
        if rngs is None:
            raise ValueError(
                f"{self.layer!r} draws masks in training: call the module with rngs=nnx.Rngs(key), with another key at "
                "each step, or with none after .eval()"
            )
        return rngs.dropout()


class Bidirectional(RNN):
    """Two cells that read a sequence from both ends: `RNN` of a `rnnjax.layers.Bidirectional`."""

    def __init__(
        self,
        forward: Cell,
        backward: Cell,
        merge: str = "concat",
        *,
        rngs: nnx.Rngs,
        name: str | None = None,
        dtype: Any = jnp.float32,
    ):
        super().__init__(rnnjax.layers.Bidirectional(forward, backward, merge), rngs=rngs, name=name, dtype=dtype)


class Stack(RNN):
    """Layers on top of each other: `RNN` of a `rnnjax.layers.Stack`."""

    def __init__(
        self,
        layers: Sequence[Cell | rnnjax.layers.Bidirectional],
        *,
        residual: bool = False,
        layer_norm: bool = False,
        rngs: nnx.Rngs,
        name: str | None = None,
        dtype: Any = jnp.float32,
    ):
        stack = rnnjax.layers.Stack(tuple(layers), residual, layer_norm)
        super().__init__(stack, rngs=rngs, name=name, dtype=dtype)


def as_module(params: dict[str, Any]) -> nnx.Dict:
    """Nested parameters as an NNX module that holds nnx.Params of their names."""
    return nnx.Dict({k: as_module(v) if isinstance(v, dict) else nnx.Param(v) for k, v in params.items()})
