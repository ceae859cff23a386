"""rnnjax and flax.nnx: our cells in its RNN, its cells in our `unroll`. The module around `unroll` is rnnjax.nn.RNN.

RNNCell(cell, rngs=...) any Cell as a flax.nnx.RNNCellBase, for flax.nnx.RNN(RNNCell(cell, rngs=...))
NNXCell(module)         a flax.nnx.RNNCellBase as a Cell, for `unroll`, the probes and the trainer
parameters(module)      the module's weights, as that Cell takes them
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax.cell import Carry, Cell, Params, check_sizes, parameter_dtype
from rnnjax.interop.flax_common import (
    Layout,
    check_axes,
    check_only_parameters,
    check_steps_alone,
    describe,
    find_layout,
    run_step,
)
from rnnjax.nn.rnn import as_module
from rnnjax.unroll.sequence import cast

_SIZES = ("in_features", "hidden_features")
_FLAX_CELLS = (nnx.SimpleCell, nnx.LSTMCell, nnx.OptimizedLSTMCell, nnx.GRUCell)


class RNNCell(nnx.RNNCellBase):
    """A Cell as Flax has them. Its carry is the cell's own NamedTuple; `params` holds the parameters as rnnjax.nn.RNN.

    cell: any Cell.
    rngs: the stream "params" draws the parameters.

    flax.nnx.RNN scans by itself, which probes can't see, and projects the inputs step by step: rnnjax.nn.RNN(cell) is
    the one to take where there is a choice.

    Raises ValueError for a cell that draws masks for whole sequences, which Flax gives a cell no room for.
    """

    def __init__(self, cell: Cell, *, rngs: nnx.Rngs):
        check_steps_alone(cell, "rnnjax.nn.RNN")
        self.cell = cell
        self.params = as_module(cell.init(rngs.params()))

    def __call__(self, carry: Carry, inputs: jax.Array) -> tuple[Carry, jax.Array]:
        """One step from inputs [*batch, input_size]: (carry, output [*batch, output_size])."""
        return run_step(self.cell, parameters(self.params), carry, inputs)

    def initialize_carry(self, input_shape: tuple[int, ...], rngs: Any = None, carry_init: Any = None) -> Carry:
        """The cell's initial carry for inputs of this shape, [*batch, input_size]; nothing of it is random."""
        del rngs, carry_init
        return self.cell.initial_carry(parameters(self.params), input_shape[:-1])

    @property
    def num_feature_axes(self) -> int:
        """Cells act on the last axis."""
        return 1


@dataclasses.dataclass(frozen=True, repr=False)
class NNXCell(Cell):
    """A Flax cell as it stands in an NNX model, run by `unroll`. Its parameters are the module's, nested as there.

    The carry is a NamedTuple of Flax's arrays. The one that the step puts out comes first and is `h`; beside it an
    LSTM's `c`. A dict or NamedTuple keeps its own names. Flax's layers compute in the dtype of the parameters, to which
    their own `dtype` gives way.

    module: a flax.nnx.RNNCellBase that acts on the last axis, holds nnx.Param only and puts out a part of its carry, or
        a function that makes one of `rngs=`, such as functools.partial(nnx.GRUCell, 3, 4). The cell keeps what the
        module is made of and none of its weights: `parameters(module)` gives those. `init` draws new ones with the
        function. A module does not know how its weights were drawn: those of Flax's own cells are drawn by Flax's
        default initialisers, and a cell of your own has to be given as a function.
    input_size: I, features of x_t; the module's `in_features` by default.

    Raises TypeError or ValueError, naming the module, for one that is not so.
    """

    recurrent: ClassVar[tuple[str, ...]] = ()

    module: dataclasses.InitVar[nnx.RNNCellBase | Callable[..., nnx.RNNCellBase]]
    input_size: int | None = None
    graph: nnx.GraphDef = dataclasses.field(init=False)
    make: Callable[..., nnx.RNNCellBase] | None = dataclasses.field(init=False)
    options: tuple[tuple[str, Any], ...] = dataclasses.field(init=False)
    layout: Layout = dataclasses.field(init=False)

    def __post_init__(self, module):
        make, options = None, ()
        if type(module) in _FLAX_CELLS:
            make = type(module)
            options = tuple((name, vars(module)[name]) for name in _defaults(make) if name in vars(module))
        elif not isinstance(module, nnx.Module) and callable(module):
            make, module = module, nnx.eval_shape(lambda: module(rngs=nnx.Rngs(0)))
        if not isinstance(module, nnx.RNNCellBase):
            raise TypeError(
                f"module is {module!r}: expected a flax.nnx.RNNCellBase such as nnx.GRUCell(3, 4, rngs=rngs)"
            )
        graph, params = _split(module)
        size = getattr(module, "in_features", None) if self.input_size is None else self.input_size
        for name, value in {"graph": graph, "make": make, "options": options, "input_size": size}.items():
            object.__setattr__(self, name, value)
        check_sizes(self, "input_size")
        object.__setattr__(self, "layout", self._find_layout(params))

    def __repr__(self):
        options = {name: value for name, value in self.options if name not in _SIZES}
        made = describe(self.layout.cell, options, _defaults(self.make) if options else {})
        return f"NNXCell({made}, input_size={self.input_size}, hidden_size={self.hidden_size})"

    @property
    def hidden_size(self) -> int:
        """H, features of the output."""
        return self.layout.size

    def init(self, key, dtype=jnp.float32):
        if self.make is None:
            raise ValueError(
                f"a module does not know how the weights of {self.layout.cell} were drawn: give NNXCell a function "
                "that makes the module of rngs=, or take the weights it has, rnnjax.interop.nnx.parameters(module)"
            )
        return cast(parameters(self.make(**dict(self.options), rngs=nnx.Rngs(key))), dtype)

    def initial_carry(self, params, batch_shape=()):
        return cast(self.layout.ours(self._first(params, batch_shape)[0]), parameter_dtype(params))

    def step(self, params, carry, z):
        return self.layout.ours(_merge(self.graph, params)(self.layout.theirs(carry), z)[0])

    def _first(self, params, batch_shape=()):
        """(carry, inputs) of the first step."""
        shape = (*batch_shape, self.input_size)
        return _merge(self.graph, params).initialize_carry(shape, nnx.Rngs(0)), jnp.zeros(shape)

    def _find_layout(self, params):
        def step(params, carry, inputs):
            return _merge(self.graph, params)(carry, inputs)

        first = jax.eval_shape(self._first, params)
        return find_layout(self.graph.nodes[0].type.__name__, step, params, *first)


def parameters(module: nnx.Module) -> Params:
    """The weights of a module as nested dicts of arrays, under the names that they have there."""
    return _text_keys(nnx.to_pure_dict(nnx.state(module, nnx.Param)))


def _split(module: nnx.RNNCellBase) -> tuple[nnx.GraphDef, Params]:
    """(graph without dtypes of its own, shapes of the parameters)."""
    name = type(module).__name__
    check_axes(name, module)
    graph, params, others = nnx.split(module, nnx.Param, ...)
    check_only_parameters(name, sorted({type(leaf).__name__ for leaf in _variables(others)}))
    module = nnx.merge(graph, jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params))
    for _, part in nnx.iter_modules(module):
        if type(part).__module__.startswith("flax.") and hasattr(part, "dtype"):
            part.dtype = None
    return nnx.graphdef(module), parameters(module)


def _variables(state: nnx.State) -> list[nnx.Variable]:
    return jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def _merge(graph: nnx.GraphDef, params: Params) -> nnx.RNNCellBase:
    return nnx.merge(graph, _number_keys(params))


def _defaults(cls: type) -> dict[str, Any]:
    """{argument: default} of what makes one of Flax's cells and is kept by it, sizes first."""
    given = inspect.signature(cls.__init__).parameters
    names = (*_SIZES, "gate_fn", "activation_fn", "residual")
    return {name: given[name].default for name in names if name in given}


def _text_keys(tree: Any) -> Any:
    """The dict with "0", "1" ... for the places of a list, since parameters have names."""
    return {str(key): _text_keys(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def _number_keys(tree: Any) -> Any:
    """And back."""
    if not isinstance(tree, dict):
        return tree
    return {int(key) if key.isdigit() else key: _number_keys(value) for key, value in tree.items()}
