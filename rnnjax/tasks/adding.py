"""The adding problem: two marked numbers, far apart, are to be summed at the end."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnnjax.tasks.base import Batch, SyntheticTask, check_whole, widen


@dataclasses.dataclass(frozen=True)
class Adding(SyntheticTask):
    """y = sum_t u_t m_t, where u_t ~ U[0, 1] and the marker m_t is 1 at two steps and 0 elsewhere.

    One marker falls in the first half, t < floor(T / 2), and one in floor(T / 2) <= t < 2 floor(T / 2), so
    that the last step of an odd length is never marked. Inputs [T, B, 2] hold (u_t, m_t); targets [B, 1]; the
    loss is the squared error at the last step.

    This is the modern variant: Arjovsky, Shah, Bengio 2016, "Unitary evolution recurrent neural networks"
    (section 5.2 and the code released with it). Hochreiter and Schmidhuber's of 1997 draws u from [-1, 1],
    scales the target to 0.5 + (X1 + X2) / 4 and varies the length: errors of the two don't compare.

    Worked example, length 4:

        u  0.9  0.2  0.4  0.7
        m  0    1    1    0        target 0.2 + 0.4 = 0.6

    length: T, steps of a sequence, at least 2.
    """

    length: int = 100

    input_size: ClassVar[int] = 2
    output_size: ClassVar[int] = 1
    reads_last: ClassVar[bool] = True
    link: ClassVar[str] = "identity"
    unit: ClassVar[str] = "squared error"

    def __post_init__(self):
        check_whole(self, 2, "length")

    @property
    def chance(self) -> float:
        """1/6, the variance of the sum of two independent U[0, 1]: the error of always answering 1."""
        variance_of_uniform = 1 / 12
        return 2 * variance_of_uniform

    def sample(self, key: jax.Array, batch_size: int) -> Batch:
        """inputs [T, B, 2], targets [B, 1], mask [B]."""
        value_key, first_key, second_key = jax.random.split(key, 3)
        half, rows = self.length // 2, jnp.arange(batch_size)
        values = jax.random.uniform(value_key, (self.length, batch_size), jnp.float32)
        first = jax.random.randint(first_key, (batch_size,), 0, half, jnp.int32)
        second = jax.random.randint(second_key, (batch_size,), half, 2 * half, jnp.int32)
        markers = jnp.zeros_like(values).at[first, rows].set(1).at[second, rows].set(1)
        targets = values[first, rows] + values[second, rows]
        inputs = jnp.stack([values, markers], axis=-1)
        return Batch(inputs, jnp.expand_dims(targets, -1), jnp.ones(batch_size, jnp.float32))

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """(output - target)^2: outputs [B, 1] -> [B]."""
        return jnp.squeeze(jnp.square(widen(outputs) - batch.targets), -1)

    def metrics(self, outputs, batch):
        """absolute_error [B]: |output - target|."""
        return {"absolute_error": (jnp.squeeze(jnp.abs(widen(outputs) - batch.targets), -1), batch.mask)}
