"""Where the unrolls of a function stand in its jaxpr, as tags on their carries tell."""

import collections
from collections.abc import Collection
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params

TAG = "rnnjax.unroll"
"""What the name of a tag begins with; its number among the leaves of the carry and the unroll's name follow."""
RUNS_ONCE = {"jit", "pjit", "closed_call", "checkpoint", "remat2"}
LOOPS = {"scan", "while"}


def check_each_runs_once(jaxpr, found: dict[str, Any], through: Collection[str]) -> None:
    """Raises ValueError unless every tag stands once, outside loops, branches and batching.

    found: {name of the unroll: what has its carries as `carries`}. through: those of RUNS_ONCE that it may stand in.
    """
    seen = collections.Counter()
    for inside, variable_shape, label in _tags(jaxpr, ()):
        index, name = label.split(":", 2)[1:]
        outer = [primitive for primitive in inside if primitive not in through]
        if outer and outer[0] in RUNS_ONCE:
            raise ValueError(
                f"unroll {name!r} runs inside a {outer[0]}, which its parameters and carries can't be taken out of. "
                "Call it without a jax.jit or jax.checkpoint of its own: the whole is compiled, and unroll's chunk "
                "saves memory as well"
            )
        if outer:
            raise ValueError(
                f"unroll {name!r} runs inside a {outer[0]}, where one perturbation would be shared by several runs "
                f"and their gradients summed. Take the {outer[0]} out of the function, or put it around the probe"
            )
        if variable_shape != jax.tree.leaves(found[name].carries)[int(index)].shape:
            raise ValueError(
                f"unroll {name!r} runs inside a vmap, whose rows would share one perturbation and get their "
                "gradients summed. Call it with the batch as a leading axis, or put the vmap around "
                "the probe"
            )
        seen[name, index] += 1
        if seen[name, index] > 1:
            raise ValueError(
                f"unroll {name!r} is in a jitted function that is called more than once with the same shapes: JAX "
                "traces it once, so that the calls would share one perturbation. Call the function without its own "
                "jax.jit; the probe compiles the whole"
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
        if equation.primitive.name == "name" and equation.params["name"].startswith(f"{TAG}:"):
            yield inside, equation.outvars[0].aval.shape, equation.params["name"]
        for inner in jaxprs_in_params(equation.params):
            yield from _tags(inner, (*inside, equation.primitive.name))


def primitives(jaxpr):
    """The name of every primitive in a jaxpr."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jaxprs_in_params(equation.params):
            yield from primitives(inner)
