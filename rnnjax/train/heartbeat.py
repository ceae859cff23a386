"""Where a training is, for whoever watches from outside: WORKDIR/heartbeat.json, replaced whole."""

import contextlib
import json
import os
import pathlib
import socket
import time
from collections.abc import Callable

from rnnjax.train.records import json_number, replacing

_SECONDS_BETWEEN = 2.0


class Heartbeat:
    """Keeps `path` at most 2 seconds behind: {state, name, step, steps, loss, seconds_left, pid, host, time}.

    state: "running", and at the end "finished", "stopped" (it can go on) or "failed".
    time: seconds since 1970, of the last beat that was written.
    """

    def __init__(self, path: pathlib.Path, name: str, steps: int, clock: Callable[[], float] = time.time):
        self._path, self._clock = path, clock
        self._same = {"name": name, "steps": steps, "pid": os.getpid(), "host": socket.gethostname()}
        self._last: tuple[str, float] | None = None

    def beat(self, step: int, loss: float | None, seconds_left: float | None, state: str = "running") -> None:
        """Says how far it is. A disk that can't take it stops no run: the file stays as it was then."""
        now = self._clock()
        if self._last is not None and self._last[0] == state and 0 <= now - self._last[1] < _SECONDS_BETWEEN:
            return
        self._last = state, now
        numbers = {"step": step, "loss": json_number(loss), "seconds_left": json_number(seconds_left), "time": now}
        with contextlib.suppress(OSError), replacing(self._path) as temporary:
            temporary.write_text(json.dumps({"state": state, **self._same, **numbers}) + "\n", encoding="utf-8")
