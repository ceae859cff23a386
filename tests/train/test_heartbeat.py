"""Whoever watches from outside reads where a training is, at most 2 seconds late, in a file that is always whole."""

import json
import math
import os
import socket

import numpy as np
import pytest

from rnnjax.train import heartbeat
from rnnjax.train.heartbeat import Heartbeat


@pytest.fixture
def beats(tmp_path):
    """(a heartbeat by a clock that the test moves, the clock, what the file says)."""
    now, path = [1000.0], tmp_path / "run" / "heartbeat.json"
    return Heartbeat(path, "lstm", 200, clock=lambda: now[0]), now, lambda: json.loads(path.read_text())


def test_the_first_beat_tells_everything(beats):
    heart, _, read = beats
    heart.beat(50, np.float32(0.5), 12.5)
    assert read() == {
        "state": "running", "name": "lstm", "step": 50, "steps": 200, "loss": 0.5, "seconds_left": 12.5,
        "pid": os.getpid(), "host": socket.gethostname(), "time": 1000.0,
    }  # fmt: skip


def test_it_is_written_every_2_seconds_and_when_the_state_changes(beats):
    heart, now, read = beats
    heart.beat(0, None, None)
    for seconds, step, state, seen in [
        (1.0, 50, "running", (0, "running", 1000.0)),
        (1.9, 60, "running", (0, "running", 1000.0)),
        (2.0, 70, "running", (70, "running", 1002.0)),
        (3.0, 80, "stopped", (80, "stopped", 1003.0)),
        (3.5, 90, "stopped", (80, "stopped", 1003.0)),
        (3.6, 90, "finished", (90, "finished", 1003.6)),
        (-500.0, 95, "finished", (95, "finished", 500.0)),  # a clock that was set back keeps nobody waiting
    ]:
        now[0] = 1000.0 + seconds
        heart.beat(step, 0.25, 1.0, state)
        told = read()
        assert (told["step"], told["state"], told["time"]) == seen


@pytest.mark.parametrize("number", [None, math.nan, math.inf, np.float32(np.nan)])
def test_what_is_no_number_is_null(beats, number):
    heart, _, read = beats
    heart.beat(0, number, number)
    told = read()
    assert told["loss"] is None and told["seconds_left"] is None


def test_a_full_disk_stops_no_run_and_leaves_the_old_file(beats, monkeypatch, tmp_path):
    heart, now, read = beats
    heart.beat(50, 0.5, 3.0)
    before = read()

    def refuse(path, text, **options):
        path.write_bytes(text[:9].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(heartbeat.pathlib.Path, "write_text", refuse)
    now[0] += 60
    heart.beat(100, 0.25, 1.0)
    assert read() == before
    assert os.listdir(tmp_path / "run") == ["heartbeat.json"]
    monkeypatch.undo()
    now[0] += 60
    heart.beat(150, 0.25, 1.0)
    assert read()["step"] == 150
