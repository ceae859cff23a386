"""How long a training is, and in what pieces of time."""

import dataclasses
from collections.abc import Sequence

from rnnjax.tasks import CorpusTask, Task, Windows
from rnnjax.train.config import TrainConfig, UsageError
from rnnjax.train.probes import TrainingProbe


def in_windows(task: Task, config: TrainConfig) -> Task:
    """The task as it is trained on. Raises UsageError where it can't be cut into windows."""
    if not config.window:
        return task
    try:
        return Windows(task, config.window)
    except ValueError as error:
        raise UsageError(f"--config.train.window is {config.window}: {error}") from None


def with_steps(task: Task, config: TrainConfig, seeds: Sequence[int]) -> TrainConfig:
    """The config with its budget in steps. Raises UsageError where it is in epochs and the task has none, or where the
    seeds of several replicas have epochs of different lengths."""
    if not config.epochs:
        return config
    if not isinstance(task, CorpusTask):
        kind = f"{type(task).__name__} draws new data at every step"
        raise UsageError(f"--config.train.epochs is {config.epochs}, but {kind}: give --config.train.steps")
    steps = {seed: task.steps_of_epochs(config.epochs, config.batch_size, seed) for seed in seeds}
    if len(set(steps.values())) > 1:
        told = ", ".join(f"{count} with seed {seed}" for seed, count in steps.items())
        raise UsageError(f"--config.train.epochs is {config.epochs}, which is {told}: give --config.train.steps")
    return dataclasses.replace(config, steps=steps[seeds[0]])


def check_probe_steps(probes: Sequence[TrainingProbe], config: TrainConfig) -> None:
    """Raises UsageError for a step at which the loop does not come by."""
    for probe in probes:
        wrong = [
            step
            for step in probe.steps
            if not 0 <= step <= config.steps or (step % config.steps_per_call and step != config.steps)
        ]
        if wrong:
            raise UsageError(
                f"{type(probe).__name__} measures at step {min(wrong)}: expected multiples of steps_per_call "
                f"({config.steps_per_call}) from 0 to {config.steps}"
            )
