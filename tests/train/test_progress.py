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


def run(clock, terminal, steps, start=0):
    """The text after (step, seconds since the start) of a run of 100 steps."""
    screen = console(terminal)
    with TrainingProgress("lstm", 100, screen, start=start) as shown:
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


def test_a_run_that_goes_on_counts_from_there(clock):
    text = run(clock, False, [(60, 5), (70, 10), (80, 20), (100, 25)], start=50)
    assert text.splitlines() == [
        "lstm: goes on from step 50",
        "lstm: step 70/100, loss 0.01429, 2 steps/s, 15 s left",
        "lstm: step 80/100, loss 0.0125, 1 steps/s, 15 s left",
        "lstm: 50 steps in 25.0 s",
    ]


def test_a_run_that_ends_early_says_how_far_it_came(clock):
    assert run(clock, False, [(40, 2), (60, 3)], start=20).splitlines()[-1] == "lstm: 40 steps in 3.0 s"


def test_the_time_left_is_that_at_the_present_rate(clock):
    with TrainingProgress("lstm", 100, console(False), start=40) as shown:
        assert shown.seconds_left is None  # it is compiling
        for step, seconds, left in [(50, 10, 50), (60, 12, 8), (90, 24, 3.5), (100, 25, 0)]:
            clock[0] = 1000.0 + seconds
            shown.update(step, loss=0.5)
            assert shown.seconds_left == pytest.approx(left)


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


def test_a_bar_goes_on_where_the_run_does(clock):
    screen = console(True)
    with TrainingProgress("lstm", 100, screen, start=50) as shown:
        shown._bar.refresh()
        begun = screen.file.getvalue()
        shown.update(60, loss=0.25)
    assert "goes on from step 50" in begun and "50/100" in begun and "60/100" in screen.file.getvalue()


def test_a_bar_is_taken_away_when_the_run_fails():
    screen = console(True)
    with pytest.raises(KeyboardInterrupt), TrainingProgress("lstm", 100, screen):
        raise KeyboardInterrupt
    assert screen.file.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is shown again
