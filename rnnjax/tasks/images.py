"""Images, read pixel by pixel or row by row: which digit is it?"""

import dataclasses
import functools
import pathlib
from typing import ClassVar

import jax
import numpy as np

from rnnjax.data.errors import AGAIN, malformed
from rnnjax.data.images import read_idx, read_numbers
from rnnjax.data.locate import locate
from rnnjax.tasks.base import SPLITS, Batch, correct, cross_entropy
from rnnjax.tasks.bucketed import BucketedTask

ORDERS = ("rows", "pixels")
CLASSES = 10
_IMAGES, _LABELS = "images-idx3", "labels-idx1"
_FILES = {
    "digits": ("digits.csv.gz", "digits.csv"),
    "mnist": (f"t10k-{_IMAGES}-ubyte.gz", f"t10k-{_IMAGES}-ubyte"),
}
_FOLDERS = {"digits": "digits", "mnist": "mnist-t10k"}
_HELD_OUT = {"digits": 5, "mnist": 10}
"""One in so many images is in the validation split, and one in so many in the test split."""


@dataclasses.dataclass(frozen=True)
class Images(BucketedTask):
    """From an image that is read in pieces, its class, said at the end.

        loss = - log softmax(output_T)[class],    in nats

    Inputs [T, B, I] are grey values scaled to 0 .. 1: with order="rows" a row a step, of height and width, with
    order="pixels" a pixel a step, row by row from the upper left, T = height * width and I = 1. Targets [B] are classes
    0 .. 9; the mask [B] is 0 in rows that fill a batch up. Source: Le, Jaitly, Hinton 2015, "A simple way to initialize
    recurrent networks of rectified linear units".

    digits: 1,797 images of 8 x 8 (Alpaydin, Kaynak 1998), the split our own, there being none: 1,079 images to train,
        359 to validate and 359 to test.
    mnist: the 10,000 test images of MNIST, 28 x 28 (LeCun et al. 1998), to which its 60,000 training images are not
        needed: 8,000, 1,000 and 1,000, so that scores are not those of the published split.

    Both splits are drawn once and for all, the same for every seed.

    Worked example, an image of 2 x 2 with the grey values 0, 1/2 in its upper row and 1, 0 in its lower one:

        rows      (0, 1/2)  (1, 0)
        pixels    0  1/2  1  0

    path: the file of the images, a folder that holds it, or "" for where `rnnjax.data.locate` looks; the labels of
        mnist are beside the images.
    corpus: digits or mnist.
    order: rows or pixels.
    permuted: whether the pixels change places first, by one permutation for all images.
    """

    path: str = ""
    corpus: str = dataclasses.field(default="digits", metadata={"choices": tuple(_FILES)})
    order: str = dataclasses.field(default="rows", metadata={"choices": ORDERS})
    permuted: bool = False

    buckets: ClassVar[int] = 1
    output_size: ClassVar[int] = CLASSES
    reads_last: ClassVar[bool] = True
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats"

    def __post_init__(self):
        for name, choices in (("corpus", tuple(_FILES)), ("order", ORDERS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} of Images is {getattr(self, name)!r}: expected one of {', '.join(choices)}")

    @property
    def input_size(self) -> int:
        """Grey values at a step."""
        return {"pixels": 1, "rows": 8 if self.corpus == "digits" else 28}[self.order]

    @functools.cached_property
    def examples(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """{split: (inputs float32 [N, T, I], classes int32 [N])}. Raises DataError where there is no such corpus."""
        images, labels = _read(self.corpus, self.path)
        count, side, _ = images.shape
        pixels = images.reshape(count, side * side)
        if self.permuted:
            pixels = pixels[:, _generator(1).permutation(side * side)]
        inputs = pixels.reshape(count, -1, self.input_size)
        held = count // _HELD_OUT[self.corpus]
        order = _generator(0).permutation(count)
        parts = {"valid": order[:held], "test": order[held : 2 * held], "train": order[2 * held :]}
        return {split: (inputs[parts[split]], labels[parts[split]]) for split in SPLITS}

    @functools.cached_property
    def frequencies(self) -> np.ndarray:
        """[10], of the classes in the training split, add-one smoothed."""
        counts = np.bincount(self.examples["train"][1], minlength=CLASSES) + 1
        return counts / counts.sum()

    @functools.cached_property
    def chance(self) -> float:
        """Nats on the validation split of guessing the training frequencies."""
        return float(-np.mean(np.log(self.frequencies)[self.examples["valid"][1]]))

    @functools.cached_property
    def chance_accuracy(self) -> float:
        """The share of the test split that is of the commonest class of the training split."""
        return float(np.mean(self.examples["test"][1] == np.argmax(self.frequencies)))

    def lengths(self, split: str) -> np.ndarray:
        """[n], the steps of every image, which are the same."""
        count, time, _ = self.examples[split][0].shape
        return np.full(count, time)

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these images."""
        images, labels = self.examples[split]
        inputs = np.zeros((end, batch_size, self.input_size), np.float32)
        targets, mask = np.zeros(batch_size, np.int32), np.zeros(batch_size, np.float32)
        inputs[:, : len(indices)] = images[indices].swapaxes(0, 1)
        targets[: len(indices)], mask[: len(indices)] = labels[indices], 1
        return Batch(inputs, targets, mask)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Nats: logits [B, 10] -> [B]."""
        return cross_entropy(outputs, batch.targets)

    def metrics(self, outputs, batch):
        """accuracy [B]: whether the class with the largest logit is the image's."""
        return {"accuracy": (correct(outputs, batch.targets), batch.mask)}


def _generator(number: int) -> np.random.Generator:
    """The draws that belong to the task: 0 the splits, 1 the permutation."""
    return np.random.Generator(np.random.Philox(key=np.array([0, number], np.uint64)))


def _read(corpus: str, path: str) -> tuple[np.ndarray, np.ndarray]:
    """(grey values float32 [N, side, side] in 0 .. 1, classes int32 [N])."""
    found = locate(path, names=_FILES[corpus], corpus=_FOLDERS[corpus])
    images, labels = (_digits if corpus == "digits" else _mnist)(found)
    if len(images) < 2 * _HELD_OUT[corpus]:
        raise malformed(found, "", f"{len(images)} images: expected {2 * _HELD_OUT[corpus]} at least", AGAIN)
    return images, labels


def _digits(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    table = read_numbers(path)
    way_out = "Expected 64 grey values of 0 to 16 and the class in each row, as scikit-learn's digits.csv.gz has them."
    if table.shape[1] != 65:
        raise malformed(path, "", f"{table.shape[1]} columns: expected 65", way_out)
    pixels, classes = table[:, :64], table[:, 64]
    wrong = (pixels < 0).any(1) | (pixels > 16).any(1) | (classes % 1 != 0) | (classes < 0) | (classes >= CLASSES)
    if wrong.any():
        row = int(np.argmax(wrong))
        problem = f"grey values of {pixels[row].min():g} to {pixels[row].max():g} and class {classes[row]:g}"
        raise malformed(path, f"image {row + 1}", problem, way_out)
    return (pixels.reshape(-1, 8, 8) / 16).astype(np.float32), classes.astype(np.int32)


def _mnist(path: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    way_out = f"Expected {_FILES['mnist'][0]}, 28 x 28 bytes an image, and the file of their {_LABELS} beside it."
    if _IMAGES not in path.name:
        raise malformed(path, "", f"the name holds no {_IMAGES}, so that of the labels is not known", way_out)
    beside = path.with_name(path.name.replace(_IMAGES, _LABELS))
    unpacked = beside.with_name(beside.name.removesuffix(".gz"))
    found = next((file for file in (beside, unpacked, pathlib.Path(f"{unpacked}.gz")) if file.is_file()), beside)
    images, labels = read_idx(path), read_idx(found)
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28):
        raise malformed(path, "", f"{images.dtype} of shape {images.shape}: expected uint8 [N, 28, 28]", way_out)
    if labels.dtype != np.uint8 or labels.shape != images.shape[:1] or labels.max() >= CLASSES:
        problem = (
            f"{labels.dtype} of shape {labels.shape} up to {labels.max()}: expected [{len(images)}] below {CLASSES}"
        )
        raise malformed(found, "", problem, way_out)
    return images.astype(np.float32) / 255, labels.astype(np.int32)
