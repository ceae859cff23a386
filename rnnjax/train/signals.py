"""Signals that ask a run to save and end, acted upon between two compiled calls."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

RESUME = 75
"""The exit status of a run that saved upon a signal: started again with the same command, it goes on."""


class Interrupted(Exception):
    """A signal came. step: where the state was saved, None outside of a training."""

    def __init__(self, name: str, step: int | None = None):
        done = "ended outside of a training" if step is None else f"saved at step {step}"
        super().__init__(f"{name}: {done}; the same command goes on from there")
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
    signals = Signals()
    with _handling(names, signals._note):
        yield signals


@contextlib.contextmanager
def ending(names: Sequence[str]) -> Iterator[None]:
    """While the block runs, a signal raises Interrupted in it, but where the signals are being noted."""

    def end(number, _frame):
        raise Interrupted(signal.Signals(number).name)

    with _handling(names, end):
        yield


@contextlib.contextmanager
def _handling(names: Sequence[str], handler: Callable) -> Iterator[None]:
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {name: signal.signal(getattr(signal, name), handler) for name in names}
    try:
        yield
    finally:
        for name, held in before.items():
            signal.signal(getattr(signal, name), signal.SIG_DFL if held is None else held)
