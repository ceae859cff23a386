"""Trees of arrays: random ones, padded ones, and whether two agree."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 5e-2, "finite differences": 1e-6}
"""Largest allowed difference, relative to the largest magnitude compared, by dtype."""


def flat_carry(carry: Any) -> jax.Array:
    """The fields of a carry, [..., features] each, one after another on the last axis."""
    return jnp.concatenate(jax.tree.leaves(carry), axis=-1)


def fill_pads(inputs: Any, lengths: Any, value: float) -> Any:
    """Floating leaves [T, B, ...] with `value` wherever t >= length."""
    valid = np.arange(jax.tree.leaves(inputs)[0].shape[0])[:, None] < np.asarray(lengths)[None]

    def fill(leaf):
        return jnp.where(valid.reshape(valid.shape + (1,) * (leaf.ndim - 2)), leaf, jnp.asarray(value, leaf.dtype))

    return jax.tree.map(fill, inputs)


def random_like(tree: Any, seed: int, scale: float = 1.0) -> Any:
    """Normal draws of the shapes and dtypes of a tree, another for each leaf: biases too are not zero.

    The tree may be one of jax.ShapeDtypeStruct. Drawn by numpy, since JAX would compile each shape's draw anew.
    """
    draws = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(scale * draws.normal(size=leaf.shape), leaf.dtype), tree)


def leaves_of(tree: Any) -> list:
    """(path, leaf) of every leaf."""
    return jax.tree_util.tree_leaves_with_path(tree)


def assert_close(got: Any, want: Any, tolerance: float, what: str = "") -> None:
    """Raises AssertionError unless two trees agree in every entry to `tolerance`, relative to the largest magnitude of
    the wanted leaf, or to 1e-3 where that is larger; NaN agrees with nothing."""
    assert jax.tree.structure(got) == jax.tree.structure(want), f"{what}: {jax.tree.structure(got)} is not {want}"
    for (path, a), b in zip(leaves_of(got), jax.tree.leaves(want), strict=True):
        name = f"{what}{jax.tree_util.keystr(path)}"
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert a.shape == b.shape, f"{name}: the shape {a.shape} is not {b.shape}"
        if a.size:
            difference = np.max(np.abs(a - b))
            bound = tolerance * max(1e-3, np.max(np.abs(b)))
            assert difference <= bound, f"{name}: differs by {difference:.3g}, allowed {bound:.3g}"
