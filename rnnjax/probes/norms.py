"""Norms of gradients over time, safe from the smallest to the largest float."""

from typing import Any

import jax
import jax.numpy as jnp


def log10_norm(values: jax.Array) -> jax.Array:
    """log10 of the Euclidean norm over the last axis, [..., features] -> [...].

    Scaled by the largest magnitude before squaring, so that 1.2e-38 and 3e38 keep their value in float32. -inf for a
    norm of 0, which XLA makes of what is below the smallest normal number (1.2e-38 in float32); inf where an entry is
    infinite, nan where one is nan.
    """
    values = values.astype(jnp.promote_types(values.dtype, jnp.float32))
    largest = jnp.max(jnp.abs(values), axis=-1, initial=0)
    bound = jnp.finfo(values.dtype).max / 16  # the reciprocal of a larger scale would be flushed to 0
    scale = jnp.where((largest > 0) & jnp.isfinite(largest), jnp.minimum(largest, bound), 1)
    return jnp.log10(scale) + 0.5 * jnp.log10(jnp.sum(jnp.square(values / scale[..., None]), axis=-1))


def gradient_norms(gradients: dict[str, Any]) -> dict[str, dict[str, jax.Array]]:
    """log10 ||dL/dcarry_t|| of what `carry_gradients` returns.

    Returns {unroll: {"carry": [T, *batch], field: [T, *batch], ...}}: the norm of the whole carry, and beside it that
    of each field.
    """
    norms = {}
    for name, carry in gradients.items():
        fields = {field: log10_norm(getattr(carry, field)) for field in carry._fields}
        norms[name] = {"carry": _combine(list(fields.values()))} | fields
    return norms


def _combine(log10_norms: list[jax.Array]) -> jax.Array:
    """The log10 norm of the whole from those of its parts."""
    if len(log10_norms) == 1:
        return log10_norms[0]
    natural = [2 * jnp.log(10.0).astype(part.dtype) * part for part in log10_norms]
    return jax.nn.logsumexp(jnp.stack(natural), axis=0) / (2 * jnp.log(10.0).astype(natural[0].dtype))


def by_distance(values: jax.Array, lengths: jax.Array | None = None, *, reverse: bool = False) -> jax.Array:
    """Values [T, *batch] at times t as values [T, *batch] at distances from the step that an unroll takes last.

    That is d = length - 1 - t from the last valid step, each sequence counting from its own length [*batch], or, of an
    unroll with reverse=True, d = t from the first. nan where d >= length. Lengths out of range are clipped.
    """
    time = values.shape[0]
    if lengths is None:
        return values if reverse else values[::-1]
    lengths = jnp.clip(jnp.broadcast_to(lengths, values.shape[1:]).astype(jnp.int32), 0, time)[None]
    distance = jnp.arange(time, dtype=jnp.int32).reshape(time, *[1] * (values.ndim - 1))
    at = jnp.broadcast_to(distance, values.shape) if reverse else lengths - 1 - distance
    there = distance < lengths
    return jnp.where(there, jnp.take_along_axis(values, jnp.maximum(at, 0), axis=0), jnp.nan)


def slope(log10_norms: jax.Array) -> jax.Array:
    """Least-squares slope of log ||dL/dcarry|| a step back in time, in nats a step, from log10 norms [D, ...].

    The first axis is the distance from the loss: a negative slope is a gradient that vanishes with distance. Entries
    that are not finite (no gradient at all, no such distance) are left out; nan where fewer than two are left.
    """
    finite = jnp.isfinite(log10_norms)
    count = jnp.maximum(finite.sum(axis=0), 1)
    distance = jnp.arange(log10_norms.shape[0], dtype=log10_norms.dtype).reshape(-1, *[1] * (log10_norms.ndim - 1))
    distance = jnp.broadcast_to(distance, log10_norms.shape)

    def centred(values):
        values = jnp.where(finite, values, 0)
        return jnp.where(finite, values - (values.sum(axis=0) / count)[None], 0)

    distance, values = centred(distance), centred(log10_norms)
    spread = jnp.sum(distance * distance, axis=0)
    return jnp.where(spread > 0, jnp.log(10.0) * jnp.sum(distance * values, axis=0) / spread, jnp.nan)
