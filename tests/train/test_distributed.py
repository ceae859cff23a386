"""Two processes that train together are one with two devices, and go on together."""

import functools
import socket

import numpy as np
import pytest
from cases import in_process, printed, rows_of

from rnnjax.testing import TOLERANCE, assert_close
from rnnjax.train.config import DistributedConfig, TrainConfig, UsageError
from rnnjax.train.devices import start

TRAINS = """
import os, pathlib, signal
import numpy as np
from cases import *
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.config import CheckpointConfig, DistributedConfig
from rnnjax.train.devices import start
from rnnjax.train.loop import train
from rnnjax.train.replicas import Replica
from rnnjax.train.signals import Interrupted
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
process, processes, folder = {process}, {processes}, pathlib.Path({folder!r})
together = DistributedConfig(processes, process, "localhost:{port}")
config = config_of(
    batch_size=4, devices=2, steps=8, distributed=together, checkpoint=CheckpointConfig(every_minutes=0)
)
start(config)

class Ends:
    "At step 4 a signal comes to one process, the last."

    steps = (4,)

    def inside(self, apply, params):
        return {{"sum": sum(leaf.sum() for leaf in jax.tree.leaves(params))}}

    def host(self, step, values):
        if not asked and process == processes - 1:
            asked.append(step)
            os.kill(os.getpid(), signal.SIGTERM)

for name in {names}:
    task = Sums() if name == "corpus" else COPYING
    models = [model_of(cell_of("elman", task), task, seed) for seed in range(2)]
    what = models[0] if name != "replicas" else [Replica(model, seed) for seed, model in enumerate(models)]
    asked = [] if processes > 1 else [4]
    try:
        found = train(what, task, config, folder / name, probes=[Ends()])
        assert processes == 1
    except Interrupted as interrupted:
        assert interrupted.step == 4, interrupted
        asked = [4]
        print("interrupted")
        found = train(what, task, config, folder / name, probes=[Ends()])
    found = found if isinstance(found, list) else [found]
    arrays = to_arrays([(one.state, one.best) for one in found])
    np.savez(folder / f"{{name}}{{process}}.npz", **arrays)
"""


@functools.cache
def free_port():
    with socket.socket() as bound:
        bound.bind(("localhost", 0))
        return bound.getsockname()[1]


@pytest.mark.parametrize("names", [("corpus",), pytest.param(("replicas", "copying"), marks=pytest.mark.full)], ids=str)
def test_two_processes_train_as_one_with_two_devices_does(names, tmp_path):
    """A batch in two shares, and a replica each; a signal to one of them ends both, and they go on."""
    folders = tmp_path / "two", tmp_path / "one"
    for folder in folders:
        folder.mkdir()
    common = {"names": names, "port": free_port()}
    both = [
        in_process(TRAINS.format(process=process, processes=2, folder=str(folders[0]), **common))
        for process in range(2)
    ]
    told = [printed(process) for process in both]
    assert [text.count("interrupted\n") for text in told] == [len(names)] * 2
    assert printed(in_process(TRAINS.format(process=0, processes=1, folder=str(folders[1]), **common), 2)) == ""
    for name in names:
        one = dict(np.load(folders[1] / f"{name}0.npz"))
        for process in range(2):
            assert_close(dict(np.load(folders[0] / f"{name}{process}.npz")), one, TOLERANCE["float64"])
        rows, others = (rows_of(folder / name) for folder in folders)
        assert len(rows) == len(others) > 5
        for row, other in zip(rows, others, strict=True):
            assert {key: row[key] for key in ("step", "kind")} == {key: other[key] for key in ("step", "kind")}
            assert_close(row["loss"], other["loss"], TOLERANCE["float64"])
        starts = [row for row in rows_of(folders[0] / name, "timing.jsonl") if row["kind"] == "start"]
        assert [(row["step"], row["processes"]) for row in starts] == [(0, 2), (4, 2)]  # told once


ALONE = """
import functools
from rnnjax.train.config import DistributedConfig, TrainConfig
from rnnjax.train.devices import start
jax.distributed.initialize = functools.partial(jax.distributed.initialize, initialization_timeout=2)
start(TrainConfig(devices=2, distributed=DistributedConfig(2, {process}, "localhost:{port}")))
"""


@pytest.mark.parametrize("process", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_process_that_meets_no_other_says_where_it_waited(process):
    waiting = in_process(ALONE.format(process=process, port=free_port()))
    _, told = waiting.communicate(timeout=60)
    assert waiting.returncode != 0
    where = f"at localhost:{free_port()} (--config.train.distributed.coordinator)\n"
    assert told.startswith(f"process {process} of 2: meeting the others {where}")


def test_an_address_that_can_not_be_is_refused():
    def refused(coordinator):
        with pytest.raises(UsageError) as error:
            start(TrainConfig(devices=2, distributed=DistributedConfig(2, 0, coordinator)))
        return str(error.value)

    flag = "--config.train.distributed.coordinator"
    for coordinator in ("localhost", "localhost:", ":12355", "localhost:port", "localhost:70000"):
        assert refused(coordinator).startswith(f"{flag} is {coordinator}: expected HOST:PORT")
    with socket.socket(socket.AF_INET6) as bound:
        bound.bind(("::", 0))
        bound.listen()
        taken = f"localhost:{bound.getsockname()[1]}"
        assert refused(taken).startswith(f"{flag} is {taken}: process 0 can't listen there (Address already in use): ")
