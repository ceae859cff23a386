"""The temporal order problem: which of two symbols came first, with nothing of use around them."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnnjax.tasks.base import Batch, SyntheticTask, check_whole, correct, cross_entropy

RELEVANT, DISTRACTORS = 2, 4


@dataclasses.dataclass(frozen=True)
class TemporalOrder(SyntheticTask):
    """A or B (0, 1) stands at p0 and at p1; every other step holds a distractor, one of c, d, e, f (2 .. 5).

        v0, v1 ~ U{A, B}
        p0 ~ U{ floor(L/10) .. 2 floor(L/10) - 1 }
        p1 ~ U{ floor(L/2)  .. floor(L/2) + floor(L/10) - 1 }
        target = v0 + 2 v1, one of AA, BA, AB, BB = 0 .. 3

    Inputs [T, B, 6] are one-hot; targets [B]; the loss is the cross entropy in nats at the last step. Source:
    Pascanu, Mikolov, Bengio 2013, "On the difficulty of training recurrent neural networks", section 4.1.1,
    with the positions of the generator released with it, whose own docstring says otherwise. The task is 6a
    of Hochreiter and Schmidhuber 1997.

    With max_length above min_length each sequence draws its own length L ~ U{min_length .. max_length}, and
    is padded with zeros to T = max_length. (The released code draws one length a batch.)

    Worked example, length 10, where p0 = 1 and p1 = 5:

        d B c c f A e c d f        target B + 2 A = 1

    min_length: at least 10, so that both symbols have a place.
    max_length: None for min_length.
    """

    min_length: int = 50
    max_length: int | None = None

    input_size: ClassVar[int] = RELEVANT + DISTRACTORS
    output_size: ClassVar[int] = RELEVANT**2
    reads_last: ClassVar[bool] = True
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats"

    def __post_init__(self):
        check_whole(self, 10, "min_length")
        if self.max_length is not None:
            check_whole(self, self.min_length, "max_length")

    @property
    def length(self) -> int:
        """T, the steps that a batch is padded to."""
        return self.max_length or self.min_length

    @property
    def chance(self) -> float:
        """ln 4: the four answers are equally likely."""
        return math.log(self.output_size)

    def sample(self, key: jax.Array, batch_size: int) -> Batch:
        """inputs [T, B, 6], targets [B], mask [B]; lengths [B], or None where all have min_length."""
        length_key, noise_key, *keys = jax.random.split(key, 6)
        rows, shape = jnp.arange(batch_size), (batch_size,)
        lengths = jax.random.randint(length_key, shape, self.min_length, self.length + 1, jnp.int32)
        v0, v1 = (jax.random.randint(k, shape, 0, RELEVANT, jnp.int32) for k in keys[:2])
        tenth, half = lengths // 10, lengths // 2
        p0 = jax.random.randint(keys[2], shape, tenth, 2 * tenth, jnp.int32)
        p1 = jax.random.randint(keys[3], shape, half, half + tenth, jnp.int32)
        symbols = jax.random.randint(noise_key, (self.length, batch_size), RELEVANT, self.input_size, dtype=jnp.int32)
        symbols = symbols.at[p0, rows].set(v0).at[p1, rows].set(v1)
        padding = jnp.expand_dims(jnp.arange(self.length), 1) >= jnp.expand_dims(lengths, 0)
        symbols = jnp.where(padding, -1, symbols)  # one_hot of -1 is all zeros
        return Batch(
            inputs=jax.nn.one_hot(symbols, self.input_size, dtype=jnp.float32),
            targets=v0 + RELEVANT * v1,
            mask=jnp.ones(shape, jnp.float32),
            lengths=lengths if self.length > self.min_length else None,
        )

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Cross entropy in nats: logits [B, 4] -> [B]."""
        return cross_entropy(outputs, batch.targets)

    def metrics(self, outputs, batch):
        """accuracy [B]: whether the largest logit is the target's."""
        return {"accuracy": (correct(outputs, batch.targets), batch.mask)}
