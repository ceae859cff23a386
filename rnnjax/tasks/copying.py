"""The copying memory problem: symbols are shown, and repeated after a delay."""

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnnjax.tasks.base import Batch, SyntheticTask, check_whole, correct, cross_entropy


@dataclasses.dataclass(frozen=True)
class Copying(SyntheticTask):
    """With K = recall, T = delay, S = symbols; s_1 .. s_K uniform in 1 .. S, 0 the blank, S + 1 the marker:

        input   s_1 .. s_K   0 x (T - 1)   S + 1   0 x K
        target  0 x K        0 x T                 s_1 .. s_K

    T + 2K steps in all. Inputs [T + 2K, B, S + 2] are one-hot; targets [T + 2K, B] are classes 0 .. S; every
    step counts in the loss, the cross entropy in nats.

    Source: Arjovsky, Shah, Bengio 2016, "Unitary evolution recurrent neural networks", section 5.1, in the
    layout of the code released with it (K = 10, S = 8, so 10 categories in and 9 classes out). Other releases
    shift the marker by a step or repeat it: the baseline stays, the difficulty does not. The task is
    Hochreiter and Schmidhuber's of 1997.

    Worked example, Copying(delay=3, symbols=8, recall=2):

        input   5 2 0 0 9 0 0
        target  0 0 0 0 0 5 2

    delay: T, steps from the last shown symbol to the last step before recall, at least 1.
    symbols: S, how many there are to choose from, at least 2.
    recall: K, how many are shown.
    """

    delay: int = 50
    symbols: int = 8
    recall: int = 10

    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats a step"

    def __post_init__(self):
        check_whole(self, 1, "delay", "recall")
        check_whole(self, 2, "symbols")

    @functools.cached_property
    def input_size(self) -> int:
        """The blank, the symbols and the marker."""
        return self.symbols + 2

    @functools.cached_property
    def output_size(self) -> int:
        """The blank and the symbols."""
        return self.symbols + 1

    @property
    def length(self) -> int:
        """Steps of a sequence."""
        return self.delay + 2 * self.recall

    @property
    def chance(self) -> float:
        """K ln S / (T + 2K): blanks are certain until the marker, then each symbol is a guess among S."""
        return self.recall * math.log(self.symbols) / self.length

    def sample(self, key: jax.Array, batch_size: int) -> Batch:
        """inputs [T + 2K, B, S + 2], targets [T + 2K, B], mask [T + 2K, B]."""
        shown = jax.random.randint(key, (self.recall, batch_size), 1, self.symbols + 1, jnp.int32)
        blanks = functools.partial(jnp.zeros, dtype=jnp.int32)
        marker = jnp.full((1, batch_size), self.symbols + 1, jnp.int32)
        inputs = [shown, blanks((self.delay - 1, batch_size)), marker, blanks((self.recall, batch_size))]
        targets = [blanks((self.recall + self.delay, batch_size)), shown]
        return Batch(
            inputs=jax.nn.one_hot(jnp.concatenate(inputs), self.input_size, dtype=jnp.float32),
            targets=jnp.concatenate(targets),
            mask=jnp.ones((self.length, batch_size), jnp.float32),
        )

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Cross entropy in nats: logits [T + 2K, B, S + 1] -> [T + 2K, B]."""
        return cross_entropy(outputs, batch.targets)

    def metrics(self, outputs, batch):
        """recall_accuracy: whether the largest logit is the symbol's, over the K recalled steps only."""
        steps = jnp.arange(self.length) >= self.length - self.recall
        recalled = jnp.where(jnp.expand_dims(steps, -1), batch.mask, 0)
        return {"recall_accuracy": (correct(outputs, batch.targets), recalled)}
