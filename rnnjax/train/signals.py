"""Signals that ask a run to save and end, acted upon between two compiled calls."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence

RESUME = 75
"""The exit status of a run that saved upon a signal: started again with the same command, it goes on."""


class Interrupted(Exception):
    """A signal came and the state was saved."""

    def __init__(self, name: str, step: int):
        super().__init__(f"{name}: saved at step {step}; the same command goes on from there")
        self.step = step


class Signals:
    """received: the name of the first signal that came, or None."""

    def __init__(self):
        self.received: str | None = None

    def _note(self, number, _frame):
        self.received = self.received or signal.Signals(number).name


@contextlib.contextmanager
def noting(names: Sequence[str]) -> Iterator[Signals]:
    """While the block runs, the signals are noted and do nothing else. Only the main thread can ask for that; in
    another one they do what they did before."""
    signals, before = Signals(), {}
    if threading.current_thread() is threading.main_thread():
        before = {name: signal.signal(getattr(signal, name), signals._note) for name in names}
    try:
        yield signals
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), signal.SIG_DFL if handler is None else handler)
