"""A cell and its parameters, as a Flax NNX module."""

from typing import Any

import jax
from flax import nnx

from rnnjax.cell import Carry, Cell
from rnnjax.unroll import Unrolled, unroll


class RNN(nnx.Module):
    """`unroll` of a cell whose parameters are the module's.

    cell: any Cell; `params` holds its parameters as nnx.Param under the names that `cell.init` gives them.
    rngs: the stream "params" draws them.
    name: what probes call the unroll; the cell's class in lower case by default.
    """

    def __init__(self, cell: Cell, *, rngs: nnx.Rngs, name: str | None = None):
        self.cell = cell
        self.name = name
        self.params = _as_module(cell.init(rngs.params()))

    def __call__(
        self,
        inputs: Any,
        carry: Carry | None = None,
        *,
        lengths: jax.Array | None = None,
        reverse: bool = False,
        method: str = "auto",
    ) -> Unrolled:
        """inputs [T, *batch, input_size] or what else the cell takes; see `rnnjax.unroll`."""
        params = _as_arrays(self.params)
        return unroll(self.cell, params, inputs, carry, lengths=lengths, reverse=reverse, method=method, name=self.name)


def _as_module(params: dict[str, Any]) -> nnx.Dict:
    return nnx.Dict({k: _as_module(v) if isinstance(v, dict) else nnx.Param(v) for k, v in params.items()})


def _as_arrays(module: nnx.Dict) -> dict[str, Any]:
    return nnx.to_pure_dict(nnx.state(module))
