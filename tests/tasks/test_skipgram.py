"""Skip-gram: pairs and negatives as said, the loss of a loop, and vectors that find words of a kind."""

import collections
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from flax import nnx

from rnnjax.data import DataError
from rnnjax.nn import WordVectors
from rnnjax.tasks import Batch, SkipGram, reduce_mean
from rnnjax.tasks.contexts import KINDS
from rnnjax.tasks.skipgram import SkipGramOutputs
from rnnjax.testing import assert_close
from rnnjax.text import neighbours
from rnnjax.train.config import CheckpointConfig, TrainConfig
from rnnjax.train.loop import train


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """200 sentences of 1 to 9 of 12 words, rarer and rarer ones."""
    generator = np.random.default_rng(0)
    words = [f"w{number}" for number in range(12)]
    chances = 1 / np.arange(1, 13)
    lines = [
        " ".join(generator.choice(words, generator.integers(1, 10), p=chances / chances.sum())) for _ in range(200)
    ]
    path = tmp_path_factory.mktemp("skipgram") / "text.txt"
    path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def task(path):
    return SkipGram(str(path), "text", window=2, negatives=3, subsample=0.1, min_count=2)


def test_splits_hold_all_words_in_order(task, path):
    every = [words for split in ("train", "valid", "test") for words in task.sentences[split]]
    assert [word for words in every for word in words] == path.read_text(encoding="utf-8").split()
    sizes = [sum(map(len, task.sentences[split])) for split in ("train", "valid", "test")]
    assert sizes == [int(0.9 * sum(sizes)), int(0.95 * sum(sizes)) - int(0.9 * sum(sizes)), sizes[2]]
    counts = collections.Counter(word for words in task.sentences["train"] for word in words)
    assert dict(zip(task.vocabulary.words, task.vocabulary.counts, strict=True)) == counts
    assert task.input_size == task.output_size == 12


def test_batches_are_of_the_said_shapes(task):
    batch = task.batch(0, 8, 0)
    assert batch.inputs.shape == batch.mask.shape == (1, 8) and batch.targets.shape == (1, 8, 4)
    assert batch.inputs.dtype == batch.targets.dtype == np.int32 and batch.mask.dtype == np.float32
    assert batch.mask.all() and batch.lengths is None


def test_a_batch_depends_on_its_arguments_alone(task, path):
    fresh = SkipGram(str(path), "text", window=2, negatives=3, subsample=0.1, min_count=2)
    assert fresh == task and hash(fresh) == hash(task)
    for step, seed in [(57, 7), (3, 7), (400, 7), (3, 8), (3, 7)]:
        jax.tree.map(np.testing.assert_array_equal, fresh.batch(step, 16, seed), task.batch(step, 16, seed))
    steps = task.steps_per_epoch(16)
    starts = [task.batch(epoch * steps, 16, seed) for epoch in range(2) for seed in range(2)]
    for part in (lambda batch: batch.inputs, lambda batch: batch.targets[..., 1:]):
        assert len({part(batch).tobytes() for batch in starts}) == 4


def test_an_epoch_sees_the_pairs_of_a_pass(task):
    steps = task.steps_per_epoch(16)
    batches = [task.batch(step, 16, 0) for step in range(steps)]
    seen = collections.Counter(pair for batch in batches for pair in zip(*_pairs_of(batch), strict=True))
    text = [
        [task.vocabulary.index(word) for word in words if word in task.vocabulary] for words in task.sentences["train"]
    ]
    possible = collections.Counter(
        (words[i], words[j]) for words in text for i in range(len(words)) for j in range(len(words)) if i != j
    )
    assert not seen - possible and len(seen) > 50
    assert abs(16 * steps - task._pairs_of_a_pass) < 16
    assert sum((seen - collections.Counter(map(tuple, task._passes[0][1].tolist()))).values()) == 0  # none comes twice


def test_the_pairs_of_a_pass_are_shuffled(tmp_path):
    (tmp_path / "text.txt").write_text(" ".join(40 * "abcdefgh"), encoding="utf-8")
    task = SkipGram(str(tmp_path / "text.txt"), "text", window=1, subsample=0)
    after = dict(zip("abcdefgh", "bcdefgha", strict=True))
    centres, contexts = (task.vocabulary.decode(ids) for ids in _pairs_of(task.batch(0, 128, 0)))
    rightwards = sum(after[centre] == context for centre, context in zip(centres, contexts, strict=True))
    assert 40 < rightwards < 88  # in the order of the text all of them would be


def _pairs_of(batch):
    return batch.inputs[0], batch.targets[0, :, 0]


def test_frequent_words_are_seen_less_than_they_occur(task):
    share = task.vocabulary.counts[0] / sum(task.vocabulary.counts)
    centres = np.concatenate([task.batch(step, 64, 1).inputs[0] for step in range(task.steps_per_epoch(64))])
    assert np.mean(centres == 0) < 0.8 * share


def test_negatives_are_drawn_from_the_noise(task):
    drawn = np.concatenate([task.batch(step, 64, 0).targets[0, :, 1:].ravel() for step in range(60)])
    expected = np.array(task.vocabulary.counts) ** 0.75
    expected *= len(drawn) / expected.sum()
    assert scipy.stats.chisquare(np.bincount(drawn, minlength=12), expected).pvalue > 1e-3


@pytest.mark.parametrize("batch_size", [7, 1000])
def test_evaluation_counts_every_pair_once_and_is_always_the_same(task, batch_size):
    batches = list(task.batches("valid", batch_size))
    assert {batch.inputs.shape for batch in batches} == {(1, batch_size)}
    jax.tree.map(np.testing.assert_array_equal, batches, list(task.batches("valid", batch_size)))
    pairs = sum(int(batch.mask.sum()) for batch in batches)
    assert pairs == sum(int(batch.mask.sum()) for batch in task.batches("valid", 1)) > 20
    assert all(batch.mask.all() for batch in batches[:-1])


def _loss_and_gradient_of_a_loop(vectors, contexts, targets):
    losses, d_vectors, d_contexts = np.zeros(len(vectors)), np.zeros_like(vectors), np.zeros_like(contexts)
    for row, (v, words) in enumerate(zip(vectors, targets, strict=True)):
        for place, word in enumerate(words):
            sign = 1 if place == 0 else -1
            sigmoid = 1 / (1 + np.exp(-sign * contexts[word] @ v))
            losses[row] -= np.log(sigmoid)
            d_vectors[row] -= sign * (1 - sigmoid) * contexts[word]
            d_contexts[word] -= sign * (1 - sigmoid) * v
    return losses, d_vectors, d_contexts


def test_loss_and_gradient_are_those_of_a_loop(x64, task):
    draws = np.random.default_rng(0)
    vectors, contexts = draws.normal(size=(1, 6, 4)), draws.normal(size=(12, 4))
    batch = task.batch(2, 6, 0)
    batch.targets[0, 0] = [3, 5, 3, 3]  # a negative that is the context, and one that comes twice
    losses, d_vectors, d_contexts = _loss_and_gradient_of_a_loop(vectors[0], contexts, batch.targets[0])
    assert_close(task.loss(SkipGramOutputs(vectors, contexts), batch), jnp.asarray(losses[None]), 1e-12)
    gradient = jax.grad(lambda outputs: task.loss(outputs, batch).sum())(
        SkipGramOutputs(vectors, jnp.asarray(contexts))
    )
    assert_close(gradient, SkipGramOutputs(jnp.asarray(d_vectors[None]), jnp.asarray(d_contexts)), 1e-12)


def test_chance_is_where_training_starts_and_losses_stay_finite(task):
    batch, model = task.batch(0, 8, 0), WordVectors(12, 4, rngs=nnx.Rngs(0))
    assert float(reduce_mean(task.loss(model(batch.inputs), batch), batch.mask)) == pytest.approx(task.chance, rel=1e-6)
    assert task.chance == pytest.approx(4 * np.log(2))
    huge = SkipGramOutputs(jnp.full((1, 8, 4), 1e4), jnp.full((12, 4), 1e4))
    assert np.isfinite(task.loss(huge, batch)).all()
    half = SkipGramOutputs(jnp.ones((1, 8, 4), jnp.bfloat16), jnp.ones((12, 4), jnp.bfloat16))
    assert task.loss(half, batch).dtype == jnp.float32


def test_accuracy_counts_contexts_above_all_negatives(task):
    vectors, contexts = np.ones((1, 3, 1), np.float32), np.arange(12, dtype=np.float32)[:, None]
    targets = np.array([[[5, 1, 2, 4], [5, 1, 9, 4], [5, 5, 1, 1]]], np.int32)
    batch = Batch(np.zeros((1, 3), np.int32), targets, np.ones((1, 3), np.float32))
    values, mask = task.metrics(SkipGramOutputs(vectors, contexts), batch)["accuracy"]
    assert values.tolist() == [[1, 0, 0]] and mask is batch.mask


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(task, vectors) of 600 steps on the generated corpus."""
    task = SkipGram(window=3, subsample=1e-2)
    model = WordVectors(task.input_size, 16, rngs=nnx.Rngs(0))
    config = TrainConfig(
        steps=600, steps_per_call=300, batch_size=128, learning_rate=2e-2, eval_every=300, log_every=300, eval_batch=500
    )
    found = train(model, task, config, tmp_path_factory.mktemp("trained"))
    return task, np.asarray(found.best["encoder"]["table"][...]), found.scores["valid"]


def test_words_of_a_kind_find_each_other(trained):
    task, vectors, scores = trained
    assert scores["loss"] < 0.45 * task.chance and scores["accuracy"] > 0.55
    for members in KINDS.values():
        ids = task.vocabulary.encode(members)
        nearest, _ = neighbours(vectors, ids, 1)
        assert all(task.vocabulary.words[number] in members for number in nearest[:, 0])


@pytest.mark.full
def test_a_run_that_stopped_goes_on_with_the_same_bits(tmp_path, task, monkeypatch):
    config = TrainConfig(
        steps=12, steps_per_call=4, batch_size=8, eval_every=4, eval_batch=50, log_every=4,
        checkpoint=CheckpointConfig(every_minutes=0, every_steps=4),
    )  # fmt: skip

    def run(folder):
        return train(WordVectors(task.input_size, 4, rngs=nnx.Rngs(0)), task, config, folder)

    whole = run(tmp_path / "whole")
    batch = SkipGram.batch

    def dies(self, step, batch_size, seed):
        if step == 10:
            raise KeyboardInterrupt
        return batch(self, step, batch_size, seed)

    with monkeypatch.context() as patch:
        patch.setattr(SkipGram, "batch", dies)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "parts")
    went_on = run(tmp_path / "parts")
    jax.tree.map(
        np.testing.assert_array_equal, jax.tree.leaves(whole.state.params), jax.tree.leaves(went_on.state.params)
    )
    rows = [(tmp_path / folder / "metrics.jsonl").read_text().splitlines() for folder in ("whole", "parts")]
    assert rows[0] == rows[1] and json.loads(rows[0][-1])["step"] == 12


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: SkipGram(window=0), "window of SkipGram is 0: expected a whole number of at least 1"),
        (lambda: SkipGram(negatives=0), "negatives of SkipGram is 0"),
        (lambda: SkipGram(min_count=0), "min_count of SkipGram is 0"),
        (lambda: SkipGram(corpus="news"), "corpus of SkipGram is 'news': expected one of generated, text"),
        (lambda: SkipGram(corpus="text"), "path of SkipGram is '' but corpus is 'text': expected the file"),
        (lambda: SkipGram(path="x"), "path of SkipGram is 'x' but corpus is 'generated': expected none"),
        (lambda: SkipGram(subsample=-0.1), "subsample of SkipGram is -0.1: expected a frequency, 0 to 1"),
        (lambda: SkipGram(subsample="much"), "subsample of SkipGram is 'much'"),
        (lambda: SkipGram().batches("dev", 3), "split is 'dev': expected one of train, valid, test"),
        (lambda: SkipGram().batches("test", 0), "batch_size is 0"),
        (lambda: SkipGram().steps_per_epoch(0), "batch_size is 0"),
        (lambda: SkipGram().batch(-1, 3, 0), "step is -1 and seed 0"),
        (lambda: SkipGram().batch(0, 3, -1), "seed -1"),
    ],
)
def test_what_can_not_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "text, options, message",
    [
        (None, {}, "text.txt: "),
        ("a b", {}, "text.txt: 2 words are too few for three splits"),
        ("a b " * 20, {"min_count": 30}, "text.txt: no word is seen 30 times in the training split"),
        ("a\n" * 40, {}, "text.txt: no two words are left together in the train split"),
    ],
)
def test_texts_that_hold_too_little_are_refused(tmp_path, text, options, message):
    if text is not None:
        (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        SkipGram(str(tmp_path / "text.txt"), "text", **options).batch(0, 3, 0)
