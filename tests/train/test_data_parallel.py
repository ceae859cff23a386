"""A batch over several devices: the numbers of one, with one all-reduce a step. In processes of their own, since the
number of devices is set before JAX starts."""

import json
import re

import jax
import numpy as np
import pytest
from cases import in_process, printed
from flax import nnx

from rnnjax.cells import CELLS, Elman
from rnnjax.nn import SequenceModel
from rnnjax.tasks import Adding
from rnnjax.testing import TOLERANCE, assert_close
from rnnjax.train.config import TrainConfig, UsageError, validate
from rnnjax.train.devices import make_mesh, use_devices
from rnnjax.train.step import Learner

TRAINS = """
import pathlib
import numpy as np
from cases import *
from rnnjax.layers import DropConnect, InputDropout, RecurrentDropout, Zoneout
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.loop import train
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
folder = pathlib.Path({folder!r})

def masked(cell):
    return DropConnect(Zoneout(InputDropout(RecurrentDropout(cell, 0.3), 0.5), 0.3), 0.5)

if {cell!r} == "corpus":
    layer, task, more = cell_of("elman", Sums()), Sums(), dict(window=3, accumulate=2, eval_batch=6)
else:
    layer, task, more = masked(cell_of({cell!r}, COPYING)), COPYING, dict(weight_noise=0.1, omega=0.5)
for devices in {devices}:
    config = config_of(batch_size=8, optimizer="sgd", learning_rate=0.1, devices=devices, **dict(eval_batch=8) | more)
    found = train(model_of(layer, task), task, config, folder / str(devices))
    np.savez(folder / f"{{devices}}.npz", **to_arrays(found.state._replace(opt_state=None)))
"""


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param("corpus", marks=pytest.mark.full),
        *(name if name == "lstm" else pytest.param(name, marks=pytest.mark.full) for name in CELLS),
    ],
)
def test_the_numbers_are_those_of_one_device(tmp_path, cell):
    """Of every cell with masks of every kind, and of a corpus whose lengths and masks differ from example to
    example, in windows, the share of each device in two parts, with batches of 6 to evaluate."""
    devices = (1, 4) if cell == "corpus" else (1, 8)
    printed(in_process(TRAINS.format(folder=str(tmp_path), cell=cell, devices=devices), max(devices)))
    one, several = (dict(np.load(tmp_path / f"{count}.npz")) for count in devices)
    assert_close(several, one, TOLERANCE["float64"])
    rows, others = (
        [json.loads(line) for line in (tmp_path / str(count) / "metrics.jsonl").read_text().splitlines()]
        for count in devices
    )
    assert len(rows) >= 5
    for row, other in zip(rows, others, strict=True):
        told = row.pop("kind"), row.pop("split", None)
        assert told == (other.pop("kind"), other.pop("split", None))
        assert_close(row, other, TOLERANCE["float64"])


COUNTS = """
from cases import *
from rnnjax.tasks import Adding
from rnnjax.train.calls import Calls
from rnnjax.train.devices import make_mesh, place
from rnnjax.train.replicas import Replica, first_states
from rnnjax.train.step import Learner
import jax.numpy as jnp
jax.config.update("jax_disable_most_optimizations", True)
task, config = Adding(6), config_of(batch_size=8, devices=4)
mesh = make_mesh(1, config)
for name in {names}:
    model = model_of(cell_of(name, task), task, dtype="float32")
    learner = Learner(model, task, config, 4)
    calls = Calls(learner, mesh, [0])
    state = place(first_states(learner, [Replica(model, 0)]), mesh, calls.specs)
    compiled = calls._compiled.lower(state, None, jnp.int32(2)).compile()
    assert all(len(one.device_set) == 4 for one in jax.tree.leaves(compiled.output_shardings[0].params))
    print("PROGRAM", name)
    print(compiled.as_text())
"""


ALL_REDUCE = re.compile(r" all-reduce(?:-start)?\(")


@pytest.mark.parametrize("names", [("elman", "lstm"), pytest.param(tuple(CELLS), marks=pytest.mark.full)], ids=len)
def test_a_step_has_one_all_reduce(names):
    programs = printed(in_process(COUNTS.format(names=names), 4)).split("PROGRAM ")[1:]
    assert tuple(program.partition("\n")[0] for program in programs) == names
    for program in programs:
        parts = re.split(r"\n(?=%|ENTRY)", program)
        (entry,) = [part for part in parts if part.startswith("ENTRY")]  # where a count that is always the same may be
        (body,) = [part for part in parts if part is not entry and ALL_REDUCE.search(part)]
        assert len(ALL_REDUCE.findall(body)) == 1 and len(ALL_REDUCE.findall(entry)) <= 1
        name = body.partition(" ")[0]
        assert len(re.findall(rf" while\(.*body={re.escape(name)}\b", entry)) == 1


@pytest.mark.parametrize("options", [{"shares": 2}, {"accumulate": 2}], ids=str)
@pytest.mark.parametrize(
    "part, named",
    [(nnx.Dropout(0.5), "holds an nnx.Dropout"), (nnx.BatchNorm(3, rngs=nnx.Rngs(0)), "holds part/mean")],
    ids=["dropout", "statistics"],
)
def test_what_parts_of_a_batch_would_do_differently_is_refused(part, named, options):
    class Holding(SequenceModel):
        def __init__(self):
            super().__init__(Elman(2, 3), 1, reads_last=True, rngs=nnx.Rngs(0))
            self.part = part

    config = TrainConfig(accumulate=options.get("accumulate", 1))
    with pytest.raises(ValueError, match=f"{named}.* 2 parts.*train it on one device, with accumulate=1"):
        Learner(Holding(), Adding(6), config, options.get("shares", 1))
    Learner(Holding(), Adding(6), TrainConfig())


def test_a_batch_is_shared_out_evenly():
    for shared, accumulate, told in ((10, 1, r"\(4\)"), (12, 2, r"\(4\) times accumulate \(2\)")):
        config = TrainConfig(batch_size=shared, devices=4, accumulate=accumulate)
        with pytest.raises(UsageError, match=f"batch_size is {shared}: expected a multiple of the devices .* {told}"):
            make_mesh(1, config)
    with pytest.raises(UsageError, match="devices is 0"):
        validate(TrainConfig(devices=0))


def test_more_devices_than_there_are():
    jax.devices()  # has JAX started, else it would make them
    with pytest.raises(UsageError, match="devices is 4096: JAX runs with"):
        use_devices(4096)
