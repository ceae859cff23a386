"""Replicas are the runs that they stand for, on any number of devices, and what befalls one is no other's business."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest
from cases import (
    COPYING,
    Sums,
    assert_same_bits,
    cell_of,
    config_of,
    in_process,
    model_of,
    printed,
    rows_of,
)  # fmt: skip

from rnnjax.cells import CELLS, LSTM, Elman
from rnnjax.tasks import Adding
from rnnjax.testing import TOLERANCE, assert_close
from rnnjax.train import devices
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.config import ReplicasConfig, UsageError
from rnnjax.train.loop import train
from rnnjax.train.replicas import OF_THE_CELL, Replica, make_replicas

TASK = Adding(5)
VALUES = {
    "seeds": 2,
    "learning_rate": (0.01, 0.03),
    "clip_norm": (0.05, 0.0),
    "weight_decay": (0.1, 0.0),
    "weight_noise": (0.05, 0.0),
    "omega": (0.5, 0.0),
    "gain": (0.7, 1.3),
    "forget_bias": (0.0, 2.0),
}
LISTS = [name for name in VALUES if name != "seeds"]


@pytest.fixture(scope="module")
def quick_compilation():
    """For tests that compile far more than they compute and ask for no bits."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def maker(task):
    return lambda cell, seed: model_of(cell, task, seed)


def compare_with_runs_alone(task, cell, config, lists, folder):
    """Trains the replicas that `lists` asks for together, and each of them as a run with these settings."""
    replicas = make_replicas(maker(task), cell, config, lists)
    together = train(replicas, task, config, folder / "together")
    for number, (replica, found) in enumerate(zip(replicas, together, strict=True)):
        values = {name: float(text) for name, text in re.findall(r"(\w+)=([-\d.e]+)", replica.label)}
        own = {name: values.pop(name) for name in OF_THE_CELL if name in values}
        alone = dataclasses.replace(config, **values | {"seed": int(values["seed"])})
        model = model_of(dataclasses.replace(cell, **own), task, alone.seed)
        want = train(model, task, alone, folder / str(number))
        got = found.state._replace(traced={}, key=None)
        assert_close(to_arrays(got), to_arrays(want.state._replace(key=None)), TOLERANCE["float64"], replica.label)
        assert_close(found.scores, want.scores, TOLERANCE["float64"], replica.label)
        assert found.best_step == want.best_step
        rows = [row for row in rows_of(folder / "together") if row.pop("replica") == number]
        for row, other in zip(rows, rows_of(folder / str(number)), strict=True):
            assert {name: row[name] for name in ("step", "kind")} == {name: other[name] for name in ("step", "kind")}
            assert_close(row["loss"], other["loss"], TOLERANCE["float64"])
    return together


def test_every_list_at_once_is_the_runs_alone(x64, quick_compilation, tmp_path):
    lists = ReplicasConfig(seeds=2, **{name: VALUES[name][:1] for name in LISTS if name != "forget_bias"})
    config = config_of(optimizer="adamw", steps=4, eval_every=4, seed=5)
    together = compare_with_runs_alone(TASK, Elman(2, 3), config, lists, tmp_path)
    losses = [trained.scores["test"]["loss"] for trained in together]
    assert len(set(losses)) == 2
    assert [trained.state.key.tolist() for trained in map(with_numbers, together)] == [[0, 5], [0, 6]]


def with_numbers(trained):
    return dataclasses.replace(trained, state=trained.state._replace(key=jax.random.key_data(trained.state.key)))


@pytest.mark.full
@pytest.mark.parametrize("name", [*VALUES])
@pytest.mark.parametrize("cell", CELLS)
def test_every_list_of_every_cell_is_the_runs_alone(cell, name, x64, quick_compilation, tmp_path):
    cell = cell_of(cell, COPYING)
    if name in OF_THE_CELL and not hasattr(cell, name):
        with pytest.raises(UsageError, match=f"has no {name}"):
            make_replicas(maker(COPYING), cell, config_of(), ReplicasConfig(**{name: VALUES[name]}))
        return
    config = config_of(optimizer="adamw", steps=4, eval_every=4)
    compare_with_runs_alone(COPYING, cell, config, ReplicasConfig(**{name: VALUES[name]}), tmp_path)


@pytest.mark.full
def test_of_a_corpus_every_seed_has_its_own_batches(x64, quick_compilation, tmp_path):
    config = config_of(batch_size=2, steps=4, eval_every=4, seed=3)
    compare_with_runs_alone(Sums(), Elman(1, 3), config, ReplicasConfig(seeds=2), tmp_path)


@pytest.mark.full
def test_as_one_batch_they_are_what_they_are_one_after_the_other(x64, quick_compilation, tmp_path, monkeypatch):
    """An accelerator runs them under vmap, a CPU in a loop."""
    config, lists = config_of(), ReplicasConfig(learning_rate=(1e300, 0.01), weight_noise=(0.1,))
    replicas = make_replicas(maker(TASK), LSTM(2, 3), config, lists)
    in_loop = train(replicas, TASK, config, tmp_path / "loop")
    monkeypatch.setattr(devices.jax, "default_backend", lambda: "gpu")
    batched = train(replicas, TASK, config, tmp_path / "batch")
    assert in_loop[0].stopped and [one.stopped for one in batched] == [in_loop[0].stopped, None]
    for got, want in zip(batched, in_loop, strict=True):
        assert_close(to_arrays(got.state), to_arrays(want.state), 1e-10)


CODE = """
jax.config.update("jax_enable_x64", True)
import pathlib, sys
import numpy as np
from cases import *
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.config import ReplicasConfig
from rnnjax.train.loop import train
from rnnjax.train.replicas import make_replicas
{body}
"""
ON_DEVICES = """
jax.config.update("jax_disable_most_optimizations", True)
folder = pathlib.Path({folder!r})
def make(cell, seed):
    return model_of(cell, COPYING, seed)
config = config_of(batch_size=4, steps=4, eval_every=4, weight_noise=0.1, optimizer="sgd", window=4)
replicas = make_replicas(make, cell_of({cell!r}, COPYING), config, ReplicasConfig(seeds=2, learning_rate=(0.01, 0.1)))
for devices in {devices}:
    config.devices = devices
    found = train(replicas, COPYING, config, folder / str(devices))
    assert len(found) == 4
    for number, one in enumerate(found):
        np.savez(folder / f"{{devices}}_{{number}}.npz", **to_arrays(one.state), loss=one.scores["test"]["loss"])
"""


@pytest.mark.parametrize(
    "cell, devices",
    [("elman", (1, 8)), *(pytest.param(name, (1, 2, 4, 8), marks=pytest.mark.full) for name in CELLS)],
)
def test_any_number_of_devices_gives_the_same_numbers(cell, devices, tmp_path):
    """4 replicas: on 2 devices two each, on 8 each of them on two that share the batch."""
    printed(
        in_process(CODE.format(body=ON_DEVICES.format(folder=str(tmp_path), cell=cell, devices=devices)), max(devices))
    )
    for number in range(4):
        one = dict(np.load(tmp_path / f"1_{number}.npz"))
        for count in devices[1:]:
            assert_close(dict(np.load(tmp_path / f"{count}_{number}.npz")), one, TOLERANCE["float64"])
            rows, others = (rows_of(tmp_path / str(count)), rows_of(tmp_path / "1"))
            keys = ("step", "kind", "replica")
            assert [[row[key] for key in keys] for row in rows] == [[row[key] for key in keys] for row in others]
    assert len({float(np.load(tmp_path / f"1_{number}.npz")["loss"]) for number in range(4)}) == 4


def trained_with(rates, task, folder, **changes):
    config = config_of(**{"optimizer": "sgd", "clip_norm": 0.0, **changes})
    replicas = [
        Replica(model_of(Elman(task.input_size, 3), task, 7, "float32"), 7, {"learning_rate": r}) for r in rates
    ]
    return train(replicas, task, config, folder)


def test_one_that_diverges_leaves_the_others_bits_alone(tmp_path):
    calm = trained_with((0.01, 0.02, 0.03), TASK, tmp_path / "calm")
    wild = trained_with((0.01, 1e30, 0.03), TASK, tmp_path / "wild")
    rows, calm_rows = rows_of(tmp_path / "wild"), rows_of(tmp_path / "calm")
    for number in (0, 2):
        assert_same_bits(wild[number].state, calm[number].state)
        assert wild[number].stopped is None and wild[number].scores == calm[number].scores
        own = [row for row in rows if row["replica"] == number]
        assert own == [row for row in calm_rows if row["replica"] == number] and len(own) == 5
    (stopped,) = [row for row in rows if row["kind"] == "stopped"]
    at = stopped["step"]
    assert stopped["replica"] == 1 and stopped["why"] == wild[1].stopped and 1 <= at <= 5
    assert stopped["why"].startswith(f"step {at}: ") and "not finite" in stopped["why"]
    assert wild[1].state.step == at and bool(wild[1].state.stopped) and wild[1].state.nonfinite == 1
    assert not [row for row in rows if row["replica"] == 1 and row["step"] > at]


def test_where_all_have_diverged_the_run_ends(tmp_path):
    found = trained_with((1e30, 1e31), TASK, tmp_path, steps=400, eval_every=400)
    assert all("not finite" in one.stopped for one in found)
    assert max(row["step"] for row in rows_of(tmp_path)) < 20
    told = json.loads((tmp_path / "heartbeat.json").read_text())
    assert told["state"] == "finished" and told["step"] < 20


def test_early_stopping_freezes_the_one_that_it_stops(tmp_path):
    """A step size of 1e-30 changes no float32, and so no loss."""
    both = trained_with((1e-30, 0.003), TASK, tmp_path / "both", steps=12, eval_every=2, patience=2)
    free = trained_with((1e-30, 0.003), TASK, tmp_path / "free", steps=12, eval_every=2)
    assert both[0].stopped.startswith("no lower loss in 2 evaluations: lowest ") and both[0].state.step == 6
    assert both[0].stopped.endswith("at step 2") and both[0].best_step == 2
    (row,) = [row for row in rows_of(tmp_path / "both") if row["kind"] == "stopped"]
    assert (row["replica"], row["step"], row["why"]) == (0, 6, both[0].stopped)
    assert max(row["step"] for row in rows_of(tmp_path / "both") if row["replica"] == 0) == 6
    assert both[1].stopped is None and both[1].state.step == 12
    assert_same_bits(both[1].state, free[1].state)
    assert_same_bits(both[1].best, free[1].best)


@pytest.mark.parametrize(
    "lists, cell, message",
    [
        ({"seeds": 0}, LSTM(2, 3), "replicas.seeds is 0, which makes 0 replicas: expected 1 to"),
        ({"learning_rate": (0.1, 0.2, 0.1)}, LSTM(2, 3), "learning_rate is 0.1,0.2,0.1: each value once is enough"),
        ({"learning_rate": (0.1, 0.0)}, LSTM(2, 3), "learning_rate has 0: expected numbers above 0"),
        ({"clip_norm": (-1.0,)}, LSTM(2, 3), "clip_norm has -1: expected numbers of at least 0"),
        ({"weight_decay": (0.1,)}, LSTM(2, 3), "weight_decay is given, but --config.train.optimizer=adam has none"),
        ({"forget_bias": (1.0,)}, Elman(2, 3), "forget_bias is given, but Elman has no forget_bias: it has activation"),
        ({"gain": (0.5, 1.0)}, Elman(2, 3, orthogonal=True), "gain is given, but with orthogonal the gain holds"),
    ],
)  # fmt: skip
def test_lists_that_can_not_be_are_refused_by_name(lists, cell, message):
    with pytest.raises(UsageError, match=message) as error:
        make_replicas(maker(TASK), cell, config_of(), ReplicasConfig(**lists))
    assert str(error.value).startswith("--config.replicas.")


def test_combinations_come_in_order_and_are_labelled():
    made = make_replicas(
        lambda cell, seed: (cell.gain, seed),
        Elman(2, 3),
        config_of(seed=4),
        ReplicasConfig(seeds=2, learning_rate=(0.1, 0.2), gain=(0.5,)),
    )
    assert [one.label for one in made] == [
        f"seed={seed}, gain=0.5, learning_rate={rate}" for rate in (0.1, 0.2) for seed in (4, 5)
    ]
    assert [(one.model, one.seed, one.traced) for one in made[1:3]] == [
        ((0.5, 5), 5, {"learning_rate": 0.1}), ((0.5, 4), 4, {"learning_rate": 0.2})
    ]  # fmt: skip
    (one,) = make_replicas(lambda cell, seed: (cell, seed), Elman(2, 3), config_of(), ReplicasConfig())
    assert (one.model, one.traced, one.label) == ((Elman(2, 3), 0), {}, "seed=0")
