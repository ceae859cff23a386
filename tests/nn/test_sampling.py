"""What a language model writes: the draws of its own probabilities, symbol by symbol, with one compilation."""

import itertools

import jax
import numpy as np
import pytest
from flax import nnx

from rnnjax.cells import CELLS
from rnnjax.nn import LanguageModel
from rnnjax.nn.sampling import Sampler
from rnnjax.testing import count_compilations


@pytest.fixture(scope="module")
def model():
    model = LanguageModel(CELLS["elman"](5, 5), 7, output_bias=np.arange(7) / 3, rngs=nnx.Rngs(0))
    model.eval()
    return model


@pytest.fixture(scope="module")
def sampler(model):
    return Sampler(model)


@pytest.mark.parametrize("temperature", [0, 0.5, 2.0])
def test_what_is_written_are_draws_of_what_the_whole_text_gives(model, sampler, temperature):
    read, key = [3, 1, 4], jax.random.key(5)
    written = list(itertools.islice(sampler(read, key=key, temperature=temperature), 12))
    logits = model(np.array([*read, *written])[:, None])[:, 0]
    for place, symbol in enumerate(written, start=len(read) - 1):
        if temperature:
            expected = jax.random.categorical(jax.random.fold_in(key, place), logits[place] / temperature)
        else:
            expected = np.argmax(logits[place])
        assert symbol == int(expected)


def test_the_first_draw_follows_the_probabilities(model, sampler):
    counts = np.zeros(7)
    for seed in range(400):
        counts[next(sampler([2], key=jax.random.key(seed), temperature=0.7))] += 1
    p = np.asarray(jax.nn.softmax(model(np.array([[2]]))[0, 0] / 0.7))
    assert np.all(np.abs(counts / 400 - p) < 4 * np.sqrt(p * (1 - p) / 400))
    assert counts.argmax() == p.argmax() and (counts > 0).sum() > 3


def test_nothing_is_compiled_for_another_text(sampler):
    list(itertools.islice(sampler([1], key=jax.random.key(0), temperature=1.0), 2))
    with count_compilations() as compilations:
        list(itertools.islice(sampler([1, 2, 3, 4], key=jax.random.key(1), temperature=0), 9))
    assert compilations.count == 0


def test_what_can_not_be_is_told_before_anything_is_drawn(sampler):
    with pytest.raises(ValueError, match="read is empty: expected one symbol at least"):
        sampler([], key=jax.random.key(0))
    for temperature in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"temperature is {temperature}: expected at least 0"):
            sampler([1], key=jax.random.key(0), temperature=temperature)
