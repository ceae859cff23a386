"""The draws of a run come from keys that are all different."""

import itertools

import jax
import numpy as np
from flax import nnx

from rnnjax.cells import LSTM
from rnnjax.tasks import Adding
from rnnjax.train.build import make_model
from rnnjax.train.config import TrainConfig
from rnnjax.train.step import DATA, EVALUATION, INIT, MODEL, PROBE, Learner, root_key, stream


def bits(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_no_two_draws_share_a_key():
    root = root_key(0)
    keys = [stream(root, which) for which in (EVALUATION, PROBE)]
    keys += [jax.random.fold_in(stream(root, which), step) for which in (DATA, MODEL) for step in range(50)]
    init = nnx.Rngs(params=stream(root, INIT))
    keys += [init.params() for _ in range(3)]
    keys += list(itertools.chain.from_iterable(jax.random.split(key) for key in keys))
    assert len({bits(key) for key in keys}) == len(keys)


def test_the_first_batch_is_not_the_first_weights():
    """A key that served both would make them monotone functions of the same draws."""
    task = Adding(10)
    model = make_model(LSTM(2, 8), task, seed=0)
    learner = Learner(model, task, TrainConfig(batch_size=64))
    batch = learner.sample(learner.init(root_key(0)))
    values = np.asarray(batch.inputs[..., 0]).ravel()
    weights = np.asarray(model.rnn.params["W_ih"][...]).ravel()
    ranks = [np.argsort(np.argsort(part[: len(weights)])) for part in (values, weights)]
    assert abs(np.corrcoef(*ranks)[0, 1]) < 0.5


def test_the_root_does_not_depend_on_jaxs_default_implementation():
    before = bits(root_key(3))
    with jax.default_prng_impl("rbg"):
        assert bits(root_key(3)) == before
