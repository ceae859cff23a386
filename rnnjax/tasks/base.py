"""What a task is: batches, a loss, and the score of a guess that has seen no input.

A task is a frozen dataclass of hyper-parameters. Sequences are time-major, [T, B, features].

    batch = task.sample(key, batch_size)       synthetic: a jittable sampler, or
    batch = task.batch(step, batch_size, seed) corpus: the training batch of a step, a pure function of it
    task.loss(outputs, batch)                  values shaped as batch.mask; reduced once, by the trainer
    task.metrics(outputs, batch)               {name: (values, mask)}, each reduced alike over its own mask
    task.chance                                the loss of the best guess that has seen no input, computed

`reads_last` says whether the targets belong to the last valid step (outputs [B, O], mask [B]) or to every
step (outputs [T, B, O], mask [T, B]). A metric names its mask because it may count fewer places than the loss
does: recall after a delay is read at the recalled steps only. Masks hold 0 and 1, and `reduce_mean` takes the
mean where they are 1.

Where a task is `carried`, an update goes on where the one before stopped: row b of its batch follows row b of that
before, and starts with the carry that the model ended it with, but for the rows that are `fresh`.
`rnnjax.tasks.Windows` makes such a task of one with long sequences.
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SPLITS = ("train", "valid", "test")
"""Of a corpus."""


class SourceTarget(NamedTuple):
    """Inputs of a model that reads one sequence and writes another.

    source [S, B, ...], what is read. target [T, B, ...], what the decoder is fed: the targets one step later, behind
    the symbol that starts a sequence.
    """

    source: Any
    target: Any


class Batch(NamedTuple):
    """inputs [T, B, I]; targets and mask [T, B, ...] or, of the last step, [B, ...]; lengths and fresh [B] or None.

    Inputs of text are whole numbers [T, B] or [T, B, K], those of a model that reads and writes a `SourceTarget`, whose
    lengths are those of the source. mask holds 1 where a target counts and 0 where it does not. fresh holds 1 where a
    row starts a new sequence, and 0 where it goes on with the carry that the row ended with in the update before; None
    where every row is new.
    """

    inputs: Any
    targets: jax.Array
    mask: jax.Array
    lengths: jax.Array | None = None
    fresh: jax.Array | None = None


class Task:
    """Base class of tasks; see the module's docstring.

    input_size, output_size: features of inputs and of the outputs that the loss takes.
    reads_last: the loss reads the output at each example's last valid step only.
    link: the activation that turns outputs into predictions: "identity", "softmax" or "sigmoid".
    unit: of the loss, for axis labels.
    aligned: inputs and targets share their steps, so that a window of both can be taken; of tasks that don't read last.
    monitor: the score by which a state is better than another, the lower the better: the loss, or one of the metrics.
    carried: updates go on with the carry of the one before, and batches say by `fresh` in which rows they don't.
    """

    input_size: int
    output_size: int
    reads_last: ClassVar[bool]
    link: ClassVar[str]
    unit: ClassVar[str]
    aligned: ClassVar[bool] = True
    monitor: ClassVar[str] = "loss"
    carried: ClassVar[bool] = False

    @property
    def output_bias(self) -> np.ndarray:
        """[output_size], what the bias of a model's head starts at: 0, or the log-odds of a corpus with skewed ones."""
        return np.zeros(self.output_size, np.float32)

    @property
    def chance(self) -> float:
        """The loss of the best guess that has seen no input, in the loss's unit."""
        raise TypeError(f"{type(self).__name__} has to define chance")

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Losses shaped as batch.mask."""
        raise TypeError(f"{type(self).__name__} has to define loss(outputs, batch)")

    def metrics(self, outputs: jax.Array, batch: Batch) -> dict[str, tuple[jax.Array, jax.Array]]:
        """{name: (values, mask)}, both shaped as batch.mask, for reading only."""
        del outputs, batch
        return {}


def sum_and_count(values: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(sum of the values where mask is 1, how many these are); what is masked has a gradient of 0, NaN included."""
    return jnp.sum(jnp.where(mask > 0, values, 0)), jnp.sum(mask)


def reduce_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean of values where mask is 1; 0, with a gradient of 0, where nothing counts."""
    total, count = sum_and_count(values, mask)
    return total / jnp.maximum(count, 1)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """-log softmax(logits)[label] in nats: logits [..., C], labels [...] in 0 .. C-1 -> [...]."""
    log_p = jax.nn.log_softmax(widen(logits))
    return -jnp.take_along_axis(log_p, jnp.expand_dims(labels, -1), axis=-1).squeeze(-1)


def correct(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """1 where the largest logit is the label's, else 0: logits [..., C], labels [...] -> float32 [...]."""
    return (jnp.argmax(logits, -1) == labels).astype(jnp.float32)


def widen(values: jax.Array) -> jax.Array:
    """The values in float32 at least, so that a loss of bfloat16 outputs keeps its digits."""
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))


def check_whole(task: Task, least: int, *names: str) -> None:
    """Raises ValueError unless every named field of the task is a whole number of at least `least`."""
    for name in names:
        value = getattr(task, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(
                f"{name} of {type(task).__name__} is {value!r}: expected a whole number of at least {least}"
            )


def check_split(split: str) -> None:
    """Raises ValueError for a split that is none."""
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}: expected one of {', '.join(SPLITS)}")


def check_batch_size(batch_size: int) -> None:
    """Raises ValueError for one below 1."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}: expected at least 1")


def check_step(step: int, seed: int) -> None:
    """Raises ValueError where there is no training batch of this step and seed."""
    if step < 0 or not 0 <= seed < 2**64:
        raise ValueError(f"step is {step} and seed {seed}: expected both at least 0, and seed below 2**64")


class SyntheticTask(Task):
    """A task that draws its own data."""

    def sample(self, key: jax.Array, batch_size: int) -> Batch:
        """A fresh batch; jittable with `batch_size` static."""
        raise TypeError(f"{type(self).__name__} has to define sample(key, batch_size)")

    def draw(self, key: jax.Array, step: jax.Array | int, batch_size: int) -> Batch:
        """The training batch of `step`, a pure function of its arguments; jittable with `batch_size` static."""
        return self.sample(jax.random.fold_in(key, step), batch_size)


class CorpusTask(Task):
    """A task over a corpus, split into train, valid and test.

    path: the file, or "" to look in the folder that RNNJAX_DATA names and then in the user's cache.
    """

    path: str

    def steps_per_epoch(self, batch_size: int) -> int:
        """Training batches in one pass over the training split."""
        raise TypeError(f"{type(self).__name__} has to define steps_per_epoch(batch_size)")

    def steps_of_epochs(self, epochs: int, batch_size: int, seed: int) -> int:
        """Training batches in the first `epochs` passes, which need not be equally long."""
        del seed
        return epochs * self.steps_per_epoch(batch_size)

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The training batch of `step`, a pure function of its arguments: a run can start again anywhere."""
        raise TypeError(f"{type(self).__name__} has to define batch(step, batch_size, seed)")

    def batches(self, split: str, batch_size: int):
        """Every example of a split once, for evaluation: whole, or in windows where batches say what is `fresh`."""
        raise TypeError(f"{type(self).__name__} has to define batches(split, batch_size)")
