"""How far a run is: a live line with rate and time left on a terminal, a line now and then in a log."""

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SECONDS_BETWEEN_LINES = 10.0


class TrainingProgress:
    """Counts steps. A context manager; `update` after every compiled call.

    start: the step that a run goes on from; rate and time left count from there.
    seconds_left: until `steps` at the present rate; None while there is no rate.
    """

    def __init__(self, name: str, steps: int, console: Console | None = None, start: int = 0):
        self._name, self._steps, self._start = name, steps, start
        self._console = console or Console(stderr=True)
        self._live = self._console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._live,
        )

    def __enter__(self):
        self._started = self._printed = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._step, self.seconds_left = self._start, None
        if self._start:
            self._console.print(f"{self._name}: goes on from step {self._start}", highlight=False)
        self._bar.start()
        self._task = self._bar.add_task(self._name, total=self._steps, completed=self._start, note="compiling")
        return self

    def __exit__(self, *exception):
        self._bar.stop()
        if not self._live and exception[0] is None:
            seconds, done = time.monotonic() - self._started, self._step - self._start
            self._console.print(f"{self._name}: {done} steps in {seconds:.1f} s", highlight=False)

    def update(self, step: int, loss: float) -> None:
        """Says that `step` steps are done and what the loss is."""
        now = time.monotonic()
        since, done = self._first or (self._started, self._start)
        self._first = self._first or (now, step)  # what came before was mostly compiling, which is over
        rate = (step - done) / max(now - since, 1e-9)  # a coarse clock may not have moved
        self._step, self.seconds_left = step, (self._steps - step) / rate
        note = f"loss {loss:.4g}, {rate:.0f} steps/s"
        self._bar.update(self._task, completed=step, note=note)
        if not self._live and now - self._printed >= _SECONDS_BETWEEN_LINES and step < self._steps:
            self._printed = now
            self._console.print(
                f"{self._name}: step {step}/{self._steps}, {note}, {self.seconds_left:.0f} s left", highlight=False
            )
