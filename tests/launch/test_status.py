import io
import json
import os
import socket
import subprocess
import sys
import time

import pytest
from rich.console import Console

from launch import status, table
from launch.job import read_record
from launch.plan import Plan, Run
from launch.table import Board, Status
from rnnjax.train.config import UsageError
from rnnjax.train.heartbeat import Heartbeat
from rnnjax.train.records import hold, write_json

HERE = socket.gethostname()


@pytest.fixture
def plan(tmp_path):
    """A sweep of two runs, of which nothing is there yet."""
    made = Plan("x", "a:quick", {}, (Run("a", {}), Run("b", {"seed": "1"})), tmp_path, tmp_path)
    write_json(tmp_path / "sweep.json", made.as_json())
    return made


def read(plan, queued="", **record):
    """The status of the first run, of which run.json says `record`."""
    if record:
        write_json(plan.workdir / "a" / "run.json", {"attempts": 1, "host": HERE, "started": time.time()} | record)
    return status.read_status(plan, plan.runs[0], queued)


def beat(plan, folder="", *, name="lstm", at=None):
    numbers = {"step": 5, "steps": 10, "loss": 0.5, "seconds_left": 61.0}
    who = {"state": "running", "name": name, "pid": 1, "host": HERE, "time": at or time.time()}
    write_json(plan.workdir / "a" / folder / "heartbeat.json", who | numbers)


def test_a_run_without_a_record_is_waiting(plan):
    assert read(plan) == Status("a", "waiting")


def test_a_run_that_a_process_holds_is_running_with_what_its_heartbeat_says(plan):
    beat(plan)
    with hold(plan.workdir / "a" / ".job", "a"):
        seen = read(plan, state="running")
    assert seen == Status("a", "running", "", "lstm", 5, 10, 0.5, 61.0)
    assert seen.progress == "lstm 5/10"


def test_a_run_that_nobody_holds_any_more_is_lost(plan):
    beat(plan)
    seen = read(plan, state="running")
    assert (seen.state, seen.step, seen.seconds_left) == ("lost", 5, None)
    assert "start the sweep again" in seen.said


@pytest.mark.parametrize(("age", "expected"), [(10, "running"), (3000, "lost")])
def test_on_another_host_a_heartbeat_tells_whether_it_lives(plan, age, expected):
    beat(plan, at=time.time() - age)
    assert read(plan, state="running", host="elsewhere", started=time.time() - 5000).state == expected


def test_on_another_host_a_run_that_has_just_begun_lives_without_a_heartbeat(plan):
    assert read(plan, state="running", host="elsewhere").state == "running"


@pytest.mark.parametrize("state", ["finished", "failed", "stopped"])
def test_a_run_that_has_ended_says_how(plan, state):
    beat(plan)
    seen = read(plan, state=state, error="it broke")
    assert (seen.state, seen.said, seen.step, seen.seconds_left) == (state, "it broke", 5, None)


def test_the_newest_heartbeat_below_a_run_counts(plan):
    now = time.time()
    beat(plan, "elman", name="elman", at=now - 50)
    beat(plan, "lstm/inner", name="lstm", at=now - 10)
    beat(plan, "checkpoints/latest", name="no heartbeat", at=now)
    assert status.newest_heartbeat(plan.workdir / "a")["name"] == "lstm"


def test_the_trainers_heartbeat_is_read(plan):
    Heartbeat(plan.workdir / "a" / "heartbeat.json", "gru", 7).beat(3, float("nan"), None)
    assert read(plan, state="stopped") == Status("a", "stopped", "", "gru", 3, 7, None, None)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"time": "x"}', '{"name": 1, "step": 1, "steps": 1, "time": 1}', "\xff"]
)
def test_a_damaged_heartbeat_is_passed_over(plan, text):
    beat(plan, "good")
    (plan.workdir / "a" / "heartbeat.json").write_text(text, encoding="latin-1")
    assert status.newest_heartbeat(plan.workdir / "a")["name"] == "lstm"


def test_a_damaged_record_is_told(plan):
    (plan.workdir / "a").mkdir()
    (plan.workdir / "a" / "run.json").write_text("{")
    seen = read(plan)
    assert (seen.state, seen.said) == ("waiting", read_record(plan.workdir / "a")["error"])
    assert "damaged" in seen.said


@pytest.mark.parametrize(
    ("state", "queued", "expected"),
    [
        (None, "job 7_0: pending (Resources)", "queued"),
        ("stopped", "job 7_0: pending (BeginTime)", "queued"),
        ("failed", "job 8: pending", "queued"),
        ("running", "job 7_0: pending", "queued"),
        ("finished", "job 7_0: completing", "finished"),
        ("failed", "job 7_0: completing", "failed"),
    ],
)
def test_what_waits_in_the_queue_is_queued(plan, state, queued, expected):
    seen = read(plan, queued, **({"state": state} if state else {}))
    assert seen.state == expected
    assert seen.said == (queued if expected == "queued" else "")


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Puts a squeue on the path that says `told` and exits with `code`."""

    def put(told, code=0):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "squeue").write_text(f"#!/bin/sh\necho \"$@\" >{folder}/asked\nprintf '{told}'\nexit {code}\n")
        (folder / "squeue").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return folder / "asked"

    return put


def test_the_queue_is_asked_for_the_jobs_of_the_sweep(plan, squeue):
    write_json(plan.workdir / "slurm" / "jobs.json", {"a": "7_0", "b": "7_1"})
    asked = squeue("7_1|PENDING|Priority\\n7_0|RUNNING|None\\n8|PENDING|None\\n")
    assert status.read_queue(plan) == {"a": "job 7_0: running", "b": "job 7_1: pending (Priority)"}
    assert "--array" in asked.read_text()


def test_a_queue_that_does_not_answer_is_an_empty_one(plan, squeue):
    write_json(plan.workdir / "slurm" / "jobs.json", {"a": "7_0"})
    squeue("slurm_load_jobs error", code=1)
    assert status.read_queue(plan) == {}


def test_without_jobs_or_squeue_nothing_is_asked(plan, squeue, monkeypatch):
    asked = squeue("")
    assert status.read_queue(plan) == {}
    assert not asked.exists()
    write_json(plan.workdir / "slurm" / "jobs.json", {"a": "7_0"})
    monkeypatch.setenv("PATH", "/nowhere")
    assert status.read_queue(plan) == {}


@pytest.mark.parametrize("text", ["{", "[]", "3"])
def test_damaged_numbers_of_jobs_are_none(plan, text):
    (plan.workdir / "slurm").mkdir()
    (plan.workdir / "slurm" / "jobs.json").write_text(text)
    assert status.read_jobs(plan) == {}


def test_the_command_shows_a_table_of_all_runs(plan, capsys):
    beat(plan)
    read(plan, state="failed", error="ValueError: [bold]markup[/] and ü")
    assert status.main(False, plan.workdir) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split() for line in told] == [
        ["run", "state", "step", "loss", "left"],
        ["a", "failed", "lstm", "5/10", "0.5", "ValueError:", "[bold]markup[/]", "and", "ü"],
        ["b", "waiting"],
        ["2", "runs:", "1", "failed,", "1", "waiting"],
    ]


def test_watching_ends_with_the_last_run(plan, capsys, monkeypatch):
    looks = []

    def look(_):
        looks.append(1)
        write_json(plan.workdir / "a" / "run.json", {"attempts": 1, "state": "finished"})

    monkeypatch.setattr(status.time, "sleep", look)
    with hold(plan.workdir / "a" / ".job", "a"):
        read(plan, state="running")
        assert status.main(True, plan.workdir) == 0
    assert looks == [1]
    assert capsys.readouterr().out.splitlines() == ["a: running", "a: finished"]


def test_a_folder_without_a_sweep_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="holds no sweep"):
        status.main(False, tmp_path)


def test_status_of_a_folder_that_may_only_be_read_writes_nothing(plan):
    before = sorted(plan.workdir.rglob("*"))
    read(plan)
    status.read_queue(plan)
    assert sorted(plan.workdir.rglob("*")) == before


MANY = [
    Status(f"r{number}", state) for number, state in enumerate(["finished"] * 30 + ["running", "failed", "waiting"])
]


def test_where_not_all_runs_have_room_those_are_shown_that_are_worth_looking_at():
    console = Console(file=io.StringIO(), width=100)
    console.print(table.table(MANY, rows=3))
    told = console.file.getvalue()
    assert [line.split()[0] for line in told.splitlines()[1:4]] == ["r30", "r31", "r32"]
    assert "33 runs: 1 failed, 1 running, 1 waiting, 30 finished" in told


def test_a_log_has_a_line_when_a_run_changes_its_state(capsys):
    with Board(live=True) as board:
        for state, step in (("waiting", None), ("running", None), ("running", 3), ("failed", 3)):
            board.show([Status("a[1]", state, "why" if state == "failed" else "", "lstm", step, 9)])
    assert capsys.readouterr().out.splitlines() == ["a[1]: running", "a[1]: failed at lstm 3/9: why"]


def test_on_a_terminal_the_table_is_drawn_anew(monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr(table, "Console", lambda stderr: Console(file=file, force_terminal=True, width=80, height=30))
    with Board(live=True) as board:
        board.show([Status("a", "running", training="lstm", step=1, steps=2, loss=0.25, seconds_left=3700)])
        board.say("[b] stays")
    told = file.getvalue()
    assert "running" in told and "lstm 1/2" in told and "0.25" in told and "1:01:40" in told
    assert "[b] stays" in told


def test_nothing_of_jax_is_started_to_look(plan):
    code = "import sys\nfrom launch import status\nfrom jax._src import xla_bridge\nprint(list(xla_bridge._backends))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_the_record_of_a_sweep_is_plain_json(plan):
    assert json.loads((plan.workdir / "sweep.json").read_text())["runs"] == [
        {"name": "a", "overrides": {}},
        {"name": "b", "overrides": {"seed": "1"}},
    ]
