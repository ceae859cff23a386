"""What each option of a training does, against a formula, a loop or a count written by hand."""

import dataclasses
import math
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COPYING, Sums, cell_of, config_of, model_of, rows_of
from flax import nnx

from rnnjax.cells import CELLS, LSTM, Elman
from rnnjax.layers import DropConnect, InputDropout, LearnedCarry, RecurrentDropout
from rnnjax.probes.omega import value_and_grad_with_omega
from rnnjax.tasks import Adding, Batch, Windows
from rnnjax.tasks.base import sum_and_count
from rnnjax.testing import TOLERANCE, assert_close, random_like
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.config import CheckpointConfig, UsageError
from rnnjax.train.loop import train
from rnnjax.train.step import NOISE, Learner, root_key, stream

CLOSE = TOLERANCE["float64"]
KEY = root_key(3)
SGD = {"optimizer": "sgd", "learning_rate": 0.1, "clip_norm": 0.0}
EVERY_CELL = [name if name == "elman" else pytest.param(name, marks=pytest.mark.full) for name in CELLS]


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """These tests compile far more than they compute."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def after(learner, batches):
    """(state, metrics of every step) of a learner that is given these batches, from its start on."""
    state, step, told = learner.init(KEY), jax.jit(learner.train_step), []
    for batch in batches:
        state, metrics = step(state, batch)
        told.append(metrics)
    return state, told


def ragged(seed):
    """6 sequences of the sums, of lengths from 2 to 7: no two thirds of them hold equally many places."""
    task = Sums()
    return task.pad([task.sequences("train")[i] for i in np.random.default_rng(seed).permutation(6)], 6)


@pytest.mark.parametrize("cell", EVERY_CELL)
def test_a_batch_in_parts_is_the_whole(x64, cell):
    task, batches = Sums(), [ragged(seed) for seed in range(3)]
    model = model_of(cell_of(cell, task), task)
    (want, want_told), *others = (
        after(Learner(model, task, config_of(batch_size=6, accumulate=parts, omega=0.3, **SGD)), batches)
        for parts in (1, 2)
    )
    assert all(batch.mask[:, :3].sum() != batch.mask[:, 3:].sum() for batch in batches)
    for got, told in others:
        assert_close(to_arrays(got.params), to_arrays(want.params), CLOSE)
        assert_close(told, want_told, CLOSE)


def test_parts_have_the_masks_of_the_whole(x64):
    task, batches = Sums(), [ragged(seed) for seed in range(2)]
    layer = InputDropout(RecurrentDropout(DropConnect(Elman(1, 3), 0.3), 0.3), 0.5)
    model = model_of(layer, task)
    want, *others = (
        after(Learner(model, task, config_of(batch_size=6, accumulate=parts, **SGD)), batches)[0] for parts in (1, 2, 3)
    )
    for got in others:
        assert_close(to_arrays(got.params), to_arrays(want.params), CLOSE)


def test_windows_in_parts_keep_every_rows_carry(x64):
    task = Windows(Sums(), 3)
    model = model_of(LSTM(1, 3), task)
    batches = [task.batch(step, 6, 0) for step in range(4)]
    assert [int(batch.fresh[0]) for batch in batches] == [1, 0, 0, 1]
    want, got = (
        after(Learner(model, task, config_of(batch_size=6, accumulate=parts, **SGD)), batches)[0] for parts in (1, 3)
    )
    assert_close(to_arrays((got.params, got.carry)), to_arrays((want.params, want.carry)), CLOSE)


@pytest.mark.parametrize("cell", EVERY_CELL)
def test_windows_are_a_loop_with_the_carry_that_went_before(x64, cell):
    """Steps of the cell one by one; the carry goes on as a number, so that no gradient crosses into a window before."""
    task = Windows(COPYING, 3)  # 7 steps: 3, 3, 1
    model = model_of(LearnedCarry(cell_of(cell, COPYING)), task)
    nnx.update(model, random_like(nnx.state(model), seed=1, scale=0.5))
    learner = Learner(model, task, config_of(batch_size=3, window=3, **SGD))
    state, step = learner.init(KEY), jax.jit(learner.train_step)
    graph, params = nnx.split(model)
    carry, layer = None, model.rnn.layer

    def loss(params, carry, batch, first, size):
        model = nnx.merge(graph, params)
        arrays = model.rnn.arrays()
        carry = layer.initial_carry(arrays, (3,)) if first else carry
        prepared = layer.prepare(arrays)
        total = 0.0
        for t in range(size):
            z = layer.project(prepared, batch.inputs[t])
            carry = layer.step(prepared, carry, z)
            outputs = layer.read(prepared, carry, z)
            outputs = outputs if model.head is None else model.head(outputs)
            log_p = jax.nn.log_softmax(outputs)
            total -= sum(log_p[b, batch.targets[t, b]] for b in range(3))
        return total / (3 * size), carry

    for number in range(5):
        whole = COPYING.sample(jax.random.fold_in(stream(KEY, 1), number // 3), 3)
        at = 3 * (number % 3)
        size = min(3, 7 - at)
        piece = Batch(whole.inputs[at : at + size], whole.targets[at : at + size], None)
        (value, carry), gradient = jax.value_and_grad(loss, has_aux=True)(params, carry, piece, at == 0, size)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
        state, metrics = step(state, learner.sample(state))
        assert_close(metrics["loss"], value, CLOSE)
        assert_close(to_arrays(state.params), to_arrays(params), CLOSE)
        assert_close(jax.tree.leaves(state.carry), jax.tree.leaves(carry), CLOSE)


@pytest.mark.parametrize("cell", EVERY_CELL)
def test_bfloat16_computes_and_does_not_keep(cell):
    task, batches = Sums(), [ragged(seed) for seed in range(2)]
    model = model_of(cell_of(cell, task), task, dtype="float32")
    found = {}
    for precision in ("float32", "bfloat16"):
        learner = Learner(model, task, config_of(batch_size=6, precision=precision))
        state, told = after(learner, batches)
        found[precision] = told
        for tree in (state.params, state.opt_state, told):
            assert {str(leaf.dtype) for leaf in jax.tree.leaves(tree)} <= {"float32", "int32", "bool"}
        for equation in equations(jax.make_jaxpr(learner.train_step)(state, batches[0]).jaxpr):
            if equation.primitive.name == "dot_general":  # sums, and what goes back, may be wider
                assert precision in {str(factor.aval.dtype) for factor in equation.invars}
    for low, full in zip(found["bfloat16"], found["float32"], strict=True):
        assert low["loss"] != full["loss"]
        np.testing.assert_allclose(low["loss"], full["loss"], rtol=TOLERANCE["bfloat16"])
        np.testing.assert_allclose(low["gradient_norm"], full["gradient_norm"], rtol=2 * TOLERANCE["bfloat16"])


def equations(jaxpr):
    """All equations, those of the programs inside too."""
    for equation in jaxpr.eqns:
        yield equation
        for inside in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inside = getattr(inside, "jaxpr", inside)
            if hasattr(inside, "eqns"):
                yield from equations(inside)


def test_the_moving_average_is_evaluated(x64, tmp_path):
    task, config = Adding(4), config_of(ema=0.8, steps_per_call=2, eval_every=6, learning_rate=0.05)
    model = model_of(Elman(2, 3), task)
    trained = train(model, task, config, tmp_path)
    learner = Learner(model, task, config)
    state, step = learner.init(root_key(0)), jax.jit(learner.train_step)
    average = to_arrays(state.params)
    for _ in range(6):
        state, _ = step(state, learner.sample(state))
        average = {name: 0.8 * old + 0.2 * new for (name, old), new in zip(
            average.items(), to_arrays(state.params).values(), strict=True)}  # fmt: skip
    assert_close(to_arrays(trained.state.average), average, CLOSE)
    assert_close(to_arrays(trained.best), average, CLOSE)
    assert_close(to_arrays(trained.state.params), to_arrays(state.params), CLOSE)
    batch = task.sample(stream(root_key(0), 3), 4)
    scored = {}
    for name, params in (("average", trained.state.average), ("last", trained.state.params)):
        outputs = learner.apply(params, state.variables, batch)
        scored[name] = float(np.mean(np.square(outputs - batch.targets)))
    assert_close(trained.scores["test"]["loss"], scored["average"], CLOSE)
    assert abs(scored["last"] - scored["average"]) > 1e-6


def test_noise_is_added_to_the_parameters_that_the_gradient_is_taken_at(x64):
    task = Adding(4)
    model = model_of(Elman(2, 3), task)
    learner = Learner(model, task, config_of(weight_noise=0.2, **SGD))
    plain = Learner(model, task, config_of(**SGD))
    state, step, plain_step = learner.init(KEY), jax.jit(learner.train_step), jax.jit(plain.train_step)
    for number in range(2):
        batch = learner.sample(state)
        leaves, structure = jax.tree.flatten(state.params)
        keys = jax.random.split(jax.random.fold_in(stream(KEY, NOISE), number), len(leaves))
        noise = [jax.random.normal(key, leaf.shape, leaf.dtype) for key, leaf in zip(keys, leaves, strict=True)]
        noisy = structure.unflatten([leaf + 0.2 * draw for leaf, draw in zip(leaves, noise, strict=True)])
        moved, want = plain_step(state._replace(params=noisy), batch)
        gradient = jax.tree.map(lambda a, b: (a - b) / 0.1, noisy, moved.params)
        expected = jax.tree.map(lambda leaf, g: leaf - 0.1 * g, state.params, gradient)
        again, _ = step(state, batch)
        state, metrics = step(state, batch)
        assert_close(metrics["loss"], want["loss"], CLOSE)
        assert_close(to_arrays(state.params), to_arrays(expected), 1e-11)
        assert_close(to_arrays(again.params), to_arrays(state.params), 0)


def test_noise_has_no_mean_and_the_deviation_asked_for():
    learner = Learner(model_of(LSTM(2, 3), Adding(4), dtype="float32"), Adding(4), config_of(weight_noise=0.2))
    state, draws = learner.init(KEY), 2000
    noisy = jax.vmap(lambda step: learner.noisy(state._replace(step=step)))(jnp.arange(draws))
    for leaf, start in zip(jax.tree.leaves(noisy), jax.tree.leaves(state.params), strict=True):
        noise = np.asarray(leaf, np.float64) - np.asarray(start, np.float64)[None]
        assert np.abs(noise.mean()) < 5 * 0.2 / math.sqrt(noise.size)
        assert abs(noise.std() / 0.2 - 1) < 5 / math.sqrt(2 * noise.size)


@pytest.mark.parametrize("cell", EVERY_CELL)
def test_omega_is_added_by_its_strength_over_its_transitions(x64, cell):
    task, batch = Sums(), ragged(0)
    model = model_of(cell_of(cell, task), task)
    learner = Learner(model, task, config_of(batch_size=6, omega=0.7, **SGD))
    state, (told,) = after(learner, [batch])
    graph, params = nnx.split(model)

    def loss(params):
        outputs = nnx.merge(graph, params)(batch.inputs, lengths=batch.lengths)
        return sum_and_count(task.loss(outputs, batch), batch.mask)[0]

    value, gradient, (omega, transitions, pull) = value_and_grad_with_omega(loss)(params)
    count = batch.mask.sum()
    want = jax.tree.map(lambda p, g, more: p - 0.1 * (g / count + 0.7 * more / transitions), params, gradient, pull)
    assert_close(to_arrays(state.params), to_arrays(want), CLOSE)
    assert_close((told["loss"], told["omega"]), (value / count, omega / transitions), CLOSE)
    assert transitions > 6 and any(jnp.abs(leaf).max() > 1e-9 for leaf in jax.tree.leaves(pull))


def test_patience_ends_a_run_that_improves_no_more(tmp_path):
    """A step size of 1e-30 changes no float32, and so no loss."""
    config = config_of(learning_rate=1e-30, steps=20, eval_every=4, patience=3, clip_norm=0.0, optimizer="sgd")
    trained = train(model_of(Elman(2, 3), Adding(4), dtype="float32"), Adding(4), config, tmp_path)
    evaluations = [row for row in rows_of(tmp_path) if row["kind"] == "eval"]
    assert [row["step"] for row in evaluations] == [4, 8, 12, 16] and trained.state.step == 16
    last = rows_of(tmp_path)[-1]
    assert (last["step"], last["kind"], last["why"]) == (16, "stopped", trained.stopped)
    assert trained.stopped == f"no lower loss in 3 evaluations: lowest {evaluations[0]['loss']:.6g} at step 4"
    assert trained.best_step == 4 and bool(trained.state.stopped)


def test_epochs_are_passes_over_the_corpus(tmp_path):
    config = config_of(steps=4, epochs=3, batch_size=4, steps_per_call=4, log_every=4)
    trained = train(model_of(Elman(1, 3), Sums(), dtype="float32"), Sums(), config, tmp_path)
    assert trained.state.step == 3 * 2  # 6 sequences, 4 at a time
    assert [(row["step"], row["kind"]) for row in rows_of(tmp_path)] == [
        (4, "train"), (4, "eval"), (4, "eval"), (6, "eval"), (6, "eval")
    ]  # fmt: skip


def test_a_task_that_draws_its_own_has_no_epochs(tmp_path):
    with pytest.raises(UsageError, match="epochs is 2, but Adding draws new data at every step: give --config.train"):
        train(model_of(Elman(2, 3), Adding(4), dtype="float32"), Adding(4), config_of(epochs=2), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Ticking:
    """A clock that goes on by 10 s whenever it is read."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        self.now += 10
        return self.now


def test_minutes_end_a_run_between_calls_with_all_that_an_end_has(tmp_path):
    config, task = config_of(minutes=0.5, steps=100, eval_every=100), Adding(4)
    model = model_of(Elman(2, 3), task, dtype="float32")
    trained = train(model, task, config, tmp_path, clock=Ticking())
    assert trained.state.step == 6 and trained.stopped is None  # after 10 s, 20 s and 30 s
    assert [(row["step"], row["kind"]) for row in rows_of(tmp_path)] == [
        (2, "train"), (4, "train"), (6, "train"), (6, "eval")
    ]  # fmt: skip
    assert [row["seconds"] for row in rows_of(tmp_path, "timing.jsonl") if row["kind"] == "train"] == [10, 20, 30]
    assert train(model, task, config, tmp_path, clock=Ticking()).state.step == 6  # the 30 s are over


def test_minutes_count_what_was_trained_before_a_kill(tmp_path):
    config, task = config_of(minutes=0.5, steps=100, eval_every=100), Adding(4)
    saving = dataclasses.replace(config, checkpoint=CheckpointConfig(every_steps=2, every_minutes=0))
    model = model_of(Elman(2, 3), task, dtype="float32")
    train(model, task, saving, tmp_path, clock=Ticking())
    shutil.rmtree(tmp_path / "checkpoints" / "latest" / "6")  # as if it had been killed in its third call
    assert train(model, task, saving, tmp_path, clock=Ticking()).state.step == 6


def test_the_second_call_is_profiled(tmp_path):
    model = model_of(Elman(2, 3), Adding(4), dtype="float32")
    train(model, Adding(4), config_of(profile=True), tmp_path)
    assert len(list((tmp_path / "profile").rglob("*.xplane.pb"))) == 1
