"""A table of runs: live on a terminal, in a log one line when a run changes its state."""

import dataclasses
import datetime
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

STYLES = {
    "failed": "bold red",
    "lost": "red",
    "running": "bold green",
    "busy": "yellow",
    "queued": "cyan",
    "stopped": "yellow",
    "waiting": "dim",
    "finished": "green",
}
"""The states, in the order in which they are worth looking at."""

_WIDTH_OF_A_LOG = 160


@dataclasses.dataclass(frozen=True)
class Status:
    """Where a run is.

    said: its last error, or why it waits.
    training: the one of its trainings that it is at.
    """

    name: str
    state: str
    said: str = ""
    training: str = ""
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    seconds_left: float | None = None

    @property
    def progress(self) -> str:
        """Training and step, as far as they are known."""
        return "" if self.step is None else f"{self.training} {self.step}/{self.steps}".strip()


class Board:
    """Shows statuses. A context manager.

    live: whether the table stays and is drawn again; in a log there are then lines in its place.
    stderr: where it is shown.
    """

    def __init__(self, *, live: bool, stderr: bool = False):
        self._console = Console(stderr=stderr)
        if not self._console.is_terminal:
            self._console.width = _WIDTH_OF_A_LOG
        self._states: dict[str, str] = {}
        self._lines = live and not self._console.is_terminal
        self._live = Live(console=self._console, auto_refresh=False) if live and not self._lines else None

    def __enter__(self):
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception):
        if self._live is not None:
            self._live.stop()

    def show(self, statuses: Sequence[Status]) -> None:
        """Shows where the runs are now."""
        if self._lines:
            self._print_changes(statuses)
        elif self._live is not None:
            self._live.update(table(statuses, self._console.height - 6), refresh=True)
        else:
            self._console.print(table(statuses))

    def say(self, line: str) -> None:
        """A line that stays."""
        self._console.print(Text(line), soft_wrap=True)

    def _print_changes(self, statuses: Sequence[Status]) -> None:
        for status in statuses:
            if self._states.get(status.name, "waiting") != status.state:
                said = f": {status.said}" if status.said else ""
                at = f" at {status.progress}" if status.progress and status.state != "finished" else ""
                self.say(f"{status.name}: {status.state}{at}{said}")
            self._states[status.name] = status.state


def table(statuses: Sequence[Status], rows: int | None = None) -> Group:
    """A table of at most so many rows, of the runs that are most worth looking at; the line below it counts all."""
    order = list(STYLES)
    best = sorted(statuses, key=lambda status: order.index(status.state))[: max(rows or len(statuses), 1)]
    chosen = {status.name for status in best}
    drawn = Table(box=None, pad_edge=False)
    for heading in ("run", "state", "step", "loss", "left", ""):
        drawn.add_column(heading, overflow="fold", no_wrap=heading in ("state", "loss", "left"))
    for status in statuses:
        if status.name not in chosen:
            continue
        left = "" if status.seconds_left is None else str(datetime.timedelta(seconds=round(status.seconds_left)))
        loss = "" if status.loss is None else f"{status.loss:.4g}"
        state = Text(status.state, style=STYLES[status.state])
        drawn.add_row(Text(status.name), state, Text(status.progress), loss, left, Text(status.said))
    return Group(drawn, Text(summary(statuses)))


def summary(statuses: Sequence[Status]) -> str:
    """How many runs are in which state."""
    counts = Counter(status.state for status in statuses)
    return f"{runs(len(statuses))}: " + ", ".join(f"{counts[state]} {state}" for state in STYLES if counts[state])


def runs(count: int) -> str:
    """So many runs, in words."""
    return f"{count} run{'' if count == 1 else 's'}"
