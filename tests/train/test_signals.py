"""A signal asks a run to save and to end, Ctrl-C ends it, and a workdir is one process's."""

import dataclasses
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import jax
import pytest
from resume_case import leaves_behind, quick_compilation

from rnnjax.cells import Elman
from rnnjax.tasks import Adding
from rnnjax.train import checkpoint, cli
from rnnjax.train.build import make_model
from rnnjax.train.config import CheckpointConfig, TrainConfig, UsageError
from rnnjax.train.loop import train
from rnnjax.train.signals import Interrupted, noting

SIGNALS = CheckpointConfig().signals


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("compiled")):
        yield


def send(*names):
    for name in names:
        os.kill(os.getpid(), getattr(signal, name))


@dataclasses.dataclass(frozen=True)
class Told(Adding):
    """The adding problem, whose process is sent signals while its loss is traced."""

    def loss(self, outputs, batch):
        send(*TRACING)
        return super().loss(outputs, batch)


TRACING: list[str] = []


class Sending:
    """A probe that has signals sent at a step, once."""

    def __init__(self, step=None, names=()):
        self.steps, self._step, self._names, self.before = (0, 4, 8), step, names, {}

    def inside(self, apply, params):
        return {"sum": sum(leaf.sum() for leaf in jax.tree.leaves(params))}

    def host(self, step, values):
        self.before = {name: signal.getsignal(getattr(signal, name)) for name in ("SIGTERM", "SIGUSR1", "SIGUSR2")}
        if step == self._step:
            send(*self._names)


def run(workdir, step=None, names=(), **saves):
    """A training of 8 steps in calls of 2 that saves at the end alone, unless it is told to."""
    task = Told(4)
    config = TrainConfig(
        steps=8, steps_per_call=2, batch_size=2, eval_every=4, eval_batch=4, log_every=2,
        checkpoint=CheckpointConfig(every_minutes=0, **saves),
    )  # fmt: skip
    probe = Sending(step, names)
    return train(make_model(Elman(2, 3), task, 0), task, config, workdir, probes=[probe]), probe


def called(workdir, *arguments, **options):
    """The exit status of it, as the command line ends it."""
    return cli.call(lambda _, workdir: run(workdir, *arguments, **options) and 0, cli.Parsed(None, workdir, False))


def heartbeat(workdir):
    return json.loads((workdir / "heartbeat.json").read_text())


@pytest.fixture(scope="module")
def never_told(tmp_path_factory):
    """What a run leaves that got no signal."""
    workdir = tmp_path_factory.mktemp("never_told") / "run"
    run(workdir)
    return leaves_behind(workdir)


@pytest.mark.parametrize("names", [("SIGTERM",), ("SIGUSR2",), ("SIGUSR2", "SIGTERM")], ids="-".join)
@pytest.mark.parametrize("step", [0, 4])
def test_the_run_saves_at_the_next_boundary_and_goes_on_to_the_same_bits(tmp_path, never_told, capsys, names, step):
    assert called(tmp_path, step, names) == cli.RESUME == 75
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"{names[0]}: saved at step {step}; the same command goes on from there"
    assert heartbeat(tmp_path)["state"] == "stopped" and heartbeat(tmp_path)["step"] == step
    assert [path.name for path in (tmp_path / "checkpoints" / "latest").iterdir()] == [str(step)]
    assert called(tmp_path) == 0
    assert leaves_behind(tmp_path) == never_told and heartbeat(tmp_path)["state"] == "finished"


def test_while_the_step_compiles(tmp_path, never_told, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "TRACING", ["SIGTERM"])
    with pytest.raises(Interrupted, match="SIGTERM: saved at step 2"):
        run(tmp_path)
    monkeypatch.undo()
    run(tmp_path)
    assert leaves_behind(tmp_path) == never_told


@pytest.mark.parametrize("at, ends", [(4, (6, 8)), (8, (8,))])
def test_during_a_save_and_during_the_last(tmp_path, never_told, monkeypatch, at, ends):
    write = checkpoint.write_safetensors

    def writes(path, arrays):
        if arrays.get("0/step", 0) == at:
            send("SIGTERM")
        write(path, arrays)

    monkeypatch.setattr(checkpoint, "write_safetensors", writes)
    with pytest.raises(Interrupted) as interrupted:
        run(tmp_path, every_steps=2)
    assert interrupted.value.step in ends  # the next boundary may have been passed already
    monkeypatch.undo()
    run(tmp_path, every_steps=2)
    assert leaves_behind(tmp_path) == never_told


def test_other_signals_may_be_asked_for(tmp_path):
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(Interrupted, match="SIGUSR1: saved at step 4"):
        run(tmp_path, 4, ("SIGUSR1",), signals=("SIGUSR1",))
    assert signal.getsignal(signal.SIGUSR1) == before
    _, probe = run(tmp_path, signals=("SIGUSR1",))
    assert probe.before["SIGTERM"] == signal.getsignal(signal.SIGTERM) and probe.before["SIGUSR1"] != before


def test_signals_are_noted_in_the_main_thread_alone():
    def other():
        with noting(SIGNALS) as signals:
            found.append((signals.received, signal.getsignal(signal.SIGTERM)))

    found, before = [], signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [(None, before)]
    with noting(SIGNALS) as signals:
        send("SIGUSR2", "SIGTERM")
        assert signals.received == "SIGUSR2" and signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("step, names", [(4, ("SIGTERM",)), (None, ())])
def test_a_save_that_fails_at_the_end_is_told_and_not_taken_for_saved(tmp_path, capsys, monkeypatch, step, names):
    def full(path, arrays):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(checkpoint, "write_safetensors", full)
    assert called(tmp_path, step, names) == 1
    told = capsys.readouterr().err
    assert f"No space left on device: {tmp_path / 'checkpoints'}" in told and "saved at" not in told
    assert heartbeat(tmp_path)["state"] == "failed"


def test_ctrl_c_ends_the_run_at_once_and_it_goes_on_from_the_last_save(tmp_path, never_told, capsys):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert called(tmp_path, 4, ("SIGINT",), every_steps=2) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "interrupted: " in capsys.readouterr().err and heartbeat(tmp_path)["state"] == "stopped"
    assert [path.name for path in (tmp_path / "checkpoints" / "latest").iterdir()] == ["2"]
    run(tmp_path, every_steps=2)
    assert leaves_behind(tmp_path) == never_told


@pytest.fixture
def held_by_another(tmp_path):
    """A workdir, and the process that trains in it."""
    workdir = tmp_path / "run"
    code = (
        "import pathlib, sys; from rnnjax.train.records import hold\n"
        "with hold(pathlib.Path(sys.argv[1]) / '.lock', 'it'): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(workdir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        yield workdir, other
        other.kill()


def state_of(workdir):
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in workdir.rglob("*")}


def test_two_processes_do_not_train_in_one_workdir(held_by_another):
    workdir, other = held_by_another
    (workdir / "metrics.jsonl").write_text("{}\n")
    before = state_of(workdir)
    with pytest.raises(UsageError, match=f"^{workdir} is in use by process {other.pid} on {socket.gethostname()}: "):
        run(workdir)
    assert state_of(workdir) == before
    other.kill()
    other.wait()
    run(workdir)


def test_nor_do_two_of_one_command(held_by_another):
    workdir, other = held_by_another
    before = state_of(workdir)
    small = ("--config.cells=elman", "--config.train.steps=25", "--config.train.eval_every=25")
    command = [sys.executable, "-m", "experiments.gradient_norms", f"--workdir={workdir}", *small]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    told = f"{workdir} is in use by process {other.pid} on {socket.gethostname()}: start this when that has ended"
    assert done.stderr.splitlines()[-1].startswith(told) and state_of(workdir) == before
