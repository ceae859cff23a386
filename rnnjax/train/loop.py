"""The training loop.

for every compiled call of `steps_per_call` steps:
    1. probes whose step this is, before the first update too
    2. the call: draw batches, update; from the corpus on the host, or inside from the task's own sampler
    3. check that every loss and gradient of the call was finite
    4. a row every `log_every` steps, an evaluation every `eval_every` and at the end
"""

import contextlib
import dataclasses
import functools
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from rnnjax.tasks import Batch, CorpusTask, Task
from rnnjax.train.config import TrainConfig, validate
from rnnjax.train.devices import on_one, use_devices
from rnnjax.train.optimizer import make_optimizer
from rnnjax.train.probes import TrainingProbe
from rnnjax.train.progress import TrainingProgress
from rnnjax.train.records import Rows
from rnnjax.train.step import EVALUATION, Learner, TrainState, root_key, stream


class NonFiniteError(ArithmeticError):
    """A loss or gradient that is not finite, with the step and the tensor in the message."""

    user_error = True

    def __init__(self, step: int, tensors: Sequence[str]):
        super().__init__(
            f"step {step}: {', '.join(tensors)} {'is' if len(tensors) == 1 else 'are'} not finite. A lower "
            "--config.train.learning_rate often helps, and so does clipping (--config.train.clip_norm=1)"
        )
        self.step, self.tensors = step, tuple(tensors)


@dataclasses.dataclass(frozen=True)
class Trained:
    """state, the last one; scores: {split: {metric: mean}} of the last evaluation."""

    state: TrainState
    scores: dict[str, dict[str, float]]


def train(
    model: nnx.Module,
    task: Task,
    config: TrainConfig,
    workdir: pathlib.Path,
    *,
    probes: Sequence[TrainingProbe] = (),
    name: str = "training",
) -> Trained:
    """Trains `model` on `task` and writes metrics.jsonl and timing.jsonl to `workdir`.

    The same arguments give the same bits. Raises UsageError for a config that can't be, and NonFiniteError, with all
    rows up to there written, where a loss or gradient is not finite.
    """
    validate(config)
    _check_probe_steps(probes, config)
    use_devices(config.devices)
    learner = Learner(model, task, make_optimizer(config), config.devices)
    key = root_key(config.seed)
    state = learner.init(key)
    run_call = _compile_call(learner, config)
    evaluate = _Evaluation(learner, task, config, key)
    measure = [(probe, jax.jit(functools.partial(_measure, probe, learner))) for probe in probes]
    workdir.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        rows, timing = (
            stack.enter_context(contextlib.closing(Rows(workdir / name))) for name in ("metrics.jsonl", "timing.jsonl")
        )
        progress = stack.enter_context(TrainingProgress(name, config.steps))
        started = time.monotonic()
        scores: dict[str, dict[str, float]] = {}
        for step in range(0, config.steps + 1, config.steps_per_call):
            for probe, compiled in measure:
                if step in probe.steps:
                    here = on_one((state.params, state.variables))
                    probe.host(step, jax.device_get(compiled(*here)))
            if step > 0 and (step % config.eval_every == 0 or step == config.steps):
                scores = evaluate(state)
                for split, score in scores.items():
                    rows.write(step=step, kind="eval", split=split, **score)
            if step == config.steps:
                break
            state, metrics = run_call(state)
            _check_finite(metrics.pop("finite"), step, learner.tensor_names)
            after = step + config.steps_per_call
            if after % config.log_every == 0:
                rows.write(step=after, kind="train", **{key: float(values[-1]) for key, values in metrics.items()})
                timing.write(step=after, seconds=time.monotonic() - started)
            progress.update(after, float(metrics["loss"][-1]))
    return Trained(state, scores)


def _measure(probe: TrainingProbe, learner: Learner, params: Any, variables: Any) -> Any:
    return probe.inside(lambda params, batch: learner.apply(params, variables, batch), params)


def _compile_call(learner: Learner, config: TrainConfig):
    """state -> (state, metrics [steps_per_call, ...] as numpy): one compiled program for several steps."""
    task, count = learner.task, config.steps_per_call

    @functools.partial(jax.jit, donate_argnums=0)
    def synthetic(state):
        def step(state, _):
            return learner.train_step(state, learner.sample(state, config.batch_size))

        return jax.lax.scan(step, state, None, length=count)

    @functools.partial(jax.jit, donate_argnums=0)
    def corpus(state, batches):
        return jax.lax.scan(learner.train_step, state, batches)

    def run(state):
        if not isinstance(task, CorpusTask):
            state, metrics = synthetic(state)
        else:
            first = int(state.step)
            batches = [task.batch(first + i, config.batch_size, config.seed) for i in range(count)]
            state, metrics = corpus(state, stack_batches(batches))
        return state, jax.device_get(metrics)

    return run


def stack_batches(batches: Sequence[Batch]) -> Batch:
    """Batches of a corpus on a new first axis, padded to the longest of them; padding changes no result."""
    time = max(batch.inputs.shape[0] for batch in batches)
    if any(batch.inputs.shape[0] < time for batch in batches):
        batches = [batch if batch.lengths is not None else _of_full_length(batch) for batch in batches]

    def pad(leaf):
        return np.pad(leaf, [(0, time - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1))

    padded = [
        Batch(pad(batch.inputs), pad(batch.targets), pad(batch.mask), batch.lengths)
        if batch.mask.ndim == 2
        else batch._replace(inputs=pad(batch.inputs))
        for batch in batches
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *padded)


def _of_full_length(batch: Batch) -> Batch:
    return batch._replace(lengths=np.full(batch.inputs.shape[1], batch.inputs.shape[0], np.int32))


class _Evaluation:
    """Scores a state: {split: {metric: mean over what counts}}."""

    def __init__(self, learner: Learner, task: Task, config: TrainConfig, key: jax.Array):
        self._score = jax.jit(learner.score)
        if isinstance(task, CorpusTask):
            self._batches = {split: list(task.batches(split, config.eval_batch)) for split in ("valid", "test")}
        else:
            self._batches = {"test": [task.sample(stream(key, EVALUATION), config.eval_batch)]}

    def __call__(self, state: TrainState) -> dict[str, dict[str, float]]:
        scores, (params, variables) = {}, on_one((state.params, state.variables))
        for split, batches in self._batches.items():
            parts = [jax.device_get(self._score(params, variables, batch)) for batch in batches]
            scores[split] = {name: _mean([part[name] for part in parts]) for name in parts[0]}
        return scores


def _mean(parts: list[tuple[np.ndarray, np.ndarray]]) -> float:
    total, count = (float(np.sum([np.float64(part[i]) for part in parts])) for i in (0, 1))
    return total / max(count, 1.0)


def _check_finite(finite: np.ndarray, step: int, names: Sequence[str]) -> None:
    """Raises NonFiniteError for the first step of a call, [steps, tensors], that has something not finite."""
    if not finite.all():
        row = int(np.argmin(finite.all(axis=1)))
        raise NonFiniteError(step + row, [name for name, fine in zip(names, finite[row], strict=True) if not fine])


def _check_probe_steps(probes: Sequence[TrainingProbe], config: TrainConfig) -> None:
    for probe in probes:
        wrong = [step for step in probe.steps if step % config.steps_per_call or not 0 <= step <= config.steps]
        if wrong:
            raise ValueError(
                f"{type(probe).__name__} measures at step {min(wrong)}: expected multiples of steps_per_call "
                f"({config.steps_per_call}) from 0 to {config.steps}"
            )
