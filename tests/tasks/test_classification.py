"""Classification: what is read is what was written, splits are drawn by seed, and no pad counts."""

import collections
import gzip

import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.data import DataError
from rnnjax.tasks import Classification, reduce_mean
from rnnjax.tasks.classification import ClassCodec
from rnnjax.tasks.questions import KINDS, generated_questions
from rnnjax.testing import assert_close
from rnnjax.text import TrigramHashing

LINES = {
    "train": "LOC Where is Oslo ?\nNUM How many ?\n\nLOC Where is the Loop ?\nHUM Who ?\n",
    "valid": "NUM How old ?\n",
    "test": "HUM Who is where ?\nABBR What is NATO ?\n",
}


@pytest.fixture
def folder(tmp_path):
    for split, text in LINES.items():
        (tmp_path / f"{split}.txt").write_text(text)
    return tmp_path


def task_of(path, **options):
    return Classification(path=str(path), corpus="files", **options)


def test_vocabulary_and_classes_are_those_of_training(folder):
    task = task_of(folder)
    words = {"<unk>", "where", "is", "oslo", "?", "how", "many", "the", "loop", "who"}
    assert set(task.vocabulary.words) == words and task.vocabulary.words[0] == "<unk>"
    assert task.answers.words[0] == "LOC" and set(task.answers.words) == {"LOC", "NUM", "HUM"}
    assert (task.input_size, task.output_size) == (10, 3)
    characters = task_of(folder, encoding="characters")
    assert characters.vocabulary.decode(characters.codec.encode(("Who", "?"))) == list("Who ?")
    trigrams = task_of(folder, encoding="trigrams", trigrams=64)
    (batch,) = trigrams.batches("valid", 1)
    assert trigrams.input_size == 64 and batch.inputs.shape[:2] == (3, 1)
    want = TrigramHashing(64).indices(["how", "old", "?"])
    np.testing.assert_array_equal(batch.inputs[:, 0, : want.shape[1]], want)
    assert np.all(batch.inputs[:, 0, want.shape[1] :] == -1)


def test_batches_hold_every_sentence_once_and_rows_that_fill_up_count_nothing(folder):
    task = task_of(folder, unknown=0.0)
    seen = collections.Counter()
    for step in range(2 * task.steps_per_epoch(3)):
        batch = task.batch(step, 3, seed=3)
        assert batch.inputs.dtype == batch.targets.dtype == batch.lengths.dtype == np.int32
        np.testing.assert_array_equal(batch.mask, batch.lengths > 0)
        for row in np.flatnonzero(batch.mask):
            words = task.vocabulary.decode(batch.inputs[: batch.lengths[row], row])
            seen[task.answers.words[batch.targets[row]], " ".join(words)] += 1
    assert set(seen) == {
        ("LOC", "where is oslo ?"), ("NUM", "how many ?"), ("LOC", "where is the loop ?"), ("HUM", "who ?")
    }  # fmt: skip
    assert set(seen.values()) == {2}
    np.testing.assert_array_equal(task.batch(1, 3, seed=3).inputs, task_of(folder, unknown=0.0).batch(1, 3, 3).inputs)


def test_words_seen_once_are_unknown_now_and_then_in_training_alone(folder):
    task, clean = task_of(folder, unknown=0.5), task_of(folder, unknown=0.0)
    found = collections.Counter()
    for step in range(100 * task.steps_per_epoch(4)):
        given, meant = (one.batch(step, 4, seed=0).inputs for one in (task, clean))
        for number, instead in zip(meant[meant > 0], given[meant > 0], strict=True):
            found[task.vocabulary.words[number], bool(instead == 0)] += 1
            assert instead in (0, number)
    for word in ("oslo", "how", "many", "the", "loop", "who"):
        assert abs(found[word, True] / 100 - 0.5) < 0.25, word  # five standard errors
    assert not any(found[word, True] for word in ("where", "is", "?"))
    for batch in task.batches("train", 4):
        assert np.all(batch.inputs[np.arange(len(batch.inputs))[:, None] < batch.lengths] > 0)


def test_a_class_that_training_has_not_is_no_loss_and_always_wrong(folder):
    task = task_of(folder, buckets=1)
    (batch,) = task.batches("test", 3)
    assert batch.targets[1] == -1 and batch.mask.tolist() == [1, 0, 0]
    logits = jnp.zeros((3, 3)).at[:, int(batch.targets[0])].set(2.0)
    error, counted = task.metrics(logits, batch)["error"]
    assert error.tolist()[:2] == [0, 1] and counted.tolist() == [1, 1, 0]
    assert_close(reduce_mean(task.loss(logits, batch), batch.mask), np.log(np.exp(2) + 2) - 2, 1e-6)


def test_predictions_stand_in_the_order_of_the_corpus(folder):
    task = task_of(folder)

    def apply(batch):  # the class is told by the length
        return np.eye(3)[np.where(batch.lengths >= 4, 0, 2)]

    want = [task.answers.words[number] for number in (0, 2, 0, 2)]
    for size in (1, 2, 9):
        assert task.predictions("train", size, apply) == want
    with pytest.raises(ValueError, match="split is 'dev': expected one of train, valid, test"):
        task.predictions("dev", 2, apply)


def test_a_line_gets_probabilities_in_few_shapes(folder):
    task, shapes = task_of(folder), set()
    codec = ClassCodec(task.vocabulary, task.answers, "words", 8)

    def apply(batch):
        shapes.add(batch.inputs.shape)
        assert np.all(batch.inputs[batch.lengths[0] :] == -1)
        return np.log([[0.2, 0.5, 0.3]])

    for line in ("who", "where is it", "where is it ?"):
        found = codec.probabilities(line.split(), apply)
    assert shapes == {(1, 1), (4, 1)}
    assert_close([found[name] for name in task.answers.words], [0.2, 0.5, 0.3], 1e-6)


def test_chance_is_the_loss_of_the_frequencies(folder):
    assert_close(task_of(folder).chance, -np.log(2 / 7), 1e-12)


def test_one_file_is_split_by_seed(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("".join(f"{'AB'[n % 2]} w{n} caf\xe9\n" for n in range(50)).encode("latin-1"))
    found = [task_of(path, charset="latin-1", split_seed=seed).sentences for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert {split: len(one) for split, one in found[0].items()} == {"train": 40, "valid": 5, "test": 5}
    words = [one.words[0] for part in found[0].values() for one in part]
    assert sorted(words) == sorted(f"w{n}" for n in range(50)) and found[0]["train"][0].words[1] == "caf\xe9"
    with pytest.raises(DataError, match=r'lines.txt: line 1: (.|\n)* encoding="latin-1" .*charset'):
        _ = task_of(path).sentences


def test_what_is_held_out_stands_in_no_other_split(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"A w{n % 30}\n" for n in range(100)))
    splits = [{one.words for one in split} for split in task_of(path).sentences.values()]
    assert not splits[0] & splits[1] and not splits[0] & splits[2] and not splits[1] & splits[2]
    assert {split: len(one) for split, one in task_of(path).sentences.items()} == {"train": 80, "valid": 10, "test": 10}


def test_without_a_validation_file_a_tenth_of_training_is_held_out(folder):
    (folder / "valid.txt").unlink()
    sizes = {split: len(one) for split, one in task_of(folder).sentences.items()}
    assert sizes == {"train": 3, "valid": 1, "test": 2}
    (folder / "test.txt").unlink()
    (folder / "train.txt").write_text("LOC Where ?\n")
    with pytest.raises(DataError, match="the train split has no sentence"):
        _ = task_of(folder).sentences


def test_files_of_every_split_are_taken_plain_or_gzipped(tmp_path):
    lines = {split: "".join(f"{split} w{number}\n" for number in range(20)) for split in ("train", "valid", "test")}
    (tmp_path / "train.txt").write_text(lines["train"])
    (tmp_path / "valid.txt").write_text(lines["valid"])
    found = Classification(corpus="files", path=str(tmp_path)).sentences
    assert {one.label for one in found["valid"]} == {"valid"} and len(found["valid"]) == 20
    assert [len(found[split]) for split in ("train", "test")] == [18, 2]
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress(lines["test"].encode(), mtime=0))
    found = Classification(corpus="files", path=str(tmp_path)).sentences
    assert all(
        {one.label for one in sentences} == {split} and len(sentences) == 20 for split, sentences in found.items()
    )


def test_names_of_one_spelling_are_in_one_split(tmp_path):
    for language, names in {"Arabic": "Said\nBa\n\nVan Dam\n", "Greek": "Said\n"}.items():
        (tmp_path / f"{language}.txt").write_text(names + "".join(f"{language}{n}\n" for n in range(30)))
    (tmp_path / "English.txt").write_text("Ba\n")
    task = Classification(path=str(tmp_path), corpus="names", encoding="characters")
    parts = {split: {one.words for one in found} for split, found in task.sentences.items()}
    assert sum(map(len, task.sentences.values())) == 65 and sum(map(len, parts.values())) == 63
    assert len(parts["valid"]) == len(parts["test"]) == 6
    assert ("Van", "Dam") in set.union(*parts.values())


def test_no_generated_question_is_in_two_splits():
    train, valid, test = (set(generated_questions(split)) for split in ("train", "valid", "test"))
    assert not train & valid and not train & test and not valid & test


def test_the_generated_questions():
    for split, size in (("train", 2000), ("test", 1000)):
        questions = generated_questions(split)
        assert len(questions) == size and {one.label for one in questions} == set(KINDS)
    task = Classification()
    assert task.output_size == 6 and abs(task.chance - np.log(6)) < 0.02
    asked = [" ".join(one.words) for one in generated_questions("train")]
    assert any("singer is from the city" in one for one in asked) and any("city is the singer" in one for one in asked)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"corpus": "sst"}, "corpus of Classification is 'sst': expected one of questions, trec, atis, names, files"),
        ({"encoding": "bytes"}, "encoding of Classification is 'bytes'"),
        ({"unknown": 1.5}, "unknown of Classification is 1.5: expected a probability"),
        ({"buckets": 0}, "buckets of Classification is 0"),
        ({"split_seed": -1}, "split_seed of Classification is -1"),
    ],
)
def test_what_is_no_task_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Classification(**options)


def test_trec(corpora):
    """5,452 training questions in Latin-1, of which 500 are held out, and 500 of the test."""
    if not (corpora / "trec").is_dir():
        pytest.skip("RNNJAX_DATA has no trec")
    task = Classification(corpus="trec", path=str(corpora / "trec"))
    assert {split: len(one) for split, one in task.sentences.items()} == {"train": 4952, "valid": 500, "test": 500}
    assert set(task.answers.words) == {"ENTY", "HUM", "DESC", "NUM", "LOC", "ABBR"}
    assert {one.label for one in task.sentences["test"]} == set(task.answers.words)
    assert 1.6 < task.chance < 1.7


def test_names(corpora):
    if not (corpora / "names").is_dir():
        pytest.skip("RNNJAX_DATA has no names")
    task = Classification(corpus="names", path=str(corpora / "names"), encoding="characters")
    assert sum(map(len, task.sentences.values())) == 20050 and task.output_size == 18


def test_intents_of_atis(corpora):
    """The split of slot filling; 21 intents in training, and the commonest of them 632 times in the test."""
    if not (corpora / "atis").is_dir():
        pytest.skip("RNNJAX_DATA has no atis")
    task = Classification(corpus="atis", path=str(corpora / "atis"))
    assert {split: len(one) for split, one in task.sentences.items()} == {"train": 4478, "valid": 500, "test": 893}
    assert task.answers.words[0] == "atis_flight"
    assert sum(one.label == "atis_flight" for one in task.sentences["test"]) == 632
    unseen = [one for one in task.sentences["test"] if one.label not in task.answers]
    assert unseen  # never given, so that they are wrong
