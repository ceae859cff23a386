"""A sweep on this machine, some runs at once.

    python -m launch.local EXPERIMENT --workdir=DIR --sweep=NAME --workers=2
    python -m launch.local EXPERIMENT --workdir=DIR --sweep.FIELD=0,1,3 --config=VARIANT:PRESET --config.FIELD=VALUE

EXPERIMENT is a module, such as experiments.gradient_norms. A sweep is one that the experiment makes, --sweep=NAME, or
the values of a field of its config, --sweep.FIELD=VALUE,VALUE; of several, every combination is a run. Values that are
themselves several stand in brackets: --sweep.cells=(lstm,gru),(elman). What is given as --config, --preset and
--config.FIELD holds for all runs.

Every run is checked before one starts. It writes into DIR/RUN, named after what it overrides, what it says into
DIR/RUN/log.txt. The same command goes on where it was stopped or killed: finished runs are skipped, others resume, and
none runs twice at once, from whatever launcher. Runs may be added. Ctrl-C or SIGTERM lets all runs save.

Exit status: 0 all finished, or at work elsewhere; 1 some failed; 2 usage error; 75 saved upon SIGTERM; 130 upon Ctrl-C.
"""

import contextlib
import dataclasses
import functools
import pathlib
import signal
import time
from collections.abc import Iterator, Sequence

from launch import flags
from launch.job import Attempt, read_record
from launch.plan import Plan, Run, claim, make_plan
from launch.status import read_status
from launch.table import Board, Status, runs, summary
from rnnjax.train.config import Leaf, UsageError
from rnnjax.train.signals import RESUME

OWN = (Leaf("workers", int, default=1, help="how many runs at once; they share the processors, or the accelerator"),)
_INTERRUPTED = 130
_SECONDS_BETWEEN = 0.2
_PATIENCE = (1.0, 15.0)
"""Seconds for which a run that another process has is waited for: first, and once nothing else is left to do. A run
whose launcher was killed takes as long to save."""


class Pool:
    """Runs of a plan, some at once."""

    def __init__(self, plan: Plan, workers: int):
        self._plan, self._workers = plan, workers
        self._active: dict[str, Attempt] = {}
        self._signals: list[int] = []
        self._ended: dict[str, Status] = {}

    @property
    def signal(self) -> int | None:
        """The first signal that asked to stop."""
        return self._signals[0] if self._signals else None

    def work(self, board: Board) -> None:
        """Brings all runs to an end, or upon a signal those that have begun. A second signal kills them."""
        for run in self._plan.runs:
            if read_record(self._plan.folder(run))["state"] == "finished":
                self._end(run, "finished", "")
        with self._noting_signals():
            try:
                for patience in _PATIENCE:
                    ended = {name for name, status in self._ended.items() if status.state != "busy"}
                    self._pass([run for run in self._plan.runs if run.name not in ended], patience, board)
            finally:  # whatever happens, nothing is left behind
                self._stop(kill=False)
                for attempt in self._active.values():
                    attempt.wait()

    def _pass(self, chosen: Sequence[Run], patience: float, board: Board) -> None:
        """Starts the runs in order. Waits for all."""
        left, heeded, by_name = list(chosen), 0, {run.name: run for run in chosen}
        while self._active or (left and not self._signals):
            while left and len(self._active) < self._workers and not self._signals:
                run = left.pop(0)
                self._active[run.name] = self._plan.job(run).start(patience=patience, group=True)
            for name, attempt in list(self._active.items()):
                if attempt.state is not None:
                    self._end(by_name[name], attempt.state, attempt.said)
                    del self._active[name]
            if len(self._signals) > heeded:
                self._stop(kill=heeded > 0)
                heeded = len(self._signals)
                board.say("killing" if heeded > 1 else "waiting until the runs have saved; once more to kill them")
            board.show(self.statuses())
            time.sleep(_SECONDS_BETWEEN)

    def _end(self, run: Run, state: str, said: str) -> None:
        status = read_status(self._plan, run)
        self._ended[run.name] = dataclasses.replace(status, state=state, said=said, seconds_left=None)

    def _stop(self, *, kill: bool) -> None:
        for attempt in self._active.values():
            if kill:
                attempt.kill()
            else:
                attempt.ask_to_stop()

    @contextlib.contextmanager
    def _noting_signals(self) -> Iterator[None]:
        def note(number, _frame):
            self._signals.append(number)

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def statuses(self) -> list[Status]:
        """Where the runs are now, as this launcher knows it: one that failed in an earlier launch is waiting again."""
        return [self._status(run) for run in self._plan.runs]

    def _status(self, run: Run) -> Status:
        if run.name in self._active and self._active[run.name].has_begun:
            return dataclasses.replace(read_status(self._plan, run), state="running", said="")
        return self._ended.get(run.name) or Status(run.name, "waiting")


def main(request: flags.Request, workdir: pathlib.Path) -> int:
    """Runs the sweep: the exit status."""
    workers = request.options["workers"]
    if workers < 1:
        raise UsageError(f"--workers is {workers}: expected a whole number of at least 1")
    plan = make_plan(request, workdir)
    new, pool = claim(plan), Pool(plan, workers)
    with Board(live=True, stderr=True) as board:
        if new < len(plan.runs):
            board.say(f"{workdir} goes on" + (f", with {runs(new)} more" if new else ""))
        pool.work(board)
    statuses = pool.statuses()
    print(summary(statuses))
    return exit_status(statuses, pool.signal, workdir)


def exit_status(statuses: Sequence[Status], stopped_by: int | None, workdir: pathlib.Path) -> int:
    """Tells of what did not finish: the exit status of a launcher that a signal stopped, or none."""
    for status in statuses:
        if status.state in ("failed", "busy", "stopped"):
            print(f"{status.state}: {status.name}: {status.said} [{workdir / status.name / 'log.txt'}]")
    states = {status.state for status in statuses}
    if states & {"stopped", "waiting"}:
        print("the same command goes on from there")
    if stopped_by is not None:
        return _INTERRUPTED if stopped_by == signal.SIGINT else RESUME
    return 1 if "failed" in states else RESUME if "stopped" in states else 0


if __name__ == "__main__":
    flags.run(main, functools.partial(flags.parse, own=OWN, doc=__doc__))
