"""Cloze: one side alone tells, no split shares a frame, and no pad or other word than the gap counts."""

import collections
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.tasks import Cloze, reduce_mean
from rnnjax.tasks.cloze import FRAMES, GAP, LISTENERS, OPENERS, SPEAKERS, VERBS, cloze_sentences
from rnnjax.testing import assert_close

OF = {listener: answer for answer, listeners in LISTENERS.items() for listener in listeners}


def parts(sentence):
    """What stands to the left of the gap and to its right."""
    at = sentence.words.index(GAP)
    return " ".join(sentence.words[:at]), " ".join(sentence.words[at + 1 :])


@pytest.mark.parametrize("split", FRAMES)
def test_the_listener_tells_and_stands_on_its_side(split):
    sentences = cloze_sentences(split)
    assert len(sentences) == 2 * len(LISTENERS) * FRAMES[split]
    for sentence in sentences:
        told = dict(zip(("left", "right"), parts(sentence), strict=True))
        assert sentence.words.count(GAP) == 1
        named = [listener for listener in OF if f" to {listener} " in f" {told[sentence.side]} "]
        assert [OF[listener] for listener in named] == [sentence.answer]
        other = told["left" if sentence.side == "right" else "right"]
        assert "to" not in other.split()


@pytest.mark.parametrize("split", FRAMES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_what_stands_on_the_other_side_comes_with_each_answer_equally_often(split, side):
    """So that the best guess from it is right in exactly one of four cases."""
    counts = collections.defaultdict(collections.Counter)
    for sentence in cloze_sentences(split):
        if sentence.side == side:
            counts[parts(sentence)[side == "left"]][sentence.answer] += 1
    for seen, answers in counts.items():
        assert len(answers) == len(LISTENERS) and len(set(answers.values())) == 1, seen


def test_no_two_splits_share_a_frame_and_each_stays_the_same():
    def frames(split):
        return {parts(one) for one in cloze_sentences(split) if one.side == "right" and one.answer == "hello"}

    def without_listener(split):
        return {tuple(part.replace(f"to {name}", "*") for part in pair for name in OF) for pair in frames(split)}

    sets = [without_listener(split) for split in FRAMES]
    assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    assert cloze_sentences("test") == cloze_sentences.__wrapped__("test")
    assert cloze_sentences("test")[0].words != cloze_sentences("valid")[0].words


def test_lengths_and_places_tell_nothing():
    """The answer is independent of where the gap is, and nearly of how long the sentence is."""
    sentences = [one for one in cloze_sentences("train") if one.side == "right"]
    places = collections.Counter((one.words.index(GAP), one.answer) for one in sentences)
    for place in {place for place, _ in places}:
        assert len({places[place, answer] for answer in LISTENERS}) == 1


def test_batches_hold_every_sentence_once_with_the_answer_at_the_gap():
    task = Cloze()
    words, expected = (
        task.vocabulary.words,
        collections.Counter((" ".join(s.words), s.answer) for s in cloze_sentences("train")),
    )
    found = collections.Counter()
    for step in range(task.steps_per_epoch(64)):
        batch = task.batch(step, 64, seed=5)
        assert batch.inputs.dtype == batch.targets.dtype == batch.lengths.dtype == np.int32
        assert batch.mask.dtype == np.float32
        for row, length in enumerate(batch.lengths):
            assert batch.mask[:, row].sum() == (length > 0)
            if length:
                (gap,) = np.flatnonzero(batch.mask[:, row])
                sentence = [words[number] for number in batch.inputs[:length, row]]
                assert sentence[gap] == GAP
                found[" ".join(sentence), task.answers[batch.targets[gap, row]]] += 1
    assert found == expected
    again = task.batch(3, 64, seed=5)
    np.testing.assert_array_equal(again.inputs, Cloze().batch(3, 64, seed=5).inputs)
    assert not np.array_equal(task.batch(3, 64, seed=6).inputs[:8], again.inputs[:8])
    assert len({batch.inputs.shape for batch in task.batches("test", 64)}) == 2
    assert sum(int(batch.mask.sum()) for batch in task.batches("test", 64)) == len(cloze_sentences("test"))
    with pytest.raises(ValueError, match="split is 'dev': expected one of train, valid, test"):
        task.batches("dev", 4)


def test_loss_and_metrics_are_of_the_gap_alone(x64):
    task = Cloze()
    batch = next(task.batches("valid", 16))
    logits = jax.random.normal(jax.random.key(0), (*batch.inputs.shape, 4))
    poisoned = jnp.where(batch.mask[..., None] > 0, logits, jnp.nan)
    sides = {"left": [], "right": []}
    for row in range(16):
        (gap,) = np.flatnonzero(batch.mask[:, row])
        side = "left" if task.vocabulary.index("to") in batch.inputs[:gap, row] else "right"
        scores, answer = np.asarray(logits[gap, row]), batch.targets[gap, row]
        nats = np.log(np.exp(scores).sum()) - scores[answer]
        sides[side].append((nats, float(scores.argmax() == answer)))
    want = {side: np.mean(values, axis=0) for side, values in sides.items()}
    loss = reduce_mean(task.loss(poisoned, batch), batch.mask)
    assert_close(loss, np.mean([nats for values in sides.values() for nats, _ in values]), 1e-12)
    metrics = {name: reduce_mean(*given) for name, given in task.metrics(poisoned, batch).items()}
    assert set(metrics) == {"accuracy_left", "accuracy_right", "nats_left", "nats_right"}
    for side, (nats, right) in want.items():
        assert_close(metrics[f"nats_{side}"], nats, 1e-12)
        assert metrics[f"accuracy_{side}"] == right


def test_chance_is_that_of_an_even_guess():
    task = Cloze()
    assert task.chance == math.log(4)
    for batch in task.batches("test", 100):
        loss = reduce_mean(task.loss(jnp.zeros((*batch.inputs.shape, 4)), batch), batch.mask)
        assert_close(loss, task.chance, 1e-6)


def test_every_word_of_the_tests_was_seen_and_sizes_are_those_of_the_grammar():
    task = Cloze()
    assert GAP in task.vocabulary and task.input_size == len(task.vocabulary)
    for split in FRAMES:
        for sentence in cloze_sentences(split):
            task.vocabulary.encode(sentence.words)
    assert {word for phrase in (*OPENERS, *SPEAKERS, *VERBS, *OF) for word in phrase.split()} < set(
        task.vocabulary.words
    )
    with pytest.raises(ValueError, match="buckets of Cloze is 0"):
        Cloze(buckets=0)
