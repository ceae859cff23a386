"""Language modelling: every symbol once, windows that go on, the vocabulary of the training part alone."""

import collections
import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax.cells import CELLS
from rnnjax.data import DataError
from rnnjax.nn import OneHot, SequenceModel
from rnnjax.tasks import Language, reduce_mean
from rnnjax.testing.compare import TOLERANCE, assert_close

TEXT = "".join(f"line {i}: the {'cat' if i % 3 else 'dog'} saw {i * i} of them\n" for i in range(60))


def text_task(folder, text=TEXT, **fields):
    path = folder / "text.txt"
    path.write_bytes(text.encode())
    return Language(corpus="text", path=str(path), **fields)


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return text_task(tmp_path_factory.mktemp("language"), length=7)


@pytest.mark.parametrize("rows", [1, 3, 16, 500])
@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_an_evaluation_scores_every_symbol_once_and_in_order(task, split, rows):
    text = task.ids[split]
    before = np.concatenate([[task.start], text[:-1]])
    batches = list(task.batches(split, rows))
    assert len({jax.tree.map(np.shape, batch) for batch in batches}) == 1
    read, scored = [[] for _ in range(rows)], [[] for _ in range(rows)]
    for number, batch in enumerate(batches):
        assert batch.inputs.dtype == batch.targets.dtype == np.int32 and batch.mask.dtype == np.float32
        np.testing.assert_array_equal(batch.fresh, float(number == 0))
        np.testing.assert_array_equal(batch.mask, np.arange(len(batch.mask))[:, None] < batch.lengths)
        for row, length in enumerate(batch.lengths):
            read[row] += batch.inputs[:length, row].tolist()
            scored[row] += batch.targets[:length, row].tolist()
    assert sum(scored, []) == text.tolist() and sum(read, []) == before.tolist()


def test_windows_of_an_epoch_follow_one_another(task):
    rows, seed, text = 3, 5, task.ids["train"]
    count = task.steps_per_epoch(rows)
    assert (count + 1) * rows * task.length > len(text) - 2 * task.length  # as many as fit
    starts = set()
    for epoch in range(4):
        windows = [task.batch(epoch * count + step, rows, seed) for step in range(count)]
        assert [set(window.fresh.tolist()) for window in windows] == [{1.0}] + [{0.0}] * (count - 1)
        inputs, targets = (np.concatenate([getattr(one, name) for one in windows]) for name in ("inputs", "targets"))
        np.testing.assert_array_equal(inputs[1:], targets[:-1])
        np.testing.assert_array_equal(inputs[0, 1:], targets[-1, :-1])  # row b + 1 begins where row b ends
        inside = "".join(task.vocabulary.decode(inputs.T.ravel()))
        assert inside in task.texts["train"]
        starts.add(task.texts["train"].index(inside))
    assert len(starts) > 1
    again = dataclasses.replace(task).batch(count + 1, rows, seed)  # without what came before
    jax.tree.map(np.testing.assert_array_equal, again, task.batch(count + 1, rows, seed))
    assert all(batch.lengths is None and batch.mask.all() for batch in windows)


def test_an_epoch_may_start_at_any_place_that_leaves_room(tmp_path):
    task = text_task(tmp_path, "".join(chr(0x4E00 + place) for place in range(200)), length=5)
    assert task.ids["train"].tolist() == list(range(1, 181)) and task.steps_per_epoch(4) == 8
    firsts = {int(task.batch(0, 4, seed).inputs[0, 0]) - 1 for seed in range(300)}
    lasts = {int(task.batch(7, 4, seed).targets[-1, -1]) - 1 for seed in range(300)}
    assert firsts == set(range(20)) and lasts == set(range(160, 180))


def test_carried_windows_give_what_the_whole_gives(task, x64):
    model = SequenceModel(
        CELLS["elman"](task.input_size, 6),
        task.output_size,
        encoder=OneHot(task.input_size),
        rngs=nnx.Rngs(0),
        dtype=jnp.float64,
    )
    model.eval()
    text = task.ids["valid"]
    inputs = np.concatenate([[task.start], text[:-1]])[:, None]
    outputs = np.asarray(jax.jit(lambda inputs: model(inputs))(inputs))[:, 0]
    whole = np.log(np.exp(outputs).sum(-1)) - outputs[np.arange(len(text)), text]

    @jax.jit
    def score(carry, batch):
        outputs, carry = model.stream(batch.inputs, carry, lengths=batch.lengths)
        return task.loss(outputs, batch), carry

    carry, losses = model.initial_carry(1), []
    for batch in task.batches("valid", 1):
        found, carry = score(carry, batch)
        losses.append(np.asarray(found)[batch.mask > 0])
    assert_close(np.concatenate(losses), whole, TOLERANCE["float64"])


def test_the_loss_and_bits(task):
    batch = task.batch(0, 2, 0)
    outputs = np.random.default_rng(0).normal(size=(*batch.targets.shape, task.output_size)).astype(np.float32)
    p = np.exp(outputs) / np.exp(outputs).sum(-1, keepdims=True)
    expected = -np.log(np.take_along_axis(p, batch.targets[..., None], -1))[..., 0]
    np.testing.assert_allclose(task.loss(outputs, batch), expected, rtol=1e-5)
    bits, mask = task.metrics(outputs, batch)["bits"]
    assert float(reduce_mean(bits, mask)) == pytest.approx(expected.mean() / math.log(2), rel=1e-5)
    assert task.unit == "nats a character"


def test_words_have_no_bits(task):
    words = dataclasses.replace(task, symbols="words", length=3)
    batch = words.batch(0, 1, 0)
    assert words.metrics(np.zeros((3, 1, words.output_size), np.float32), batch) == {}
    assert words.unit == "nats a word"


def test_chance_is_the_cross_entropy_of_the_training_frequencies(tmp_path):
    task = text_task(tmp_path, "a" * 60 + "b" * 30 + "aaabc" + "abbbb", length=4)
    seen = collections.Counter("a" * 60 + "b" * 30)
    assert task.texts == {"train": "a" * 60 + "b" * 30, "valid": "aaabc", "test": "abbbb"}
    assert task.vocabulary.words == ("<unk>", "a", "b")  # c is of the validation part
    p = {symbol: count / 91 for symbol, count in seen.items()} | {"c": 1 / 91}
    assert task.chance == pytest.approx(-sum(math.log(p[symbol]) for symbol in "aaabc") / 5, rel=1e-12)
    np.testing.assert_allclose(np.exp(task.output_bias), [1 / 91, 60 / 91, 30 / 91], rtol=1e-6)
    assert task.start == 0  # no line ends in it
    assert [batch.targets.tolist() for batch in task.batches("valid", 1)][1] == [[0], [0], [0], [0]]


def test_words_end_their_lines(tmp_path):
    lines = ["one two"] * 21 + ["three two", "four\ttwo"]
    for end in ("", "\n"):
        task = text_task(tmp_path, "\n".join(lines) + end, symbols="words", length=2, min_count=2)
        assert task.vocabulary.words == ("<unk>", "<eos>", "one", "two")
        assert task.vocabulary.decode(task.ids["valid"]) == ["<unk>", "two", "<eos>"]
        assert task.vocabulary.decode(task.ids["test"]) == ["<unk>", "two", "<eos>"]
        assert task.start == 1


def test_the_generated_text_is_there_on_every_machine():
    task = Language()
    assert {split: len(ids) for split, ids in task.ids.items()} == {"train": 328061, "valid": 31185, "test": 31762}
    assert task.chance == pytest.approx(2.864959, abs=1e-6)


def test_what_can_not_be_is_told(tmp_path, task):
    for fields, message in (
        ({"length": 0}, "length of Language is 0: expected a whole number of at least 1"),
        ({"corpus": "treebank"}, "corpus of Language is 'treebank': expected one of generated, ptb, shakespeare, text"),
        ({"symbols": "bytes"}, "symbols of Language is 'bytes': expected one of characters, words"),
        ({"path": "x"}, "path of Language is 'x' but corpus is 'generated': take corpus='text'"),
        ({"corpus": "text"}, "path of Language is '' but corpus is 'text': give the file"),
    ):
        with pytest.raises(ValueError) as caught:
            Language(**fields)
        assert str(caught.value) == message
    with pytest.raises(ValueError, match="split is 'dev': expected one of train, valid, test"):
        task.batches("dev", 2)
    with pytest.raises(ValueError, match="batch_size is 0"):
        task.batches("test", 0)
    with pytest.raises(ValueError, match="step is -1 and seed 0"):
        task.batch(-1, 2, 0)
    with pytest.raises(DataError, match=r"the training split has \d+ characters: too few for 999 rows of 7 steps"):
        task.batch(0, 999, 0)
    with pytest.raises(DataError, match="none.txt: .*o such file"):
        _ = Language(corpus="text", path=str(tmp_path / "none.txt")).ids
    with pytest.raises(DataError, match="3 characters leave nothing for the valid split"):
        _ = text_task(tmp_path, "abc").ids


PTB = {
    "characters": ((5017482, 393042, 442423), 50),
    "words": ((929589, 73760, 82430), 10000),
}


@pytest.mark.parametrize("symbols", PTB)
def test_the_penn_treebank_has_its_counts(corpora, symbols):
    if not (corpora / "ptb").is_dir():
        pytest.skip(f"no ptb in {corpora}")
    task = Language(corpus="ptb", symbols=symbols)
    assert tuple(map(len, task.ids.values())) == PTB[symbols][0]
    seen = len(np.unique(task.ids["train"]))
    assert seen == PTB[symbols][1]
    assert seen == len(task.vocabulary) - (symbols == "characters")  # of words, "<unk>" is one of the corpus
    for split in ("valid", "test"):
        assert sum(int(batch.mask.sum()) for batch in task.batches(split, 64)) == len(task.ids[split])
        if symbols == "words":
            assert "<eos>" in task.vocabulary.decode(task.ids[split][-1:])


def test_shakespeare_is_cut_as_in_nanogpt(corpora):
    if not (corpora / "tinyshakespeare").is_dir():
        pytest.skip(f"no tinyshakespeare in {corpora}")
    task = Language(corpus="shakespeare")
    assert tuple(map(len, task.ids.values())) == (1003854, 55770, 55770) and len(task.vocabulary) == 66
