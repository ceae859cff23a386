"""Images: pixels in their order, splits that never change, every image once, and clear errors for what is no corpus."""

import gzip
import struct

import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.data import DataError
from rnnjax.tasks import TASKS, Images, reduce_mean

COUNT = 60


def _table():
    rng = np.random.default_rng(0)
    return np.concatenate([rng.integers(0, 17, (COUNT, 64)), np.arange(COUNT)[:, None] % 10], axis=1)


def _csv(table) -> str:
    return "\n".join(",".join(f"{value:.18e}" for value in row) for row in table)


def _idx(array) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits, and an MNIST whose images are packed and whose labels are not."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "digits.csv.gz").write_bytes(gzip.compress(_csv(_table()).encode()))
    images = np.random.default_rng(1).integers(0, 256, (COUNT, 28, 28))
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(images), mtime=0))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(_idx(np.arange(COUNT) % 10))
    return folder


def _task(folder, **options):
    return Images(path=str(folder), **options)


def _all(task, split, batch_size):
    """(images [N, T * I] of 0 .. 1, classes [N]) of all batches, pads checked and left out."""
    images, classes = [], []
    for inputs, targets, mask, lengths, fresh in task.batches(split, batch_size):
        assert inputs.dtype == np.float32 and mask.dtype == np.float32 and targets.dtype == np.int32
        assert lengths is None and fresh is None and inputs.shape[1:] == (batch_size, task.input_size)
        rows = int(mask.sum())
        assert mask[:rows].all() and not mask[rows:].any() and not inputs[:, rows:].any()
        images.append(inputs[:, :rows].swapaxes(0, 1).reshape(rows, -1))
        classes.append(targets[:rows])
    return np.concatenate(images), np.concatenate(classes)


def _sorted(images):
    return images[np.lexsort(images.T)]


@pytest.mark.parametrize("order", ["rows", "pixels"])
@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_the_splits_hold_every_image_once(folder, order, batch_size):
    task, table = _task(folder, order=order), _table()
    found = {split: _all(task, split, batch_size) for split in ("train", "valid", "test")}
    assert [len(classes) for _, classes in found.values()] == [36, 12, 12]
    images = np.concatenate([images for images, _ in found.values()])
    np.testing.assert_array_equal(_sorted(images), _sorted((table[:, :64] / 16).astype(np.float32)))
    for images, classes in found.values():  # each with its own class
        for image, label in zip(images, classes, strict=True):
            at = np.flatnonzero((table[:, :64] / 16 == image).all(1))
            assert table[at, 64] == label


def test_rows_and_pixels_hold_the_same_in_their_order(folder):
    rows, pixels = (next(_task(folder, order=order).batches("test", 12)) for order in ("rows", "pixels"))
    assert rows.inputs.shape == (8, 12, 8) and pixels.inputs.shape == (64, 12, 1)
    np.testing.assert_array_equal(rows.inputs[2, :, 5], pixels.inputs[2 * 8 + 5, :, 0])
    mnist = next(_task(folder, corpus="mnist", order="rows").batches("test", 6))
    assert mnist.inputs.shape == (28, 6, 28) and 0.9 < mnist.inputs.max() <= 1


def test_one_permutation_for_all_images(folder):
    plain, permuted = (next(_task(folder, order="pixels", permuted=p).batches("test", 12)) for p in (False, True))
    np.testing.assert_array_equal(plain.targets, permuted.targets)
    np.testing.assert_array_equal(np.sort(plain.inputs, axis=0), np.sort(permuted.inputs, axis=0))
    order = [np.flatnonzero((plain.inputs == row).all((1, 2)))[0] for row in permuted.inputs]
    assert sorted(order) == list(range(64)) and order != sorted(order)
    rows = next(_task(folder, order="rows", permuted=True).batches("test", 12))
    np.testing.assert_array_equal(rows.inputs.swapaxes(1, 2).reshape(64, 12), permuted.inputs[..., 0])


def test_an_epoch_holds_every_training_image_once_and_depends_on_its_arguments_alone(folder):
    task, again = _task(folder), _task(folder)
    assert task.steps_per_epoch(7) == 6
    for epoch in (0, 3):
        batches = [task.batch(6 * epoch + step, 7, 11) for step in range(6)]
        images = np.concatenate([b.inputs[:, : int(b.mask.sum())].swapaxes(0, 1).reshape(-1, 64) for b in batches])
        np.testing.assert_array_equal(_sorted(images), _sorted(_all(task, "train", 7)[0]))
    one, two = task.batch(20, 7, 11), again.batch(20, 7, 11)
    np.testing.assert_array_equal(one.inputs, two.inputs)
    assert not np.array_equal(one.inputs, task.batch(20, 7, 12).inputs)
    assert not np.array_equal(one.inputs, task.batch(14, 7, 11).inputs)  # the same place of the epoch before


def test_loss_accuracy_and_chance(folder):
    task = _task(folder)
    batch = next(task.batches("valid", 20))
    logits = jnp.zeros((20, 10)).at[jnp.arange(20), batch.targets].set(2.0).at[0].set(0.0)
    logits = logits.at[0, (batch.targets[0] + 1) % 10].set(1.0)
    right = 2 - np.log(np.exp(2) + 9)
    assert np.allclose(task.loss(logits, batch)[1:12], -right, atol=1e-6)
    values, mask = task.metrics(logits, batch)["accuracy"]
    assert np.isclose(reduce_mean(values, mask), 11 / 12)
    frequencies = (np.bincount(task.examples["train"][1], minlength=10) + 1) / 46
    assert np.isclose(task.chance, -np.mean(np.log(frequencies[task.examples["valid"][1]])))
    assert task.chance_accuracy == np.mean(task.examples["test"][1] == frequencies.argmax())
    assert TASKS["images"] is Images and Images().input_size == 8 and Images(order="pixels").input_size == 1


@pytest.mark.parametrize("field", ["corpus", "order"])
def test_wrong_fields_are_refused_by_name(field):
    with pytest.raises(ValueError, match=f"{field} of Images is 'x': expected one of"):
        Images(**{field: "x"})
    task = Images()
    with pytest.raises(ValueError, match="split is 'dev'"):
        task.batches("dev", 3)


def test_a_missing_corpus_says_where_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RNNJAX_DATA", raising=False)
    for corpus, folder in (("digits", "digits"), ("mnist", "mnist-t10k")):
        with pytest.raises(DataError, match=rf"(?s)looked in .*rnnjax.data fetch {folder}`.*RNNJAX_DATA"):
            _ = Images(corpus=corpus).examples


def _wrong_digits(change):
    table = _table().astype(float)
    return _csv(change(table))


def _with(row, column, value):
    def change(table):
        table[row, column] = value
        return table

    return change


@pytest.mark.parametrize(
    "text, message",
    [
        (_wrong_digits(lambda table: table[:, 1:]), "64 columns: expected 65\nExpected 64 grey values"),
        (_wrong_digits(_with(3, 5, 17)), "image 4: grey values of 0 to 17 and class 3"),
        (_wrong_digits(_with(3, 5, -1)), "image 4: grey values of -1"),
        (_wrong_digits(_with(9, 64, 10)), "image 10: grey values of 0 to 16 and class 10"),
        (_wrong_digits(_with(9, 64, 0.5)), "image 10: grey values of 0 to 16 and class 0.5"),
        (_wrong_digits(lambda table: table[:9]), "9 images: expected 10 at least"),
        ("a,b\n1,x", "line 2, column 2: is 'x'"),
    ],
    ids=range(7),
)
def test_digits_that_are_none(tmp_path, text, message):
    (tmp_path / "digits.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        _ = _task(tmp_path).examples
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "images, labels, message",
    [
        (np.zeros((30, 28, 27)), np.zeros(30), "uint8 of shape (30, 28, 27): expected uint8 [N, 28, 28]"),
        (np.zeros((30, 28, 28)), np.zeros(29), "uint8 of shape (29,) up to 0: expected [30] below 10"),
        (np.zeros((30, 28, 28)), np.full(30, 10), "uint8 of shape (30,) up to 10"),
        (np.zeros((30, 28, 28)), None, "t10k-labels-idx1-ubyte: cannot be read"),
    ],
    ids=range(4),
)
def test_mnist_that_is_none(tmp_path, images, labels, message):
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(_idx(images))
    if labels is not None:
        (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(_idx(labels))
    with pytest.raises(DataError) as caught:
        _ = _task(tmp_path, corpus="mnist").examples
    assert message in str(caught.value)
    (tmp_path / "mine").write_bytes(_idx(images))
    with pytest.raises(DataError, match="the name holds no images-idx3"):
        _ = _task(tmp_path / "mine", corpus="mnist").examples


def test_the_real_corpora(corpora):
    for corpus, folder, sizes in (("digits", "digits", [1079, 359, 359]), ("mnist", "mnist-t10k", [8000, 1000, 1000])):
        if not (corpora / folder).is_dir():
            pytest.skip(f"{corpora / folder} is missing")
        task = Images(path=str(corpora / folder), corpus=corpus)
        assert [len(task.examples[split][1]) for split in ("train", "valid", "test")] == sizes
        assert 2.29 < task.chance < 2.32 and 0.07 < task.chance_accuracy < 0.13
        assert all(images.min() == 0 and images.max() == 1 for images, _ in task.examples.values())
