"""The norm is numpy's at any magnitude, clipping keeps the direction, and beneath both is plain optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rnnjax.testing import TOLERANCE, assert_close, random_like
from rnnjax.train.config import OPTIMIZERS, TrainConfig
from rnnjax.train.optimizer import clip_by_global_norm, global_norm, make_optimizer

TREE = {"W": jnp.zeros((4, 3)), "b": jnp.zeros(5), "scale": jnp.zeros(())}


def tree_of(*values):
    return {str(i): jnp.asarray(value, jnp.float32) for i, value in enumerate(values)}


def updates_of(optimizer, gradients, params=None):
    """The updates that an optimiser makes of gradients, one after another, under jit."""
    params = params or jax.tree.map(jnp.zeros_like, gradients[0])
    state, updates = optimizer.init(params), []
    step = jax.jit(optimizer.update)
    for gradient in gradients:
        update, state = step(gradient, state, params)
        updates.append(update)
    return updates, state


def test_the_norm_is_numpys_in_float64(x64):
    tree = random_like(jax.tree.map(lambda leaf: leaf.astype(jnp.float64), TREE), 0)
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
    assert_close(global_norm(tree), np.linalg.norm(flat), TOLERANCE["float64"])
    assert global_norm(tree).dtype == jnp.float64


@pytest.mark.parametrize(
    "values",
    [
        [[1e20, 1e20]],
        [[1e20], [1e20, 1e20]],
        [[2e38, 2e38]],
        [[3e38], 1e38],
        [[3e-30, 4e-30]],
        [1e-37, 1e-37],
        [[0.0, 0.0], 0.0],
        [[np.inf, 1.0], 2.0],
        [[np.nan, 1.0], 2.0],
        [1.0, [np.nan, np.inf]],
        [[], 3.0],
    ],
    ids=str,
)
@pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_the_norm_is_numpys_at_any_magnitude(values, run):
    want = np.linalg.norm(np.concatenate([np.atleast_1d(np.asarray(value, np.float64)) for value in values]))
    got = run(global_norm)(tree_of(*values))
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_the_norm_of_bfloat16_is_taken_in_float32():
    norm = global_norm({"W": jnp.full(1000, 1.0, jnp.bfloat16)})
    assert norm.dtype == jnp.float32
    np.testing.assert_allclose(norm, np.sqrt(1000), rtol=1e-6)


@pytest.mark.parametrize(
    "gradient, want",
    [
        ([0.0, 0.0], [0.0, 0.0]),
        ([0.3, 0.4], [0.3, 0.4]),
        ([3.0, 4.0], [3.0, 4.0]),  # exactly at the threshold
        ([6.0, 8.0], [3.0, 4.0]),
        ([1e20, 1e20], [5 / np.sqrt(2), 5 / np.sqrt(2)]),
        ([3e38, 0.0], [5.0, 0.0]),
        ([2e38, 2e38], [5 / np.sqrt(2), 5 / np.sqrt(2)]),
        ([1e-30, 0.0], [1e-30, 0.0]),
    ],
)
@pytest.mark.parametrize("run", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_clipping_shortens_what_is_too_long_and_turns_nothing(run, gradient, want):
    clip = clip_by_global_norm(5.0)
    got, _ = run(clip.update)({"W": jnp.array(gradient, jnp.float32)}, clip.init(None))
    np.testing.assert_allclose(got["W"], want, rtol=1e-6)
    if np.linalg.norm(gradient) <= 5:
        np.testing.assert_array_equal(got["W"], np.float32(gradient))


def test_clipping_is_optaxs_where_that_works():
    gradient = random_like(TREE, 1, scale=10)
    ours, theirs = (updates_of(clip(0.7), [gradient])[0] for clip in (clip_by_global_norm, optax.clip_by_global_norm))
    assert_close(ours, theirs, 1e-6)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), gradient)
    clipped = updates_of(clip_by_global_norm(0.7), [half])[0]
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(clipped))


@pytest.mark.parametrize("clip_norm, clipped", [(0.0, 10.0), (2.0, 2.0), (20.0, 10.0)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_recorded_norms_are_those_before_and_after_clipping(name, clip_norm, clipped):
    config = TrainConfig(optimizer=name, clip_norm=clip_norm)
    _, state = updates_of(make_optimizer(config), [tree_of([6.0], [8.0])])
    np.testing.assert_allclose(optax.tree.get(state, "gradient_norm"), 10, rtol=1e-6)
    np.testing.assert_allclose(optax.tree.get(state, "clipped_norm"), clipped, rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_beneath_clipping_is_plain_optax(name):
    gradients = [random_like(TREE, seed) for seed in range(4)]
    plain = getattr(optax, name)(0.03)
    ours, _ = updates_of(make_optimizer(TrainConfig(optimizer=name, learning_rate=0.03, clip_norm=0)), gradients)
    assert_close(ours, updates_of(plain, gradients)[0], 0)
    ours, _ = updates_of(make_optimizer(TrainConfig(optimizer=name, learning_rate=0.03, clip_norm=0.5)), gradients)
    clipped = optax.chain(optax.clip_by_global_norm(0.5), plain)
    assert_close(ours, updates_of(clipped, gradients)[0], TOLERANCE["float32"])


def test_a_cosine_ends_at_0_and_a_constant_does_not_move():
    gradients = [tree_of(1.0)] * 9
    config = TrainConfig(optimizer="sgd", learning_rate=0.5, steps=8, clip_norm=0, schedule="cosine")
    rates = [-float(update["0"]) for update in updates_of(make_optimizer(config), gradients)[0]]
    np.testing.assert_allclose(rates, 0.25 * (1 + np.cos(np.pi * np.arange(9) / 8)), atol=1e-7)
    assert rates[0] == 0.5 and rates[-1] == 0
    config.schedule = "constant"
    assert {-float(update["0"]) for update in updates_of(make_optimizer(config), gradients)[0]} == {0.5}
