"""The step of every cell can be lowered for every kind of device, with none of them at hand."""

import jax
import pytest
from cases import COPYING, cell_of, config_of, model_of
from jax import export

from rnnjax.cells import CELLS
from rnnjax.testing import TOLERANCE, assert_close
from rnnjax.train.checkpoint import to_arrays
from rnnjax.train.step import Learner, root_key

PLATFORMS = ("cpu", "cuda", "tpu")


@pytest.mark.parametrize("name", CELLS)
def test_a_step_lowers_for_every_platform(name):
    learner = Learner(model_of(cell_of(name, COPYING), COPYING, dtype="float32"), COPYING, config_of())
    state = learner.init(root_key(0))

    @jax.jit
    def step(state, key):
        state = state._replace(key=jax.random.wrap_key_data(key, impl="threefry2x32"))
        state, metrics = learner.train_step(state, learner.sample(state))
        return state._replace(key=None), metrics

    arguments = state._replace(key=None), jax.random.key_data(state.key)
    exported = export.export(step, platforms=PLATFORMS)(*arguments)
    assert exported.platforms == PLATFORMS and exported.mlir_module().count("stablehlo.while") >= 2
    if name == "lstm":
        jax.config.update("jax_disable_most_optimizations", True)
        got, want = jax.jit(exported.call)(*arguments), step(*arguments)
        jax.config.update("jax_disable_most_optimizations", False)
        assert_close(to_arrays(got), to_arrays(want), TOLERANCE["float32"])
