"""Long sequences in windows: truncated backpropagation through time with a carry that goes on."""

import bisect
import dataclasses
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.tasks.base import Batch, CorpusTask, SyntheticTask, Task, check_whole


@dataclasses.dataclass(frozen=True)
class Windows(Task):
    """A task whose updates see at most `steps` steps of time: longer sequences come window by window, in order.

        window w of a batch of T steps    steps w * steps .. (w + 1) * steps - 1 of its inputs, targets and mask
        lengths                           clip(lengths - w * steps, 0, steps): 0 in rows that have ended
        fresh                             1 in window 0, 0 in those after it

    A batch of n windows is that of n updates, each of which goes on with the carry of the one before. The last window
    is padded to `steps`; where T is at most `steps` the batch is handed out as it is. Of a corpus n is
    ceil(longest / steps), so that every window has something in it, whatever the batch is padded to; of a task that
    draws its own data, of which the shapes alone are known, n is ceil(T / steps).

    Evaluation (`sample`, `batches`) sees whole sequences. All else is the wrapped task's: its loss has to be that of
    each step by itself, its metrics are those of whole sequences.

    Source: Williams, Peng 1990, "An efficient gradient-based algorithm for on-line training of recurrent network
    trajectories", BPTT(h; h') with h = h' = steps.

    Worked example, Windows(Copying(delay=3, symbols=8, recall=2), steps=4):

        update  0        1          2        3
        input   5 2 0 0  9 0 0 pad  7 1 0 0  9 0 0 pad
        target  0 0 0 0  0 5 2 pad  0 0 0 0  0 7 1 pad
        fresh   1        0          1        0
        length  4        3          4        3

    A call returns the kind that fits: SyntheticWindows or CorpusWindows.

    task: what is cut; neither one that reads the last step only nor one that is carried already.
    steps: of time in an update, at least 1.

    Raises ValueError for another task or number.
    """

    task: Task
    steps: int

    reads_last: ClassVar[bool] = False
    carried: ClassVar[bool] = True

    def __new__(cls, task: Task, steps: int):
        if cls is Windows:
            cls = CorpusWindows if isinstance(task, CorpusTask) else SyntheticWindows
        return super().__new__(cls)

    def __getnewargs__(self):
        return self.task, self.steps

    def __post_init__(self):
        check_whole(self, 1, "steps")
        if self.task.reads_last:
            raise ValueError(
                f"{self.task!r} reads the last step only, so that a window before it would learn nothing: train it on "
                "whole sequences"
            )
        if not self.task.aligned:
            raise ValueError(
                f"{self.task!r} reads one sequence and writes another, that share no steps: train it on whole ones"
            )
        if self.task.carried:
            raise ValueError(f"{self.task!r} is carried already: set the steps of its own windows")

    @property
    def input_size(self) -> int:
        return self.task.input_size

    @property
    def output_size(self) -> int:
        return self.task.output_size

    @property
    def link(self) -> str:
        return self.task.link

    @property
    def unit(self) -> str:
        return self.task.unit

    @property
    def monitor(self) -> str:
        return self.task.monitor

    @property
    def output_bias(self) -> np.ndarray:
        return self.task.output_bias

    @property
    def chance(self) -> float:
        return self.task.chance

    def loss(self, outputs, batch):
        return self.task.loss(outputs, batch)

    def metrics(self, outputs, batch):
        return self.task.metrics(outputs, batch)


class SyntheticWindows(Windows, SyntheticTask):
    """`Windows` of a task that draws its own data: one batch of it is drawn anew for each of its windows."""

    def sample(self, key: jax.Array, batch_size: int) -> Batch:
        """A batch of whole sequences."""
        return self.task.sample(key, batch_size)

    def draw(self, key: jax.Array, step: jax.Array | int, batch_size: int) -> Batch:
        """Window step % n of the wrapped task's batch step // n; jittable with `batch_size` static."""
        shapes = jax.eval_shape(lambda key: self.task.draw(key, 0, batch_size), key)
        time = shapes.inputs.shape[0]
        count = _count(time, self.steps)
        whole = self.task.draw(key, step // count, batch_size)
        if whole.lengths is None and count * self.steps > time > self.steps:
            whole = of_full_length(whole, jnp)
        return _window(whole, step % count, self.steps, _cut_traced, jnp)


class CorpusWindows(Windows, CorpusTask):
    """`Windows` of a corpus. Epochs differ in length where their batches do: `steps_of_epochs` counts them."""

    def steps_per_epoch(self, batch_size: int) -> int:
        raise ValueError(
            f"the epochs of {self!r} have as many windows as their batches happen to need: ask for "
            "steps_of_epochs(epochs, batch_size, seed)"
        )

    def steps_of_epochs(self, epochs: int, batch_size: int, seed: int) -> int:
        """Windows in the first `epochs` passes."""
        return self._order(batch_size, seed).before(self.task.steps_of_epochs(epochs, batch_size, seed))

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The window of `step` >= 0, a pure function of its arguments.

        The first call has to look at all of the wrapped task's batches up to there, one after the other.
        """
        if step < 0:
            raise ValueError(f"step is {step}: expected at least 0")
        order = self._order(batch_size, seed)
        index, window = order.find(step)
        return _window(order.whole(index), window, self.steps, _cut, np)

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Every whole sequence of a split once."""
        return self.task.batches(split, batch_size)

    def _order(self, batch_size: int, seed: int) -> "_Order":
        if (batch_size, seed) not in self._orders:
            self._orders[batch_size, seed] = _Order(self.task, self.steps, batch_size, seed)
        return self._orders[batch_size, seed]

    @functools.cached_property
    def _orders(self) -> dict[tuple[int, int], "_Order"]:
        return {}


class _Order:
    """Which window of which batch of a corpus an update is; it remembers what it has seen."""

    def __init__(self, task: CorpusTask, steps: int, batch_size: int, seed: int):
        self._draw = functools.partial(task.batch, batch_size=batch_size, seed=seed)
        self._steps = steps
        self._ends: list[int] = []  # of each batch, the windows up to its last one
        self._kept: tuple[int, Batch | None] = (-1, None)  # its windows follow one another

    def whole(self, index: int) -> Batch:
        """The wrapped task's batch of that number, with lengths."""
        if self._kept[0] != index:
            batch = self._draw(index)
            self._kept = index, of_full_length(batch, np) if batch.lengths is None else batch
        return self._kept[1]

    def before(self, count: int) -> int:
        """Windows in the first `count` batches."""
        while len(self._ends) < count:
            longest = int(np.max(self.whole(len(self._ends)).lengths, initial=0))
            self._ends.append((self._ends or [0])[-1] + _count(longest, self._steps))
        return self._ends[count - 1] if count else 0

    def find(self, step: int) -> tuple[int, int]:
        """(number of the batch, number of the window in it)."""
        while self.before(len(self._ends)) <= step:
            self.before(len(self._ends) + 1)
        index = bisect.bisect_right(self._ends, step)
        return index, step - self.before(index)


def _count(time: int, steps: int) -> int:
    """Windows of that many steps of time, one at least."""
    return max(1, -(-time // steps))


def of_full_length(batch: Batch, numpy: ModuleType) -> Batch:
    """The batch with the lengths that it has where none are given, in an array of `numpy`: NumPy or jax.numpy."""
    time, rows = batch.inputs.shape[:2]
    return batch._replace(lengths=numpy.full(rows, time, numpy.int32))


def _window(whole: Batch, index: Any, steps: int, cut: Callable, numpy: ModuleType) -> Batch:
    """Window `index` of a batch, by `cut(leaf [T, ...], start, size)`, in arrays of `numpy`: NumPy or jax.numpy."""
    size = min(steps, whole.mask.shape[0])
    start = index * steps
    inputs, targets, mask = (cut(leaf, start, size) for leaf in (whole.inputs, whole.targets, whole.mask))
    lengths = None if whole.lengths is None else (whole.lengths - start).clip(0, size).astype(whole.lengths.dtype)
    fresh = numpy.full(whole.mask.shape[1], index == 0).astype(numpy.float32)
    return Batch(inputs, targets, mask, lengths, fresh)


def _cut(leaf: np.ndarray, start: int, size: int) -> np.ndarray:
    """leaf[start : start + size] as an array of its own, with zeros after the end."""
    found = leaf[start : start + size]
    return np.pad(found, [(0, size - len(found))] + [(0, 0)] * (leaf.ndim - 1))


def _cut_traced(leaf: jax.Array, start: jax.Array | int, size: int) -> jax.Array:
    """`_cut` for a start, a multiple of `size`, that is traced."""
    short = -leaf.shape[0] % size if size else 0
    padded = jnp.pad(leaf, [(0, short)] + [(0, 0)] * (leaf.ndim - 1))
    return jax.lax.dynamic_slice_in_dim(padded, start, size)
