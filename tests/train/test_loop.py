"""A run writes the rows it says, the same bits for the same seed, and stops at what is not finite by name."""

import collections
import dataclasses
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import Sums, config_of, rows_of
from flax import nnx

from rnnjax.cells import Elman
from rnnjax.tasks import Adding, Batch
from rnnjax.testing import assert_close, count_compilations
from rnnjax.train import outputs
from rnnjax.train.build import make_model
from rnnjax.train.config import UsageError
from rnnjax.train.loop import NonFiniteError, train
from rnnjax.train.step import Learner

TASK = Adding(6)
config = config_of


def arrays_of(state):
    return jax.device_get(nnx.to_pure_dict(state.params))


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """These tests compile far more than they compute."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def adding(tmp_path_factory):
    """run(**changes of the config) -> (folder, Trained) of an Elman on the adding problem, each made once."""

    @functools.cache
    def run(again=0, **changes):
        folder = tmp_path_factory.mktemp("adding") / "run"
        return folder, train(make_model(Elman(2, 3), TASK, 0), TASK, config(**changes), folder)

    return run


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """(folder, Trained, learner, shapes that the loss was traced for) of an Elman on sequences of many lengths."""
    folder, task = tmp_path_factory.mktemp("corpus"), Sums()
    model = make_model(Elman(1, 3), task, 0)
    Sums.traced.clear()
    trained = train(model, task, config(steps_per_call=1, steps=8, log_every=1, eval_batch=2), folder)
    traced = list(Sums.traced)
    return folder, trained, Learner(model, task, config()), traced


def test_rows_stand_at_the_steps_that_the_config_says(adding):
    folder, trained = adding()
    rows = rows_of(folder)
    assert [(row["step"], row["kind"]) for row in rows] == [
        (2, "train"), (4, "train"), (4, "eval"), (6, "train"), (6, "eval")
    ]  # fmt: skip
    assert trained.state.step == 6
    for row in rows:
        own = {"loss", "gradient_norm", "clipped_norm"} if row["kind"] == "train" else {
            "split", "loss", "absolute_error"}  # fmt: skip
        assert set(row) == {"step", "kind", *own} and np.isfinite(row["loss"])
    last = rows[-1]
    assert {"test": {name: last[name] for name in ("loss", "absolute_error")}} == trained.scores
    timing = [(row["step"], row["kind"]) for row in rows_of(folder, "timing.jsonl")]
    assert timing == [(0, "start"), (2, "train"), (4, "train"), (6, "train")]
    left = {"metrics.jsonl", "timing.jsonl", "heartbeat.json", "checkpoints", ".lock"}
    assert {path.name for path in folder.iterdir()} == left


def test_a_row_may_be_rarer_than_a_call(adding):
    folder, trained = adding(log_every=6, eval_every=6)
    assert [(row["step"], row["kind"]) for row in rows_of(folder)] == [(6, "train"), (6, "eval")]
    assert rows_of(folder) == rows_of(adding()[0])[-2:]
    assert_close(arrays_of(trained.state), arrays_of(adding()[1].state), 0)


def test_the_same_seed_gives_the_same_bits_whatever_the_clock_says(adding, monkeypatch):
    folder, trained = adding()
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: 3 * clock() + 1e6)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    again_folder, again = adding(again=1)
    assert (again_folder / "metrics.jsonl").read_bytes() == (folder / "metrics.jsonl").read_bytes()
    assert_close(arrays_of(again.state), arrays_of(trained.state), 0)


def test_another_seed_gives_other_numbers(adding):
    folder, trained = adding(seed=1)
    losses, others = ([row["loss"] for row in rows_of(made)] for made in (folder, adding()[0]))
    assert all(a != b for a, b in zip(losses, others, strict=True))


def test_calls_of_several_steps_give_the_bits_of_single_steps(adding):
    single, trained = adding(steps_per_call=1)
    assert_close(arrays_of(trained.state), arrays_of(adding()[1].state), 0)
    assert rows_of(single) == rows_of(adding()[0])


def test_longer_training_compiles_nothing_more(adding, tmp_path):
    adding()  # what compiles op by op has been compiled
    model = make_model(Elman(2, 3), TASK, 0)
    counts = []
    for steps in (4, 20):
        with count_compilations() as compiled:
            train(model, TASK, config(steps=steps), tmp_path / str(steps))
        counts.append(compiled.count)
    assert counts[0] == counts[1] and 0 < counts[0] <= 4  # the call, the evaluation, and few small ones


def test_a_corpus_is_traced_for_every_shape_and_not_for_every_step(corpus):
    *_, traced = corpus
    training = [shape for shape in traced if shape[1] == 3]
    evaluation = [shape for shape in traced if shape[1] == 2]
    assert sorted(evaluation) == [(4, 2, 1), (7, 2, 1)]
    assert set(training) == {(7, 3, 1)}
    assert set(collections.Counter(training).values()) == {2}  # for the shapes of the metrics, and for the program


def test_evaluation_is_the_mean_over_tokens_not_over_batches(corpus):
    folder, trained, learner, _ = corpus
    state, task = trained.state, learner.task
    for split in ("valid", "test"):
        losses, late = [], []
        for sequence in task.sequences(split):
            inputs = jnp.asarray(sequence[:, None])
            batch = Batch(inputs, inputs, inputs[..., 0])
            outputs = np.asarray(learner.apply(state.params, state.variables, batch), np.float64)[:, 0, 0]
            errors = outputs - np.cumsum(sequence[:, 0])
            losses.append(np.square(errors))
            late.append(np.abs(errors[3:]))
        flat, late = np.concatenate(losses), np.concatenate(late)
        np.testing.assert_allclose(trained.scores[split]["loss"], flat.mean(), rtol=1e-5)
        np.testing.assert_allclose(trained.scores[split]["late_error"], late.mean(), rtol=1e-5)
        assert abs(np.mean([part.mean() for part in losses]) / flat.mean() - 1) > 0.01
    rows = [row for row in rows_of(folder) if row["kind"] == "eval"]
    assert [(row["step"], row["split"]) for row in rows] == [(4, "valid"), (4, "test"), (8, "valid"), (8, "test")]
    assert {row["split"]: row["loss"] for row in rows[2:]} == {
        split: score["loss"] for split, score in trained.scores.items()
    }


def test_corpus_calls_of_several_steps_train_as_single_steps_do(corpus, tmp_path):
    _, trained, learner, _ = corpus
    task = learner.task
    model = make_model(Elman(1, 3), task, 0)
    together = train(model, task, config(steps_per_call=4, steps=8, log_every=4, eval_batch=2), tmp_path)
    assert_close(arrays_of(together.state), arrays_of(trained.state), 0)


@pytest.mark.parametrize("at, row_steps", [(0, []), (5, [4]), (7, [4])])
def test_a_loss_that_is_not_finite_ends_the_run_at_its_step(tmp_path, at, row_steps):
    task = Sums(nan_at=at)
    with pytest.raises(NonFiniteError) as error:
        train(make_model(Elman(1, 3), task, 0), task, config(steps=8, steps_per_call=4, log_every=4), tmp_path)
    assert error.value.step == at and error.value.tensors[0] == "the loss"
    assert "the gradient of head/kernel" in error.value.tensors
    assert str(error.value).startswith(f"step {at}: the loss, the gradient of") and "learning_rate" in str(error.value)
    assert [row["step"] for row in rows_of(tmp_path) if row["kind"] == "train"] == row_steps
    assert error.value.user_error


class Scaled(nnx.Module):
    """scale * input + shift, a model that is no recurrent one."""

    def __init__(self):
        self.scale, self.shift = nnx.Param(jnp.float32(1e-30)), nnx.Param(jnp.float32(0))

    def __call__(self, inputs, *, lengths=None, rngs=None):
        return self.scale[...] * inputs + self.shift[...]


def test_a_gradient_that_overflows_beneath_a_finite_loss_is_told_by_its_tensor(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Steep(Sums):
        def loss(self, outputs, batch):
            return 100 * outputs[..., 0]

    sgd = config(steps=8, steps_per_call=4, log_every=4, learning_rate=1e-35, optimizer="sgd", clip_norm=0)
    with pytest.raises(NonFiniteError, match=r"^step 6: the gradient of scale is not finite\. A lower") as error:
        train(Scaled(), Steep(huge_at=6), sgd, tmp_path)
    assert (error.value.step, error.value.tensors) == (6, ("the gradient of scale",))
    assert [row["step"] for row in rows_of(tmp_path) if row["kind"] == "train"] == [4]


def test_any_module_trains_and_is_left_as_it_was(tmp_path):
    task, model = Sums(), Scaled()
    trained = train(model, task, config(learning_rate=0.1), tmp_path)
    assert model.scale[...] == jnp.float32(1e-30) and model.shift[...] == 0
    assert set(arrays_of(trained.state)) == {"scale", "shift"} and arrays_of(trained.state)["scale"] > 0.1


class Counting:
    """A probe that keeps what it is given: the sum of the parameters and the loss."""

    def __init__(self, steps):
        self.steps, self.seen, self.traced = steps, [], 0

    def inside(self, apply, params):
        self.traced += 1
        batch = TASK.sample(jax.random.key(9), 2)
        outputs = apply(params, batch)
        return {"sum": sum(leaf.sum() for leaf in jax.tree.leaves(params)), "outputs": outputs}

    def host(self, step, values):
        assert all(isinstance(value, np.ndarray | np.generic) for value in values.values())
        self.seen.append((step, float(values["sum"])))


def test_probes_measure_before_the_steps_they_name_and_change_nothing(adding, tmp_path):
    model, probe = make_model(Elman(2, 3), TASK, 0), Counting((0, 4, 6))
    trained = train(model, TASK, config(), tmp_path, probes=[probe])
    assert [step for step, _ in probe.seen] == [0, 4, 6] and probe.traced == 1
    start, end = (sum(np.sum(leaf) for leaf in jax.tree.leaves(tree)) for tree in (
        nnx.to_pure_dict(nnx.state(model, nnx.Param)), arrays_of(trained.state)))  # fmt: skip
    np.testing.assert_allclose([probe.seen[0][1], probe.seen[-1][1]], [start, end], rtol=1e-5)
    assert (tmp_path / "metrics.jsonl").read_bytes() == (adding()[0] / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("steps, wrong", [((0, 3), 3), ((8,), 8), ((-2, 0), -2), ((0, 5, 1), 1)])
def test_a_probe_that_would_never_measure_is_refused(tmp_path, steps, wrong):
    with pytest.raises(ValueError, match=rf"Counting measures at step {wrong}: expected multiples of .* \(2\) from 0"):
        train(make_model(Elman(2, 3), TASK, 0), TASK, config(), tmp_path / "run", probes=[Counting(steps)])
    assert not (tmp_path / "run").exists()


def test_a_config_that_can_not_be_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match=r"steps is 5: expected a multiple of steps_per_call \(2\)"):
        train(make_model(Elman(2, 3), TASK, 0), TASK, config(steps=5), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rows_are_closed_after_an_interruption(tmp_path, monkeypatch):
    closed = []

    class Watched(outputs.Rows):
        def close(self):
            closed.append(self)
            super().close()

    class Interrupting(Counting):
        def host(self, step, values):
            if step == 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(outputs, "Rows", Watched)
    with pytest.raises(KeyboardInterrupt):
        train(make_model(Elman(2, 3), TASK, 0), TASK, config(), tmp_path, probes=[Interrupting((0, 4))])
    assert len(closed) == 2 and [row["step"] for row in rows_of(tmp_path)] == [2, 4]


def test_another_model_or_another_corpus_in_the_same_folder_is_refused(tmp_path):
    """Their parameters have the same names and shapes."""
    train(make_model(Elman(2, 3), TASK, 0), TASK, config(), tmp_path)
    with pytest.raises(UsageError, match=r"it differs in model \(\"Elman\(.*tanh.* here\); give another --workdir"):
        train(make_model(Elman(2, 3, activation="relu"), TASK, 0), TASK, config(), tmp_path)

    class Other(Sums):
        def sequences(self, split):
            return [2 * sequence for sequence in super().sequences(split)]

    Other.__qualname__ = "Sums"  # by its words the same
    other = Other()
    train(make_model(Elman(1, 3), Sums(), 0), Sums(), config(), tmp_path / "corpus")
    with pytest.raises(UsageError, match="first_batch"):
        train(make_model(Elman(1, 3), other, 0), other, config(), tmp_path / "corpus")
