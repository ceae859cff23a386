"""Several steps, of all replicas, in one compiled call.

The number of steps is data of the program and not part of it, and the steps of a corpus run one by one, each at the
shape of its own batch. So what a step computes does not depend on how steps are grouped into calls, to the bit.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from rnnjax.tasks import Batch, CorpusTask
from rnnjax.train.batches import stack_batches
from rnnjax.train.devices import DATA_AXIS, REPLICA_AXIS, on_mesh, to_host
from rnnjax.train.step import Learner, TrainState
from rnnjax.unroll.sequence import vary


class Calls:
    """(state, step, count) -> (state, metrics, done): `count` steps from `step` on, of every replica that has not
    stopped.

    metrics: {name: numpy [R, count, ...]}; done: [R], how many of the steps a replica made, at most `count`. The last
    of them is the one it stopped at.
    """

    def __init__(self, learner: Learner, mesh: Mesh, seeds: Sequence[int]):
        self._learner, self._seeds = learner, seeds
        self._of_corpus = isinstance(learner.task, CorpusTask)
        spread = PartitionSpec(REPLICA_AXIS)
        state = TrainState(*[spread] * len(TrainState._fields))
        if learner.shares > 1:  # rows are where their examples are
            state = state._replace(carry=PartitionSpec(REPLICA_AXIS, DATA_AXIS))
        self.specs = state
        call = on_mesh(self._call, mesh, shared=1, specs=((state, spread), (state, spread, spread)))
        self._compiled = jax.jit(call, donate_argnums=0)

    def __call__(
        self, state: TrainState, step: int, count: int
    ) -> tuple[TrainState, dict[str, np.ndarray], np.ndarray]:
        config, found = self._learner.config, []
        if not self._of_corpus:
            state, metrics, done = self._compiled(state, None, jnp.int32(count))
            metrics, done = to_host((metrics, done))
            return state, {name: values[:, :count] for name, values in metrics.items()}, done
        for at in range(step, step + count):
            each = [self._learner.task.batch(at, config.batch_size, seed) for seed in self._seeds]
            state, metrics, done = self._compiled(state, stack_batches(each), jnp.int32(1))
            found.append((metrics, done))  # not looked at yet: the next batch is read while this one is trained on
        found = to_host(found)
        metrics = {name: np.concatenate([part[name] for part, _ in found], 1) for name in found[0][0]}
        return state, metrics, np.sum([done for _, done in found], 0)

    def _call(self, state: TrainState, batch: Batch | None, count: jax.Array):
        """Of one replica: (state, metrics [steps_per_call, ...] or of a corpus [1, ...], done)."""
        learner = self._learner

        def step(state):
            return learner.train_step(state, learner.sample(state) if batch is None else batch)

        def body(carried):
            number, state, metrics = carried
            state, new = step(state)
            return number + 1, state, jax.tree.map(lambda all, one: all.at[number].set(one), metrics, new)

        _, shapes = jax.eval_shape(step, state)
        size = 1 if self._of_corpus else learner.config.steps_per_call
        metrics = jax.tree.map(lambda like: jnp.zeros((size, *like.shape), like.dtype), shapes)
        begin = vary((jnp.int32(0), metrics), state.step)
        done, state, metrics = jax.lax.while_loop(
            lambda carried: (carried[0] < count) & ~carried[1].stopped, body, (begin[0], state, begin[1])
        )
        return state, metrics, done
