"""A comparison of models: each is trained in a folder of its own, scored, and told of in one report.

    summaries = run_entries(entries, workdir, config)     trains what is not finished
    write_study(workdir, Study(...))                      report.md, figures, claims.json, a table on the screen

An entry is finished when its summary.json is there. A run that was killed goes on with the same command.
"""

import contextlib
import dataclasses
import math
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.common.curves import quartiles
from experiments.common.replicas import best_scores, pooled
from experiments.common.side_by_side import in_threads
from experiments.common.study_report import Study
from rnnjax.report import run_files
from rnnjax.tasks import Batch, CorpusTask, Task
from rnnjax.train import cli
from rnnjax.train.budget import in_windows, with_steps
from rnnjax.train.build import parameter_count
from rnnjax.train.config import HOW, TrainConfig, UsageError, differences, to_dict, validate
from rnnjax.train.evaluation import Scores
from rnnjax.train.loop import NonFiniteError, train
from rnnjax.train.probes import GradientNorms, log_spaced_steps
from rnnjax.train.records import replacing, write_json
from rnnjax.train.replicas import Replica
from rnnjax.train.step import PROBE, root_key, stream


@dataclasses.dataclass(frozen=True)
class Entry:
    """One model of a comparison.

    name: of its folder, and in tables and pictures.
    make_model: seed -> the model before training.
    score: of the model with its best parameters, as it evaluates: {score: value}, on the test split; beside the loss
        and the task's metrics, which are taken down anyway.
    cell: the recurrent cell that it is built of; "" where there is none, and no gradient over time.
    until: ends the training of a seed, as in `rnnjax.train.loop.train`.
    """

    name: str
    task: Task
    train: TrainConfig
    make_model: Callable[[int], nnx.Module]
    score: Callable[[nnx.Module], dict[str, float]] | None = None
    cell: str = ""
    until: Callable[[Scores], str | None] | None = None


def check_entries(entries: Sequence[Entry], config: Any) -> None:
    """Raises UsageError for a config that can't be trained: before anything is written."""
    if config.seeds < 1:
        raise UsageError(f"--config.seeds is {config.seeds}: expected at least 1")
    for name in ("points", "batch"):
        if getattr(config.probe, name) < 1:
            raise UsageError(f"--config.probe.{name} is {getattr(config.probe, name)}: expected at least 1")
    names = [entry.name for entry in entries]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two models of the comparison are called {twice[0]}: ask for each once")
    for entry in entries:
        validate(entry.train)


def check_sizes(model: Any, *names: str) -> None:
    """Raises UsageError unless every named field of config.model is at least 1."""
    for name in names:
        if getattr(model, name) < 1:
            raise UsageError(f"--config.model.{name} is {getattr(model, name)}: expected at least 1")


def check_own_rates(train: TrainConfig, where: str) -> None:
    """Raises UsageError where the learning rate of a study whose models have their own is asked for as one."""
    if train.learning_rate != TrainConfig().learning_rate:
        raise UsageError(
            f"--config.train.learning_rate is {train.learning_rate:g}, but every model here has its own: give {where}"
        )


def run_entries(
    entries: Sequence[Entry], workdir: pathlib.Path, config: Any, workers: int = 1
) -> dict[str, dict[str, Any]]:
    """Trains every entry with config.seeds seeds from config.train.seed on: {name: what its summary.json holds}.

    With config.probe.on, dL/dcarry_t is measured in training: norms.npz, `UNROLL` [step, distance, quartile]. The time
    that all calls for this workdir took together stands in seconds.json.
    workers: entries that train at the same time, each in a thread.
    """
    check_entries(entries, config)

    def finish(numbered: tuple[int, Entry]) -> None:
        at, entry = numbered
        place = f"{at}/{len(entries)} " if len(entries) > 1 else ""
        if (workdir / entry.name / "summary.json").exists():
            say(f"{place}{entry.name}: finished before")
        else:
            say(f"{place}{entry.name}")
            _run_entry(entry, workdir / entry.name, config)

    if any(entry.train.distributed.processes > 1 for entry in entries):
        workers = 1  # processes meet in every step: all have to train the same model
    with _timed(workdir):
        in_threads(finish, enumerate(entries, start=1), workers)
    return {entry.name: run_files.read_summary(workdir / entry.name) for entry in entries}


_writing = threading.Lock()


@contextlib.contextmanager
def _timed(workdir: pathlib.Path) -> Iterator[None]:
    """Adds the time of what is done within to that of the study."""
    started = time.monotonic()
    try:
        yield
    finally:
        with _writing:
            seconds = run_files.seconds_of_study(workdir) + time.monotonic() - started
            write_json(workdir / "seconds.json", {"seconds": round(seconds, 1)})


def say(what: str) -> None:
    """A line of progress."""
    print(what, file=sys.stderr, flush=True)


def _run_entry(entry: Entry, folder: pathlib.Path, config: Any) -> None:
    seeds = range(entry.train.seed, entry.train.seed + config.seeds)
    replicas = [Replica(entry.make_model(seed), seed, {}, f"seed={seed}") for seed in seeds]
    training = with_steps(in_windows(entry.task, entry.train), entry.train, seeds)
    probes = []
    if config.probe.on and entry.cell:
        steps = log_spaced_steps(training.steps, training.steps_per_call, config.probe.points)
        probes = [GradientNorms(entry.task, probed_batch(entry.task, entry.train.seed, config.probe.batch), steps)]
    try:
        trained = train(replicas, entry.task, training, folder, probes=probes, name=entry.name, until=entry.until)
    except NonFiniteError as error:  # a result of the study, and not its end; of several replicas it stops one
        trained, diverged = [None], str(error)
    rows = run_files.read_rows(folder / "metrics.jsonl")
    of_seeds = []
    for number, (replica, one) in enumerate(zip(replicas, trained, strict=True)):
        wild = one is None or one.diverged
        scores = {} if wild else best_scores(rows, number, entry.task.monitor)
        step = scores.pop("step", None)
        if not wild and entry.score is not None:
            scores |= entry.score(with_parameters(replica.model, one.best))
        stopped = diverged if one is None else one.stopped
        steps = max((row["step"] for row in rows if row.get("replica", 0) == number), default=0)
        about = {"label": replica.label, "step": step, "scores": scores, "stopped": stopped, "diverged": wild}
        of_seeds.append(about | {"steps": steps})
    if probes:
        _save_norms(folder / "norms.npz", probes[0], of_seeds)
    summary = {
        "name": entry.name,
        "cell": entry.cell,
        "parameters": parameter_count(replicas[0].model),
        "steps": max(one["steps"] for one in of_seeds),
        "seconds": round(run_files.seconds_of_training(folder), 1),
        "replicas": of_seeds,
    }
    write_json(folder / "summary.json", summary)


def with_parameters(model: nnx.Module, params: Any) -> nnx.Module:
    """A copy of the model with these parameters, as it evaluates."""
    model = nnx.clone(model)
    nnx.update(model, params)
    model.eval()
    return model


def probed_batch(task: Task, seed: int, size: int) -> Batch:
    """The batch whose gradients are measured: the same at every step."""
    if isinstance(task, CorpusTask):
        batch = max(task.batches("valid", size), key=lambda batch: np.sum(batch.mask))
        return jax.tree.map(jax.numpy.asarray, batch._replace(fresh=None))
    return task.sample(stream(root_key(seed), PROBE), size)


def _save_norms(path: pathlib.Path, probe: GradientNorms, of_seeds: list[dict[str, Any]]) -> None:
    """`UNROLL` [step, distance, quartile] of log10 norms of the carry, over the examples of all seeds, and `step`."""
    kept = [number for number, one in enumerate(of_seeds) if not one["diverged"]] or slice(None)
    curves = {
        unroll: np.stack([quartiles(pooled(row[unroll]["carry"], kept)) for row in probe.rows])
        for unroll in probe.rows[0]
    }
    with replacing(path) as temporary:
        np.savez(temporary, step=probe.measured, **{name.replace("/", "."): values for name, values in curves.items()})


def values_of(summary: dict[str, Any], score: str) -> list[float]:
    """The score of every seed that has one, for tables and pictures."""
    found = (one["scores"].get(score) for one in summary["replicas"])
    return [value for value in found if value is not None]


def every(summaries: Iterable[dict[str, Any]], score: str) -> np.ndarray:
    """[n], the score of every seed of these models; nan of one that diverged, and alone where there is none.

    np.min, np.max and np.mean of it are nan then, and no claim about all of them holds.
    """
    scores = [one["scores"].get(score) for summary in summaries for one in summary["replicas"]]
    return np.array([math.nan if value is None else value for value in scores] or [math.nan])


def mean_sd(summary: dict[str, Any], score: str) -> tuple[float, float, int]:
    """(mean, standard deviation, number) over seeds: nan where a seed diverged, the deviation of one alone too."""
    values = every([summary], score)
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan, len(values)


def differs_only_in(config: Any, default: Any, free: Sequence[str]) -> bool:
    """Whether two configs are the same but for the fields and groups `free`, and for how a run is carried out."""
    changed = [field for field, *_ in differences(to_dict(default), to_dict(config))]
    return all(any(f"{field}.".startswith(f"{one}.") for one in (*HOW, *free)) for field in changed)


def is_default(config: Any, get_config: Callable[[str, str], Any], variant: str, *free: str) -> bool:
    """Whether claims set for a variant's default configs are about this one: it is one of them but for the probe, the
    fields and groups `free`, and which seeds are trained, of which there are no fewer."""
    defaults = [get_config(variant, preset) for preset in cli.PRESETS]
    free = ("seeds", "train.seed", "probe", *free)
    return any(config.seeds >= default.seeds and differs_only_in(config, default, free) for default in defaults)


def unclaimed(study: Study) -> Study:
    """The study, its text saying why there are no claims of what was learned."""
    why = "No claim is made of what was learned: claims are set for default configs, and none for this one."
    return dataclasses.replace(study, text=f"{study.text.rstrip()} {why}")


def told(summary: dict[str, Any], score: str, digits: int = 2, factor: float = 1.0) -> str:
    """ "94.81 ± 0.27" over seeds, or the value of a single one; how many where some diverged, "-" where all did."""
    values, count = values_of(summary, score), len(summary["replicas"])
    if not values:
        return "-"
    spread = f" ± {factor * statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    some = f" ({len(values)} of {count})" if len(values) < count else ""
    return f"{factor * statistics.fmean(values):.{digits}f}{spread}{some}"


def applied(model: nnx.Module) -> Callable[[Batch], Any]:
    """batch -> outputs of a model as it evaluates, compiled once for every shape."""
    graph, state = nnx.split(model)

    @jax.jit
    def apply(state, inputs, lengths):
        return nnx.merge(graph, state)(inputs, lengths=lengths)

    return lambda batch: apply(state, batch.inputs, batch.lengths)
