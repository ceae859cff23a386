"""Music: shifted inputs, masked pads, exact coverage in few shapes, and the score of a guess."""

import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnjax.data import DataError
from rnnjax.tasks import Music, reduce_mean


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A corpus of 23, 5 and 4 random sequences of 1 to 40 steps."""
    folder = tmp_path_factory.mktemp("music")
    rng = np.random.default_rng(0)
    corpus = {}
    for split, count in (("train", 23), ("valid", 5), ("test", 4)):
        lengths = rng.integers(1, 41, count)
        corpus[split] = [
            [rng.choice(np.arange(21, 109), rng.integers(0, 5), replace=False).tolist() for _ in range(length)]
            for length in lengths
        ]
    (folder / "small.json").write_text(json.dumps(corpus))
    return folder


@pytest.fixture(scope="module")
def task(folder):
    return Music(path=str(folder / "small.json"), buckets=3)


def _sequences(batches):
    """The rolls of all rows that are not fillers, as sorted bytes; inputs, pads and masks are checked."""
    found = []
    for inputs, targets, mask, lengths, _ in batches:
        assert inputs.dtype == targets.dtype == mask.dtype == np.float32 and lengths.dtype == np.int32
        for row, length in enumerate(lengths):
            np.testing.assert_array_equal(mask[:, row], np.arange(len(mask)) < length)
            assert not targets[length:, row].any() and not inputs[length:, row].any()
            if length:
                assert not inputs[0, row].any()
                np.testing.assert_array_equal(inputs[1:length, row], targets[: length - 1, row])
                found.append(targets[:length, row].astype(np.uint8).tobytes())
    return sorted(found)


def _expected(task, split):
    return sorted(roll.tobytes() for roll in task.rolls[split])


@pytest.mark.parametrize("batch_size", [1, 4, 40])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_batches_hold_every_sequence_once(task, split, batch_size):
    batches = list(task.batches(split, batch_size))
    assert _sequences(batches) == _expected(task, split)
    assert len({batch.inputs.shape for batch in batches}) <= 3
    assert all(batch.inputs.shape[1:] == (batch_size, 88) for batch in batches)
    assert max(len(batch.inputs) for batch in batches) == max(map(len, task.rolls[split]))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**64 - 1), st.integers(0, 1000))
def test_an_epoch_holds_every_sequence_once(task, batch_size, seed, epoch):
    steps = task.steps_per_epoch(batch_size)
    batches = [task.batch(epoch * steps + i, batch_size, seed) for i in range(steps)]
    assert _sequences(batches) == _expected(task, "train")
    assert len({batch.inputs.shape for batch in batches}) <= 3


def test_a_batch_depends_on_its_arguments_alone(task, folder):
    fresh = Music(path=str(folder / "small.json"), buckets=3)
    wanted = [17, 3, 40, 3]
    for step in wanted:
        jax.tree.map(np.testing.assert_array_equal, fresh.batch(step, 4, 7), task.batch(step, 4, 7))
    steps = task.steps_per_epoch(4)

    def order(seed, epoch):
        return b"".join(task.batch(epoch * steps + i, 4, seed).targets.tobytes() for i in range(steps))

    assert len({order(seed, epoch) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_chance_is_the_loss_of_the_training_frequencies(task):
    train = np.concatenate(task.rolls["train"]).astype(np.float64)
    p = (train.sum(0) + 1) / (len(train) + 2)
    logits = np.log(p / (1 - p)).astype(np.float32)
    total = count = 0.0
    for batch in task.batches("valid", 2):
        losses = np.array(task.loss(np.broadcast_to(logits, batch.targets.shape), batch))
        total, count = total + (losses * batch.mask).sum(), count + batch.mask.sum()
    assert count == sum(map(len, task.rolls["valid"]))
    assert task.chance == pytest.approx(total / count, rel=1e-5)


def test_the_loss_is_the_cross_entropy_and_stays_finite(task):
    batch = task.batch(0, 3, 0)
    outputs = np.random.default_rng(1).normal(0, 3, batch.targets.shape).astype(np.float32)
    p = 1 / (1 + np.exp(-outputs.astype(np.float64)))
    expected = -(batch.targets * np.log(p) + (1 - batch.targets) * np.log(1 - p)).sum(-1)
    np.testing.assert_allclose(task.loss(outputs, batch), expected, rtol=1e-5)
    for scale in (1e4, -1e4):
        extreme = scale * (2 * batch.targets - 1)
        loss, gradient = jax.value_and_grad(lambda y: reduce_mean(task.loss(y, batch), batch.mask))(extreme)
        assert np.isfinite(loss) and np.all(np.isfinite(gradient))
        assert float(loss) == (0 if scale > 0 else pytest.approx(88e4))


def test_frame_accuracy(task):
    batch = next(task.batches("train", 40))
    values, mask = task.metrics(batch.targets - 0.5, batch)["frame_accuracy"]
    assert values.shape == mask.shape == batch.mask.shape and float(reduce_mean(values, mask)) == 1
    silent = np.array(task.metrics(np.full_like(batch.targets, -1), batch)["frame_accuracy"][0])
    np.testing.assert_array_equal(silent, ~batch.targets.any(-1))


def test_wrong_arguments_and_a_missing_file(task, folder):
    with pytest.raises(ValueError, match="split is 'dev': expected one of train, valid, test"):
        task.batches("dev", 2)
    with pytest.raises(ValueError, match="batch_size is 0"):
        task.batches("test", 0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        task.batch(0, 0, 0)
    with pytest.raises(ValueError, match="step is -1 and seed 0"):
        task.batch(-1, 2, 0)
    with pytest.raises(ValueError, match="seed -1"):
        task.batch(0, 2, -1)
    missing = Music(path=str(folder / "none.json"))  # nothing is read until it is needed
    with pytest.raises(DataError, match="none.json: no such file"):
        missing.batch(0, 2, 0)


@pytest.mark.parametrize("name, chance", [("JSB_Chorales", 10.952), ("Nottingham", 10.003)])
def test_corpora_are_found_by_name(corpora, name, chance):
    if not (corpora / "polymusic" / f"{name}.mat").is_file():
        pytest.skip(f"{name}.mat not in {corpora / 'polymusic'}")
    task = Music(corpus=name)
    assert task.chance == pytest.approx(chance, abs=1e-3)
    steps = task.steps_per_epoch(50)
    seen = [task.batch(steps + i, 50, 0) for i in range(steps)]
    assert sum(int((batch.lengths > 0).sum()) for batch in seen) == len(task.rolls["train"])
    assert len({batch.inputs.shape for batch in seen}) == 4
