"""What TensorBoard and Weights & Biases show is what the rows say: read back with TensorBoard's own reader and from
the file that `wandb sync` uploads."""

import json
import math
import os
import pathlib
import struct
import sys

import numpy as np
import pytest

from rnnjax.train.config import TrainConfig, UsageError
from rnnjax.train.sinks import open_sinks

TENSORBOARD, WANDB = TrainConfig(tensorboard=True), TrainConfig(wandb=True)
ASKED = {"experiment": "gradient_norms", "task": "adding", "config": {"cells": ["lstm"], "train": {"steps": 100}}}
ROWS = (
    {"step": 50, "kind": "train", "loss": np.float32(0.5), "clipped": True, "note": "text", "omega": None},
    {"step": 50, "kind": "train", "replica": 3, "loss": math.nan, "gradient_norm": math.inf},
    {"step": 50, "kind": "train", "replica": 0, "loss": 0.125, "gradient_norm": 2},
    {"step": 50, "kind": "eval", "split": "test", "loss": 0.25},
    {"step": 100, "kind": "eval", "split": "test", "replica": 3, "loss": 1.5},
)


@pytest.fixture
def opened():
    """`open_sinks`, each of which is closed when the test ends."""
    sinks = []

    def open_(*arguments, **options):
        new = open_sinks(*arguments, **options)
        sinks.extend(new)
        return new

    yield open_
    for sink in sinks:
        sink.close()


def shown_by_tensorboard(workdir):
    """{tag: [(step, value)]} as TensorBoard shows it."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    reader = EventAccumulator(str(workdir / "tensorboard"))
    reader.Reload()
    tags = reader.Tags()["tensors"]
    return {tag: [(event.step, event.tensor_proto.float_val[0]) for event in reader.Tensors(tag)] for tag in tags}


def losses(start, stop):
    """Rows every 50 steps, whose loss tells which start wrote them."""
    return [{"step": step, "kind": "train", "loss": start + step / 1000} for step in range(start + 50, stop + 1, 50)]


def test_where_nothing_is_asked_for_nothing_is_written(tmp_path):
    assert open_sinks(TrainConfig(), tmp_path, ASKED) == []
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_shows_the_numbers_of_the_rows(tmp_path, opened):
    (sink,) = opened(TENSORBOARD, tmp_path, ASKED)
    for row in ROWS:
        sink.write(row)
    shown = shown_by_tensorboard(tmp_path)  # before it is closed: a kill loses no row
    assert math.isnan(shown["replica_3/train/loss"].pop()[1])
    assert shown == {
        "train/loss": [(50, 0.5)],
        "train/clipped": [(50, 1.0)],
        "replica_3/train/loss": [],
        "replica_3/train/gradient_norm": [(50, math.inf)],
        "replica_0/train/loss": [(50, 0.125)],
        "replica_0/train/gradient_norm": [(50, 2.0)],
        "eval/test/loss": [(50, 0.25)],
        "replica_3/eval/test/loss": [(100, 1.5)],
    }


def test_tensorboard_shows_no_step_twice_when_the_run_goes_on(tmp_path, opened):
    for start, stop in ((0, 250), (100, 400), (300, 350)):
        (sink,) = opened(TENSORBOARD, tmp_path, ASKED, step=start)
        for row in losses(start, stop):
            sink.write(row)
    shown = shown_by_tensorboard(tmp_path)["train/loss"]
    assert [step for step, _ in shown] == [50, 100, 150, 200, 250, 300, 350]
    assert [int(value) for _, value in shown] == [0, 0, 100, 100, 100, 100, 300]
    assert len(list((tmp_path / "tensorboard").iterdir())) == 3


def test_tensorboard_forgets_a_start_that_saved_nothing(tmp_path, opened):
    (killed,) = opened(TENSORBOARD, tmp_path)
    for row in ({"step": 0, "kind": "eval", "loss": 7.0}, *losses(0, 200)):
        killed.write(row)
    (path,) = (tmp_path / "tensorboard").iterdir()
    os.truncate(path, path.stat().st_size - 5)  # in the middle of a row
    (sink,) = opened(TENSORBOARD, tmp_path)
    sink.write({"step": 50, "kind": "train", "loss": 3.0})
    assert {tag: values for tag, values in shown_by_tensorboard(tmp_path).items() if values} == {
        "train/loss": [(50, 3.0)]
    }


def test_a_full_disk_is_told_and_not_waited_for(tmp_path):
    (sink,) = open_sinks(TENSORBOARD, tmp_path)
    sink.write(ROWS[0])
    (path,) = (tmp_path / "tensorboard").iterdir()
    (descriptor,) = [
        int(name) for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}") == str(path)
    ]
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor)
    os.close(full)
    for act in (lambda: sink.write(ROWS[1]), sink.close):
        with pytest.raises(OSError, match="No space left") as error:
            act()
        assert error.value.filename == str(tmp_path / "tensorboard")


@pytest.mark.parametrize("config, package", [(TENSORBOARD, "tensorboardX"), (WANDB, "wandb")])
def test_a_package_that_is_not_installed_is_told(tmp_path, monkeypatch, config, package):
    for module in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    field = "wandb" if config.wandb else "tensorboard"
    with pytest.raises(UsageError, match=f"--config.train.{field} needs the package {package} .*pip install {package}"):
        open_sinks(config, tmp_path, ASKED)
    assert list(tmp_path.iterdir()) == []


def test_where_the_second_is_refused_the_first_is_closed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match="pip install wandb"):
        open_sinks(TrainConfig(tensorboard=True, wandb=True), tmp_path, ASKED)
    held = [os.path.realpath(f"/dev/fd/{number}") for number in os.listdir("/dev/fd")]
    assert any(tmp_path.rglob("events.*")) and not [path for path in held if path.startswith(str(tmp_path))]


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """wandb without a key, a network or anyone to ask, whatever the surroundings say."""
    import wandb

    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.setattr(sys, "stdin", None)
    yield
    wandb.teardown()


def read_wandb(path: pathlib.Path):
    """The records of a .wandb file: after a head of 7 bytes a LevelDB log, in blocks of 32 KiB, of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    data, at, held, records = path.read_bytes(), 7, b"", []
    assert data[:4] == b":W&B"
    while at < len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        held += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            records.append(wandb_internal_pb2.Record.FromString(held))
            held = b""
    return records


def history(records):
    """The rows of a run, without what W&B adds to them."""
    kept = [record.history for record in records if record.WhichOneof("record_type") == "history"]
    rows = [{item.nested_key[0]: json.loads(item.value_json) for item in row.item} for row in kept]
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]


def test_wandb_keeps_the_rows_without_a_network_and_goes_on_as_one_run(tmp_path, alone, capfd):
    import wandb

    workdir, found = tmp_path / "run", []
    workdir.mkdir()
    for start in (0, 50):
        (sink,) = open_sinks(WANDB, workdir, ASKED, step=start)
        for row in ROWS:
            if row["step"] > start:
                sink.write(row)
        sink.close()
        wandb.teardown()  # as at the end of a process: the last rows are written a little after `close`
        new = set(workdir.glob("wandb/offline-run-*/*.wandb")) - {path for path, _ in found}
        found += [(path, read_wandb(path)) for path in new]
    first, second = (history(records) for _, records in found)
    assert math.isnan(first[1].pop("replica_3/train/loss"))
    assert first == [
        {"step": 50, "train/loss": 0.5, "train/clipped": 1},
        {"step": 50, "replica_3/train/gradient_norm": math.inf},
        {"step": 50, "replica_0/train/loss": 0.125, "replica_0/train/gradient_norm": 2},
        {"step": 50, "eval/test/loss": 0.25},
        {"step": 100, "replica_3/eval/test/loss": 1.5},
    ]
    assert second == [{"step": 100, "replica_3/eval/test/loss": 1.5}]
    runs = [record.run for _, records in found for record in records if record.WhichOneof("record_type") == "run"]
    assert len(runs) == 2 and runs[0].run_id == runs[1].run_id and runs[1].resume
    assert {run.project for run in runs} == {"gradient_norms"} and {run.display_name for run in runs} == {str(workdir)}
    shown = {entry.key: json.loads(entry.value_json) for entry in runs[0].config.update}
    assert {name: shown[name] for name in ASKED} == ASKED
    metrics = [
        record.metric for _, records in found for record in records if record.WhichOneof("record_type") == "metric"
    ]
    assert all(metric.glob_name == "*" and metric.step_metric == "step" for metric in metrics) and len(metrics) == 2
    assert capfd.readouterr() == ("", "")


def test_two_runs_are_two_to_wandb(tmp_path, alone):
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        open_sinks(WANDB, tmp_path / name)[0].close()
        (path,) = (tmp_path / name).glob("wandb/offline-run-*/*.wandb")
        found.append(path.stem)
    assert found[0] != found[1]
