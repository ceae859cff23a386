"""The optimiser: an optax chain that records the gradient's norm before and after clipping."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from rnnjax.train.config import TrainConfig, UsageError

TRACED = ("learning_rate", "clip_norm", "clip_value", "weight_decay")
"""The fields of TrainConfig that may be traced, so that one program trains with several values."""

_SQUARABLE = 1e18
"""What entries of a gradient are clipped to where they are squared: an inf in a mean of squares never leaves it again.
Adam and RMSprop, which divide every entry by the root of its own mean, turn no other way for it."""
_LEAST_WEIGHT_NORM = 1e-3  # so that a unit whose weights are 0 can learn (Brock et al. 2021)


def make_optimizer(config: TrainConfig, traced: Mapping[str, jax.Array] = {}) -> optax.GradientTransformation:
    """norm -> clips -> norm -> optimiser. `optax.tree.get(state, "gradient_norm")` and "clipped_norm" read the norms.

    traced: scalars that stand for the fields of `config` of their names, among `TRACED`. State and updates are those of
        a config that holds their values, to rounding.

    The clips, each left out where it is 0: of every entry (clip_value), of the whole (clip_norm), of every unit
    (clip_adaptive), in this order. `config.steps` is how long the schedule is. As in its paper, adamw's decay is of all
    parameters (Loshchilov, Hutter 2019). momentum adds up v = momentum * v + gradient and moves by the step size times
    v (Polyak 1964). rmsprop is optax's, with a decay of 0.9 (Tieleman, Hinton 2012) and 1e-8 beneath the root, where
    torch's stands beside it.

    Raises UsageError where no step is left after the warm-up, ValueError for a name that is not in TRACED.
    """
    if unknown := sorted(set(traced) - set(TRACED)):
        raise ValueError(f"traced holds {unknown[0]}: expected names among {', '.join(TRACED)}")
    value = {name: traced.get(name, getattr(config, name)) for name in TRACED}
    if value["weight_decay"] is None:
        value["weight_decay"] = 1e-2  # AdamW's own (Loshchilov, Hutter 2019)
    return optax.chain(
        optax.snapshot("gradient_norm", global_norm),
        _unless_off(optax.clip, value["clip_value"]),
        _unless_off(clip_by_global_norm, value["clip_norm"]),
        _unless_off(clip_by_unit_norm, config.clip_adaptive),
        optax.snapshot("clipped_norm", global_norm),
        _descend(config, _rate(config, value["learning_rate"]), value["weight_decay"]),
    )


def _descend(config: TrainConfig, rate: Any, weight_decay: Any) -> optax.GradientTransformation:
    """The optimiser that the config names. `rate` is a number or a function of the step."""
    if config.optimizer == "sgd":
        return optax.sgd(rate)
    if config.optimizer == "momentum":
        return optax.sgd(rate, momentum=0.9 if config.momentum is None else config.momentum)  # the usual one
    of_squares = {
        "adam": optax.adam,
        "adamw": lambda rate: optax.adamw(rate, weight_decay=weight_decay),
        "rmsprop": optax.rmsprop,
    }
    return optax.chain(optax.clip(_SQUARABLE), of_squares[config.optimizer](rate))


def _rate(config: TrainConfig, highest: Any) -> Any:
    """The step size, a number where it is always the same, else a function of the step from 0 on."""
    warmup, left = config.warmup_steps, config.steps - config.warmup_steps
    if left < 1:
        raise UsageError(f"--config.train.warmup_steps is {warmup}: expected fewer than steps ({config.steps})")
    if config.schedule == "constant" and not warmup:
        return highest
    after = {
        "constant": optax.constant_schedule(1.0),
        "cosine": optax.cosine_decay_schedule(1.0, left),
        "linear": optax.linear_schedule(1.0, 0.0, left),
        "exponential": optax.exponential_decay(1.0, left, 0.01, end_value=0.01),
        "inverse_sqrt": lambda step: jnp.sqrt(max(warmup, 1) / (step + warmup + 1)),  # 1 where the warm-up ends
    }[config.schedule]
    share = after if not warmup else optax.join_schedules([lambda step: (step + 1) / warmup, after], [warmup])
    return lambda step: highest * share(step.astype(float))  # float64 where JAX has it


def _unless_off(clip: Callable, limit: Any) -> optax.GradientTransformation:
    """The clip, or none where the limit is 0. The state has the same structure either way."""
    if isinstance(limit, int | float):
        return clip(limit) if limit else optax.identity()
    return clip(jnp.where(limit > 0, limit, jnp.inf))


def global_norm(tree) -> jax.Array:
    """The Euclidean norm of all leaves together, in float32 at least.

    Scaled by the largest magnitude before squaring: optax.global_norm of [1e20, 1e20] is inf in float32.
    """
    leaves = [_widen(leaf) for leaf in jax.tree.leaves(tree)]
    scale = _scale(jnp.stack([jnp.max(jnp.abs(leaf), initial=0) for leaf in leaves]).max())
    return scale * jnp.sqrt(sum(jnp.sum(jnp.square(leaf / scale)) for leaf in leaves))


def unit_norms(leaf: jax.Array) -> jax.Array:
    """The Euclidean norm of the weights that go into each unit, in float32 at least and with axes of size 1.

    A unit is an entry of the last axis: of [in, out] a column, so that every gate's units have their own. A vector or a
    scalar is one unit. Scaled as `global_norm` is.
    """
    leaf = _widen(leaf)
    axes = tuple(range(max(leaf.ndim - 1, min(leaf.ndim, 1))))
    scale = _scale(jnp.max(jnp.abs(leaf), axes, keepdims=True, initial=0))
    return scale * jnp.sqrt(jnp.sum(jnp.square(leaf / scale), axes, keepdims=True))


def clip_by_global_norm(max_norm: float | jax.Array) -> optax.GradientTransformation:
    """Scales a gradient that is longer than `max_norm` down to it (Pascanu, Mikolov, Bengio 2013).

    As optax.clip_by_global_norm, but with `global_norm`, so that a gradient of 1e20 is clipped and not set to 0.
    """

    def clip(updates, params=None):
        del params
        norm = global_norm(updates)
        return jax.tree.map(lambda leaf: _shorten(leaf, norm, max_norm), updates)

    return optax.stateless(clip)


def clip_by_unit_norm(max_ratio: float) -> optax.GradientTransformation:
    """Scales the gradient of a unit's weights down to `max_ratio` times the norm of these (Brock et al. 2021).

    As optax.adaptive_grad_clip, but a gradient of 1e20 keeps its direction, and a unit of a matrix is a column whatever
    the shape: optax takes [1, out], the weights of a single input, for one unit.
    """

    def clip(updates, params):
        def of_leaf(leaf, weights):
            return _shorten(leaf, unit_norms(leaf), max_ratio * jnp.maximum(unit_norms(weights), _LEAST_WEIGHT_NORM))

        return jax.tree.map(of_leaf, updates, params)

    return optax.stateless(clip)


def _widen(leaf: jax.Array) -> jax.Array:
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def _scale(largest: jax.Array) -> jax.Array:
    """What to divide by before squaring."""
    bound = jnp.finfo(largest.dtype).max / 16  # the reciprocal of a larger scale would be flushed to 0
    return jnp.where(largest > 0, jnp.minimum(largest, bound), 1)


def _shorten(leaf: jax.Array, norm: jax.Array, most: Any) -> jax.Array:
    """leaf * most / norm where the norm is larger than `most`."""
    root = jnp.sqrt(norm)  # most / norm in two factors: it is flushed to 0 near the largest float
    first, second = (jnp.where(norm > most, factor, 1) for factor in (1 / root, most / root))
    return (leaf * first * second).astype(leaf.dtype)
