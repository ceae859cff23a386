"""Windows put together again are the batch; any order of steps finds the same; gradients are those of truncation."""

import copy
import dataclasses
import pickle
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax.cells import Elman
from rnnjax.layers import LearnedCarry, Stack
from rnnjax.nn import SequenceModel
from rnnjax.tasks import Adding, Batch, Copying, CorpusTask, Music, SyntheticTask, TemporalOrder, Translation, Windows
from rnnjax.testing import TOLERANCE, assert_close, check_task, count_compilations
from rnnjax.unroll.sequence import keep_where

COPYING = Copying(delay=3, symbols=8, recall=2)  # 7 steps
KEY = jax.random.key(0)


@dataclasses.dataclass(frozen=True)
class Ragged(SyntheticTask):
    """Sequences of 0 to 7 steps, whose pads are NaN, with targets of a feature axis."""

    input_size: ClassVar[int] = 2
    output_size: ClassVar[int] = 2
    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "identity"
    unit: ClassVar[str] = "squared error"
    chance: ClassVar[float] = 1.0

    def sample(self, key, batch_size):
        inputs = jax.random.normal(key, (7, batch_size, 2), jnp.float32)
        lengths = jax.random.randint(key, (batch_size,), 0, 8, jnp.int32)
        mask = (jnp.arange(7)[:, None] < lengths[None]).astype(jnp.float32)
        pads = jnp.expand_dims(mask == 0, -1)
        return Batch(jnp.where(pads, jnp.nan, inputs), jnp.where(pads, 0, 2 * inputs), mask, lengths)

    def loss(self, outputs, batch):
        return jnp.sum(jnp.square(outputs - batch.targets), -1)


class Rows(CorpusTask):
    """Batch k holds rows of 1 + 4 k % 11, 0 and 1 steps, padded by `pad` more; its inputs start with 100 (k + seed)."""

    input_size = output_size = 1
    reads_last, link, unit, chance = False, "identity", "squared error", 1.0

    def __init__(self, pad: int = 0, lengths: bool = True):
        self.pad, self.lengths, self.seen = pad, lengths, []

    def steps_per_epoch(self, batch_size):
        return 5

    def batch(self, step, batch_size, seed):
        self.seen.append(step)
        longest = 1 + 4 * step % 11
        time, lengths = longest + self.pad, np.array([longest, 0, 1], np.int32)
        steps = np.repeat(np.arange(time, dtype=np.float32)[:, None] + 100 * (step + seed), batch_size, axis=1)
        mask = (np.arange(time)[:, None] < lengths[None]).astype(np.float32)
        return Batch(steps[..., None], -steps, mask, lengths if self.lengths else None)

    def batches(self, split, batch_size):
        return iter([split, batch_size])


def joined(windows, time):
    """Windows one after the other, without what was added at the end; lengths are summed, fresh is of all."""
    parts = [np.concatenate([getattr(w, field) for w in windows])[:time] for field in ("inputs", "targets", "mask")]
    lengths = None if windows[0].lengths is None else np.sum([w.lengths for w in windows], axis=0)
    return Batch(*parts, lengths, np.stack([w.fresh for w in windows]))


@pytest.mark.parametrize("steps, task", [(1, COPYING), (3, COPYING), (3, Ragged()), (7, COPYING), (9, Ragged())])
def test_windows_of_a_drawn_batch_are_the_batch(steps, task):
    windows, count, size = Windows(task, steps), -(-7 // steps), min(steps, 7)
    draw, draw_whole = (jax.jit(one.draw, static_argnums=2) for one in (windows, task))
    for number in (0, 2):
        got = [jax.device_get(draw(KEY, number * count + w, 4)) for w in range(count)]
        assert {w.inputs.shape for w in got} == {(size, 4, task.input_size)}
        whole, again = jax.device_get(draw_whole(KEY, number, 4)), joined(got, 7)
        jax.tree.map(np.testing.assert_array_equal, again[:3], whole[:3])
        np.testing.assert_array_equal(again.fresh, (np.arange(count) == 0)[:, None] * np.ones((count, 4)))
        padded = task is COPYING and steps == 3
        if whole.lengths is None:
            assert (again.lengths is None) != padded
        np.testing.assert_array_equal(again.lengths, [7] * 4 if padded else whole.lengths)
        assert not got[-1].mask[7 - (count - 1) * steps :].any()
        for w in got:
            wanted = np.arange(size)[:, None] < (np.full(4, size) if w.lengths is None else w.lengths)[None]
            np.testing.assert_array_equal(w.mask, wanted)


def test_a_step_is_data_and_batches_differ():
    windows = Windows(COPYING, 4)
    draw = jax.jit(windows.draw, static_argnums=2)
    with count_compilations() as compiled:
        drawn = [draw(KEY, jnp.int32(step), 8) for step in (5, 0, 4, 1, 5)]
    assert compiled.count <= 2  # the draw, and a step's conversion
    jax.tree.map(np.testing.assert_array_equal, drawn[0], drawn[4])
    assert len({batch.inputs.tobytes() for batch in map(jax.device_get, drawn[1:3])}) == 2


def test_windows_of_synthetic_tasks_keep_the_contract():
    check_task(Windows(COPYING, 3))


def test_check_task_finds_a_fresh_that_is_wrong():
    @dataclasses.dataclass(frozen=True)
    class Broken(Copying):
        what: str = "none"
        carried: ClassVar[bool] = True

        def draw(self, key, step, batch_size):
            fresh = {"none": None, "shape": jnp.ones(1), "value": jnp.full(batch_size, 2.0)}[self.what]
            return super().draw(key, step, batch_size)._replace(fresh=fresh)

    for what, message in (
        ("none", "Broken is carried but a batch of draw has no fresh"),
        ("shape", r"fresh of Broken has shape \(1,\): expected \(3,\)"),
        ("value", "fresh of Broken holds values other than 0 and 1"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_task(Broken(what=what))


def expected(task, steps, count, batch_size=3, seed=0):
    """The first windows of a corpus as a loop cuts them."""
    found = []
    for number in range(count):
        batch = task.batch(number, batch_size, seed)
        rows = batch.mask.shape[1]
        lengths = np.full(rows, len(batch.mask)) if batch.lengths is None else batch.lengths
        size = min(steps, len(batch.mask))
        for start in range(0, max(1, max(lengths)), steps):
            here = slice(start, start + steps)
            short = size - len(batch.mask[here])
            inputs, targets, mask = (
                np.concatenate([leaf[here], np.zeros((short, *leaf.shape[1:]), np.float32)]) for leaf in batch[:3]
            )
            fresh = np.full(rows, float(start == 0), np.float32)
            found.append(Batch(inputs, targets, mask, np.clip(lengths - start, 0, steps), fresh))
    return found


@pytest.mark.parametrize("steps", [1, 4, 11, 30])
@pytest.mark.parametrize("task", [Rows(), Rows(pad=9), Rows(lengths=False)], ids=["tight", "padded", "no lengths"])
def test_windows_of_a_corpus_are_its_batches_in_any_order(task, steps):
    want = expected(task, steps, 12)
    for order in (range(len(want)), reversed(range(len(want)))):
        windows = Windows(task, steps)
        for step in order:
            got = windows.batch(step, 3, 0)
            jax.tree.map(np.testing.assert_array_equal, got, want[step])
            assert all(leaf.dtype == np.float32 for leaf in (got.inputs, got.targets, got.mask, got.fresh))
            assert got.lengths.dtype == np.int32 and len(got.mask) <= steps
    assert task.lengths is False or all(batch.mask.any() for batch in want)
    other = Windows(task, steps).batch(0, 3, 1)
    assert (other.inputs == want[0].inputs + 100).all()


def test_passes_of_a_corpus_are_counted_and_its_batches_looked_at_once():
    task = Rows(pad=9)
    windows = Windows(task, 4)
    for epochs in (0, 1, 3, 2):
        assert windows.steps_of_epochs(epochs, 3, 0) == len(expected(Rows(), 4, 5 * epochs))
    assert Rows().steps_of_epochs(3, 3, 0) == 15
    assert task.seen == list(range(15))
    with pytest.raises(ValueError, match="the epochs of CorpusWindows.* ask for steps_of_epochs"):
        windows.steps_per_epoch(3)
    sequential = Windows(task, 4)
    task.seen.clear()
    for step in range(windows.steps_of_epochs(2, 3, 0)):
        sequential.batch(step, 3, 0)
    assert task.seen == list(range(10))


def test_who_writes_into_a_window_changes_no_other():
    windows = Windows(Rows(), 30)
    windows.batch(0, 3, 0).inputs[:] = np.nan
    assert np.isfinite(windows.batch(0, 3, 0).inputs).all()


def test_evaluation_sees_whole_sequences_and_all_else_is_the_tasks():
    windows = Windows(COPYING, 3)
    batch = windows.sample(KEY, 2)
    jax.tree.map(np.testing.assert_array_equal, batch, COPYING.sample(KEY, 2))
    assert list(Windows(Rows(), 4).batches("valid", 6)) == ["valid", 6]
    for name in ("input_size", "output_size", "reads_last", "link", "unit", "chance"):
        assert getattr(windows, name) == getattr(COPYING, name)
    outputs = jax.random.normal(KEY, (7, 2, 9))
    assert_close(windows.loss(outputs, batch), COPYING.loss(outputs, batch), 0)
    assert_close(windows.metrics(outputs, batch), COPYING.metrics(outputs, batch), 0)
    assert windows.carried and not COPYING.carried
    assert isinstance(windows, SyntheticTask) and isinstance(Windows(Rows(), 4), CorpusTask)


def test_windows_are_values():
    windows = Windows(COPYING, steps=3)
    assert repr(windows) == f"SyntheticWindows(task={COPYING!r}, steps=3)"
    assert windows == Windows(COPYING, 3) != Windows(COPYING, 4) and hash(windows) == hash(Windows(COPYING, 3))
    assert pickle.loads(pickle.dumps(windows)) == copy.deepcopy(windows) == windows
    assert dataclasses.replace(windows, steps=4) == Windows(COPYING, 4)


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: Windows(Adding(4), 2),
            r"Adding\(length=4\) reads the last step only, .*: train it on whole sequences",
        ),
        (lambda: Windows(TemporalOrder(), 2), "TemporalOrder.* reads the last step only"),
        (lambda: Windows(Windows(COPYING, 4), 2), "SyntheticWindows.* is carried already"),
        (lambda: Windows(Translation(), 2), "Translation.* reads one sequence and writes another"),
        (lambda: Windows(COPYING, 0), "steps of SyntheticWindows is 0: expected a whole number of at least 1"),
        (lambda: Windows(Rows(), 2.5), "steps of CorpusWindows is 2.5"),
        (lambda: Windows(Rows(), 4).batch(-1, 3, 0), "step is -1: expected at least 0"),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_updates_that_carry_have_the_truncated_gradient_of_the_whole(x64):
    """A training of two batches whose parameters stand still, with a stack whose first carry is learned."""
    task = Ragged()
    stack = Stack((LearnedCarry(Elman(task.input_size, 4)), Elman(4, 3)), layer_norm=True)
    model = SequenceModel(stack, task.output_size, rngs=nnx.Rngs(0), dtype=jnp.float64)
    graph, params = nnx.split(model)
    windows, rows = Windows(task, 3), 4

    def loss_of(outputs, batch):
        return jnp.sum(jnp.where(batch.mask > 0, task.loss(outputs, batch), 0))

    @jax.jit
    def update(params, carry, step):
        batch = windows.draw(KEY, step, rows)

        def loss(params):
            model = nnx.merge(graph, params)
            start = keep_where(batch.fresh > 0, model.initial_carry(rows), carry)
            outputs, after = model.stream(batch.inputs, start, lengths=batch.lengths)
            return loss_of(outputs, batch), after

        return jax.value_and_grad(loss, has_aux=True)(params)

    @jax.jit
    @jax.value_and_grad
    def whole(params, number):
        model, batch = nnx.merge(graph, params), task.draw(KEY, number, rows)
        outputs = model.rnn(batch.inputs, lengths=batch.lengths, truncate=3).outputs
        return loss_of(model.head(outputs), batch)

    carry, total = model.initial_carry(rows), []
    for step in range(6):
        (value, carry), gradient = update(params, carry, step)
        total.append((value, gradient))
    got = jax.tree.map(lambda *parts: sum(parts), *total)
    want = jax.tree.map(jnp.add, whole(params, 0), whole(params, 1))
    assert_close(got, want, TOLERANCE["float64"])


@pytest.mark.parametrize("name", ["JSB_Chorales", "Nottingham"])
def test_music_is_seen_once_in_every_pass(corpora, name):
    task = Music(corpus=name, path=str(corpora / "polymusic" / f"{name}.mat"))
    windows = Windows(task, 50)
    epochs = [range(windows.steps_of_epochs(e, 16, 0), windows.steps_of_epochs(e + 1, 16, 0)) for e in range(2)]
    for steps in epochs:
        batches = [windows.batch(step, 16, 0) for step in steps]
        assert all(batch.mask.any() and len(batch.mask) <= 50 for batch in batches)
        assert sum(batch.mask.sum() for batch in batches) == sum(map(len, task.rolls["train"]))
        assert sum(int((batch.fresh * batch.lengths > 0).sum()) for batch in batches) == len(task.rolls["train"])
