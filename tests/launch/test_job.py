import fcntl
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from launch.job import Job, identity, is_held, last_words, read_record, verdict
from rnnjax.train.records import hold

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def job(tmp_path):
    """Makes a job that starts `plain`."""

    def make(do, **more):
        flags = [f"--{name}={value}" for name, value in more.items()]
        return Job(["tests.launch.plain", f"--workdir={tmp_path / 'run'}", f"--do={do}", *flags], ROOT)

    return make


def wait_for(holds, seconds=20.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def starts(job):
    return len((job.folder / "starts.txt").read_text().split())


def background(code):
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_run_that_ends_well_is_finished_and_not_started_again(job):
    run = job("end")
    assert run.start().wait() == run.start().wait() == "finished"
    record = read_record(run.folder)
    assert starts(run) == 1
    assert (record["state"], record["exit"], record["error"], record["attempts"]) == ("finished", 0, None, 1)
    assert record["arguments"] == run.arguments
    assert record["started"] < record["ended"] <= time.time()


def test_a_run_that_fails_is_tried_again_by_the_next_start(job):
    run = job("once")
    assert [run.start().wait(), run.start().wait()] == ["failed", "finished"]
    assert read_record(run.folder)["attempts"] == 2
    headings = [line for line in (run.folder / "log.txt").read_text().splitlines() if line.startswith("=== attempt")]
    assert [heading.split(",")[0] for heading in headings] == ["=== attempt 1", "=== attempt 2"]
    assert headings[0].endswith(f"python -m tests.launch.plain --workdir={run.folder} --do=once")


def test_the_error_is_that_of_the_traceback_and_the_log_has_it_all(job):
    run = job("raise")
    attempt = run.start()
    assert attempt.wait() == "failed"
    assert attempt.said == read_record(run.folder)["error"] == "ValueError: the widget is bent"
    log = (run.folder / "log.txt").read_text()
    assert log.index("on stdout, before") < log.index("Traceback") < log.index("the widget is bent")


def test_what_a_run_says_is_logged_in_the_order_in_which_it_says_it(job, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    attempt = job("complain").start()
    assert attempt.wait() == "failed"
    assert attempt.said == "on stdout, before; the gadget is bent"


@pytest.mark.parametrize(
    ("do", "state", "said"),
    [
        ("SIGKILL", "failed", "killed by the kernel, most likely for memory"),
        ("SIGSEGV", "failed", "died of a signal: Segmentation fault"),
        ("SIGTERM", "stopped", "ended by SIGTERM: goes on from what it saved last"),
        ("SIGUSR2", "stopped", "ended by SIGUSR2"),
    ],
)
def test_how_a_run_dies_is_told(job, do, state, said):
    attempt = job(do).start()
    assert attempt.wait() == state
    assert attempt.said.startswith(said)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (0, ("finished", None)),
        (75, ("stopped", "last line")),
        (130, ("stopped", "last line")),
        (1, ("failed", "last line")),
        (2, ("failed", "last line")),
    ],
)
def test_what_an_exit_status_means(code, expected):
    assert verdict(code, "last line", killed=False) == expected


def test_a_run_that_says_nothing_is_told_by_its_status():
    assert verdict(3, "", killed=False) == ("failed", "ended with status 3 and said nothing")


def test_a_run_that_the_launcher_kills_has_not_failed(job):
    attempt = job("wait").start()
    wait_for(attempt._job.folder.joinpath("ready").exists)
    attempt.kill()
    assert attempt.wait() == "stopped"
    assert "SIGKILL" in attempt.said


def test_a_run_that_is_asked_to_stop_saves_and_goes_on_later(job):
    run = job("wait")
    attempt = run.start()
    wait_for((run.folder / "ready").exists)
    assert read_record(run.folder)["state"] == "running"
    assert is_held(run.folder / ".job") and is_held(run.folder / ".child")
    attempt.ask_to_stop()
    assert (attempt.wait(), attempt.said) == ("stopped", "saved")
    assert (run.folder / "saved.txt").read_text() == "SIGTERM\n"
    assert not is_held(run.folder / ".job") and not is_held(run.folder / ".child")


def test_a_run_that_is_asked_to_stop_before_it_began_does_not_begin(job):
    run = job("end")
    with hold_elsewhere(run.folder / ".job"):
        attempt, started = run.start(patience=30), time.monotonic()
        attempt.ask_to_stop()
        assert attempt.wait() == "busy"
        assert time.monotonic() - started < 10
    assert not (run.folder / "starts.txt").exists()


class hold_elsewhere:
    """Another process holds the lock while the block runs."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        code = f"""
        import pathlib, sys, time
        from rnnjax.train.records import hold
        with hold(pathlib.Path({str(self.path)!r}), "it"):
            print("held", flush=True)
            time.sleep(60)
        """
        self.process = background(code)
        assert self.process.stdout.readline() == "held\n"
        return self.process

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def test_a_run_that_another_process_has_is_left_to_it(job):
    run = job("end")
    with hold_elsewhere(run.folder / ".job") as other:
        attempt = run.start()
        assert attempt.wait() == "busy"
        assert attempt.said.startswith(f"run is in use by process {other.pid} on ")
    assert not (run.folder / "starts.txt").exists()
    assert run.start().wait() == "finished"


def test_a_start_waits_as_long_as_it_was_told_for_another_process(job):
    run = job("end")
    with hold_elsewhere(run.folder / ".job"):
        attempt = run.start(patience=30)
        time.sleep(0.3)
        assert attempt.state is None and not attempt.has_begun
    assert attempt.wait() == "finished"


def test_a_child_whose_parent_was_killed_counts_until_it_has_saved(job):
    run = job("wait", saving=1)
    parent = background(f"from launch.job import Job\nJob({run.arguments!r}, {str(ROOT)!r}).start().wait()")
    wait_for((run.folder / "ready").exists)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    attempt = run.start()
    assert attempt.wait() == "busy"
    assert "what started it was killed" in attempt.said
    assert starts(run) == 1
    if sys.platform == "linux":  # where a child hears of it
        wait_for((run.folder / "saved.txt").exists)
    else:
        os.kill(int((run.folder / "starts.txt").read_text()), signal.SIGTERM)
    again = run.start(patience=30)
    wait_for(lambda: starts(run) == 2)
    again.kill()
    assert again.wait() == "stopped"


def test_a_run_sees_nothing_of_slurm(job, monkeypatch):
    for name in ("SLURM_NTASKS", "SLURMD_NODENAME", "SUBMITIT_EXECUTOR", "KEPT"):
        monkeypatch.setenv(name, "1")
    run = job("end")
    assert run.start().wait() == "finished"
    assert (run.folder / "log.txt").read_text().splitlines()[-1] == "['KEPT']"


def test_a_job_is_importable_and_holds_nothing_but_arguments_and_checkout(job):
    run = job("end")
    assert vars(run) == {"arguments": run.arguments, "checkout": str(ROOT)}
    assert b"launch.job" in pickle.dumps(run)
    assert vars(pickle.loads(pickle.dumps(run))) == vars(run)


def test_a_job_of_the_cluster_ends_with_the_run(job):
    assert job("end")() == "finished"


def test_a_job_of_the_cluster_fails_with_the_run(job):
    with pytest.raises(RuntimeError, match="run: failed: ValueError: the widget is bent; .*log.txt"):
        job("raise")()


def test_a_checkpoint_inside_a_signal_handler_waits_for_the_run_and_asks_for_the_same_job(job):
    pytest.importorskip("submitit", reason="submitit, of the extra slurm, is not installed")
    run = job("wait", saving=0.5)
    code = f"""
    import signal, sys
    from launch.job import Job
    job = Job({run.arguments!r}, {str(ROOT)!r})
    def handler(number, frame):
        again = job.checkpoint()
        print(type(again).__name__, vars(again.function) == {{"arguments": job.arguments, "checkout": job.checkout}})
        sys.exit(0)
    signal.signal(signal.SIGUSR2, handler)
    job()
    """
    process = background(code)
    wait_for((run.folder / "ready").exists)
    process.send_signal(signal.SIGUSR2)
    assert process.communicate(timeout=20)[0] == "DelayedSubmission True\n"
    assert read_record(run.folder)["state"] == "stopped"
    assert (run.folder / "saved.txt").read_text() == "SIGTERM\n"


@pytest.mark.parametrize(("do", "status"), [("end", 0), ("raise", 1)])
def test_no_second_job_is_asked_for_where_the_run_has_ended(job, do, status):
    pytest.importorskip("submitit", reason="submitit, of the extra slurm, is not installed")
    run = job(do)
    run._attempt = run.start()
    run._attempt.wait()
    with pytest.raises(SystemExit) as exit:
        run.checkpoint()
    assert exit.value.code == status


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "[]", "null", '{"state": "dancing", "attempts": 1}', '{"state": "running", "attempts": "x"}', "\xff",
     '{"state": "running", "attempts": 1, "started": "noon"}', '{"state": "failed", "attempts": 1, "error": 3}'],
)  # fmt: skip
def test_a_damaged_record_is_told_and_the_run_starts(job, damaged):
    run = job("end")
    run.folder.mkdir()
    (run.folder / "run.json").write_text(damaged, encoding="latin-1")
    assert read_record(run.folder)["state"] == "waiting"
    assert "damaged" in read_record(run.folder)["error"]
    assert run.start().wait() == "finished"
    assert read_record(run.folder)["attempts"] == 1


def test_a_folder_that_can_not_be_made_is_a_failure_that_names_it(job):
    run = job("end")
    run.folder.write_text("a file")
    attempt = run.start()
    assert attempt.wait() == "failed"
    assert str(run.folder) in attempt.said


def test_a_checkout_that_is_gone_is_a_failure_that_names_it(job, tmp_path):
    attempt = Job(job("end").arguments, str(tmp_path / "gone")).start()
    assert attempt.wait() == "failed"
    assert "gone" in attempt.said


TRACEBACK = "Traceback (most recent call last):\n  File 'x', line 1\n    f()\n    ^^^\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("one\n\n", "one"),
        ("one\ntwo\nthree\n", "two; three"),
        (f"{TRACEBACK}ValueError: bent\n", "ValueError: bent"),
        (f"{TRACEBACK}KeyError: 1\n\nDuring handling:\n\n{TRACEBACK}ValueError: bent\n", "ValueError: bent"),
        (f"{TRACEBACK}ValueError: bent\n-----\nFor simplicity, JAX has removed its frames.\n", "ValueError: bent"),
        ("\x1b[31mred\x1b[0m\x07 \xff\n", "red \ufffd"),
        ("x" * 50_000, "x" * 300),
    ],
)
def test_the_last_words_of_a_log(tmp_path, text, expected):
    log = tmp_path / "log.txt"
    log.write_bytes(b"before\n" + text.encode("latin-1"))
    assert last_words(log, len(b"before\n")) == expected


def test_a_lock_is_seen_from_the_process_that_holds_it_too(tmp_path):
    assert not is_held(tmp_path / "none")
    with hold(tmp_path / "lock", "it"):
        assert is_held(tmp_path / "lock")
    assert not is_held(tmp_path / "lock")
    with (tmp_path / "lock").open("rb") as file:  # having looked, it is free for others
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_which_run_it_is_does_not_depend_on_where_it_writes_and_how_it_is_carried_out():
    arguments = [
        "x",
        "--workdir=a",
        "--config.train.profile=yes",
        "--config.train.checkpoint.keep=3",
        "--config.cells=b",
    ]
    assert identity(arguments) == ["--config.cells=b", "x"]
    assert identity(arguments[:-1]) != identity(arguments)


def test_the_record_is_json_that_anything_can_read(job):
    run = job("end")
    run.start().wait()
    assert json.loads((run.folder / "run.json").read_text())["state"] == "finished"
