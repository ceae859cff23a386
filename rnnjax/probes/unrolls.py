"""The unrolls inside a function: which there are, what they have run, and zeros whose gradient is asked for.

A probe has two traces of the function:

1. Discovery. The function is traced to a jaxpr under a handler that tags the carries of every unroll. The jaxpr then
   says where each stands. Inside a scan, while, cond, vmap, shard_map or a custom rule one zero would be shared by
   several runs and its gradient silently summed over them, so those are refused by name.
2. The measurement, with the zeros as arguments.

JAX reuses the trace of a function that was jitted before, where a handler would see nothing. A fresh value of XLA
metadata around each trace is part of JAX's trace key, and so forces a new one.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Container
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.xla_metadata import set_xla_metadata

from rnnjax.cell import Carry, Cell
from rnnjax.layers.dropout import Noisy
from rnnjax.probes.places import LOOPS, RUNS_ONCE, TAG, check_each_runs_once, primitives
from rnnjax.unroll import handlers
from rnnjax.unroll.sequence import vary

_SCANS_BY_ITSELF = (
    ". It scans by itself (flax.linen.RNN and flax.nnx.RNN do, or a jax.lax.scan of your own), where no carry can be "
    "seen: run the cell with rnnjax.unroll instead. rnnjax.interop.linen.LinenCell and rnnjax.interop.nnx.NNXCell make "
    "a Cell of one of Flax's; what flax.linen.RNN does with a Cell of rnnjax, rnnjax.interop.linen.RNN does too"
)
_fresh = itertools.count()


class Seen(NamedTuple):
    """Types of what an unroll has: carries, fields [T, *batch, ...]; inputs, leaves [T, *batch, ...]; outputs."""

    carries: Carry
    inputs: Any
    outputs: Any


def compiled(loss_fn: Callable, differentiate: Callable) -> Callable:
    """`differentiate(loss, params, whole)` as a compiled function of the arguments of `loss_fn`.

    params are the arrays of loss_fn's first argument; loss(params) is the loss_fn of these and of all other arguments;
    whole(gradients) gives gradients of params the structure of the argument, with None for what is no array.
    """

    @functools.partial(jax.jit, static_argnums=(1, 3))
    def run(params, static_params, rest, static_rest):
        @functools.wraps(loss_fn)
        def loss(params):
            # Every trace makes its own objects: a Flax module may be changed only in the trace that it was made in.
            args, kwargs = static_rest.join(rest)
            return loss_fn(static_params.join(params), *args, **kwargs)

        return differentiate(loss, params, static_params.join_arrays)

    @functools.wraps(loss_fn)
    def of_arguments(params, *args, **kwargs):
        return run(*_Static.split(params), *_Static.split((args, kwargs)))

    return of_arguments


def discover(function: Callable, *, through: Collection[str] = RUNS_ONCE) -> dict[str, Seen]:
    """{name: what it has seen} of every unroll that `function()` calls, in order.

    Raises ValueError as `carry_gradients` does, and for an unroll inside one of `RUNS_ONCE` that is not in `through`.
    """
    handler = _Discover()
    with fresh_trace(), handlers.handling(handler):
        jaxpr = jax.make_jaxpr(function)()
    if not handler.found:
        scans = not LOOPS.isdisjoint(primitives(jaxpr.jaxpr))
        raise ValueError(
            f"{getattr(function, '__qualname__', function)} calls no rnnjax.unroll, so there is no carry to see"
            + (_SCANS_BY_ITSELF if scans else "")
        )
    check_each_runs_once(jaxpr.jaxpr, handler.found, through)
    return handler.found


def zeros_like(found: dict[str, Seen], *parts: str) -> dict[str, dict[str, list]]:
    """{name: {part: zeros}} of every unroll that `discover` has found, leaf by leaf, None for what has no gradient.

    Raises ValueError where that is a part of a carry.
    """
    for name, seen in found.items() if "carries" in parts else ():
        for path, leaf in jax.tree_util.tree_leaves_with_path(seen.carries):
            if not is_floating(leaf):
                raise ValueError(
                    f"the carry of unroll {name!r} holds {jax.tree_util.keystr(path)} of dtype {leaf.dtype}, which has "
                    "no gradient: keep whole numbers among the inputs"
                )

    def zeros(like):
        return vary(jnp.zeros(like.shape, like.dtype), like) if is_floating(like) else None

    return {
        name: {part: list(map(zeros, jax.tree.leaves(getattr(seen, part)))) for part in parts}
        for name, seen in found.items()
    }


def by_unroll(found: dict[str, Seen], gradients: dict[str, dict[str, list]], part: str) -> dict[str, Any]:
    """{name: gradients of the part} of what `zeros_like` has the leaves of, in the structure of the part."""
    return {
        name: jax.tree.unflatten(jax.tree.structure(getattr(seen, part)), gradients[name][part])
        for name, seen in found.items()
    }


def numbered(name: str, taken: Container[str]) -> str:
    """The first of name, name_1, name_2 that is not taken."""
    candidates = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
    return next(candidate for candidate in candidates if candidate not in taken)


class _Numbered:
    """Names in order of calling, made unique: lstm, lstm_1, lstm_2."""

    def __init__(self):
        self.names: list[str] = []

    def add(self, name: str) -> str:
        self.names.append(numbered(name, self.names))
        return self.names[-1]


class _Discover(_Numbered):
    """Notes every unroll and tags each leaf of its carries, so that the jaxpr shows where it runs."""

    def __init__(self):
        super().__init__()
        self.found: dict[str, Seen] = {}

    def before(self, name, like, inputs):
        self.found[self.add(name)] = Seen(like, jax.tree.map(jax.typeof, _bare(inputs)), None)
        return inputs, None

    def after(self, steps, outputs):
        name = self.names[-1]
        self.found[name] = self.found[name]._replace(outputs=jax.typeof(outputs))
        leaves, structure = jax.tree.flatten(steps.carries)
        tagged = [checkpoint_name(leaf, f"{TAG}:{i}:{name}") for i, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, tagged), outputs


class Perturb(_Numbered):
    """Hands every unroll its zeros, as `zeros_like` makes them, and keeps what it has run in `steps`."""

    def __init__(self, zeros: dict[str, dict[str, list]]):
        super().__init__()
        self.zeros = zeros
        self.steps: dict[str, handlers.Steps] = {}

    def before(self, name, like, inputs):
        zeros = self.zeros[self.add(name)]
        inputs = _to_bare(inputs, functools.partial(_plus, zeros=zeros["inputs"])) if "inputs" in zeros else inputs
        return inputs, jax.tree.unflatten(jax.tree.structure(like), zeros["carries"]) if "carries" in zeros else None

    def after(self, steps, outputs):
        self.steps[self.names[-1]] = steps
        zeros = self.zeros[self.names[-1]]
        return steps.carries, _plus(outputs, zeros["outputs"]) if "outputs" in zeros else outputs


def _bare(inputs: Any) -> Any:
    """What a cell reads of its inputs, without the masks of dropout that come in beside it."""
    return _bare(inputs.inputs) if isinstance(inputs, Noisy) else inputs


def _to_bare(inputs: Any, function: Callable) -> Any:
    """The inputs with `function` applied to what `_bare` gives."""
    if isinstance(inputs, Noisy):
        return inputs._replace(inputs=_to_bare(inputs.inputs, function))
    return function(inputs)


def _plus(tree, zeros):
    """The tree with zeros added to its leaves, where there are any."""
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(structure, [a if b is None else a + b for a, b in zip(leaves, zeros, strict=True)])


def fresh_trace():
    """A context in which JAX traces inner jitted functions anew, so that a handler sees them."""
    return set_xla_metadata(rnnjax_trace=str(next(_fresh)))


class _Static(NamedTuple):
    """The part of a pytree that is no array, hashable, with the structure of the whole. Types tell 1 from True."""

    structure: Any
    leaves: tuple

    @staticmethod
    def split(tree):
        """(arrays, the rest), to be joined."""
        leaves, structure = jax.tree.flatten(tree)
        arrays = [leaf if _is_array(leaf) else None for leaf in leaves]
        return arrays, _Static(structure, tuple(None if _is_array(leaf) else (type(leaf), leaf) for leaf in leaves))

    def join(self, arrays):
        """The tree with these arrays."""
        pairs = zip(arrays, self.leaves, strict=True)
        return jax.tree.unflatten(self.structure, [array if kept is None else kept[1] for array, kept in pairs])

    def join_arrays(self, arrays):
        """The tree with these arrays, and None for what is none."""
        return jax.tree.unflatten(self.structure, arrays)


def _is_array(leaf) -> bool:
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape")


def recorded(function: Callable) -> Callable:
    """What every `unroll` that `function` calls has run.

    function: (params, *args, **kwargs) -> anything, as `carry_gradients` takes a loss.

    Returns a compiled function of the same arguments that gives {name of the unroll: `rnnjax.unroll.handlers.Steps`},
    which `unroll_jacobians`, `unroll_spectra` and `gate_statistics` read.

    Raises ValueError as `carry_gradients` does, and for an unroll inside a jax.jit or jax.checkpoint of the function.
    """

    def measure(function, params, whole):
        del whole
        found = discover(functools.wraps(function)(lambda: function(params)), through=())
        with handlers.handling(Perturb(zeros_like(found))) as seen:
            function(params)
        for name, steps in seen.steps.items():
            _check_known(name, steps.cell)
        return seen.steps

    return compiled(function, measure)


def _check_known(name: str, cell: Cell) -> None:
    """Raises ValueError for a cell that is no value: what was run goes with it."""
    traced = [field for field, value in getattr(cell, "__dict__", {}).items() if isinstance(value, jax.core.Tracer)]
    if traced:
        raise ValueError(
            f"the {traced[0]} of the cell of unroll {name!r} is traced: draw the parameters with it, and unroll a cell "
            "whose hyper-parameters are known"
        )


def carries_before(steps: handlers.Steps) -> Carry:
    """The carry before every step, fields [T, *batch, ...], beside the inputs that the step reads."""

    def of(first, after):
        first = first[None].astype(after.dtype)
        return jnp.concatenate([after[1:], first] if steps.reverse else [first, after[:-1]])[: after.shape[0]]

    return jax.tree.map(of, steps.first, steps.carries)


def valid_mask(steps: handlers.Steps) -> jax.Array:
    """[T, *batch], set at the steps that are no pads."""
    return jnp.ones(jax.tree.leaves(steps.inputs)[0].shape[:-1], bool) if steps.valid is None else steps.valid


def is_floating(leaf: Any) -> bool:
    """Whether an array, or the type of one, has a gradient."""
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def floating(tree: Any) -> list[jax.Array]:
    """The floating leaves."""
    return [leaf for leaf in jax.tree.leaves(tree) if is_floating(leaf)]


def with_floating(tree: Any, leaves: list[jax.Array]) -> Any:
    """The tree with these as its floating leaves."""
    others = iter(leaves)
    return jax.tree.map(lambda leaf: next(others) if is_floating(leaf) else leaf, tree)
