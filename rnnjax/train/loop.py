"""The training loop.

at every boundary between two compiled calls of `steps_per_call` steps:
    1. probes whose step this is, before the first update too
    2. an evaluation every `eval_every` and at the end: early stopping and the best parameters follow from it
    3. a save, where one is due, at the end, and where a signal asks the run to end
then the call: draw batches, update; after it
    4. what was not finite, by step, tensor and time
    5. rows every `log_every` steps

A run that goes on begins behind 3. Rows of steps after the save are cut, since the run comes to them again.
"""

import contextlib
import dataclasses
import functools
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rnnjax.nn import SequenceModel
from rnnjax.tasks import CorpusTask, Task
from rnnjax.train.budget import check_probe_steps, in_windows, with_steps
from rnnjax.train.calls import Calls
from rnnjax.train.checkpoint import Cadence, Checkpoints, digest, find_parameters, from_arrays, restore, to_arrays
from rnnjax.train.config import HOW, TrainConfig, UsageError, differences, to_dict, validate
from rnnjax.train.devices import agree, check_same_everywhere, is_writer, make_mesh, on_mesh, place, start, to_host
from rnnjax.train.evaluation import Evaluation, Scores, Standing
from rnnjax.train.nonfinite import NonFiniteError, describe, not_finite, where_in_time
from rnnjax.train.outputs import Outputs
from rnnjax.train.probes import ProbeFiles, TrainingProbe
from rnnjax.train.records import hold, versions
from rnnjax.train.replicas import Replica, first_states, of_replica
from rnnjax.train.signals import Interrupted, noting
from rnnjax.train.step import Learner, TrainState
from rnnjax.unroll.sequence import keep_where

__all__ = ["NonFiniteError", "Trained", "train"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """What one training came to.

    state: the last one. scores: {split: {metric: mean}} of the last evaluation.
    best: the parameters of the evaluation with the lowest loss, and best_step where it was; those of the start, and -1,
        where no loss was a number.
    stopped: why it ended before its budget, or None; diverged: whether by what was not finite.
    """

    state: TrainState
    scores: Scores
    best: Any
    best_step: int
    stopped: str | None
    diverged: bool


def train(
    model: nnx.Module | Sequence[Replica],
    task: Task,
    config: TrainConfig,
    workdir: pathlib.Path,
    *,
    probes: Sequence[TrainingProbe] = (),
    name: str = "training",
    until: Callable[[Scores], str | None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Trained | list[Trained]:
    """Trains `model` on `task`, or several replicas in one program, and writes what a run leaves to `workdir`.

    The same arguments give the same bits, wherever the run was killed and started again: metrics.jsonl, parameters,
    optimizer. timing.jsonl and heartbeat.json hold what depends on the clock, checkpoints/ what a run goes on from.

    until: scores of an evaluation -> why the training ends here, told in `Trained.stopped`, or None where it goes on.

    Raises UsageError for a config that can't be, a workdir in which another process trains or another training was
    saved; NonFiniteError, with all rows up to there written, where a loss or gradient is not finite (of several
    replicas that one stops, and the others go on); Interrupted after a signal of config.checkpoint.signals, once the
    state is saved.
    """
    validate(config)
    start(config)
    replicas = [Replica(model, config.seed)] if isinstance(model, nnx.Module) else list(model)
    task = in_windows(task, config)
    config = with_steps(task, config, [one.seed for one in replicas])
    check_probe_steps(probes, config)
    training = _Training(replicas, task, config, workdir, probes, name, until, clock)
    trained = training.run()
    return trained[0] if isinstance(model, nnx.Module) else trained


class _Training:
    """One call of `train`."""

    def __init__(self, replicas, task, config, workdir, probes, name, until, clock):
        self.replicas, self.task, self.config, self.name = replicas, task, config, name
        self.workdir, self.until, self.clock = workdir, until, clock
        self.mesh = make_mesh(len(replicas), config)
        self.learner = Learner(replicas[0].model, task, config, self.mesh.devices.shape[1])
        seeds = [one.seed for one in replicas]
        self.calls, self.evaluate = Calls(self.learner, self.mesh, seeds), Evaluation(self.learner, self.mesh, seeds)
        names = [type(probe).__name__ for probe in probes]
        folders = [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names)]
        self.probes = [
            (probe, ProbeFiles(workdir / "probes" / folder), _compile_probe(probe, self.learner, self.mesh))
            for probe, folder in zip(probes, folders, strict=True)
        ]
        self.step, self.seconds = 0, 0.0
        self.standings = [Standing() for _ in replicas]
        self.why: list[str | None] = [None] * len(replicas)
        """Why a replica has stopped."""
        self.diverged = [False] * len(replicas)
        self.best_is_new = False

    def run(self) -> list[Trained]:
        with contextlib.ExitStack() as stack:
            if is_writer():
                stack.enter_context(hold(self.workdir / ".lock", str(self.workdir)))
            self.signals = stack.enter_context(noting(self.config.checkpoint.signals))
            keep = self._begin()
            folder, after = self.workdir / "checkpoints", self.step if self.goes_on else -1
            self.checkpoints = stack.enter_context(Checkpoints(folder, self.config.checkpoint, after))
            self.outputs = stack.enter_context(
                Outputs(self.workdir, self.config, self.name, self.asked, self.step, keep)
            )
            self._loop()
        if agree(self.signals.received is not None):  # it came when all was done and saved: who called has to know
            raise Interrupted(self.signals.received or "a signal to another process", self.step)
        return self._trained()

    def _begin(self) -> int:
        """Takes up the newest save, or starts: the bytes of metrics.jsonl that stay."""
        state, keep = first_states(self.learner, self.replicas), 0
        saved = restore(self.workdir / "checkpoints", to_arrays((state, state.evaluated)), self.asked)
        self.goes_on = saved is not None
        check_same_everywhere(saved.about["digest"] if saved else "")
        rows = self.workdir / "metrics.jsonl"
        if saved is None and is_writer() and rows.exists() and rows.stat().st_size:
            print(f"{self.name}: there is no save to go on from, starting anew", file=sys.stderr, flush=True)
        if saved is None:
            if self.config.init_from and jax.tree.leaves(state.variables):
                raise UsageError("--init_from is given, but the model holds more than parameters, which is not saved")
            if self.config.init_from:
                given = find_parameters(self.config.init_from, self.workdir.name, state.params)
                state = state._replace(params=given, average=given if self.config.ema else None)
            best = state.evaluated
        else:
            state, best = from_arrays(saved.arrays, (state, state.evaluated))
            about = saved.about
            self.step, self.seconds, keep = saved.step, about["seconds"], about["metrics_bytes"]
            self.why, self.diverged = about["why"], about["diverged"]
            self.standings = [Standing(**standing) for standing in about["standings"]]
            if is_writer() and (changed := differences(about["versions"], versions())):
                told = ", ".join(f"{name} {there}, now {here}" for name, there, here in changed)
                print(f"{self.name}: the save is of {told}: the numbers may differ", file=sys.stderr, flush=True)
        self.state = place(state, self.mesh, self.calls.specs)
        self.best = place(jax.tree.map(jnp.copy, best), self.mesh)  # a call takes the memory of the state
        for probe, files, compiled in self.probes:
            measured = functools.partial(jax.eval_shape, compiled, self.state.evaluated, self.state.variables)
            files.take_up(self.step if self.goes_on else -1, probe, measured)
        return keep

    @functools.cached_property
    def asked(self) -> dict[str, Any]:
        """What makes it this training and no other."""
        config = to_dict(self.config)
        for name in HOW:
            del config[name.removeprefix("train.")]
        replicas = [{"label": one.label, "seed": one.seed, **one.traced} for one in self.replicas]
        asked = {"config": config, "task": repr(self.task), "model": _described(self.replicas[0].model)}
        asked["replicas"] = replicas
        asked["x64"] = bool(jax.config.jax_enable_x64)
        if isinstance(self.task, CorpusTask):  # the same words may be said of another file
            first = self.task.batch(0, self.config.batch_size, self.config.seed)
            asked["first_batch"] = digest(to_arrays(first), {})
        return asked

    def _loop(self) -> None:
        config, cadence = self.config, Cadence.of(self.config.checkpoint)
        saved_at = now = self.clock()
        started, calls = now - self.seconds, 0
        second = min(1, (config.steps - self.step - 1) // config.steps_per_call)  # the first one compiles
        done = self.goes_on  # what belongs to the boundary of a save was done before it
        while True:
            out_of_time = agree(bool(config.minutes) and self.seconds >= 60 * config.minutes)
            ended = self.step >= config.steps or all(self.why) or out_of_time
            if not done:
                self._probe()
                if self.step and (ended or self.step % config.eval_every == 0):
                    self._evaluate()
                    ended = ended or all(self.why)
                stop = agree(self.signals.received is not None)
                if ended or stop or agree(self.step > 0 and cadence.due(self.step, now - saved_at)):
                    self._save()
                    saved_at = now
                if stop and not ended:
                    self.checkpoints.wait()
                    self.outputs.end(self.step, "stopped")
                    raise Interrupted(self.signals.received or "a signal to another process", self.step)
            if ended:
                self.checkpoints.wait()
                self.outputs.end(self.step, "finished")
                return
            tracing = config.profile and calls == second
            with jax.profiler.trace(self.workdir / "profile") if tracing else contextlib.nullcontext():
                self._call(min(config.steps_per_call, config.steps - self.step))
            now, calls, done = self.clock(), calls + 1, False
            self.seconds = now - started
            self.outputs.tell(self.step, self.loss, self.seconds)

    def _probe(self) -> None:
        for probe, files, compiled in self.probes:
            if self.step in probe.steps:
                values = to_host(compiled(self.state.evaluated, self.state.variables))
                values = of_replica(values, 0) if len(self.replicas) == 1 else values
                if is_writer():
                    files.write(self.step, values)
                probe.host(self.step, values)

    def _evaluate(self) -> None:
        patience, improved = self.config.patience, np.zeros(len(self.replicas), bool)
        for number, scores in enumerate(self.evaluate(self.state)):
            if self.why[number]:
                continue
            for split, values in scores.items():
                self._write(number, step=self.step, kind="eval", split=split, **values)
            standing = self.standings[number]
            improved[number] = standing.improves(self.step, scores, self.task.monitor)
            if self.until is not None and (why := self.until(scores)) is not None:
                self._stop(number, self.step, why)
            elif patience and standing.waited >= patience:
                lowest = f"lowest {standing.best:.6g} at step {standing.best_step}"
                name = self.task.monitor.replace("_", " ")
                self._stop(number, self.step, f"no lower {name} in {patience} evaluations: {lowest}")
        if improved.any():
            self.best = _taken(improved, self.state.evaluated, self.best)
            self.best_is_new = True

    def _stop(self, number: int, step: int, why: str, *, diverged: bool = False) -> None:
        self.why[number], self.diverged[number] = why, diverged
        self._write(number, step=step, kind="stopped", why=why)
        marked = to_host(self.state.stopped) | (np.arange(len(self.replicas)) == number)
        self.state = self.state._replace(stopped=place(marked, self.mesh))

    def _write(self, number: int, **row: Any) -> None:
        self.outputs.write(**row, **({"replica": number} if len(self.replicas) > 1 else {}))

    def _save(self) -> None:
        self.outputs.sync()
        about = {
            **self.asked,
            "standings": [dataclasses.asdict(standing) for standing in self.standings],
            "why": self.why,
            "diverged": self.diverged,
            "seconds": self.seconds,
            "metrics_bytes": self.outputs.bytes,
            "versions": versions(),
            "key": "threefry2x32",
        }
        if self.best_is_new:
            self.checkpoints.save("best", self.step, to_arrays({"params": self.best}), about)
            self.checkpoints.wait()  # a run that goes on from the state below does not come to them again
            self.best_is_new = False
        self.checkpoints.save("latest", self.step, to_arrays((self.state, self.best)), about)

    def _call(self, count: int) -> None:
        first, config = self.step, self.config
        before = None if config.nonfinite == "stop" else jax.tree.map(jnp.copy, self.state)
        self.state, metrics, done = self.calls(self.state, first, count)
        self.step += count
        finite, log = metrics.pop("finite"), self.step % config.log_every == 0
        wrong = [  # in the order of the steps, however they are grouped into calls
            (first + row, number, tensors)
            for number in range(len(self.replicas))
            for row, tensors in not_finite(finite[number, : done[number]], self.learner.tensor_names)
        ]
        for step, number, tensors in sorted(wrong):
            self._tell_not_finite(number, step, tensors, first, before)
        for number in range(len(self.replicas)) if log else ():
            if done[number] == count and not self.why[number]:
                values = {name: value[number, -1].item() for name, value in metrics.items()}
                self._write(number, step=self.step, kind="train", **values)
        losses = metrics["loss"][done == count, -1]
        self.loss = float(np.mean(losses)) if losses.size else float("nan")

    def _tell_not_finite(self, number: int, step: int, tensors: list[str], first: int, before: TrainState | None):
        """Tells of a step of the call from `first` on, and of where in time the first one of a replica was."""
        if before is None:
            state, is_first = self.state, True
        else:
            is_first = int(to_host(before.nonfinite)[number]) == 0
            before = jax.tree.map(jnp.copy, before)  # a call takes its memory
            state = self.calls(before, first, step - first)[0] if is_first and step > first else before
            is_first = is_first and int(to_host(state.nonfinite)[number]) == 0
        where = self._where_in_time(number, step, state) if is_first else ""
        told = describe(step, tensors, where)
        if before is not None:
            self._write(number, step=step, kind="nonfinite", why=told)
        elif len(self.replicas) == 1:
            raise NonFiniteError(step, tensors, where)
        else:
            self._stop(number, step, told, diverged=True)

    def _where_in_time(self, number: int, step: int, state: TrainState) -> str:
        alone = Learner(self.replicas[0].model, self.task, self.config)
        state = of_replica(from_arrays(to_arrays(state), state), number)
        if isinstance(self.task, CorpusTask):
            batch = self.task.batch(step, self.config.batch_size, self.replicas[number].seed)
        else:
            batch = alone.sample(state)
        return where_in_time(alone, state, batch)

    def _trained(self) -> list[Trained]:
        state, best = from_arrays(to_arrays((self.state, self.best)), (self.state, self.best))
        state, best = jax.tree.map(jnp.asarray, (state, best))
        return [
            Trained(
                of_replica(state, i),
                standing.scores,
                of_replica(best, i),
                standing.best_step,
                self.why[i],
                self.diverged[i],
            )
            for i, standing in enumerate(self.standings)
        ]


def _described(model: nnx.Module) -> str:
    """A model in words that differ where what it computes does: its class, what it is made of, shapes of parameters."""
    layer = model.rnn.layer if isinstance(model, SequenceModel) else type(model).__qualname__
    if type(model) is SequenceModel and model.encoder is None:
        return repr(layer)
    settings = {
        name: value
        for name, value in vars(model).items()
        if isinstance(value, bool | int | float | str) and name != "deterministic"  # which says whether it trains
    }
    shapes = {"/".join(map(str, path)): leaf.shape for path, leaf in nnx.to_flat_state(nnx.state(model, nnx.Param))}
    return f"{type(model).__qualname__}({layer!r}, {settings}, {shapes})"


@jax.jit
def _taken(which: jax.Array, new: Any, old: Any) -> Any:
    """`new` of the replicas that `which` [R] names, `old` of the others."""
    return keep_where(which, new, old)


def _compile_probe(probe: TrainingProbe, learner: Learner, mesh) -> Callable:
    def measure(params, variables):
        return probe.inside(lambda params, batch: learner.apply(params, variables, batch), params)

    return jax.jit(on_mesh(measure, mesh))
