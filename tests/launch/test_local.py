import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch import flags, local
from launch.job import read_record
from launch.plan import read_plan
from rnnjax.train import cli

ROOT = pathlib.Path(__file__).parents[2]
COUNTING = "tests.launch.counting"
LONG = ["--sweep.steps=400,401", "--config.options.seconds=0.02", "--workers=2"]


@pytest.fixture
def sweep(tmp_path, capsys):
    """Runs a sweep in this process: (exit status, stdout, stderr)."""

    def run(*arguments, experiment=COUNTING):
        try:
            command, _ = flags.parse([experiment, f"--workdir={tmp_path / 'sweep'}", *arguments], local.OWN, "doc")
        except cli.UsageError as error:
            return 2, "", str(error)
        return cli.call(local.main, command), *capsys.readouterr()

    return run


@pytest.fixture
def launcher(tmp_path):
    """Starts a launcher in the background, and leaves none behind."""
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "launch.local", COUNTING, f"--workdir={tmp_path / 'sweep'}", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def records(folder):
    plan = read_plan(folder)
    return {run.name: read_record(plan.folder(run)) for run in plan.runs}


def states(folder):
    return {name: record["state"] for name, record in records(folder).items()}


def wait_until_counting(folder, names=("steps=400", "steps=401")):
    end = time.monotonic() + 60
    while not all((folder / name / "steps.txt").exists() for name in names):
        assert time.monotonic() < end, "no run began"
        time.sleep(0.05)


def write_sweep(folder, base):
    """A sweep that has no runs yet."""
    plan = {"experiment": COUNTING, "config": "up:quick", "base": base, "runs": []}
    (folder / "sweep.json").write_text(json.dumps(plan))


def counted(folder):
    """The steps of a run in the order in which they were done, and the processes that did them."""
    rows = [line.split() for line in (folder / "steps.txt").read_text().splitlines()]
    return [int(step) for step, _ in rows], list(dict.fromkeys(pid for _, pid in rows))


def test_a_failed_run_is_told_and_the_rest_goes_on_and_so_does_the_next_launch(sweep, tmp_path):
    arguments = ["--sweep.options.fail_at=0,2", "--sweep.steps=3", "--workers=2"]
    status, out, err = sweep(*arguments)
    log = tmp_path / "sweep" / "steps=3,fail_at=2" / "log.txt"
    assert status == 1
    assert out.splitlines() == [
        "2 runs: 1 failed, 1 finished",
        f"failed: steps=3,fail_at=2: ValueError: the count is wrong [{log}]",
    ]
    assert "steps=3,fail_at=0: finished" in err.splitlines()
    assert any(
        line.startswith("steps=3,fail_at=2: failed") and "the count is wrong" in line for line in err.splitlines()
    )

    assert sweep(*arguments)[0] == 1
    assert records(tmp_path / "sweep")["steps=3,fail_at=0"]["attempts"] == 1
    assert records(tmp_path / "sweep")["steps=3,fail_at=2"]["attempts"] == 2


def test_a_run_that_is_killed_for_memory_does_not_stop_the_rest(sweep, tmp_path):
    status, out, _ = sweep("--sweep.options.fail_at=1,0", "--config.options.how=kill")
    assert status == 1
    assert states(tmp_path / "sweep") == {"fail_at=1": "failed", "fail_at=0": "finished"}
    assert "failed: fail_at=1: killed by the kernel, most likely for memory" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers=0", "--sweep.steps=1"], "--workers is 0: expected a whole number of at least 1"),
        (["--workers=-1", "--sweep.steps=1"], "--workers is -1"),
        (["--sweep=mistyped"], "run secondes=1: unknown flag --config.options.secondes"),
        (["--sweep.steps=1,1"], "two runs have the same config"),
        (["--sweep=empty"], "is empty"),
    ],
)
def test_a_usage_error_writes_nothing(sweep, tmp_path, arguments, message):
    status, out, err = sweep(*arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_a_workdir_that_can_not_be_written_to_is_named(sweep, tmp_path):
    (tmp_path / "sweep").touch()
    status, _, err = sweep("--sweep.steps=1")
    assert status == 1
    assert err.startswith(f"File exists: {tmp_path / 'sweep'}\n")


def test_a_folder_of_another_run_is_a_failure_of_that_run_alone(sweep, tmp_path):
    (tmp_path / "sweep" / "steps=1").mkdir(parents=True)
    write_sweep(tmp_path / "sweep", {})
    (tmp_path / "sweep" / "steps=1" / "config.json").write_text('{"config": {"steps": 77}}')
    status, out, _ = sweep("--sweep.steps=1,2")
    assert status == 1
    assert "2 runs: 1 failed, 1 finished" in out
    assert "steps=1 holds another run: it differs in config.steps (77 there, 1 here)" in out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_launcher_that_is_asked_to_stop_lets_its_runs_save(launcher, tmp_path, number, status):
    folder = tmp_path / "sweep"
    first = launcher(*LONG)
    wait_until_counting(folder)
    os.killpg(first.pid, number)  # as a terminal does it
    out, err = first.communicate(timeout=60)
    assert first.returncode == status
    assert "waiting until the runs have saved" in err
    assert out.splitlines()[0] == "2 runs: 2 stopped"
    assert out.splitlines()[-1] == "the same command goes on from there"
    assert states(folder) == {"steps=400": "stopped", "steps=401": "stopped"}
    assert "SIGTERM: saved at step" in records(folder)["steps=400"]["error"]


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux a child hears of its launcher's death")
def test_a_sweep_whose_launcher_was_killed_goes_on_at_once_and_does_every_step_once(launcher, tmp_path):
    folder = tmp_path / "sweep"
    arguments = ["--sweep.steps=150,151", "--config.options.saving=3", *LONG[1:]]
    first = launcher(*arguments)
    wait_until_counting(folder, ("steps=150", "steps=151"))
    first.kill()
    first.wait()
    second = launcher(*arguments)
    out, err = second.communicate(timeout=100)
    assert (second.returncode, out) == (0, "2 runs: 2 finished\n"), err
    for steps in (150, 151):
        done, processes = counted(folder / f"steps={steps}")
        assert done == list(range(1, steps + 1))
        assert len(processes) == 2
        assert records(folder)[f"steps={steps}"]["attempts"] == 2


def test_two_launchers_share_a_sweep_and_no_run_is_run_twice(launcher, tmp_path):
    folder = tmp_path / "sweep"
    arguments = ["--sweep.steps=20,21,22", "--config.options.seconds=0.01"]
    both = [launcher(*arguments), launcher(*arguments)]
    ended = [process.communicate(timeout=100) for process in both]
    if 2 in [process.returncode for process in both]:  # they claimed the folder in the same moment
        assert any("in use by process" in err for _, err in ended)
    else:
        assert [process.returncode for process in both] == [0, 0], ended
    assert set(states(folder).values()) == {"finished"}
    for name, record in records(folder).items():
        assert record["attempts"] == 1
        assert max(collections.Counter(counted(folder / name)[0]).values()) == 1


def test_a_run_that_is_at_work_elsewhere_is_told_and_no_error(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_PATIENCE", (0.0, 0.0))
    folder = tmp_path / "sweep" / "steps=400"
    flag = [f"--workdir={folder}", "--config=up:quick", "--config.steps=400", "--config.options.seconds=0.02"]
    code = f"from launch.job import Job\nJob({[COUNTING, *flag]!r}, {os.getcwd()!r}).start().wait()"
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text(
        json.dumps(
            {"experiment": COUNTING, "config": "up:quick", "base": {"config.options.seconds": "0.02"}, "runs": []}
        )
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as other:
        wait_until_counting(tmp_path / "sweep", ("steps=400",))
        status, out, _ = sweep("--sweep.steps=400,1", "--config.options.seconds=0.02")
        other.kill()
    assert status == 0
    assert out.splitlines()[0] == "2 runs: 1 busy, 1 finished"
    assert f"busy: steps=400: steps=400 is in use by process {other.pid} on" in out
    assert max(collections.Counter(counted(folder)[0]).values()) == 1


def test_a_second_signal_kills(launcher, tmp_path):
    folder = tmp_path / "sweep"
    first = launcher("--sweep.steps=400", "--config.options.seconds=20")
    end = time.monotonic() + 60
    while not (folder / "steps=400" / "config.json").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    time.sleep(0.5)
    started = time.monotonic()
    for _ in range(2):
        first.send_signal(signal.SIGINT)
        time.sleep(0.7)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "killing" in err and time.monotonic() - started < 15
    assert "stopped: steps=400: ended by SIG" in out
