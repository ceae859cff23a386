"""The Slurm engine, on a real Slurm of one node that the tests start and stop."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest

from launch import flags, slurm, status
from launch.job import Job, read_record
from launch.plan import read_plan
from rnnjax.train import cli

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = pathlib.Path(__file__).with_name("slurm_single_node.sh")
COUNTING = "tests.launch.counting"

pytest.importorskip("submitit", reason="submitit, of the extra slurm, is not installed")


def free_port():
    """The first of two ports that are free."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                continue


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A Slurm of one node, to which every command of this process goes."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm of its own needs root")
    if shutil.which("slurmctld") is None and shutil.which("apt-get") is None:
        pytest.skip("slurmctld is not installed, and there is no apt-get to install it with")
    folder = tmp_path_factory.mktemp("slurm")
    try:
        with (folder / "start.log").open("w") as log:  # no pipe, which the daemons would keep open
            command = ["bash", str(SCRIPT), "start", str(folder), str(free_port())]
            started = subprocess.run(command, stdout=log, stderr=log, timeout=180)
        if started.returncode and shutil.which("slurmctld") is None:
            pytest.skip("Debian's slurm-wlm and munge can't be installed here")
        assert started.returncode == 0, (folder / "start.log").read_text()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
            yield folder
    finally:
        subprocess.run(["bash", str(SCRIPT), "stop", str(folder)], timeout=60)


@pytest.fixture
def submit(tmp_path, capsys):
    """Submits in this process: (exit status, stdout, stderr)."""

    def run(*arguments, experiment=COUNTING):
        try:
            command, _ = flags.parse([experiment, f"--workdir={tmp_path / 'sweep'}", *arguments], slurm.OWN, "doc")
        except cli.UsageError as error:
            return 2, "", f"{error}\n"
        return cli.call(slurm.main, command), *capsys.readouterr()

    return run


def records(folder):
    plan = read_plan(folder)
    return {run.name: read_record(plan.folder(run)) for run in plan.runs}


def wait_until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)


def step(folder):
    try:
        return json.loads((folder / "saved.json").read_text())["step"]
    except (OSError, ValueError):
        return 0


def counted(folder):
    return [int(line.split()[0]) for line in (folder / "steps.txt").read_text().splitlines()]


def slurm_command(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def start_now(job):
    """Starts a requeued job without the two minutes that Slurm lets it wait."""
    wait_until(lambda: "PENDING" in slurm_command("squeue", "-h", "-r", "-o", "%T", "-j", job))
    slurm_command("scontrol", "update", f"JobId={job}", "StartTime=now")


def test_a_sweep_is_submitted_signalled_requeued_and_goes_on(cluster, submit, tmp_path):
    folder = tmp_path / "sweep"
    arguments = ["--sweep.steps=3,400", "--config.options.seconds=0.02", "--minutes=10"]
    code, out, _ = submit(*arguments)
    job = status.read_jobs(read_plan(folder))["steps=400"]
    assert (code, out.splitlines()[0]) == (0, f"2 runs: 2 submitted as job {job.removesuffix('_1')}")
    wait_until(lambda: records(folder)["steps=3"]["state"] == "finished" and step(folder / "steps=400") > 50)
    assert submit(*arguments)[1].splitlines()[0] == "2 runs: 1 finished before, 1 in the queue"

    slurm_command("scancel", "--signal=USR2", job)
    wait_until(lambda: records(folder)["steps=400"]["state"] == "stopped")
    saved = step(folder / "steps=400")
    assert 50 < saved < 400
    start_now(job)
    queue = status.read_queue(read_plan(folder))
    assert list(queue) == ["steps=400"] and queue["steps=400"].startswith(f"job {job}: ")

    wait_until(lambda: records(folder)["steps=400"]["state"] == "finished")
    assert counted(folder / "steps=400") == list(range(1, 401))
    assert [record["attempts"] for record in records(folder).values()] == [1, 2]
    assert "counted []" in (folder / "steps=400" / "log.txt").read_text()  # nothing of Slurm in its environment
    wait_until(lambda: not slurm_command("squeue", "-h"))
    assert submit(*arguments)[1].splitlines()[0] == "2 runs: 2 finished before"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--partition=nope", "sbatch refuses the jobs: invalid partition specified: nope"),
        ("--memory=100000", "sbatch refuses the jobs: Memory specification can not be satisfied"),
        ("--gpus=1", "sbatch refuses the jobs: Invalid generic resource (gres) specification"),
    ],
)
def test_what_slurm_refuses_is_told_in_its_words(cluster, submit, tmp_path, argument, said):
    code, out, err = submit("--sweep.steps=1,2", argument)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(said)
    assert not list((tmp_path / "sweep" / "slurm").iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--minutes=4"], "--minutes is 4: expected at least 5"),
        (["--memory=-1"], "--memory is -1.0: expected at least 0"),
        (["--gpus=-1"], "--gpus is -1: expected at least 0"),
        (["--cpus=0"], "--cpus is 0: expected at least 1"),
        (["--time=3"], "unknown flag --time: --help"),
        (["--partitions=a"], "unknown flag --partitions: did you mean --partition?"),
    ],
)
def test_a_usage_error_writes_nothing(submit, tmp_path, arguments, said):
    code, _, err = submit("--sweep.steps=1", *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(said)
    assert not list(tmp_path.iterdir())


def test_without_slurm_there_is_a_way_out(submit, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, _, err = submit("--sweep.steps=1")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("sbatch is not on this machine: run this on a cluster's login node, or launch.local here")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """An sbatch and an srun that a test can look into: the script that was submitted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(f'#!/bin/sh\ncp "$1" {folder}/submitted\necho Submitted batch job 77\n')
    (folder / "srun").write_text("#!/bin/sh\n")
    for name in ("sbatch", "srun"):
        (folder / name).chmod(0o755)
    (folder / "squeue").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "submitted"


def test_a_job_asks_for_what_was_given_and_may_go_back_to_the_queue(submit, fake):
    assert submit(
        "--sweep.steps=1,2", "--partition=long", "--minutes=90", "--memory=1.5", "--gpus=2", "--cpus=3"
    )[0] == 0  # fmt: skip
    script = fake.read_text().splitlines()
    for line in (
        "--partition=long", "--time=90", "--mem=1536MB", "--gpus-per-node=2", "--cpus-per-task=3", "--requeue",
        "--signal=USR2@120", "--array=0-1%2", "--open-mode=append", "--job-name=counting",
    ):  # fmt: skip
        assert f"#SBATCH {line}" in script
    assert f"cd {os.getcwd()} || exit 1" in script


def test_what_is_not_given_is_left_to_the_cluster(submit, fake):
    assert submit("--sweep.steps=1")[0] == 0
    assert not [line for line in fake.read_text().splitlines() if "partition" in line or "mem" in line or "gpu" in line]


def test_a_run_that_is_at_work_is_not_submitted(submit, fake, tmp_path):
    from rnnjax.train.records import hold

    with hold(tmp_path / "sweep" / "steps=2" / ".job", "it"):
        (tmp_path / "sweep" / "sweep.json").write_text(
            json.dumps({"experiment": COUNTING, "config": "up:quick", "base": {}, "runs": []})
        )
        assert submit("--sweep.steps=1,2")[1].startswith("2 runs: 1 submitted as job 77, 1 at work\n")
    assert status.read_jobs(read_plan(tmp_path / "sweep")) == {"steps=1": "77"}


def test_what_is_submitted_is_a_job_and_comes_back_as_one(submit, fake, tmp_path):
    from submitit.core.utils import DelayedSubmission

    submit("--sweep.steps=1")
    (pickled,) = (tmp_path / "sweep" / "slurm").glob("*submitted.pkl")
    delayed = DelayedSubmission.load(pickled)
    assert type(delayed.function) is Job
    assert vars(delayed.function) == {
        "arguments": [COUNTING, f"--workdir={tmp_path / 'sweep' / 'steps=1'}", "--config=up:quick", "--config.steps=1"],
        "checkout": os.getcwd(),
    }
    assert delayed._timeout_countdown > 1000


def test_a_study_has_to_save_upon_the_signals_of_slurm(submit, fake):
    code, _, err = submit(
        "--sweep.train.seed=0",
        "--config.train.checkpoint.signals=SIGTERM",
        experiment="experiments.gradient_norms",
    )
    assert (code, err.count("\n")) == (2, 1)
    assert "it needs SIGUSR2" in err


@pytest.mark.full
def test_jobs_that_slurm_itself_requeues_or_cancels_have_saved(cluster, submit, tmp_path):
    folder = tmp_path / "a sweep"  # with a blank, which Slurm's scripts have to bear
    arguments = ["--sweep.steps=600,3000", "--config.options.seconds=0.02", f"--workdir={folder}"]
    command = [sys.executable, "-m", "launch.slurm", COUNTING, *arguments]
    subprocess.run(command, cwd=ROOT, check=True)
    wait_until(lambda: all(step(folder / f"steps={steps}") > 50 for steps in (600, 3000)))
    jobs = status.read_jobs(read_plan(folder))
    slurm_command("scontrol", "requeue", jobs["steps=600"])
    slurm_command("scancel", jobs["steps=3000"])
    wait_until(lambda: all(record["state"] == "stopped" for record in records(folder).values()))
    start_now(jobs["steps=600"])
    wait_until(lambda: records(folder)["steps=600"]["state"] == "finished")
    assert counted(folder / "steps=600") == list(range(1, 601))
    wait_until(lambda: not slurm_command("squeue", "-h"))
    assert records(folder)["steps=3000"]["state"] == "stopped"
    subprocess.run(command, cwd=ROOT, check=True)  # what was cancelled goes on when it is submitted again
    wait_until(lambda: records(folder)["steps=3000"]["state"] == "finished", 120)
    assert counted(folder / "steps=3000") == list(range(1, 3001))


@pytest.mark.full
def test_a_job_whose_time_is_over_goes_on_in_the_next(cluster, submit, tmp_path):
    folder = tmp_path / "sweep"
    submit("--sweep.steps=100000", "--config.options.seconds=0.02", "--minutes=5")
    (job,) = status.read_jobs(read_plan(folder)).values()
    (run,) = read_plan(folder).runs
    wait_until(lambda: records(folder)[run.name]["state"] == "stopped", 240)
    saved = step(folder / run.name)
    start_now(job)
    wait_until(lambda: step(folder / run.name) > saved + 20)
    slurm_command("scancel", job)
    wait_until(lambda: not slurm_command("squeue", "-h"))
    assert counted(folder / run.name) == list(range(1, step(folder / run.name) + 1))
    assert records(folder)[run.name]["attempts"] == 2
