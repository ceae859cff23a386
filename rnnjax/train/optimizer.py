"""The optimiser: an optax chain that records the gradient's norm before and after clipping."""

import jax
import jax.numpy as jnp
import optax

from rnnjax.train.config import TrainConfig

_OPTIMIZERS = {"adam": optax.adam, "sgd": optax.sgd, "rmsprop": optax.rmsprop}


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """norm -> clip -> norm -> optimiser. `optax.tree.get(state, "gradient_norm")` and "clipped_norm" read the norms."""
    rate = config.learning_rate
    if config.schedule == "cosine":
        rate = optax.cosine_decay_schedule(rate, config.steps)
    clip = [clip_by_global_norm(config.clip_norm)] if config.clip_norm else []
    return optax.chain(
        optax.snapshot("gradient_norm", global_norm),
        *clip,
        optax.snapshot("clipped_norm", global_norm),
        _OPTIMIZERS[config.optimizer](rate),
    )


def global_norm(tree) -> jax.Array:
    """The Euclidean norm of all leaves together, in float32 at least.

    Scaled by the largest magnitude before squaring: optax.global_norm of [1e20, 1e20] is inf in float32.
    """
    leaves = [leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)) for leaf in jax.tree.leaves(tree)]
    largest = jnp.stack([jnp.max(jnp.abs(leaf), initial=0) for leaf in leaves]).max()
    bound = jnp.finfo(largest.dtype).max / 16  # the reciprocal of a larger scale would be flushed to 0
    scale = jnp.where(largest > 0, jnp.minimum(largest, bound), 1)
    return scale * jnp.sqrt(sum(jnp.sum(jnp.square(leaf / scale)) for leaf in leaves))


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Scales a gradient that is longer than `max_norm` down to it (Pascanu, Mikolov, Bengio 2013).

    As optax.clip_by_global_norm, but with `global_norm`, so that a gradient of 1e20 is clipped and not set to 0.
    """

    def clip(updates, params=None):
        del params
        norm = global_norm(updates)
        root = jnp.sqrt(norm)  # max_norm / norm in two factors: it is flushed to 0 near the largest float
        first, second = (jnp.where(norm > max_norm, factor, 1) for factor in (1 / root, max_norm / root))
        return jax.tree.map(lambda leaf: (leaf * first * second).astype(leaf.dtype), updates)

    return optax.stateless(clip)
