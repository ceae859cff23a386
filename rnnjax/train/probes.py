"""Probes in the trainer: what is measured at chosen steps of training.

A probe has two halves: `inside` runs under jit and returns a pytree of arrays, `host` gets it as numpy.
"""

import pathlib
import zipfile
import zlib
from collections.abc import Callable, Collection
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax import probes
from rnnjax.tasks import Batch, SourceTarget, Task
from rnnjax.train.config import UsageError
from rnnjax.train.records import replacing, sync


class TrainingProbe(Protocol):
    """What the loop asks of a probe."""

    steps: Collection[int]
    """Before which steps it measures; 0 is before training. Multiples of steps_per_call."""

    def inside(self, apply: Callable[[Any, Batch], jax.Array], params: Any) -> Any:
        """The measurement, traced once. `apply(params, batch)` gives the outputs of the model as it evaluates."""

    def host(self, step: int, values: Any) -> None:
        """Takes the measurement at `step`, as numpy arrays; of several replicas with these on a first axis."""


class ProbeFiles:
    """FOLDER/STEP.npz, the measurements of a probe by their paths in the pytree: a run that goes on need not take them
    again."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder

    def write(self, step: int, values: Any) -> None:
        """Keeps a measurement."""
        with replacing(self._folder / f"{step}.npz") as path:
            np.savez(path, **dict(_named(values)))
            sync(path)  # a save that outlasts a loss of power counts on it

    def take_up(self, step: int, probe: TrainingProbe, like: Callable[[], Any]) -> None:
        """Gives the probe what was measured up to `step`, in order, and removes what comes again.

        like: () -> the structure of a measurement. Raises UsageError for a file that is missing or damaged.
        """
        held = {int(path.stem): path for path in self._folder.glob("*.npz") if path.stem.isdigit()}
        for later in [at for at in held if at > step]:
            held.pop(later).unlink(missing_ok=True)  # of several processes each comes by
        for at in sorted(at for at in probe.steps if at <= step):
            path = self._folder / f"{at}.npz"
            try:
                with np.load(path, allow_pickle=False) as stored:
                    structure = jax.tree.structure(like())
                    probe.host(at, structure.unflatten([stored[name] for name, _ in _named(like())]))
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                raise UsageError(
                    f"{path} is missing or damaged ({error}), but the saved state is of a later step: put it back, or "
                    "give another --workdir to start anew"
                ) from None


def _named(tree: Any) -> list[tuple[str, Any]]:
    paths = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), leaf) for path, leaf in paths]


class GradientNorms:
    """log10 ||dL_b/dcarry_t|| of every example b of one fixed batch, by distance from the step of the loss.

    L_b is the loss of example b at one step alone, the last that counts, and for an unroll that reads backwards the
    first: where a task has a loss at every step, what vanishes would hide behind the losses nearer by. Of a model that
    reads one sequence and writes another, an encoder's distances are from the end of the source.

    Results stand in `rows`: {unroll: {field: [T, B]}} for each step in `measured`, [R, T, B] of several replicas,
    "carry" being the norm of all fields together; nan at distances that an example does not have, inf for a gradient
    that is not finite. Unrolls that read backwards are those that are called "backward", as in `rnnjax.layers.run`.
    """

    def __init__(self, task: Task, batch: Batch, steps: Collection[int]):
        self.task, self.batch, self.steps = task, batch, frozenset(steps)
        self.measured: list[int] = []
        self.rows: list[dict[str, dict[str, np.ndarray]]] = []

    def inside(self, apply, params):
        """{unroll: {field: [T, B]}}."""

        def norms_of(last):
            def loss(params, batch):
                return one_step_loss(self.task, apply(params, batch), batch, last=last)

            return probes.gradient_norms(probes.carry_gradients(loss)(params, self.batch))

        norms = norms_of(last=True)
        backward = {name for name in norms if _reads_backwards(name)}
        if backward and not self.task.reads_last:
            norms |= {name: found for name, found in norms_of(last=False).items() if name in backward}
        return {name: jax.tree.map(self._by_distance(name), fields) for name, fields in norms.items()}

    def _by_distance(self, name: str) -> Callable[[jax.Array], jax.Array]:
        first, end, lengths = _places(self.task, self.batch)
        if isinstance(self.batch.inputs, SourceTarget) and "encoder" in name:
            first, end = jnp.zeros_like(lengths), lengths

        def by_distance(norms):
            norms = jnp.where(jnp.isnan(norms), jnp.inf, norms)  # nan is kept for distances that there are not
            if not _reads_backwards(name):
                return probes.by_distance(norms, end)
            at = first[None] + jnp.arange(norms.shape[0])[:, None]
            found = jnp.take_along_axis(norms, jnp.minimum(at, norms.shape[0] - 1), axis=0)
            return jnp.where(at < lengths[None], found, jnp.nan)

        return by_distance

    def host(self, step, values):
        """Keeps the row."""
        self.measured.append(step)
        self.rows.append(values)


def one_step_loss(task: Task, outputs: Any, batch: Batch, *, last: bool = True) -> jax.Array:
    """The sum over examples of the loss at each one's last (or first) step that counts: no example scales another's
    gradient."""
    losses = task.loss(outputs, batch)
    if task.reads_last:
        return jnp.sum(jnp.where(batch.mask > 0, losses, 0))
    first, end, _ = _places(task, batch)
    steps = jnp.arange(losses.shape[0])[:, None]
    return jnp.sum(jnp.where((steps == (end - 1 if last else first)[None]) & (batch.mask > 0), losses, 0))


def _places(task: Task, batch: Batch) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(the first step that counts, the end of those that count, the length), [B] each, of every example."""
    time, rows = jax.tree.leaves(batch.inputs)[0].shape[:2]
    lengths = jnp.full(rows, time) if batch.lengths is None else jnp.asarray(batch.lengths)
    if task.reads_last:
        return jnp.zeros_like(lengths), lengths, lengths
    counts = jnp.asarray(batch.mask) > 0
    any_counts = jnp.any(counts, axis=0)
    first = jnp.argmax(counts, axis=0)
    end = counts.shape[0] - jnp.argmax(counts[::-1], axis=0)
    return jnp.where(any_counts, first, 0), jnp.where(any_counts, end, 0), lengths


def _reads_backwards(name: str) -> bool:
    return name.rpartition("/")[2] == "backward"


def log_spaced_steps(steps: int, steps_per_call: int, count: int) -> tuple[int, ...]:
    """0 and at most `count` ends of calls up to `steps`, evenly spaced in log, the last one included."""
    calls = -(-steps // steps_per_call)
    spaced = np.unique(np.rint(np.geomspace(calls, 1, min(count, calls))).astype(int))  # of one, the last
    return (0, *(min(int(call) * steps_per_call, steps) for call in spaced))
