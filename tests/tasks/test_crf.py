"""A linear-chain CRF against the enumeration of all tag sequences, in float64."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.tasks.crf import CRFScores, log_likelihood, step_losses, viterbi
from rnnjax.testing import TOLERANCE, assert_close, fill_pads

TIME, CLASSES = 4, 3
LIKELIHOOD, LOSSES, VITERBI = map(jax.jit, (log_likelihood, step_losses, viterbi))
LENGTHS = np.array([4, 2, 1, 0])


def random_scores(seed=0, time=TIME, scale=1.0):
    draws = np.random.default_rng(seed)
    shapes = ((time, len(LENGTHS), CLASSES), (CLASSES, CLASSES), (CLASSES,), (CLASSES,))
    return CRFScores(*(jnp.asarray(scale * draws.normal(size=shape)) for shape in shapes))


def with_nan(scores):
    return scores._replace(logits=fill_pads(scores.logits, LENGTHS, np.nan))


def score_of(scores, row, tags):
    """The score of one tag sequence, term by term."""
    logits, transitions, start, end = map(np.asarray, scores)
    total = sum(logits[t, row, tag] for t, tag in enumerate(tags))
    total += sum(transitions[before, tag] for before, tag in itertools.pairwise(tags))
    return total + (start[tags[0]] + end[tags[-1]] if tags else 0)


def all_scores(scores, row, length):
    return {tags: score_of(scores, row, tags) for tags in itertools.product(range(CLASSES), repeat=length)}


def some_tags(seed=1):
    tags = np.random.default_rng(seed).integers(0, CLASSES, (TIME, len(LENGTHS)))
    return np.where(np.arange(TIME)[:, None] < LENGTHS, tags, 99), tags  # pads hold what is no tag


def test_the_likelihood_is_that_of_the_enumeration(x64):
    scores, (padded, tags) = random_scores(), some_tags()
    found = LIKELIHOOD(with_nan(scores), padded, LENGTHS)
    for row, length in enumerate(LENGTHS):
        every = all_scores(scores, row, length)
        total = np.log(np.sum(np.exp(list(every.values()))))
        want = every[tuple(int(tag) for tag in tags[:length, row])] - total
        assert_close(found[row], want, TOLERANCE["float64"], f"row {row}")


def test_all_sequences_together_have_probability_one(x64):
    scores = jax.tree.map(lambda leaf: leaf[:3, :1] if leaf.ndim == 3 else leaf, random_scores())
    logits = jnp.repeat(scores.logits, CLASSES**3, axis=1)
    tags = np.array(list(itertools.product(range(CLASSES), repeat=3))).T
    assert_close(jnp.exp(LIKELIHOOD(scores._replace(logits=logits), tags)).sum(), 1.0, TOLERANCE["float64"])


def test_the_steps_sum_to_the_sentence_and_are_nothing_at_pads(x64):
    scores, (padded, _) = random_scores(), some_tags()
    losses = LOSSES(with_nan(scores), padded, LENGTHS)
    assert_close(losses.sum(0), -LIKELIHOOD(scores, padded, LENGTHS), TOLERANCE["float64"])
    assert np.all(np.where(np.arange(TIME)[:, None] < LENGTHS, 0, losses) == 0)
    # What comes later changes none of the steps before it.
    later = scores._replace(logits=scores.logits.at[2:].add(1.0))
    assert_close(LOSSES(later, some_tags()[1])[:2], LOSSES(scores, some_tags()[1])[:2], 1e-12)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_viterbi_finds_the_best_of_all(scale, x64):
    scores = random_scores(2, scale=scale)
    tags, best = VITERBI(with_nan(scores), LENGTHS)
    for row, length in enumerate(LENGTHS):
        every = all_scores(scores, row, length)
        want = max(every, key=every.get)
        assert tuple(np.asarray(tags)[:length, row]) == want and np.all(np.asarray(tags)[length:, row] == 0)
        assert_close(best[row], every[want], TOLERANCE["float64"])


def test_gradients_are_those_of_finite_differences_and_nothing_at_pads(x64):
    scores, (padded, _) = random_scores(3), some_tags(4)
    weights = jnp.asarray(np.random.default_rng(5).normal(size=(TIME, len(LENGTHS))))

    @jax.jit
    def loss(scores):
        return jnp.sum(weights * LOSSES(scores, padded, LENGTHS))

    gradient = jax.grad(loss)(with_nan(scores))
    assert np.all(np.asarray(gradient.logits)[np.arange(TIME)[:, None] >= LENGTHS] == 0)
    for number in range(3):
        draws = np.random.default_rng(number)
        way = jax.tree.map(lambda leaf, draws=draws: jnp.asarray(draws.normal(size=leaf.shape)), scores)
        ahead, behind = (jax.tree.map(lambda a, b, e=e: a + e * b, scores, way) for e in (1e-5, -1e-5))
        slope = sum(jnp.vdot(a, b) for a, b in zip(gradient, way, strict=True))
        assert_close(slope, (loss(ahead) - loss(behind)) / 2e-5, TOLERANCE["finite differences"])


def test_without_steps_and_without_transitions(x64):
    empty = random_scores(time=0)
    assert LOSSES(empty, np.zeros((0, 4), np.int32)).shape == (0, 4)
    assert VITERBI(empty)[0].shape == (0, 4) and np.all(VITERBI(empty)[1] == 0)
    # Tags that know nothing of each other: a softmax at each step.
    plain = random_scores()
    plain = CRFScores(plain.logits, *(jnp.zeros_like(leaf) for leaf in plain[1:]))
    _, tags = some_tags()
    want = -np.take_along_axis(np.asarray(jax.nn.log_softmax(plain.logits)), tags[..., None], -1)[..., 0]
    assert_close(LOSSES(plain, tags), want, TOLERANCE["float64"])
    assert_close(VITERBI(plain)[0], np.argmax(plain.logits, -1), 0)


def test_bfloat16_scores_are_added_up_in_float32():
    scores = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_scores())
    assert jax.eval_shape(step_losses, scores, some_tags()[1], LENGTHS).dtype == jnp.float32
    with pytest.raises(ValueError, match=r"lengths\[0\] is 9 but the inputs have only 4 steps"):
        viterbi(scores, np.array([9, 1, 1, 1]))
