"""What the tests of the trainer share: a corpus of many lengths, models in float64, processes with several devices."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from flax import nnx

from rnnjax.cells import CELLS
from rnnjax.nn import SequenceModel
from rnnjax.tasks import Batch, Copying, CorpusTask
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.config import TrainConfig
from rnnjax.train.step import INIT, root_key, stream

LENGTHS = {"train": (3, 7, 7, 5, 2, 6), "valid": (4, 2), "test": (1, 6, 3, 6, 2)}
COPYING = Copying(delay=3, symbols=2, recall=2)


@dataclasses.dataclass(frozen=True)
class Sums(CorpusTask):
    """At every step the sum of the inputs so far, over sequences of many lengths.

    nan_at: the training step of which a target is not a number, at time and row nan_place.
    huge_at: the training step whose inputs are near the largest float32.
    """

    path: str = ""
    nan_at: int = -1
    huge_at: int = -1
    nan_place: tuple[int, int] = (0, 0)

    input_size: ClassVar[int] = 1
    output_size: ClassVar[int] = 1
    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "identity"
    unit: ClassVar[str] = "squared error"
    traced: ClassVar[list] = []

    def sequences(self, split):
        rng = np.random.default_rng(len(split))
        return [rng.normal(size=(length, 1)).astype(np.float32) for length in LENGTHS[split]]

    def steps_per_epoch(self, batch_size):
        return -(-len(LENGTHS["train"]) // batch_size)

    def batch(self, step, batch_size, seed):
        chosen = np.random.default_rng([seed, step]).permutation(len(LENGTHS["train"]))[:batch_size]
        batch = self.pad([self.sequences("train")[i] for i in chosen], batch_size)
        if step == self.nan_at:
            batch.targets[self.nan_place] = np.nan
        if step == self.huge_at:
            batch.inputs[...] = 3e38
        return batch

    def batches(self, split, batch_size):
        sequences = self.sequences(split)
        return (self.pad(sequences[at : at + batch_size], batch_size) for at in range(0, len(sequences), batch_size))

    def pad(self, sequences, batch_size):
        time = max(4, *map(len, sequences)) if max(map(len, sequences)) <= 4 else 7  # two buckets
        inputs, lengths = np.zeros((time, batch_size, 1), np.float32), np.zeros(batch_size, np.int32)
        for row, sequence in enumerate(sequences):
            inputs[: len(sequence), row], lengths[row] = sequence, len(sequence)
        mask = (np.arange(time)[:, None] < lengths).astype(np.float32)
        return Batch(inputs, np.cumsum(inputs, axis=0), mask, lengths)

    def loss(self, outputs, batch):
        Sums.traced.append(outputs.shape)
        return jnp.square(outputs - batch.targets)[..., 0]

    def metrics(self, outputs, batch):
        return {"late_error": (jnp.abs(outputs - batch.targets)[..., 0], batch.mask * self.late(batch.mask))}

    def late(self, mask):
        return jnp.broadcast_to(jnp.arange(mask.shape[0])[:, None] >= 3, mask.shape)


def config_of(**changes) -> TrainConfig:
    """One of few and small steps."""
    few = TrainConfig(
        steps=6, steps_per_call=2, batch_size=3, learning_rate=0.01, eval_every=4, eval_batch=4, log_every=2
    )
    return dataclasses.replace(few, **changes)


def cell_of(name: str, task, size: int = 3, **options):
    """A cell of CELLS in the sizes of a task."""
    outputs = {"output_size": task.output_size} if name == "jordan" else {}
    return CELLS[name](task.input_size, size, **outputs, **options)


def model_of(layer, task, seed: int = 0, dtype="float64") -> SequenceModel:
    """A model as the trainer makes it, but of any layer and in float64."""
    rngs = nnx.Rngs(params=stream(root_key(seed), INIT))
    return SequenceModel(layer, task.output_size, reads_last=task.reads_last, rngs=rngs, dtype=dtype)


def rows_of(folder: pathlib.Path, name: str = "metrics.jsonl") -> list[dict]:
    """The rows of a run."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def assert_same_bits(got, want) -> None:
    """Raises AssertionError unless two trees hold the same bits."""
    got, want = to_arrays(got), to_arrays(want)
    assert list(got) == list(want)
    for name, values in got.items():
        assert (values.dtype, values.shape) == (want[name].dtype, want[name].shape), name
        np.testing.assert_array_equal(values, want[name], err_msg=name)


def in_process(code: str, devices: int = 1, **variables: str) -> subprocess.Popen:
    """A process that runs `code` with so many devices, in the folder of these tests."""
    head = f"import jax\njax.config.update('jax_num_cpu_devices', {devices})\n"
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)} | variables
    return subprocess.Popen(
        [sys.executable, "-c", head + textwrap.dedent(code)],
        cwd=pathlib.Path(__file__).parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen, seconds: float = 300) -> str:
    """What a process printed, once it has ended well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return out
