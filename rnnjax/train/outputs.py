"""Everything that a training tells while it runs: rows, times, a heartbeat, progress on the screen."""

import contextlib
import pathlib
from typing import Any

import jax

from rnnjax.train.config import TrainConfig
from rnnjax.train.devices import is_writer
from rnnjax.train.heartbeat import Heartbeat
from rnnjax.train.progress import TrainingProgress
from rnnjax.train.records import Rows
from rnnjax.train.sinks import open_sinks


class Outputs:
    """A context manager. Of several processes that train together only the first one tells.

    asked: what is trained, for those who watch.
    step: where the training begins or goes on.
    keep: the bytes of metrics.jsonl that stay.
    """

    def __init__(
        self, workdir: pathlib.Path, config: TrainConfig, name: str, asked: dict[str, Any], step: int, keep: int
    ):
        self._workdir, self._config, self._name, self._asked = workdir, config, name, asked
        self._step, self._keep = step, keep

    def __enter__(self):
        self._stack, self._told_end, self._loss = contextlib.ExitStack(), False, None
        if not is_writer():
            return self
        with contextlib.ExitStack() as stack:
            self._rows = stack.enter_context(contextlib.closing(Rows(self._workdir / "metrics.jsonl", self._keep)))
            self._timing = stack.enter_context(contextlib.closing(Rows(self._workdir / "timing.jsonl", None)))
            self._sinks = [
                stack.enter_context(contextlib.closing(sink))
                for sink in open_sinks(self._config, self._workdir, self._asked, self._step)
            ]
            self._heartbeat = Heartbeat(self._workdir / "heartbeat.json", self._name, self._config.steps)
            self._progress = stack.enter_context(TrainingProgress(self._name, self._config.steps, start=self._step))
            self._timing.write(
                step=self._step, kind="start", devices=self._config.devices, processes=jax.process_count()
            )
            self._heartbeat.beat(self._step, None, None)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind, error, trace):
        if is_writer() and error is not None and not self._told_end:
            state = "failed" if isinstance(error, Exception) else "stopped"  # by Ctrl-C
            self._heartbeat.beat(self._step, self._loss, None, state)
        return self._stack.__exit__(kind, error, trace)

    @property
    def bytes(self) -> int:
        """The length of metrics.jsonl."""
        return self._rows.bytes if is_writer() else 0

    def write(self, **row: Any) -> None:
        """A row of metrics.jsonl, and of what else is written."""
        if is_writer():
            self._rows.write(**row)
            for sink in self._sinks:
                sink.write(row)

    def sync(self) -> None:
        """Returns when the rows are on disk."""
        if is_writer():
            self._rows.sync()

    def tell(self, step: int, loss: float, seconds: float) -> None:
        """Says how far the training is, after a call; seconds: of training so far."""
        if not is_writer():
            return
        self._step, self._loss = step, loss
        if step % self._config.log_every == 0:
            self._timing.write(step=step, kind="train", seconds=seconds)
        self._progress.update(step, loss)
        self._heartbeat.beat(step, loss, self._progress.seconds_left)

    def end(self, step: int, state: str) -> None:
        """Says that the training has "finished" or was "stopped" and can go on."""
        self._told_end = True
        if is_writer():
            self._heartbeat.beat(step, self._loss, None, state)
