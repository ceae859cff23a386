"""How steps are grouped into calls changes no bit, and a call of any size is the same program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import COPYING, Sums, assert_same_bits, cell_of, config_of, model_of
from flax import nnx

from rnnjax.cells import CELLS, LSTM, Elman
from rnnjax.layers import InputDropout, RecurrentDropout
from rnnjax.tasks import Windows
from rnnjax.testing import count_compilations
from rnnjax.train.calls import Calls
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.devices import make_mesh
from rnnjax.train.loop import train
from rnnjax.train.replicas import Replica, first_states
from rnnjax.train.step import Learner

DROPPING = InputDropout(RecurrentDropout(LSTM(1, 3), 0.3), 0.5)
CASES = {
    "corpus": (Elman(1, 3), Sums(), {"batch_size": 2, "seed": 3}),
    **{name: (cell_of(name, COPYING), COPYING, {}) for name in CELLS},
    "windows": (LSTM(1, 3), Sums(), {"batch_size": 2, "window": 3}),
    "skipping": (Elman(1, 3), Sums(nan_at=5), {"batch_size": 2, "nonfinite": "skip"}),
    "masks and noise": (DROPPING, Sums(), {"batch_size": 2, "weight_noise": 0.05, "ema": 0.5}),
    "accumulated": (DROPPING, Sums(), {"batch_size": 2, "accumulate": 2, "omega": 0.5, "optimizer": "adamw"}),
}
ORDINARY = ("corpus", "elman")


@pytest.mark.parametrize(
    "case", [name if name in ORDINARY else pytest.param(name, marks=pytest.mark.full) for name in CASES]
)
def test_how_steps_are_grouped_changes_no_bit(case, tmp_path):
    layer, task, changes = CASES[case]
    model, found = model_of(layer, task, dtype="float32"), {}
    for size in (1, 3, 12):
        config = config_of(steps=12, steps_per_call=size, eval_every=12, log_every=12, **changes)
        found[size] = train(model, task, config, tmp_path / str(size))
    rows = (tmp_path / "1" / "metrics.jsonl").read_bytes()
    assert rows.count(b'"train"') == 1 and rows.count(b'"nonfinite"') == (case == "skipping")
    for size in (3, 12):
        assert (tmp_path / str(size) / "metrics.jsonl").read_bytes() == rows
        assert_same_bits(found[size].state, found[1].state)
        assert_same_bits(found[size].best, found[1].best)
    start = to_arrays(nnx.state(model, nnx.Param))
    assert all(np.any(values != start[name]) for name, values in to_arrays(found[1].state.params).items())


def calls_of(task, config, cell=None):
    """(Calls, the first state) of a small model."""
    model = model_of(cell or Elman(task.input_size, 3), task, dtype="float32")
    learner = Learner(model, task, config)
    return Calls(learner, make_mesh(1, config), [config.seed]), first_states(learner, [Replica(model, config.seed)])


def test_a_run_of_a_corpus_compiles_one_program_for_a_shape():
    task, config = Sums(), config_of(batch_size=2, steps_per_call=4, seed=3)
    shapes = [task.batch(step, 2, 3).inputs.shape for step in range(12)]
    assert len(set(shapes)) == 2 and shapes[:4] != sorted(shapes[:4])  # a call goes there and back
    calls, state = calls_of(task, config)
    state, metrics, done = calls(state, 0, 4)
    assert metrics["loss"].shape == (1, 4) and done.tolist() == [4]
    with count_compilations() as compiled:
        for step in (4, 8):
            state, metrics, done = calls(state, step, 4)
            assert metrics["loss"].shape == (1, 4) and done.tolist() == [4]
        state, metrics, done = calls(state, 12, 1)
    assert compiled.count == 0 and metrics["finite"].shape[:2] == (1, 1) and done.tolist() == [1]
    assert state.step.tolist() == [13]


def test_a_call_of_a_task_that_draws_is_one_program_whatever_its_size():
    calls, state = calls_of(COPYING, config_of(steps_per_call=5))
    state, _, _ = calls(state, 0, 5)
    with count_compilations() as compiled:
        state, metrics, done = calls(state, 5, 2)
    assert compiled.count == 0
    assert metrics["loss"].shape == (1, 2) and np.all(metrics["loss"] > 0) and done.tolist() == [2]
    assert state.step.tolist() == [7]


@pytest.mark.parametrize(
    "task",
    [Sums(nan_at=2), pytest.param(Windows(Sums(nan_at=1), 4), marks=pytest.mark.full)],
    ids=["whole", "windows"],
)
def test_a_replica_that_stops_makes_no_further_step(task):
    config = config_of(batch_size=2, steps_per_call=6)
    calls, state = calls_of(task, config)
    before = jax.tree.map(jnp.copy, state)
    state, metrics, done = calls(state, 0, 6)
    bad = int(np.argmin(metrics["finite"][0].all(-1)))
    assert bad >= 1 and done.tolist() == [bad + 1]  # the last of them is the one that it stopped at
    assert state.stopped.tolist() == [True] and state.step.tolist() == [bad] and state.nonfinite.tolist() == [1]
    alone, _, _ = calls(before, 0, bad)
    assert_same_bits(alone._replace(stopped=state.stopped, nonfinite=state.nonfinite), state)
    kept = jax.tree.map(jnp.copy, state)
    state, _, done = calls(state, 6, 6)
    assert done.tolist() == [0]
    assert_same_bits(state, kept)
