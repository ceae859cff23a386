"""The rows of a run, written to TensorBoard event files and to Weights & Biases (offline) as well.

metrics.jsonl holds the results; what is written here is a view of them. A number is called by the row that it stands
in: train/loss, eval/test/loss, replica_3/train/loss. nan and inf are written as they are, so that a curve shows where
it broke; None and texts are left out.
"""

import contextlib
import pathlib
import secrets
import time
from collections.abc import Mapping
from typing import Any, Protocol

from rnnjax.train.config import TrainConfig, UsageError
from rnnjax.train.records import naming, replacing

_NO_NUMBERS = ("step", "kind", "split", "replica")


class Sink(Protocol):
    """What the loop asks of a sink. It writes from process 0 alone."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Takes a row of metrics.jsonl: step, kind ("train" or "eval"), split and replica where it has them, numbers.

        Raises OSError on a full disk.
        """

    def close(self) -> None:
        """Writes what is left and closes."""


def open_sinks(
    config: TrainConfig, workdir: pathlib.Path, asked: Mapping[str, Any] | None = None, step: int = 0
) -> list[Sink]:
    """The sinks that the config asks for, in WORKDIR/tensorboard and WORKDIR/wandb.

    asked: what the run was asked for, as config.json has it; shown beside the curves in Weights & Biases.
    step: from which the run goes on; rows past it, of an earlier start, are written again.

    Raises UsageError where a package is not installed.
    """
    sinks: list[Sink] = []
    with contextlib.ExitStack() as stack:  # closes the first where the second is refused
        if config.tensorboard:
            with _installed("tensorboard", "tensorboardX"):
                sinks.append(_TensorBoard(workdir / "tensorboard", step))
            stack.callback(sinks[0].close)
        if config.wandb:
            with _installed("wandb", "wandb"):
                sinks.append(_Wandb(workdir, asked or {}))
        stack.pop_all()
    return sinks


@contextlib.contextmanager
def _installed(field: str, package: str):
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"--config.train.{field} needs the package {package} ({error}): pip install {package}, or leave it off"
        ) from None


def _tagged(row: Mapping[str, Any]) -> dict[str, float]:
    """{tag: number} of a row."""
    replica = row.get("replica")
    group = [
        *([] if replica is None else [f"replica_{replica}"]),
        row["kind"],
        *([row["split"]] if row.get("split") else []),
    ]
    numbers = {name: value for name, value in row.items() if name not in _NO_NUMBERS}
    return {
        "/".join([*group, name]): float(value)
        for name, value in numbers.items()
        if value is not None and not isinstance(value, str)
    }


class _TensorBoard:
    """One event file a start, one event a row.

    tensorboardX, since it needs neither TensorBoard nor torch; of it the writer that writes at once: the one with a
    thread waits for ever once that has died of a full disk.
    """

    def __init__(self, folder: pathlib.Path, step: int):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2, summary_pb2

        self._folder, self._event, self._summary = folder, event_pb2.Event, summary_pb2.Summary
        folder.mkdir(parents=True, exist_ok=True)
        earlier = len(list(folder.glob("events.*")))
        with naming(folder):
            # TensorBoard reads the files in the order of their names, which start with the second.
            self._writer = EventsWriter(str(folder / "events"), f".{earlier:04d}")
        # From the second start on, TensorBoard forgets what it has read of this step and later ones. The first has to
        # be told too, or it takes the second for it.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(step + 1 if step else 0, session_log=start)

    def write(self, row):
        values = [self._summary.Value(tag=tag, simple_value=number) for tag, number in _tagged(row).items()]
        self._add(row["step"], summary=self._summary(value=values))

    def close(self):
        with naming(self._folder):
            self._writer.close()

    def _add(self, step: int, **what: Any) -> None:
        with naming(self._folder):
            self._writer.write_event(self._event(wall_time=time.time(), step=step, **what))
            self._writer.flush()


class _Wandb:
    """A run that `wandb sync WORKDIR/wandb/offline-run-*` uploads; nothing goes over the network before.

    Every start is a folder of its own, of one run by its id: synced in order, they go on where the last one ended. Rows
    that were done again stand in two folders, with the same step and the same numbers. W&B's own process writes the
    files, every 15 seconds and at the end: a run that is killed loses the rows since then there, and a full disk is
    told in its logs alone.
    """

    def __init__(self, workdir: pathlib.Path, asked: Mapping[str, Any]):
        import wandb

        self._run = wandb.init(
            mode="offline",
            dir=str(workdir),
            id=_run_id(workdir / "wandb" / "run_id"),
            resume="allow",
            project=asked.get("experiment", "rnnjax"),
            name=str(workdir),
            config=dict(asked),
            settings=wandb.Settings(console="off", silent=True, reinit="create_new"),
        )
        self._run.define_metric("*", step_metric="step")  # its own count of rows is no step of training

    def write(self, row):
        self._run.log({"step": row["step"], **_tagged(row)})

    def close(self):
        self._run.finish()


def _run_id(path: pathlib.Path) -> str:
    """The same at every start of a run, and of no other run."""
    if not path.exists():
        with replacing(path) as temporary:
            temporary.write_text(secrets.token_hex(4) + "\n", encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()
