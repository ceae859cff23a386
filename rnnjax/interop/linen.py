"""rnnjax and flax.linen: our cells in its modules, its cells in our `unroll`.

RNN(layer)              a Linen module around `unroll` of any Cell, Bidirectional or Stack
RNNCell(cell)           any Cell as a flax.linen.RNNCellBase, for flax.linen.RNN(RNNCell(cell))
LinenCell(module, I)    a flax.linen.RNNCellBase as a Cell, for `unroll`, the probes and the trainer
"""

import dataclasses
import functools
from typing import Any, ClassVar

import flax.errors
import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import unfreeze

from rnnjax import layers
from rnnjax.cell import Carry, Cell, Params, check_sizes, parameter_dtype
from rnnjax.interop.flax_common import (
    Layout,
    check_axes,
    check_only_parameters,
    check_steps_alone,
    describe,
    find_layout,
    run_step,
    shapes_of,
)
from rnnjax.layers.stack import run_cell
from rnnjax.unroll import Unrolled
from rnnjax.unroll.sequence import cast

_FLAX_CELLS = (nn.SimpleCell, nn.LSTMCell, nn.OptimizedLSTMCell, nn.GRUCell, nn.MGUCell)


class RNN(nn.Module):
    """`rnnjax.layers.run` of a layer whose parameters are the module's, under the names that `layer.init` gives them.

    layer: a Cell, also one in wrappers, a layers.Bidirectional or a layers.Stack.
    param_dtype: what the parameters are drawn in, and so the dtype of carry and outputs.

    Probes call the unroll by Flax's name of the module, or by the cell's class where the module is the outermost.
    """

    layer: layers.Layer
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        inputs: Any,
        carry: Any = None,
        *,
        lengths: jax.Array | None = None,
        reverse: bool = False,
        truncate: int | None = None,
        chunk: int | None = None,
        method: str = "auto",
        deterministic: bool = True,
    ) -> Unrolled:
        """inputs [T, *batch, input_size], or what else the lowest cell takes; the other arguments are `unroll`'s.

        deterministic: False in training, when a layer that drops something draws its masks from the stream "dropout".

        Raises ValueError as `unroll` does, and where reverse=True is asked of anything but a cell.
        """
        params = _parameters(self, self.layer, self.param_dtype)
        drops = not deterministic and layers.is_random(self.layer)
        key = self.make_rng("dropout") if drops else None
        options = {"lengths": lengths, "truncate": truncate, "chunk": chunk, "method": method, "name": self.name}
        if not reverse:
            return layers.run(self.layer, params, inputs, carry, key=key, **options)
        if isinstance(self.layer, layers.Bidirectional | layers.Stack):
            raise ValueError(f"reverse is True but the layer is {self.layer!r}: only a cell has a direction")
        return run_cell(self.layer, params, inputs, carry, key=key, reverse=True, **options)


class RNNCell(nn.RNNCellBase):
    """A Cell as Flax has them. Its carry is the cell's own NamedTuple, its parameters are those of RNN(cell).

    An outermost flax.linen.RNN has them one level deeper, under "cell". It scans by itself, which probes can't see, and
    projects the inputs step by step: RNN(cell) is the one to take where there is a choice.

    Raises ValueError for a cell that draws masks for whole sequences, which Flax gives a cell no room for.
    """

    cell: Cell
    param_dtype: Any = jnp.float32

    def setup(self):
        check_steps_alone(self.cell, "rnnjax.interop.linen.RNN")
        self.parameters = _parameters(self, self.cell, self.param_dtype)

    def __call__(self, carry: Carry, inputs: jax.Array) -> tuple[Carry, jax.Array]:
        """One step from inputs [*batch, input_size]: (carry, output [*batch, output_size])."""
        return run_step(self.cell, unfreeze(self.parameters), carry, inputs)

    @nn.nowrap
    def initialize_carry(self, rng: jax.Array, input_shape: tuple[int, ...]) -> Carry:
        """The cell's initial carry for inputs of this shape, [*batch, input_size]; nothing of it is random.

        Raises ValueError on a module without parameters where the cell makes its carry of them.
        """
        del rng
        if self.scope is not None:
            return self.cell.initial_carry(unfreeze(self.parameters), input_shape[:-1])
        try:
            return self.cell.initial_carry(shapes_of(self.cell, self.param_dtype), input_shape[:-1])
        except TypeError as error:
            raise ValueError(
                f"the first carry of {self.cell!r} is made of its parameters, which a module outside of init and apply "
                "does not have: leave initial_carry to flax.linen.RNN"
            ) from error

    @property
    def num_feature_axes(self) -> int:
        """Cells act on the last axis."""
        return 1


@dataclasses.dataclass(frozen=True, repr=False)
class LinenCell(Cell):
    """A Flax cell as it stands in a Linen model, run by `unroll`. Its parameters are Flax's, nested as there.

    The carry is a NamedTuple of Flax's arrays. The one that the step puts out comes first and is `h`; beside it an
    LSTM's `c`. A dict or NamedTuple keeps its own names. Flax's own cells compute in the dtype of the parameters:
    `dtype` and `param_dtype` of the module give way to what `init` is asked for.

    module: a flax.linen.RNNCellBase that acts on the last axis, holds parameters only and puts out a part of its carry.
    input_size: I, features of x_t; a Linen module waits for an input to learn it.

    Raises TypeError or ValueError, naming the module, for one that is not so.
    """

    recurrent: ClassVar[tuple[str, ...]] = ()

    module: nn.RNNCellBase
    input_size: int
    layout: Layout = dataclasses.field(init=False)

    def __post_init__(self):
        check_sizes(self, "input_size")
        if not isinstance(self.module, nn.RNNCellBase):
            raise TypeError(
                f"module is {self.module!r}: expected a flax.linen.RNNCellBase such as nn.GRUCell(features=4)"
            )
        dtypes = {"dtype": None, "param_dtype": jnp.float32} if isinstance(self.module, _FLAX_CELLS) else {}
        object.__setattr__(self, "module", self.module.clone(parent=None, name=None, **dtypes))
        object.__setattr__(self, "layout", self._find_layout())

    def __repr__(self):
        options = {
            field.name: getattr(self.module, field.name) for field in dataclasses.fields(self.module) if field.repr
        }
        defaults = {field.name: field.default for field in dataclasses.fields(self.module)}
        return f"LinenCell({describe(self.layout.cell, options, defaults)}, input_size={self.input_size})"

    @property
    def hidden_size(self) -> int:
        """H, features of the output."""
        return self.layout.size

    def init(self, key, dtype=jnp.float32):
        return cast(self.module.init(key, *self._first())["params"], dtype)

    def initial_carry(self, params, batch_shape=()):
        return cast(self.layout.ours(self._first(batch_shape)[0]), parameter_dtype(params))

    def step(self, params, carry, z):
        return self.layout.ours(self.module.apply({"params": params}, self.layout.theirs(carry), z)[0])

    def _first(self, batch_shape=()):
        """(carry, inputs) of the first step, the carry drawn as flax.linen.RNN does."""
        shape = (*batch_shape, self.input_size)
        return self.module.initialize_carry(jax.random.key(0), shape), jnp.zeros(shape)

    def _find_layout(self):
        name = type(self.module).__name__
        check_axes(name, self.module)
        variables = jax.eval_shape(lambda: self.module.init(jax.random.key(0), *self._first()))
        check_only_parameters(name, sorted(set(variables) - {"params"}))
        try:
            return find_layout(name, self.module.apply, variables, *self._first())
        except flax.errors.InvalidRngError as error:
            raise ValueError(
                f"{name} draws random numbers in its step: make it deterministic, and take a dropout of rnnjax.layers "
                "around the LinenCell"
            ) from error


def _parameters(module: nn.Module, layer: layers.Layer, dtype: Any) -> Params:
    """The layer's parameters in the module's scope, all drawn from one key of the stream "params"."""
    params = shapes_of(layer, dtype)
    if module.is_mutable_collection("params") and not all(module.has_variable("params", name) for name in params):
        params = layer.init(module.make_rng("params"), dtype)
    return {name: module.param(name, functools.partial(_as_drawn, value)) for name, value in params.items()}


def _as_drawn(value: Any, key: jax.Array) -> Any:
    """What Flax asks of an initialiser: the value, or one of its shape to compare shapes with."""
    del key
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else jnp.zeros(leaf.shape, leaf.dtype), value)
