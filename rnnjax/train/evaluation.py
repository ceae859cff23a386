"""The scores of a state on the splits of a task, as the model evaluates."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from rnnjax.tasks import Batch, CorpusTask
from rnnjax.train.devices import DATA_AXIS, REPLICA_AXIS, on_mesh, to_host
from rnnjax.train.step import EVALUATION, Learner, TrainState, root_key, stream

Scores = dict[str, dict[str, float]]
"""{split: {metric: mean over what counts}}."""


class Evaluation:
    """state -> the Scores of every replica, in their order."""

    def __init__(self, learner: Learner, mesh: Mesh, seeds: Sequence[int]):
        task, size = learner.task, learner.config.eval_batch
        if isinstance(task, CorpusTask):
            self._batches = {split: list(task.batches(split, size)) for split in ("valid", "test")}
            self._score = jax.jit(on_mesh(learner.score, mesh, shared=1))
        else:
            drawn = [task.sample(stream(root_key(seed), EVALUATION), size) for seed in seeds]
            self._batches = {"test": [jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(drawn))]}
            self._score = jax.jit(on_mesh(learner.score, mesh))
        rows = PartitionSpec(REPLICA_AXIS, DATA_AXIS) if learner.splits(size) else PartitionSpec(REPLICA_AXIS)
        specs = ((PartitionSpec(REPLICA_AXIS),) * 2 + (rows,), (PartitionSpec(REPLICA_AXIS), rows))
        self._score_window = jax.jit(on_mesh(learner.score_window, mesh, shared=1, specs=specs))
        self._start = jax.jit(on_mesh(functools.partial(learner.initial_carry, rows=size), mesh))
        """Where all rows of the batches in windows start."""

    def __call__(self, state: TrainState) -> list[Scores]:
        found: list[Scores] = [{} for _ in range(state.step.shape[0])]
        for split, batches in self._batches.items():
            parts = to_host(self._parts(state, batches))
            for replica, scores in enumerate(found):
                scores[split] = {name: _mean([part[name] for part in parts], replica) for name in parts[0]}
        return found

    def _parts(self, state: TrainState, batches: list[Batch]) -> list[dict[str, Any]]:
        if batches[0].fresh is None:
            return [self._score(state.evaluated, state.variables, batch) for batch in batches]
        parts, carry = [], self._start(state.evaluated, state.variables)
        for batch in batches:
            part, carry = self._score_window(state.evaluated, state.variables, carry, batch)
            parts.append(part)
        return parts


def _mean(parts: list[tuple[np.ndarray, np.ndarray]], replica: int) -> float:
    total, count = (float(np.sum([np.float64(part[i][replica]) for part in parts])) for i in (0, 1))
    return total / max(count, 1.0)


def monitored(scores: Scores, monitor: str = "loss") -> float:
    """The score by which a state is better than another: on the validation split where there is one."""
    return scores["valid" if "valid" in scores else "test"][monitor]


@dataclasses.dataclass
class Standing:
    """How a replica stands after its evaluations: what early stopping and the best parameters depend on.

    best: the lowest score, and best_step where it was; waited: evaluations since; scores: those of the last one.
    """

    best: float = float("inf")
    best_step: int = -1
    waited: int = 0
    scores: Scores = dataclasses.field(default_factory=dict)

    def improves(self, step: int, scores: Scores, monitor: str = "loss") -> bool:
        """Takes the scores of `step` in; whether they are the best so far."""
        score, self.scores = monitored(scores, monitor), scores
        if score < self.best:
            self.best, self.best_step, self.waited = score, step, 0
            return True
        self.waited += 1
        return False
