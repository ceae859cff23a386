"""The latch: one bit is shown at the start and has to survive noise until the end."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from rnnjax.tasks.base import Batch, SyntheticTask, check_whole, correct, cross_entropy


@dataclasses.dataclass(frozen=True)
class Latch(SyntheticTask):
    """A class k ~ U{0, 1} is told by the first L steps; the rest, up to T, is Gaussian noise.

        x_t = 2k - 1              t <= L
        x_t ~ N(0, sigma^2)       L < t <= T

    Inputs [T, B, 1]; targets [B] are k; the loss is the cross entropy in nats at the last step. Source:
    Bengio, Simard, Frasconi 1994, "Learning long-term dependencies with gradient descent is difficult",
    section III. There the values of the first L inputs are learned together with one recurrent weight; here
    they are -1 and 1, and what scales them is the network's input weight, which scales the noise too.

    Worked example, Latch(length=6, informative=3, noise=0.2):

        x  1  1  1  0.07  -0.21  0.13        target 1

    length: T, steps of a sequence, at least `informative`.
    informative: L, the steps that tell the class.
    noise: sigma, the standard deviation of the noise, at least 0.
    """

    length: int = 50
    informative: int = 3
    noise: float = 0.2

    input_size: ClassVar[int] = 1
    output_size: ClassVar[int] = 2
    reads_last: ClassVar[bool] = True
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats"

    def __post_init__(self):
        check_whole(self, 1, "informative")
        check_whole(self, self.informative, "length")
        is_number = isinstance(self.noise, int | float) and not isinstance(self.noise, bool)
        if not is_number or not 0 <= self.noise < math.inf:
            raise ValueError(f"noise of Latch is {self.noise!r}: expected a finite number of at least 0")

    @property
    def chance(self) -> float:
        """ln 2: the classes are equally likely."""
        return math.log(self.output_size)

    def sample(self, key: jax.Array, batch_size: int) -> Batch:
        """inputs [T, B, 1], targets [B], mask [B]."""
        class_key, noise_key = jax.random.split(key)
        classes = jax.random.randint(class_key, (batch_size,), 0, self.output_size, jnp.int32)
        shown = jnp.broadcast_to(
            jnp.expand_dims(2.0 * classes.astype(jnp.float32) - 1.0, 0), (self.informative, batch_size)
        )
        rest = (self.length - self.informative, batch_size)
        noise = self.noise * jax.random.normal(noise_key, rest, jnp.float32)
        inputs = jnp.expand_dims(jnp.concatenate([shown, noise]), -1)
        return Batch(inputs, classes, jnp.ones(batch_size, jnp.float32))

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Cross entropy in nats: logits [B, 2] -> [B]."""
        return cross_entropy(outputs, batch.targets)

    def metrics(self, outputs, batch):
        """accuracy [B]: whether the largest logit is the target's."""
        return {"accuracy": (correct(outputs, batch.targets), batch.mask)}
