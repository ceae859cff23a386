"""Classes of sentences and of names: one answer for a sequence of words or characters."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.data.sentences import Sentence
from rnnjax.tasks.base import Batch, check_whole, correct, cross_entropy
from rnnjax.tasks.bucketed import BucketedTask, hide, pad_ids, round_up
from rnnjax.tasks.labelled import CORPORA, read_corpus
from rnnjax.text import TrigramHashing, Vocabulary

ENCODINGS = ("words", "characters", "trigrams")


@dataclasses.dataclass(frozen=True)
class Classification(BucketedTask):
    """From the words or characters of a sentence, its class.

        loss = - log softmax(output)[class],    in nats

    Inputs are the ids of words or of characters [T, B], or with trigrams the places of the words' letter trigrams
    [T, B, K], -1 where a word has fewer. Vocabulary and classes are those of the training split. A class that it has
    not is never given, so that it is wrong in every score; the loss leaves its sentence out. Words are in lower case,
    characters as they are.

    Sources: questions, generated (`rnnjax.tasks.questions`); trec, the six coarse classes of Li, Roth 2002, "Learning
    question classifiers", 500 of the 5,452 training questions held out; names, surnames of 18 languages of the PyTorch
    tutorial, a tenth of the spellings for validation and one for the test, so that no name of the test is in training;
    files, one's own lines `CLASS word word ...`: a file, of which a tenth is held out for each, or a folder with
    train.txt, test.txt and, if it is there, valid.txt.

    Worked example (trec):

        where is the Loop ?      LOC

    path: the file or folder of the corpus, or "" for where `rnnjax.data.locate` looks; of no effect for questions.
    corpus: questions, trec, names or files.
    encoding: what the model reads one after the other, words by their numbers, characters, or words by their trigrams.
    trigrams: how many places the letter trigrams are hashed to.
    unknown: the probability with which what occurs once in training is taken for an unknown word there.
    charset: of one's own files, such as utf-8 or latin-1.
    split_seed: draws what is held out.
    buckets: at most how many lengths the sentences of a split are padded to.
    """

    path: str = ""
    corpus: str = dataclasses.field(default="questions", metadata={"choices": CORPORA})
    encoding: str = dataclasses.field(default="words", metadata={"choices": ENCODINGS})
    trigrams: int = 4096
    unknown: float = 0.5
    charset: str = "utf-8"
    split_seed: int = 0
    buckets: int = 4

    reads_last: ClassVar[bool] = True
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats"
    monitor: ClassVar[str] = "error"

    def __post_init__(self):
        check_whole(self, 1, "buckets", "trigrams")
        check_whole(self, 0, "split_seed")
        for name, choices in (("corpus", CORPORA), ("encoding", ENCODINGS)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} of Classification is {getattr(self, name)!r}: expected one of {', '.join(choices)}"
                )
        if not 0 <= self.unknown <= 1:
            raise ValueError(f"unknown of Classification is {self.unknown!r}: expected a probability, 0 to 1")

    @functools.cached_property
    def sentences(self) -> dict[str, list[Sentence]]:
        """{split: sentences}, read at first use. Raises DataError where there is no such corpus."""
        return read_corpus(self.corpus, self.path, self.charset, self.split_seed)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words or characters of the training split; 0 is the unknown one."""
        return Vocabulary.build([symbols(one.words, self.encoding) for one in self.sentences["train"]])

    @functools.cached_property
    def classes(self) -> Vocabulary:
        """The classes of the training split, the most frequent first."""
        return Vocabulary.build([[one.label] for one in self.sentences["train"]], other=None)

    @functools.cached_property
    def codec(self) -> "ClassCodec":
        """From words to what the model is given, and from its outputs to classes."""
        return ClassCodec(self.vocabulary, self.classes, self.encoding, self.trigrams)

    @property
    def input_size(self) -> int:
        """How many ids there are."""
        return self.codec.input_size

    @property
    def output_size(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @functools.cached_property
    def _encoded(self) -> dict[str, tuple[list[np.ndarray], np.ndarray]]:
        """{split: (inputs of every sentence, classes)}; a class that training has not is -1."""
        known = {label: number for number, label in enumerate(self.classes.words)}
        return {
            split: (
                [self.codec.encode(one.words) for one in sentences],
                np.array([known.get(one.label, -1) for one in sentences], np.int32),
            )
            for split, sentences in self.sentences.items()
        }

    @functools.cached_property
    def _once(self) -> np.ndarray:
        """[V], what occurs once in training."""
        return np.bincount(np.concatenate(self._encoded["train"][0]), minlength=len(self.vocabulary)) == 1

    @functools.cached_property
    def chance(self) -> float:
        """Nats on the validation split of guessing each class's frequency in training, add-one smoothed."""
        train, valid = (self._encoded[split][1] for split in ("train", "valid"))
        counts = np.bincount(train, minlength=self.output_size) + 1.0
        return float(-np.log(counts / counts.sum())[valid[valid >= 0]].mean())

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The training batch of `step`, a pure function of its arguments."""
        batch = super().batch(step, batch_size, seed)
        if self.encoding == "trigrams" or not self.unknown:
            return batch
        return batch._replace(inputs=hide(batch.inputs, self._once, self.unknown, step, seed))

    def predictions(self, split: str, batch_size: int, apply: Any) -> list[str]:
        """The class that `apply(batch) -> outputs` gives every sentence of a split, in the order of the corpus."""
        plan = self.ordered(split, batch_size)
        found = [""] * len(self.sentences[split])
        for end, indices in plan:
            best = np.argmax(np.asarray(apply(self.pad(split, end, indices, batch_size))), -1)
            for index, label in zip(indices, self.classes.decode(best[: len(indices)]), strict=True):
                found[index] = label
        return found

    def lengths(self, split: str) -> np.ndarray:
        """[n], the words or characters of every sentence."""
        return np.array([len(given) for given in self._encoded[split][0]])

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these sentences."""
        inputs, classes = self._encoded[split]
        ids, lengths = pad_ids([inputs[index] for index in indices], end, batch_size, *self._nothing_and_width)
        targets = np.full(batch_size, -1, np.int32)
        targets[: len(indices)] = classes[indices]
        return Batch(ids, targets, (targets >= 0).astype(np.float32), lengths)

    @functools.cached_property
    def _nothing_and_width(self) -> tuple[int, int]:
        """(what stands in a pad, the most trigrams of a word)."""
        if self.encoding != "trigrams":
            return 0, 0
        return -1, max(given.shape[1] for inputs, _ in self._encoded.values() for given in inputs)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Nats: logits [B, classes] -> [B]."""
        return cross_entropy(outputs, jnp.maximum(batch.targets, 0))

    def metrics(self, outputs, batch):
        """error [B]: 1 where the class is wrong, which one that training has not always is."""
        return {"error": (1 - correct(outputs, batch.targets), (batch.lengths > 0).astype(jnp.float32))}


@dataclasses.dataclass(frozen=True)
class ClassCodec:
    """From words to what a model is given, and from its outputs to classes: all that a trained one needs of its task.

    vocabulary, classes, encoding, trigrams: as in Classification.
    """

    vocabulary: Vocabulary
    classes: Vocabulary
    encoding: str
    trigrams: int

    @property
    def input_size(self) -> int:
        """How many ids there are."""
        return self.trigrams if self.encoding == "trigrams" else len(self.vocabulary)

    @property
    def output_size(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """int32 [T] or, with trigrams, [T, K]."""
        if self.encoding == "trigrams":
            return TrigramHashing(self.trigrams).indices(symbols(words, self.encoding))
        return self.vocabulary.encode(symbols(words, self.encoding))

    def probabilities(self, words: Sequence[str], apply: Any) -> dict[str, float]:
        """{class: probability} that `apply(batch) -> outputs` gives a line, of one word at least."""
        given = self.encode(words)
        width = round_up(given.shape[1]) if self.encoding == "trigrams" else 0
        ids, lengths = pad_ids([given], round_up(len(given)), 1, -1, width)  # few shapes, so few compilations
        row = np.zeros(1, np.int32)
        outputs = apply(Batch(ids, row, row.astype(np.float32), lengths))
        shares = np.asarray(jax.nn.softmax(jnp.asarray(outputs)[0]))
        return dict(zip(self.classes.words, shares.tolist(), strict=True))


def symbols(words: Sequence[str], encoding: str) -> list[str]:
    """What is read one after the other: the words in lower case, or the characters with blanks between words."""
    return list(" ".join(words)) if encoding == "characters" else [word.lower() for word in words]
