"""A log gets a line now and then, with rate and time left; a terminal gets a bar."""

import io

import pytest
from rich.console import Console

from rnnjax.train import progress
from rnnjax.train.progress import TrainingProgress


@pytest.fixture
def clock(monkeypatch):
    """The time, as a list of one number that a test moves."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def run(clock, terminal, steps):
    """The text after (step, seconds since the start) of a run of 100 steps."""
    screen = console(terminal)
    with TrainingProgress("lstm", 100, screen) as shown:
        for step, seconds in steps:
            clock[0] = 1000.0 + seconds
            shown.update(step, loss=1 / step)
    return screen.file.getvalue()


def test_a_log_gets_a_line_every_10_seconds(clock):
    text = run(clock, False, [(10, 4), (20, 9.9), (30, 10), (40, 14), (50, 19.9), (60, 30), (100, 50)])
    assert text.splitlines() == [
        "lstm: step 30/100, loss 0.03333, 3 steps/s, 21 s left",
        "lstm: step 60/100, loss 0.01667, 2 steps/s, 21 s left",
        "lstm: 100 steps in 50.0 s",
    ]


def test_a_quick_run_gets_one_line(clock):
    assert run(clock, False, [(50, 1), (100, 2)]) == "lstm: 100 steps in 2.0 s\n"


def test_a_clock_that_has_not_moved_does_no_harm(clock):
    assert run(clock, False, [(100, 0)]) == "lstm: 100 steps in 0.0 s\n"


def test_a_run_that_fails_says_nothing_of_its_end(clock):
    screen = console(False)
    with pytest.raises(KeyboardInterrupt), TrainingProgress("lstm", 100, screen):
        raise KeyboardInterrupt
    assert screen.file.getvalue() == ""


def test_a_terminal_gets_a_bar():
    screen = console(True)
    with TrainingProgress("lstm", 100, screen) as shown:
        shown.update(60, loss=0.25)
        shown.update(100, loss=0.125)
    text = screen.file.getvalue()
    for part in ("lstm", "━", "100/100", "loss 0.125", "steps/s"):
        assert part in text
    assert "steps in" not in text


def test_a_bar_is_taken_away_when_the_run_fails():
    screen = console(True)
    with pytest.raises(KeyboardInterrupt), TrainingProgress("lstm", 100, screen):
        raise KeyboardInterrupt
    assert screen.file.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is shown again
