"""dL/dcarry_t for every t, of any function that calls `unroll`, from one backward pass.

Every unroll inside the function adds a zero e_t to its carry between `step` and `read`; dL/de_t is dL/dcarry_t. Each
field's gradient is taken with the other fields of the same time held fixed: an LSTM whose loss reads only h_T has
dL/dc_T = 0. The way there has two traces of the function:

1. Discovery. The function is traced to a jaxpr under a handler that tags the carries of every unroll. The jaxpr then
   says where each stands. Inside a scan, while, cond, vmap, shard_map or a custom rule one e would be shared by several
   runs and its gradient silently summed over them, so those are refused by name.
2. Differentiation, with the zeros as arguments.

JAX reuses the trace of a function that was jitted before, where a handler would see nothing. A fresh value of XLA
metadata around each trace is part of JAX's trace key, and so forces a new one.
"""

import collections
import functools
import itertools
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import jaxprs_in_params

from rnnjax.unroll import handlers
from rnnjax.unroll.sequence import vary

_TAG = "rnnjax.unroll"
_RUNS_ONCE = {"jit", "pjit", "closed_call", "checkpoint", "remat2"}
_LOOPS = {"scan", "while"}
_SCANS_BY_ITSELF = (
    ". It scans by itself (flax.linen.RNN and flax.nnx.RNN do, or a jax.lax.scan of your own), where no carry can be "
    "seen: run the cell with rnnjax.unroll instead. rnnjax.interop.linen.LinenCell and rnnjax.interop.nnx.NNXCell make "
    "a Cell of one of Flax's; what flax.linen.RNN does with a Cell of rnnjax, rnnjax.interop.linen.RNN does too"
)
_fresh = itertools.count()


def value_and_grad(loss_fn: Callable, *, has_aux: bool = False) -> Callable:
    """Like `jax.value_and_grad` with the gradient of every carry beside it, from the same backward pass.

    Returns a compiled function of (params, *args, **kwargs) that gives (value, gradients of params, carry gradients),
    where value is (loss, aux) with `has_aux`, and carry gradients are those of `carry_gradients`.
    """
    return compiled(loss_fn, functools.partial(_differentiate, has_aux=has_aux, of_params=True))


def carry_gradients(loss_fn: Callable, *, has_aux: bool = False) -> Callable:
    """dL/dcarry_t of every `unroll` that `loss_fn` calls.

    loss_fn: (params, *args, **kwargs) -> scalar, or (scalar, aux) with `has_aux`; any code that calls `unroll`, in any
        framework. Arguments are pytrees; leaves that are no arrays (an activation function, a number) are constants of
        the compiled function: another one, by type and ==, compiles it again.

    Returns a compiled function of the same arguments that gives {name of the unroll: carry of [T, *batch, ...]}: the
    NamedTuple of the cell with the gradient in each field, 0 at pads. An unroll is called by the `name` it was given,
    else by its cell's class; the second of a name is `name_1`, the third `name_2`. It may itself be put under jit, vmap
    or grad; the unrolls of a carry_gradients inside `loss_fn` belong to that one alone. Each compilation has metadata
    of its own, so that a persistent compilation cache does not find it again.

    Raises ValueError where `loss_fn` calls no `unroll`, and where one would run several times with a single
    perturbation: inside scan, while, cond, vmap, lax.map, shard_map, a custom derivative rule, or a jitted function
    that is called twice with the same shapes.
    """
    run = compiled(loss_fn, functools.partial(_differentiate, has_aux=has_aux, of_params=False))
    return functools.wraps(loss_fn)(lambda *args, **kwargs: run(*args, **kwargs)[2])


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


def _differentiate(loss: Callable, params: Any, whole: Callable, *, has_aux: bool, of_params: bool):
    zeros = zeros_like(discover(functools.wraps(loss)(lambda: loss(params))))

    def perturbed(zeros, params):
        with _fresh_trace(), handlers.handling(Perturb(zeros)):
            return loss(params)

    if of_params:
        value, (of_carries, gradients) = jax.value_and_grad(perturbed, (0, 1), has_aux=has_aux)(zeros, params)
        return value, whole(gradients), of_carries
    value, of_carries = jax.value_and_grad(lambda zeros: perturbed(zeros, params), has_aux=has_aux)(zeros)
    return value, None, of_carries


def discover(function: Callable, *, through: Collection[str] = _RUNS_ONCE) -> dict[str, Any]:
    """{name: carries as ShapeDtypeStructs [T, *batch, ...]} of every unroll that `function()` calls, in order.

    Raises ValueError as `carry_gradients` does, and for an unroll inside one of `_RUNS_ONCE` that is not in `through`.
    """
    handler = _Discover()
    with _fresh_trace(), handlers.handling(handler):
        jaxpr = jax.make_jaxpr(function)()
    if not handler.found:
        scans = not _LOOPS.isdisjoint(_primitives(jaxpr.jaxpr))
        raise ValueError(
            f"{getattr(function, '__qualname__', function)} calls no rnnjax.unroll, so there is no carry to take a "
            "gradient of" + (_SCANS_BY_ITSELF if scans else "")
        )
    _check_each_runs_once(jaxpr.jaxpr, handler.found, through)
    for name, carry in handler.found.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(carry):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise ValueError(
                    f"the carry of unroll {name!r} holds {jax.tree_util.keystr(path)} of dtype {leaf.dtype}, which has "
                    "no gradient: keep whole numbers among the inputs"
                )
    return handler.found


def zeros_like(found: dict[str, Any]) -> dict[str, Any]:
    """The zeros of every unroll that `discover` has found."""
    return jax.tree.map(lambda like: vary(jnp.zeros(like.shape, like.dtype), like), found)


class _Numbered:
    """Names in order of calling, made unique: lstm, lstm_1, lstm_2."""

    def __init__(self):
        self.found: dict[str, Any] = {}

    def add(self, name: str, like: Any) -> str:
        candidates = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
        unique = next(candidate for candidate in candidates if candidate not in self.found)
        self.found[unique] = like
        return unique


class _Discover(_Numbered):
    """Notes every unroll and tags each leaf of its carries, so that the jaxpr shows where it runs."""

    def perturbation(self, name, like):
        self.add(name, like)

    def carries(self, steps):
        name = next(reversed(self.found))
        leaves, structure = jax.tree.flatten(steps.carries)
        tagged = [checkpoint_name(leaf, f"{_TAG}:{i}:{name}") for i, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, tagged)


class Perturb(_Numbered):
    """Hands every unroll its zeros."""

    def __init__(self, zeros: dict[str, Any]):
        super().__init__()
        self.zeros = zeros

    def perturbation(self, name, like):
        return self.zeros[self.add(name, like)]

    def carries(self, steps):
        return steps.carries


def _fresh_trace():
    return set_xla_metadata(rnnjax_trace=str(next(_fresh)))


def _check_each_runs_once(jaxpr, found: dict[str, Any], through: Collection[str]) -> None:
    """Raises ValueError unless every tag stands once, outside loops, branches and batching."""
    seen = collections.Counter()
    for inside, variable_shape, label in _tags(jaxpr, ()):
        index, name = label.split(":", 2)[1:]
        outer = [primitive for primitive in inside if primitive not in through]
        if outer and outer[0] in _RUNS_ONCE:
            raise ValueError(
                f"unroll {name!r} runs inside a {outer[0]}, which its parameters and carries can't be taken out of. "
                "Call it without a jax.jit or jax.checkpoint of its own: the whole is compiled, and unroll's chunk "
                "saves memory as well"
            )
        if outer:
            raise ValueError(
                f"unroll {name!r} runs inside a {outer[0]}, where one perturbation would be shared by several runs "
                f"and their gradients summed. Take the {outer[0]} out of the function, or put it around carry_gradients"
            )
        if variable_shape != jax.tree.leaves(found[name])[int(index)].shape:
            raise ValueError(
                f"unroll {name!r} runs inside a vmap, whose rows would share one perturbation and get their "
                "gradients summed. Call it with the batch as a leading axis, or put the vmap around "
                "carry_gradients"
            )
        seen[name, index] += 1
        if seen[name, index] > 1:
            raise ValueError(
                f"unroll {name!r} is in a jitted function that is called more than once with the same shapes: JAX "
                "traces it once, so that the calls would share one perturbation. Call the function without its own "
                "jax.jit; carry_gradients compiles the whole"
            )
    missing = [name for name in found if (name, "0") not in seen]
    if missing:
        raise ValueError(
            f"unroll {missing[0]!r} was traced but is not in the computation, so its gradient can't be followed: a "
            "custom derivative rule or a function of your own that traces it may hide it"
        )


def _tags(jaxpr, inside: tuple[str, ...]):
    """(primitives around it, shape, label) of every tag in a jaxpr."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "name" and equation.params["name"].startswith(f"{_TAG}:"):
            yield inside, equation.outvars[0].aval.shape, equation.params["name"]
        for inner in jaxprs_in_params(equation.params):
            yield from _tags(inner, (*inside, equation.primitive.name))


def _primitives(jaxpr):
    """The name of every primitive in a jaxpr."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from _primitives(inner)


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
