"""Scores are means over what counts; the best parameters are those of the lowest loss."""

import dataclasses
from typing import ClassVar

import jax
import numpy as np
import pytest
from cases import COPYING, Sums, assert_same_bits, config_of, model_of, rows_of

from rnnjax.cells import Elman
from rnnjax.layers import InputDropout
from rnnjax.tasks import Adding, Batch
from rnnjax.testing import TOLERANCE, assert_close
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.devices import make_mesh
from rnnjax.train.evaluation import Evaluation, Standing, monitored
from rnnjax.train.loop import train
from rnnjax.train.replicas import Replica, first_states
from rnnjax.train.step import EVALUATION, Learner, root_key, stream


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """These tests compile far more than they compute."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def evaluated(task, layer, seeds, **changes):
    """(scores, models) of two replicas."""
    config, models = config_of(**changes), [model_of(layer, task, seed) for seed in seeds]
    learner = Learner(models[0], task, config)
    replicas = [Replica(model, seed) for model, seed in zip(models, seeds, strict=True)]
    scores = Evaluation(learner, make_mesh(len(seeds), config), seeds)(first_states(learner, replicas))
    for model in models:
        model.eval()
    return scores, models


def test_every_replica_is_scored_on_every_sequence_of_a_split_once(x64):
    task = Sums()
    scores, models = evaluated(task, InputDropout(Elman(1, 3), 0.5), (3, 4), eval_batch=2)
    assert scores[0] != scores[1]
    for found, model in zip(scores, models, strict=True):
        assert list(found) == ["valid", "test"]
        for split in found:
            errors = []
            for sequence in task.sequences(split):
                outputs = model(sequence[:, None])[:, 0, 0]
                errors.append(np.asarray(outputs) - np.cumsum(sequence[:, 0]))
            late = np.concatenate([np.abs(error[3:]) for error in errors])
            assert_close(found[split]["late_error"], late.mean(), TOLERANCE["float32"])
            assert_close(found[split]["loss"], np.square(np.concatenate(errors)).mean(), TOLERANCE["float32"])


def test_a_task_that_draws_is_scored_on_one_batch_of_its_replica(x64):
    scores, models = evaluated(COPYING, Elman(COPYING.input_size, 3), (3, 4), eval_batch=5)
    for seed, found, model in zip((3, 4), scores, models, strict=True):
        batch = COPYING.sample(stream(root_key(seed), EVALUATION), 5)
        assert list(found) == ["test"]
        assert_close(found["test"]["loss"], COPYING.loss(model(batch.inputs), batch).mean(), TOLERANCE["float64"])


def test_a_standing_is_the_lowest_loss_and_the_evaluations_since():
    standing, nan = Standing(), float("nan")
    told = [
        standing.improves(step, {"valid": {"loss": loss}, "test": {"loss": 0.0}})
        for step, loss in enumerate((nan, 3.0, 2.0, 2.0, nan, 2.5, 1.0))
    ]
    assert told == [False, True, True, False, False, False, True]
    assert (standing.best, standing.best_step, standing.waited) == (1.0, 6, 0)
    standing.improves(7, {"test": {"loss": 4.0}})
    assert (standing.best_step, standing.waited, standing.scores) == (6, 1, {"test": {"loss": 4.0}})
    assert monitored({"valid": {"loss": 1.0}, "test": {"loss": 2.0}}) == 1.0
    assert monitored({"test": {"loss": 2.0}}) == 2.0


def test_a_state_is_better_by_the_score_that_the_task_names():
    standing = Standing()
    told = [
        standing.improves(step, {"valid": {"loss": loss, "error": error}}, "error")
        for step, (loss, error) in enumerate(((1.0, 0.5), (2.0, 0.4), (0.5, 0.4)))
    ]
    assert told == [True, True, False] and (standing.best, standing.best_step) == (0.4, 1)


@dataclasses.dataclass(frozen=True)
class Late(Sums):
    """Sums by the error of its late steps, of which the training keeps the parameters of the least."""

    monitor: ClassVar[str] = "late_error"


def test_the_trainer_asks_the_task(tmp_path):
    task, model = Late(), model_of(Elman(1, 3), Sums(), dtype="float32")
    config = config_of(steps=8, optimizer="sgd", learning_rate=0.3, clip_norm=0.0, eval_every=2, eval_batch=4)
    trained = train(model, task, config, tmp_path)
    rows = [row for row in rows_of(tmp_path) if row["kind"] == "eval" and row["split"] == "valid"]
    least = {name: min(rows, key=lambda row: row[name])["step"] for name in ("loss", "late_error")}
    assert trained.best_step == least["late_error"] != least["loss"]


@dataclasses.dataclass(frozen=True)
class Stream(Sums):
    """Sums over one long sequence a row, evaluated window by window."""

    carried: ClassVar[bool] = True

    def batches(self, split, batch_size):
        long = np.random.default_rng(5).normal(size=(7, batch_size, 1)).astype(np.float32)
        for start in range(0, 7, 3):
            x = long[start : start + 3]
            mask = (np.arange(3)[:, None] < len(x)).astype(np.float32) * np.ones((1, batch_size), np.float32)
            x = np.pad(x, [(0, 3 - len(x)), (0, 0), (0, 0)])
            fresh = np.full(batch_size, start == 0, np.float32)
            yield Batch(x, x, mask, np.full(batch_size, int(mask[:, 0].sum()), np.int32), fresh)


def test_windows_are_scored_with_the_carry_of_those_before(x64):
    task = Stream()
    scores, models = evaluated(task, Elman(1, 3), (3, 4), eval_batch=2, batch_size=2)
    for found, model in zip(scores, models, strict=True):
        batches = list(task.batches("valid", 2))
        whole = np.concatenate([batch.inputs for batch in batches])[:7]
        error = np.square(np.asarray(model(whole)) - whole)
        assert_close(found["valid"]["loss"], error.mean(), TOLERANCE["float32"])
        alone = [np.square(np.asarray(model(batch.inputs)) - batch.inputs) for batch in batches]
        assert abs(np.concatenate(alone)[:7].mean() - error.mean()) > 1e-4  # the carry matters


def test_the_best_parameters_are_those_of_the_lowest_loss(tmp_path):
    task, model = Adding(4), model_of(Elman(2, 3), Adding(4), dtype="float32")
    bouncing = {"optimizer": "sgd", "learning_rate": 0.9, "clip_norm": 0.0, "eval_every": 2, "eval_batch": 64}
    trained = train(model, task, config_of(steps=8, **bouncing), tmp_path / "whole")
    losses = {row["step"]: row["loss"] for row in rows_of(tmp_path / "whole") if row["kind"] == "eval"}
    best = min(losses, key=losses.get)
    assert trained.best_step == best == 4 and trained.scores["test"]["loss"] == losses[8] > losses[best]
    until = train(model, task, config_of(steps=best, **bouncing), tmp_path / "part")
    assert_same_bits(trained.best, until.state.params)
    pair = [Replica(model, 0, {"learning_rate": rate}) for rate in (0.9, 0.01)]
    both = train(pair, task, config_of(steps=8, **bouncing), tmp_path / "both")
    assert [one.best_step for one in both] == [4, 8]
    assert_close(to_arrays(both[0].best), to_arrays(trained.best), TOLERANCE["float32"])
