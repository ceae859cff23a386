"""A batch over several devices: the numbers of one, with one all-reduce. In processes of their own, since the number of
devices is set before JAX starts."""

import json
import subprocess
import sys
import textwrap

import jax
import pytest

from rnnjax.train.config import TrainConfig, UsageError, validate
from rnnjax.train.devices import use_devices


def run(code):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_numbers_are_those_of_one_device(tmp_path):
    """Also on a corpus, whose lengths and masks differ from example to example."""
    code = f"""
        import sys, pathlib, jax, numpy as np
        sys.path.insert(0, "tests/train")
        from rnnjax.cells import LSTM
        from rnnjax.layers import DropConnect, InputDropout, RecurrentDropout, Zoneout
        from rnnjax.tasks import Adding
        from rnnjax.train.build import make_model
        from rnnjax.train.config import TrainConfig
        from rnnjax.train.devices import use_devices
        from rnnjax.train.loop import train
        from rnnjax.testing import assert_close
        from test_loop import Sums
        use_devices(4)
        jax.config.update("jax_enable_x64", True)
        task = Adding(6)
        inside = LSTM(task.input_size, 3)
        for cell, task in (
            (inside, task),
            (InputDropout(RecurrentDropout(inside, 0.3), 0.5), task),
            (DropConnect(Zoneout(inside, 0.3), 0.5), task),
            (LSTM(1, 3), Sums()),
        ):
            found = []
            for devices in (1, 2, 4):
                config = TrainConfig(steps=6, steps_per_call=3, batch_size=4, eval_every=6, eval_batch=8, log_every=3)
                config.devices = devices
                folder = pathlib.Path({str(tmp_path)!r}) / f"{{type(task).__name__}}{{type(cell).__name__}}{{devices}}"
                found.append(train(make_model(cell, task, 0), task, config, folder))
            for other in found[1:]:
                assert_close(jax.device_get(other.state.params), jax.device_get(found[0].state.params), 1e-5)
                for split, scores in found[0].scores.items():
                    np.testing.assert_allclose(other.scores[split]["loss"], scores["loss"], rtol=1e-4)
        print("same")
    """
    assert run(code).strip() == "same"
    rows = [json.loads(line) for line in (tmp_path / "AddingLSTM4" / "metrics.jsonl").read_text().splitlines()]
    one = [json.loads(line) for line in (tmp_path / "AddingLSTM1" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [row["step"] for row in one]


def test_a_step_has_one_all_reduce_for_every_cell():
    code = """
        import jax
        from rnnjax.cells import CELLS
        from rnnjax.tasks import Adding
        from rnnjax.train.build import make_model
        from rnnjax.train.config import TrainConfig
        from rnnjax.train.devices import use_devices
        from rnnjax.train.optimizer import make_optimizer
        from rnnjax.train.step import Learner, root_key
        use_devices(4)
        task = Adding(6)
        for name, cls in CELLS.items():
            cell = cls(2, 3, 1) if name == "jordan" else cls(2, 3)
            learner = Learner(make_model(cell, task, 0), task, make_optimizer(TrainConfig()), devices=4)
            state = learner.init(root_key(0))
            batch = learner.sample(state, 8)
            step = jax.jit(learner.train_step).lower(state, batch).compile()
            assert step.as_text().count(" all-reduce(") == 1, name
            state, metrics = step(state, batch)
            assert all(len(leaf.sharding.device_set) == 4 for leaf in jax.tree.leaves(state.params))
        print("one")
    """
    assert run(code).strip() == "one"


def test_what_devices_would_do_differently_is_refused():
    code = """
        from flax import nnx
        from rnnjax.cells import Elman
        from rnnjax.nn import SequenceModel
        from rnnjax.tasks import Adding
        from rnnjax.train.config import TrainConfig
        from rnnjax.train.devices import use_devices
        from rnnjax.train.optimizer import make_optimizer
        from rnnjax.train.step import Learner
        use_devices(2)
        class Dropping(SequenceModel):
            def __init__(self, part):
                super().__init__(Elman(2, 3), 1, reads_last=True, rngs=nnx.Rngs(0))
                self.part = part
        for part in (nnx.Dropout(0.5), nnx.BatchNorm(3, rngs=nnx.Rngs(0))):
            try:
                Learner(Dropping(part), Adding(6), make_optimizer(TrainConfig()), devices=2)
            except ValueError as error:
                print(error)
    """
    dropout, statistics = run(code).splitlines()
    assert "holds an nnx.Dropout" in dropout and "part/mean" in statistics and "on one" in dropout and statistics


def test_a_batch_is_shared_out_evenly():
    with pytest.raises(UsageError, match="batch_size is 10: expected a multiple of the number of devices .4."):
        validate(TrainConfig(batch_size=10, devices=4))
    with pytest.raises(UsageError, match="devices is 0"):
        validate(TrainConfig(devices=0))


def test_more_devices_than_there_are():
    jax.devices()  # has JAX started, else it would make them
    with pytest.raises(UsageError, match="devices is 4096: JAX runs with"):
        use_devices(4096)
