"""Tagging: what the model is given is what was written, no pad counts, and scores are of whole sentences in order."""

import collections

import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.data import DataError
from rnnjax.tasks import Tagging, reduce_mean
from rnnjax.tasks.crf import CRFScores, viterbi
from rnnjax.tasks.scores import slot_scores
from rnnjax.tasks.tagging import normal
from rnnjax.testing import assert_close
from rnnjax.text import TrigramHashing

LINES = {
    "train": "fly O\nto O\nNew B-city\nYork I-city\n\nleave O\nBoston B-city\nat O\n7 B-time\n\nto O\nBoston B-city\n",
    "valid": "fly O\nto O\nBoston B-city\n",
    "test": "to O\nOslo B-city\nat O\n19 B-hour\n\nleave O\n",
}


@pytest.fixture
def folder(tmp_path):
    for split, text in LINES.items():
        (tmp_path / f"{split}.txt").write_text(text)
    return tmp_path


def task_of(folder, **options):
    return Tagging(path=str(folder), corpus="files", **options)


def test_vocabulary_and_tags_are_those_of_training(folder):
    task = task_of(folder)
    assert set(task.vocabulary.words) == {"<unk>", "fly", "to", "new", "york", "leave", "boston", "at", "0"}
    assert task.answers.words[0] == "O" and set(task.answers.words) == {"O", "B-city", "I-city", "B-time"}
    assert (task.input_size, task.output_size) == (9, 4)
    assert normal(["Boston", "7:05", "MIXed"]) == ["boston", "0:00", "mixed"]
    assert task.vocabulary.decode(task.codec.encode(["To", "Oslo", "AT", "9"])) == ["to", "<unk>", "at", "0"]


def test_batches_hold_every_sentence_once_and_pads_count_nothing(folder):
    task = task_of(folder, unknown=0.0)
    seen = collections.Counter()
    for step in range(2 * task.steps_per_epoch(2)):
        batch = task.batch(step, 2, seed=3)
        assert batch.inputs.dtype == batch.targets.dtype == batch.lengths.dtype == np.int32
        for row, length in enumerate(batch.lengths):
            np.testing.assert_array_equal(batch.mask[:, row], np.arange(len(batch.mask)) < length)
            if length:
                seen[" ".join(task.vocabulary.decode(batch.inputs[:length, row]))] += 1
    assert set(seen.values()) == {2} and len(seen) == 3
    again = task.batch(1, 2, seed=3)
    np.testing.assert_array_equal(again.inputs, task_of(folder, unknown=0.0).batch(1, 2, seed=3).inputs)


def test_words_seen_once_are_unknown_now_and_then_in_training_alone(folder):
    task = task_of(folder, unknown=0.5)
    steps = task.steps_per_epoch(3)
    once = {"fly", "new", "york", "leave", "at", "0"}
    found = collections.Counter()
    for step in range(200 * steps):
        batch = task.batch(step, 3, seed=0)
        clean = task_of(folder, unknown=0.0).batch(step, 3, seed=0)
        for given, meant in zip(batch.inputs[batch.mask > 0], clean.inputs[clean.mask > 0], strict=True):
            found[task.vocabulary.words[meant], bool(given == 0)] += 1
            assert given in (0, meant)
    for word in once:
        assert abs(found[word, True] / 200 - 0.5) < 0.18, word  # five standard errors
    assert not any(found[word, True] for word in ("to", "boston"))
    (batch,) = task.batches("valid", 1)
    assert "<unk>" not in task.vocabulary.decode(batch.inputs[:3, 0])


def test_a_tag_that_training_has_not_is_no_loss_and_always_wrong(folder):
    task = task_of(folder)
    batch = next(batch for batch in task.batches("test", 2) if (batch.lengths == 4).any())
    row = int(np.argmax(batch.lengths))
    np.testing.assert_array_equal(batch.targets[:4, row] == -1, [False, False, False, True])
    assert not batch.mask[:4, row].any()  # to a CRF a sentence is one
    logits = jnp.zeros((*batch.inputs.shape, 4)).at[..., 0].set(50)
    errors, counted = task.metrics(logits, batch)["tag_error"]
    np.testing.assert_array_equal(errors[:4, row], [0, 1, 0, 1])
    np.testing.assert_array_equal(counted[:4, row], 1)
    (valid,) = task.batches("valid", 1)
    assert_close(reduce_mean(task.loss(0 * logits[:3, :1], valid), valid.mask), np.log(4), 1e-6)
    predicted = task.predictions("test", 1, lambda batch: jnp.zeros((*batch.inputs.shape, 4)).at[..., 0].set(1))
    assert predicted == [["O"] * 4, ["O"]]
    assert slot_scores([one.tags for one in task.sentences["test"]], predicted)["accuracy"] == 60


def test_predictions_stand_in_the_order_of_the_corpus(folder):
    task = task_of(folder)

    def apply(batch):  # the tag of the word's place in the vocabulary
        return jnp.eye(4)[np.maximum(batch.inputs, 0) % 4]

    for batch_size in (1, 2, 5):
        got = task.predictions("train", batch_size, apply)
        want = [
            [task.answers.words[number % 4] for number in task.codec.encode(sentence.words)]
            for sentence in task.sentences["train"]
        ]
        assert got == want
    assert task.codec.tag([["fly"], ["to", "Boston"]], apply) == [
        [task.answers.words[number % 4] for number in task.codec.encode(words)] for words in (["fly"], ["to", "Boston"])
    ]


def test_trigram_batches_of_a_bucket_have_one_shape(folder):
    task = task_of(folder, encoding="trigrams", trigrams=64, buckets=1)
    shapes = {task.batch(step, 1, seed=0).inputs.shape for step in range(3)}
    assert shapes == {(4, 1, len("Boston"))}


def test_trigrams_stand_for_any_word(folder):
    task = task_of(folder, encoding="trigrams", trigrams=64)
    (batch,) = task.batches("valid", 1)
    want = TrigramHashing(64).indices(["fly", "to", "boston"])
    np.testing.assert_array_equal(batch.inputs[:3, 0, : want.shape[1]], want)
    assert (batch.inputs[:3, 0, want.shape[1] :] == -1).all() and task.input_size == 64
    assert task.codec.encode(["Antananarivo"]).shape == (1, 12)
    np.testing.assert_array_equal(task.codec.encode(["BOSTON", "747"]), task.codec.encode(["boston", "000"]))
    assert task.codec.tag([["Antananarivo"], ["to", "Oslo"]], lambda batch: jnp.ones((*batch.inputs.shape[:2], 4)))


def test_lines_of_many_lengths_come_in_few_shapes(folder):
    task, shapes = task_of(folder), set()

    def apply(batch):
        shapes.add(batch.inputs.shape)
        return jnp.eye(4)[np.maximum(batch.inputs, 0) % 4]

    for length in range(1, 40):
        (tags,) = task.codec.tag([["to"] * length], apply)
        assert len(tags) == length
    assert shapes == {(2**power, 1) for power in range(7)}


def test_with_a_crf_the_loss_is_that_of_the_sentence_and_the_tags_the_best_path(folder):
    task = task_of(folder)
    (batch,) = task.batches("valid", 1)
    rng = np.random.default_rng(0)
    scores = CRFScores(*(jnp.asarray(rng.normal(size=size)) for size in ((3, 1, 4), (4, 4), (4,), (4,))))
    paths = np.stack(np.meshgrid(*[range(4)] * 3, indexing="ij"), -1).reshape(-1, 3)
    totals = np.array([_score(scores, path) for path in paths])
    target = tuple(batch.targets[:3, 0])
    want = np.log(np.exp(totals).sum()) - _score(scores, target)
    assert_close(task.loss(scores, batch).sum(), want, 1e-4)
    best = paths[np.argmax(totals)]
    np.testing.assert_array_equal(viterbi(scores, batch.lengths)[0][:, 0], best)
    error = task.metrics(scores, batch)["tag_error"][0][:, 0]
    np.testing.assert_array_equal(error, best != np.array(target))


def _score(scores, path):
    logits, transitions, start, end = (np.asarray(part, np.float64) for part in scores)
    steps = sum(logits[t, 0, tag] for t, tag in enumerate(path))
    return start[path[0]] + end[path[-1]] + steps + sum(transitions[a, b] for a, b in zip(path, path[1:], strict=False))


def test_chance_is_the_score_of_the_frequencies(folder):
    task = task_of(folder)
    counts = {"O": 5, "B-city": 3, "I-city": 1, "B-time": 1}  # in training
    p = {tag: (n + 1) / 14 for tag, n in counts.items()}
    assert_close(task.chance, -np.mean(np.log([p["O"], p["O"], p["B-city"]])), 1e-6)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"corpus": "atlas"}, "corpus of Tagging is 'atlas': expected one of travel, atis"),
        ({"encoding": "letters"}, "encoding of Tagging is 'letters': expected one of words, trigrams"),
        ({"unknown": 1.5}, "unknown of Tagging is 1.5: expected a probability"),
        ({"buckets": 0}, "buckets of Tagging is 0"),
        ({"trigrams": 0}, "trigrams of Tagging is 0"),
    ],
)
def test_wrong_fields_are_refused_by_name(options, message):
    with pytest.raises(ValueError) as error:
        Tagging(**options)
    assert str(error.value).startswith(message)


def test_a_missing_or_empty_corpus_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("RNNJAX_DATA", str(tmp_path))
    with pytest.raises(DataError, match="atis"):
        _ = Tagging(corpus="atis").sentences
    (tmp_path / "test.txt").write_text("a O\n")
    with pytest.raises(DataError, match=r"train\.txt"):
        _ = Tagging(corpus="files", path=str(tmp_path)).sentences


def test_a_file_of_one_split_brings_the_others(folder, tmp_path):
    for split in LINES:
        assert task_of(folder / f"{split}.txt").sentences == task_of(folder).sentences
    (folder / "valid.txt").rename(folder / "mine.txt")
    with pytest.raises(DataError, match="mine.txt: is of no split: expected files called train, valid and test"):
        _ = task_of(folder / "mine.txt").sentences
    with pytest.raises(DataError, match=r"valid\.txt"):
        _ = task_of(folder).sentences


def test_tags_that_are_no_chunks_are_told_by_sentence(folder):
    (folder / "valid.txt").write_text("fly O\n\nthe DET\n")
    with pytest.raises(DataError, match=r"sentence 2 of valid, 'the': tags\[0\] is 'DET'"):
        _ = task_of(folder).sentences


def test_splits_of_two_corpora_are_told(folder):
    (folder / "valid.txt").write_text("fly B-verb\n")
    with pytest.raises(DataError, match="the valid split has no answer that the train split has, 'B-verb' for one"):
        _ = task_of(folder).chance


def test_files_are_read_in_their_charset(folder):
    (folder / "valid.txt").write_bytes("Orl\xe9ans B-city\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"valid.txt: line 1: (.|\n)*charset"):
        _ = task_of(folder).sentences
    assert task_of(folder, charset="latin-1").sentences["valid"][0].words == ("Orl\xe9ans",)


def test_a_part_of_conll2000_is_told(tmp_path):
    for split in ("train", "test"):
        (tmp_path / f"{split}.txt").write_text("a DT B-NP\n\n" * 1000)
    with pytest.raises(DataError, match="1,000 sentences to train: expected more than the 1,000 that are held out"):
        _ = Tagging(corpus="conll2000", path=str(tmp_path)).sentences


@pytest.mark.parametrize("form", ["jointslu", "slotgated"])
def test_atis_has_the_counts_of_the_literature(corpora, form):
    task = Tagging(corpus="atis", path=str(corpora / "atis" / form))
    assert [len(sentences) for sentences in task.sentences.values()] == [4478, 500, 893]
    assert task.output_size == 120
    assert sum(len(one.tags) for one in task.sentences["test"]) == 9164


def test_conll2000_has_the_counts_of_the_literature(corpora):
    task = Tagging(corpus="conll2000", path=str(corpora / "conll2000"))
    assert [len(sentences) for sentences in task.sentences.values()] == [7936, 1000, 2012]
    assert sum(tag.startswith("B-") for one in task.sentences["test"] for tag in one.tags) == 23852
