"""A word left out: what was said tells from whom it was said to, who stands behind the gap or in front of it."""

import dataclasses
import functools
import itertools
import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.tasks.base import Batch, check_whole, correct, cross_entropy
from rnnjax.tasks.bucketed import BucketedTask
from rnnjax.text import Vocabulary

GAP = "_"
SIDES = ("left", "right")
LISTENERS = {
    "hello": ("me", "us", "my sister", "an old friend"),
    "welcome": ("the crowd", "the guests", "the delegates", "the visitors"),
    "goodnight": ("the baby", "the children", "the twins", "my little brother"),
    "sorry": ("the judge", "the referee", "the owner", "the neighbours"),
}
OPENERS = ("", "at noon", "last night", "before the rain", "as i remember it")
SPEAKERS = ("he", "she", "the mayor", "my uncle", "our teacher", "a man in black")
VERBS = ("said", "whispered", "shouted", "murmured")
MANNERS = ("", "twice", "with a smile", "in a low voice", "again and again")
CLOSERS = ("", "and left", "and sat down", "as always", "when the doors opened")
FRAMES = {"train": 400, "valid": 100, "test": 250}


class Gapped(NamedTuple):
    """words, with GAP in place of the one that is left out, which is `answer`; side: where the listener stands, as seen
    from the gap."""

    words: tuple[str, ...]
    answer: str
    side: str


@functools.cache
def cloze_sentences(split: str) -> tuple[Gapped, ...]:
    """The sentences of a split (train, valid, test), the same on every machine.

    A frame is an opener, a speaker, a verb, a manner and a closer; no two splits share one. Each makes a sentence for
    every answer and either side, with a listener drawn evenly from those of the answer. So all that stands to the left
    of a gap whose listener is on its right comes with each answer equally often: who reads from the left is right in
    exactly one of four of these, whatever is guessed, and pays ln 4 nats at least.

    Worked example, two of the eight sentences of a frame:

        right    she said   _   with a smile to the crowd      welcome
        left     to me she said   _   with a smile             hello
    """
    frames = list(itertools.product(OPENERS, SPEAKERS, VERBS, MANNERS, CLOSERS))
    order = np.random.Generator(np.random.Philox(key=0)).permutation(len(frames))
    names = list(FRAMES)
    start = sum(FRAMES[name] for name in names[: names.index(split)])
    draws = np.random.Generator(np.random.Philox(key=1 + names.index(split)))
    sentences = []
    for at in order[start : start + FRAMES[split]]:
        for side, (answer, listeners) in itertools.product(SIDES, LISTENERS.items()):
            listener = f"to {listeners[draws.integers(len(listeners))]}"
            sentences.append(Gapped(_words(frames[at], listener, side), answer, side))
    return tuple(sentences)


def _words(frame: tuple[str, ...], listener: str, side: str) -> tuple[str, ...]:
    opener, speaker, verb, manner, closer = frame
    before, after = (listener, "") if side == "left" else ("", listener)
    return tuple(" ".join((opener, before, speaker, verb, GAP, manner, after, closer)).split())


@dataclasses.dataclass(frozen=True)
class Cloze(BucketedTask):
    """The word that is left out of a sentence, from all others: `he said _ to me`, `he said _ to the crowd`.

        loss = - log softmax(output_t)[answer],    at the gap t alone, in nats

    Inputs are word ids [T, B], of which one is that of the gap; targets [T, B] hold the number of the answer in
    `answers` there; the mask [T, B] is 1 there and 0 elsewhere. The sentences are those of `cloze_sentences`.
    Source of the kind: Taylor 1953, "Cloze procedure"; of what both directions give, Schuster, Paliwal 1997,
    "Bidirectional recurrent neural networks".

    buckets: at most how many lengths the sentences of a split are padded to.
    """

    buckets: int = 2

    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats a gap"
    answers: ClassVar[tuple[str, ...]] = tuple(LISTENERS)

    def __post_init__(self):
        check_whole(self, 1, "buckets")

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training split, which are all there are, the gap among them."""
        return Vocabulary.build((sentence.words for sentence in cloze_sentences("train")), other=None)

    @property
    def input_size(self) -> int:
        """How many ids there are."""
        return len(self.vocabulary)

    @property
    def output_size(self) -> int:
        """How many answers there are."""
        return len(self.answers)

    @property
    def chance(self) -> float:
        """ln 4: each answer is as frequent as the others, by construction."""
        return math.log(self.output_size)

    def lengths(self, split: str) -> np.ndarray:
        """[n], the words of every sentence."""
        return np.array([len(sentence.words) for sentence in cloze_sentences(split)])

    @functools.cached_property
    def _encoded(self) -> dict[str, list[np.ndarray]]:
        return {
            split: [self.vocabulary.encode(sentence.words) for sentence in cloze_sentences(split)] for split in FRAMES
        }

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these sentences."""
        inputs = np.zeros((end, batch_size), np.int32)
        targets, mask = np.zeros_like(inputs), np.zeros_like(inputs, np.float32)
        lengths = np.zeros(batch_size, np.int32)
        for row, index in enumerate(indices):
            sentence, lengths[row] = cloze_sentences(split)[index], len(self._encoded[split][index])
            inputs[: lengths[row], row] = self._encoded[split][index]
            gap = sentence.words.index(GAP)
            targets[gap, row], mask[gap, row] = self.answers.index(sentence.answer), 1
        return Batch(inputs, targets, mask, lengths)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Cross entropy in nats: logits [T, B, 4] -> [T, B]."""
        return cross_entropy(outputs, batch.targets)

    def metrics(self, outputs, batch):
        """accuracy and nats of the gaps whose listener stands on this side: accuracy_left, nats_left, and _right."""
        right, nats = correct(outputs, batch.targets), cross_entropy(outputs, batch.targets)
        left = jnp.cumsum(batch.inputs == self.vocabulary.index("to"), axis=0) > 0  # "to" was read
        masks = {"left": jnp.where(left, batch.mask, 0), "right": jnp.where(left, 0, batch.mask)}
        scores = {"accuracy": right, "nats": nats}
        return {f"{name}_{side}": (values, mask) for name, values in scores.items() for side, mask in masks.items()}
