"""The norm is numpy's at any magnitude, clipping keeps the direction, and beneath both is what the papers say."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rnnjax.testing import TOLERANCE, assert_close, random_like
from rnnjax.train.config import OPTIMIZERS, SCHEDULES, TrainConfig, UsageError
from rnnjax.train.optimizer import (
    TRACED,
    clip_by_global_norm,
    clip_by_unit_norm,
    global_norm,
    make_optimizer,
    unit_norms,
)

TREE = {"W": jnp.zeros((4, 3)), "b": jnp.zeros(5), "scale": jnp.zeros(())}


def tree_of(*values):
    return {str(i): jnp.asarray(value, jnp.float32) for i, value in enumerate(values)}


def updates_of(optimizer, gradients, params=None, run=jax.jit):
    """The updates that an optimiser makes of gradients, one after another, and its state after them."""
    params = params or jax.tree.map(jnp.zeros_like, gradients[0])
    state, updates = optimizer.init(params), []
    step = run(optimizer.update)
    for gradient in gradients:
        update, state = step(gradient, state, params)
        updates.append(update)
    return updates, state


def eagerly(function):
    return function


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


PLAIN = {
    "adam": lambda rate: optax.adam(rate),
    "adamw": lambda rate: optax.adamw(rate, weight_decay=0.01),
    "sgd": lambda rate: optax.sgd(rate),
    "momentum": lambda rate: optax.sgd(rate, momentum=0.9),
    "rmsprop": lambda rate: optax.rmsprop(rate),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_beneath_clipping_is_plain_optax(name):
    gradients, params = [random_like(TREE, seed) for seed in range(4)], random_like(TREE, 9)
    plain, config = PLAIN[name](0.03), TrainConfig(optimizer=name, learning_rate=0.03, clip_norm=0)
    for run, tolerance in ((eagerly, 0), (jax.jit, TOLERANCE["float32"])):  # a compiler fuses what stands side by side
        ours, _ = updates_of(make_optimizer(config), gradients, params, run)
        assert_close(ours, updates_of(plain, gradients, params, run)[0], tolerance)
    config.clip_norm = 0.5
    clipped = optax.chain(optax.clip_by_global_norm(0.5), plain)
    ours, _ = updates_of(make_optimizer(config), gradients, params)
    assert_close(ours, updates_of(clipped, gradients, params)[0], TOLERANCE["float32"])


def by_the_paper(name, gradients, theta, rate=0.03):
    """The parameters after every update, by the formulas of the papers."""
    m = v = np.zeros_like(theta)
    for t, g in enumerate(gradients, 1):
        if name == "sgd":
            theta = theta - rate * g
        elif name == "momentum":
            m = 0.8 * m + g
            theta = theta - rate * m
        elif name == "rmsprop":
            v = 0.9 * v + 0.1 * g * g
            theta = theta - rate * g / np.sqrt(v + 1e-8)
        else:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            step = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            theta = theta - rate * (step + (0.2 * theta if name == "adamw" else 0))
        yield theta


def by_us(name, gradients, theta, **config):
    config = TrainConfig(optimizer=name, learning_rate=0.03, momentum=0.8, weight_decay=0.2, clip_norm=0, **config)
    optimizer = make_optimizer(config)
    params = {"b": jnp.asarray(theta)}
    state, step = optimizer.init(params), jax.jit(optimizer.update)
    for gradient in gradients:
        updates, state = step({"b": jnp.asarray(gradient)}, state, params)
        params = optax.apply_updates(params, updates)
        yield np.asarray(params["b"])


def drawn(scale=1.0):
    """(ten gradients [7], parameters [7])."""
    draws = np.random.default_rng(0)
    return [scale * draws.normal(size=7) for _ in range(10)], draws.normal(size=7)


@pytest.mark.parametrize("scale", [1.0, 1e-5], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_updates_are_the_papers(name, scale, x64):
    gradients, theta = drawn(scale)
    for got, want in zip(by_us(name, gradients, theta), by_the_paper(name, gradients, theta), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_ten_updates_are_torchs(name, x64):
    torch = pytest.importorskip("torch")
    make = {
        "adam": lambda theta: torch.optim.Adam(theta, lr=0.03),
        "adamw": lambda theta: torch.optim.AdamW(theta, lr=0.03, weight_decay=0.2),
        "sgd": lambda theta: torch.optim.SGD(theta, lr=0.03),
        "momentum": lambda theta: torch.optim.SGD(theta, lr=0.03, momentum=0.8),
        "rmsprop": lambda theta: torch.optim.RMSprop(theta, lr=0.03, alpha=0.9, eps=0.0),
    }
    gradients, theta = drawn(1e4)  # where it does not matter that rmsprop's 1e-8 stands beneath the root
    theirs = torch.tensor(theta, requires_grad=True)
    optimizer = make[name]([theirs])
    for got, gradient in zip(by_us(name, gradients, theta), gradients, strict=True):
        theirs.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(got, theirs.detach().numpy(), rtol=1e-11)


def rates(config, steps):
    """The step size at the given steps: that of gradient descent on a slope of 1."""
    gradients = [tree_of(1.0)] * (max(steps) + 1)
    updates, _ = updates_of(make_optimizer(config), gradients)
    return [-float(updates[step]["0"]) for step in steps]


def test_a_cosine_ends_at_0_and_a_constant_does_not_move():
    config = TrainConfig(optimizer="sgd", learning_rate=0.5, steps=8, clip_norm=0, schedule="cosine")
    found = rates(config, range(9))
    np.testing.assert_allclose(found, 0.25 * (1 + np.cos(np.pi * np.arange(9) / 8)), atol=1e-7)
    assert found[0] == 0.5 and found[-1] == 0
    config.schedule = "constant"
    assert set(rates(config, range(9))) == {0.5}


@pytest.mark.parametrize("schedule, half, end, beyond", [
    ("constant", 0.5, 0.5, 0.5),
    ("cosine", 0.25, 0.0, 0.0),
    ("linear", 0.25, 0.0, 0.0),
    ("exponential", 0.05, 0.005, 0.005),
    ("inverse_sqrt", 0.5 * math.sqrt(4 / 9), 0.5 * math.sqrt(4 / 13), 0.5 * math.sqrt(4 / 20)),
])  # fmt: skip
def test_step_sizes_rise_to_the_highest_and_never_again(schedule, half, end, beyond):
    config = TrainConfig(optimizer="sgd", learning_rate=0.5, steps=12, clip_norm=0, schedule=schedule, warmup_steps=4)
    found = rates(config, range(20))
    np.testing.assert_allclose(found[:4], [0.125, 0.25, 0.375, 0.5], rtol=1e-6)
    highest = 0.5 * math.sqrt(4 / 5) if schedule == "inverse_sqrt" else 0.5
    np.testing.assert_allclose([found[i] for i in (4, 8, 12, 19)], [highest, half, end, beyond], rtol=1e-6, atol=1e-7)
    assert np.all(np.diff(found[3:]) <= 1e-7) and min(found) >= 0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_a_warm_up_the_first_update_is_the_largest(schedule):
    config = TrainConfig(optimizer="sgd", learning_rate=0.5, steps=8, clip_norm=0, schedule=schedule)
    first, second, end, beyond = rates(config, [0, 1, 8, 99])
    assert first == 0.5 >= second >= end >= beyond >= 0
    if schedule == "inverse_sqrt":
        np.testing.assert_allclose([second, end], [0.5 / math.sqrt(2), 0.5 / 3], rtol=1e-6)


def test_a_warm_up_that_leaves_no_step_is_refused():
    with pytest.raises(UsageError, match=r"warmup_steps is 8: expected fewer than steps \(8\)"):
        make_optimizer(TrainConfig(steps=8, warmup_steps=8))


def test_a_unit_is_a_column(x64):
    weights, gradient = (np.random.default_rng(i).normal(size=(3, 8)) for i in range(2))
    weights[:, 2] *= 1e-6  # held to be of norm 1e-3
    gradient[:, 5] *= 1e-3  # short enough
    got = updates_of(clip_by_unit_norm(0.1), [{"W": jnp.asarray(gradient)}], {"W": jnp.asarray(weights)})[0][0]["W"]
    for unit in range(8):
        most = 0.1 * max(np.linalg.norm(weights[:, unit]), 1e-3)
        norm = np.linalg.norm(gradient[:, unit])
        np.testing.assert_allclose(got[:, unit], gradient[:, unit] * min(1, most / norm), rtol=1e-12)
    np.testing.assert_array_equal(got[:, 5], gradient[:, 5])
    theirs = updates_of(optax.adaptive_grad_clip(0.1), [{"W": jnp.asarray(gradient)}], {"W": jnp.asarray(weights)})
    np.testing.assert_allclose(got, theirs[0][0]["W"], rtol=1e-12)


@pytest.mark.parametrize(
    "shape, want", [((), ()), ((5,), (1,)), ((1, 5), (1, 5)), ((4, 1), (1, 1)), ((2, 3, 4), (1, 1, 4))]
)
def test_what_a_unit_is_depends_on_no_size(shape, want, x64):
    values = np.random.default_rng(0).normal(size=shape)
    axes = tuple(range(max(1, values.ndim - 1))) if shape else None
    np.testing.assert_allclose(
        unit_norms(jnp.asarray(values)), np.sqrt((values**2).sum(axes, keepdims=True)), rtol=1e-12
    )
    assert unit_norms(jnp.asarray(values)).shape == want


def test_clips_act_on_entries_then_the_whole_then_units():
    config = TrainConfig(optimizer="sgd", learning_rate=1.0, clip_value=3, clip_norm=2, clip_adaptive=0.5)
    gradient, params = {"b": jnp.array([4.0, 1e6])}, {"b": jnp.array([0.0, 1.0])}
    (update,), state = updates_of(make_optimizer(config), [gradient], params)
    np.testing.assert_allclose(-update["b"], [0.5 / math.sqrt(2)] * 2, rtol=1e-6)
    np.testing.assert_allclose(optax.tree.get(state, "clipped_norm"), 0.5, rtol=1e-6)
    config.clip_adaptive = 0
    (update,), state = updates_of(make_optimizer(config), [gradient], params)
    np.testing.assert_allclose(-update["b"], [math.sqrt(2)] * 2, rtol=1e-6)
    config.clip_norm = 0
    (update,), state = updates_of(make_optimizer(config), [gradient], params)
    np.testing.assert_allclose(-update["b"], [3, 3], rtol=1e-6)


CLIPS = [{"clip_norm": 0.0}, {"clip_norm": 2.0}, {"clip_norm": 0.0, "clip_adaptive": 0.01}]


@pytest.mark.parametrize("clips", CLIPS, ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_magnitude_gives_nan_or_turns_an_update(name, clips):
    weights = jnp.ones((2, 2), jnp.float32)
    optimizer = make_optimizer(TrainConfig(optimizer=name, learning_rate=1e-3, weight_decay=0.0, **clips))
    for size in (1e20, 1e-30, 0.0, 1e38):
        gradient = {"W": size * jnp.array([[1.0, -1.0], [0.5, 0.5]], jnp.float32)}
        updates, _ = updates_of(optimizer, [gradient] * 3, {"W": weights})
        for update in updates:
            assert np.isfinite(update["W"]).all()
            np.testing.assert_array_equal(np.sign(update["W"]), -np.sign(gradient["W"]))
            if name in ("sgd", "momentum"):
                ratios = update["W"] / update["W"][0, 0]
                np.testing.assert_allclose(ratios, [[1, -1], [0.5, 0.5]] if size else np.nan, rtol=1e-5)


@pytest.mark.parametrize("name", ["adam", "adamw", "rmsprop"])
def test_one_huge_gradient_does_not_end_the_training(name):
    optimizer = make_optimizer(TrainConfig(optimizer=name, clip_norm=0, weight_decay=0.0))
    _, state = updates_of(optimizer, [tree_of(1e30)])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


VALUES = [
    {"learning_rate": 0.1, "clip_norm": 0.0, "clip_value": 0.0, "weight_decay": 0.3},
    {"learning_rate": 0.01, "clip_norm": 0.5, "clip_value": 0.2, "weight_decay": 0.0},
]


@pytest.mark.parametrize("name, schedule, warmup", [
    ("adam", "constant", 0),
    ("adamw", "cosine", 2),
    ("sgd", "inverse_sqrt", 0),
    ("momentum", "constant", 2),
    ("rmsprop", "linear", 0),
])  # fmt: skip
def test_traced_values_train_as_those_of_a_config_do(name, schedule, warmup, x64):
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), TREE)
    gradients, params = [random_like(wide, seed) for seed in range(4)], random_like(wide, 9)
    config = {"optimizer": name, "schedule": schedule, "steps": 6, "warmup_steps": warmup}

    def train(values):
        return updates_of(make_optimizer(TrainConfig(**config), values), gradients, params, eagerly)

    stacked = {field: jnp.array([values[field] for values in VALUES]) for field in TRACED}
    together = jax.jit(jax.vmap(train))(stacked)
    for i, values in enumerate(VALUES):
        alone = updates_of(make_optimizer(TrainConfig(**config, **values)), gradients, params)
        assert_close(jax.tree.map(lambda leaf, i=i: leaf[i], together), alone, 1e-12)


def test_a_traced_value_keeps_the_dtype():
    gradient = random_like(TREE, 0)
    traced = {name: jnp.float32(0.1) for name in TRACED}
    (update,), _ = updates_of(make_optimizer(TrainConfig(optimizer="adamw"), traced), [gradient])
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(update))
    with pytest.raises(ValueError, match="traced holds momentum: expected names among learning_rate, clip_norm"):
        make_optimizer(TrainConfig(), {"momentum": jnp.float32(0.9)})
