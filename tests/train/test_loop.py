"""A run writes the rows it says, the same bits for the same seed, and stops at what is not finite by name."""

import dataclasses
import functools
import json
import time
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax.cells import Elman
from rnnjax.tasks import Adding, Batch, CorpusTask
from rnnjax.testing import TOLERANCE, assert_close, count_compilations
from rnnjax.train import loop
from rnnjax.train.build import make_model
from rnnjax.train.config import TrainConfig, UsageError
from rnnjax.train.loop import NonFiniteError, stack_batches, train
from rnnjax.train.optimizer import make_optimizer
from rnnjax.train.step import Learner

TASK = Adding(6)
LENGTHS = {"train": (3, 7, 7, 5, 2, 6), "valid": (4, 2), "test": (1, 6, 3, 6, 2)}


@dataclasses.dataclass(frozen=True)
class Sums(CorpusTask):
    """At every step the sum of the inputs so far, over sequences of many lengths.

    nan_at: the training step whose targets are not numbers.
    huge_at: the training step whose inputs are near the largest float32.
    """

    path: str = ""
    nan_at: int = -1
    huge_at: int = -1

    input_size: ClassVar[int] = 1
    output_size: ClassVar[int] = 1
    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "identity"
    unit: ClassVar[str] = "squared error"
    traced: ClassVar[list] = []

    def sequences(self, split):
        rng = np.random.default_rng(len(split))
        return [rng.normal(size=(length, 1)).astype(np.float32) for length in LENGTHS[split]]

    def batch(self, step, batch_size, seed):
        chosen = np.random.default_rng([seed, step]).permutation(len(LENGTHS["train"]))[:batch_size]
        batch = self.pad([self.sequences("train")[i] for i in chosen], batch_size)
        if step == self.nan_at:
            batch.targets[0, 0] = np.nan
        if step == self.huge_at:
            batch.inputs[...] = 3e38
        return batch

    def batches(self, split, batch_size):
        sequences = self.sequences(split)
        return (self.pad(sequences[at : at + batch_size], batch_size) for at in range(0, len(sequences), batch_size))

    def pad(self, sequences, batch_size):
        time = max(4, *map(len, sequences)) if max(map(len, sequences)) <= 4 else 7  # two buckets
        inputs, lengths = np.zeros((time, batch_size, 1), np.float32), np.zeros(batch_size, np.int32)
        for row, sequence in enumerate(sequences):
            inputs[: len(sequence), row], lengths[row] = sequence, len(sequence)
        mask = (np.arange(time)[:, None] < lengths).astype(np.float32)
        return Batch(inputs, np.cumsum(inputs, axis=0), mask, lengths)

    def loss(self, outputs, batch):
        Sums.traced.append(outputs.shape)
        return jnp.square(outputs - batch.targets)[..., 0]

    def metrics(self, outputs, batch):
        return {"late_error": (jnp.abs(outputs - batch.targets)[..., 0], batch.mask * self.late(batch.mask))}

    def late(self, mask):
        return jnp.broadcast_to(jnp.arange(mask.shape[0])[:, None] >= 3, mask.shape)


def config(**changes):
    return dataclasses.replace(
        TrainConfig(
            steps=6, steps_per_call=2, batch_size=3, learning_rate=0.01, eval_every=4, eval_batch=4, log_every=2
        ),
        **changes,
    )


def rows_of(folder, name="metrics.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


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
    return folder, trained, Learner(model, task, make_optimizer(config())), traced


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
    assert [row["step"] for row in rows_of(folder, "timing.jsonl")] == [2, 4, 6]
    assert {path.name for path in folder.iterdir()} == {"metrics.jsonl", "timing.jsonl"}


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


def test_a_corpus_is_traced_once_for_a_shape(corpus):
    *_, traced = corpus
    training = [shape for shape in traced if shape[1] == 3]
    evaluation = [shape for shape in traced if shape[1] == 2]
    assert sorted(evaluation) == [(4, 2, 1), (7, 2, 1)]
    assert sorted(set(training)) == [(4, 3, 1), (7, 3, 1)] or set(training) == {(7, 3, 1)}
    assert len(training) == len(set(training))


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
    assert_close(arrays_of(together.state), arrays_of(trained.state), TOLERANCE["float32"])


def test_stacked_batches_are_padded_to_the_longest_and_train_alike():
    task = Sums()
    short, long = (task.pad(task.sequences("train")[at], 2) for at in (slice(4, 5), slice(1, 3)))
    for short_lengths in (short.lengths, None):
        if short_lengths is None:  # a batch without lengths is as long as it is
            short = task.pad(task.sequences("valid")[:1], 1)
            long = task.pad(task.sequences("train")[1:2], 1)
            short, long = short._replace(lengths=None), long._replace(lengths=None)
        stacked = stack_batches([short, long])
        assert stacked.inputs.shape == (2, 7, *short.inputs.shape[1:]) and stacked.mask.shape[:2] == (2, 7)
        learner = Learner(make_model(Elman(1, 3), task, 0), task, make_optimizer(config()))
        step = jax.jit(learner.train_step)
        for at, batch in enumerate((short, long)):
            padded = jax.tree.map(lambda leaf, at=at: leaf[at], stacked)
            state = learner.init(jax.random.key(0))
            (alone, told), (in_stack, told_in_stack) = step(state, batch), step(state, padded)
            assert_close(told_in_stack["loss"], told["loss"], 1e-6)
            assert_close(arrays_of(in_stack), arrays_of(alone), TOLERANCE["float32"])


def test_stacking_leaves_targets_of_the_last_step_as_they_are():
    def batch(time):
        return Batch(np.ones((time, 2, 1)), np.arange(6).reshape(2, 3), np.ones(2), np.array([time, 1]))

    stacked = stack_batches([batch(3), batch(5)])
    assert [leaf.shape for leaf in stacked] == [(2, 5, 2, 1), (2, 2, 3), (2, 2), (2, 2)]
    assert stacked.inputs[0, :3].all() and not stacked.inputs[0, 3:].any()
    assert stacked.targets[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert stack_batches([batch(3)._replace(lengths=None), batch(5)]).lengths.tolist() == [[3, 3], [5, 1]]
    assert stacked.lengths.tolist() == [[3, 1], [5, 1]]


def test_batches_of_one_length_need_no_lengths():
    batch = Batch(np.ones((3, 2, 1)), np.ones((3, 2, 1)), np.ones((3, 2)))
    assert stack_batches([batch, batch]).lengths is None


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

    class Watched(loop.Rows):
        def close(self):
            closed.append(self)
            super().close()

    class Interrupting(Counting):
        def host(self, step, values):
            if step == 4:
                raise KeyboardInterrupt

    monkeypatch.setattr(loop, "Rows", Watched)
    with pytest.raises(KeyboardInterrupt):
        train(make_model(Elman(2, 3), TASK, 0), TASK, config(), tmp_path, probes=[Interrupting((0, 4))])
    assert len(closed) == 2 and [row["step"] for row in rows_of(tmp_path)] == [2, 4]
