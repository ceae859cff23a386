"""Small trainings of many kinds in processes of their own, killed at chosen moments, and what they leave.

A process of the standard library's forkserver has imported all before it is forked, so that a life costs little. The
kernel kills it with SIGKILL: at a moment of the clock, or right before the n-th time that it opens to write, makes,
renames or removes something in its workdir, or writes a row.
"""

import contextlib
import dataclasses
import functools
import json
import multiprocessing
import os
import pathlib
import re
import signal
import sys
import time
from typing import ClassVar

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from rnnjax.cells import LSTM, Elman
from rnnjax.layers import InputDropout, RecurrentDropout
from rnnjax.tasks import Adding, Batch, Copying, CorpusTask
from rnnjax.train import cli, records
from rnnjax.train.build import make_model
from rnnjax.train.config import CheckpointConfig, ReplicasConfig, TrainConfig
from rnnjax.train.loop import train
from rnnjax.train.probes import GradientNorms
from rnnjax.train.replicas import make_replicas

CASES = ("adding", "dropout", "corpus", "probes", "replicas", "window", "corpus_window")
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink", "shutil.rmtree")


@contextlib.contextmanager
def quick_compilation(cache: pathlib.Path):
    """For tests that compile far more than they compute: without optimizations, and each program once."""
    jax.config.update("jax_disable_most_optimizations", True)
    _keep_compiled(cache)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    _keep_compiled(None)
    compilation_cache.reset_cache()


def _keep_compiled(cache: pathlib.Path | None) -> None:
    jax.config.update("jax_compilation_cache_dir", None if cache is None else str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1 if cache is None else 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0 if cache is None else -1)


@dataclasses.dataclass(frozen=True)
class Walks(CorpusTask):
    """The sum of the inputs so far, over sequences of lengths 1 to 6 in batches of two shapes."""

    input_size: ClassVar[int] = 1
    output_size: ClassVar[int] = 1
    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "identity"
    unit: ClassVar[str] = "squared error"

    def batch(self, step, batch_size, seed):
        return self._drawn([seed, step], batch_size, 3 if step % 3 == 1 else 6)

    def batches(self, split, batch_size):
        return [self._drawn([len(split), number], batch_size, 6) for number in range(2)]

    def _drawn(self, seed, batch_size, time):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, time + 1, batch_size).astype(np.int32)
        mask = (np.arange(time)[:, None] < lengths).astype(np.float32)
        inputs = rng.normal(size=(time, batch_size, 1)).astype(np.float32) * mask[..., None]
        return Batch(inputs, np.cumsum(inputs, 0), mask, lengths)

    def loss(self, outputs, batch):
        return np.square(1.0) * (outputs - batch.targets)[..., 0] ** 2

    def metrics(self, outputs, batch):
        return {}


def training(case: str, **changes):
    """(model or replicas, task, config, probes) of a case: saves every 2 steps, evaluations every 4, 8 steps."""
    config = TrainConfig(
        steps=8, steps_per_call=2, batch_size=2, learning_rate=0.02, eval_every=4, eval_batch=4, log_every=2,
        checkpoint=CheckpointConfig(every_minutes=0, every_steps=2),
    )  # fmt: skip
    task, probes = Adding(5), []
    cell = Elman(2, 3)
    if case == "dropout":
        cell = InputDropout(RecurrentDropout(LSTM(2, 3), 0.3), 0.5)
        config = dataclasses.replace(config, weight_noise=0.05, ema=0.5)
    if case in ("corpus", "corpus_window"):
        task, cell = Walks(), Elman(1, 3)
    if case == "probes":
        probes = [GradientNorms(task, task.sample(jax.random.key(9), 2), (0, 4, 8))]
    if case in ("window", "corpus_window"):
        config = dataclasses.replace(config, window=4)
    if case == "window":
        task = Copying(delay=4, symbols=3, recall=2)
        cell = LSTM(task.input_size, 3)
    config = dataclasses.replace(config, **changes)
    make = functools.partial(_model, task)
    if case == "replicas":
        config = dataclasses.replace(config, nonfinite="stop")
        return make_replicas(make, cell, config, ReplicasConfig(2, learning_rate=(0.02, 1e-3))), task, config, probes
    return make(cell, config.seed), task, config, probes


def _model(task, cell, seed):
    return make_model(cell, task, seed)


@dataclasses.dataclass(frozen=True)
class Life:
    """A process that trains `case` in `workdir`, with `changes` of its config, and dies before a change of a file.

    dies: a pattern that the change matches, or its number, from 1; none for a life to the end.
    torn: the number of a row, from 1, that is half written when it dies.
    sends: (pattern, signals): what it sends itself before the first change that matches.
    cache: where it keeps compiled programs, for lives after it.
    """

    case: str
    workdir: pathlib.Path
    dies: str | int = ""
    torn: int = 0
    sends: tuple[str, tuple[str, ...]] = ("", ())
    changes: dict = dataclasses.field(default_factory=dict)
    cache: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class Ended:
    """status: as a shell has it, -9 after a SIGKILL. seconds: how long it lived. changes: of files, in order."""

    status: int
    seconds: float
    stderr: str
    changes: list[str]


def live(life: Life, seconds: float | None = None, saved: bool = False) -> Ended:
    """Runs a life to its end, or for so many seconds, counted from its first save where `saved`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    told = [life.workdir.with_name(f"{life.workdir.name}.{kind}") for kind in ("stderr", "changes")]
    process = context.Process(target=_live, args=(life, *told))
    began = time.monotonic()
    before = _saves(life.workdir)
    process.start()
    while saved and process.is_alive() and _saves(life.workdir) <= before:
        time.sleep(0.005)
    process.join(300 if seconds is None else seconds)
    late = process.is_alive()
    if late:
        process.kill()
        process.join()
    stderr, changes = (path.read_text() if path.exists() else "" for path in told)
    assert seconds is not None or not late, f"{life} did not end: {stderr}"
    return Ended(process.exitcode, time.monotonic() - began, stderr, changes.splitlines())


def _saves(workdir: pathlib.Path) -> set[pathlib.Path]:
    return set(workdir.glob("checkpoints/latest/*[0-9]"))


def _live(life: Life, stderr: pathlib.Path, changes: pathlib.Path) -> None:
    out = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, sys.stderr.fileno())
    jax.config.update("jax_disable_most_optimizations", True)
    _keep_compiled(life.cache)
    if life.torn:
        _tear(life.torn)
    sys.addaudithook(_Watch(life, changes.open("w", buffering=1)))

    def main(_, workdir):
        model, task, config, probes = training(life.case, **life.changes)
        train(model, task, config, workdir, probes=probes, name=life.case)

    status = cli.call(main, cli.Parsed(None, life.workdir, False))
    sys.stderr.flush()
    os._exit(status)


class _Watch:
    """An audit hook: notes every change of a file in the workdir, before it happens."""

    def __init__(self, life: Life, told):
        self._life, self._told, self._seen, self._sends = life, told, 0, life.sends[1]

    def __call__(self, event: str, args: tuple) -> None:
        what = self._change(event, args)
        if what is None:
            return
        self._seen += 1
        self._told.write(what + "\n")
        if self._sends and re.search(self._life.sends[0], what):
            names, self._sends = self._sends, ()
            for name in names:
                os.kill(os.getpid(), getattr(signal, name))
        dies = self._life.dies
        if self._seen == dies or (isinstance(dies, str) and dies and re.search(dies, what)):
            os.kill(os.getpid(), signal.SIGKILL)

    def _change(self, event: str, args: tuple) -> str | None:
        """ "os.rename /checkpoints/latest/2.orbax-checkpoint-tmp"; None for what changes nothing there."""
        if event == "open":
            flags = args[2]
            if not isinstance(flags, int) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return None
        elif event not in _CHANGES:
            return None
        if isinstance(args[0], int):
            return None
        path, workdir = os.fsdecode(args[0]), str(self._life.workdir)
        inside = event in ("os.remove", "os.rmdir") and args[-1] != -1  # a name in a folder that is being removed
        return f"{event} {path.removeprefix(workdir)}" if inside or path.startswith(workdir + "/") else None


def _tear(number: int) -> None:
    """Has the process die in the middle of the row of that number of metrics.jsonl."""
    write, left = records.Rows.write, [number]

    class Torn:
        def __init__(self, file):
            self._file = file

        def write(self, row):
            self._file.write(row[: len(row) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    def torn(rows, **row):
        left[0] -= rows._path.name == "metrics.jsonl"
        if not left[0]:
            rows._file = Torn(rows._file)
        write(rows, **row)

    records.Rows.write = torn


def leaves_behind(workdir: pathlib.Path) -> dict[str, bytes]:
    """{name: bytes} of what has to be the same: rows, the arrays of the newest saves, and measurements."""
    found = {"metrics.jsonl": (workdir / "metrics.jsonl").read_bytes()}
    for kind in ("latest", "best"):
        steps = [int(entry.name) for entry in (workdir / "checkpoints" / kind).iterdir() if entry.name.isdigit()]
        folder = workdir / "checkpoints" / kind / str(max(steps)) / "default"
        found[f"{kind}/{max(steps)}"] = (folder / "arrays.safetensors").read_bytes()
        about = json.loads((folder / "about.json").read_text())
        del about["seconds"], about["digest"]
        found[f"{kind}/{max(steps)}/about"] = json.dumps(about).encode()
    for path in sorted(workdir.glob("probes/*/[0-9]*.npz")):
        with np.load(path) as arrays:
            found[str(path.relative_to(workdir))] = b"".join(arrays[name].tobytes() for name in sorted(arrays))
    return found
