"""What tasks with words as inputs share: how words become numbers, and which numbers the answers have."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnjax.data.errors import DataError
from rnnjax.data.sentences import Sentence
from rnnjax.tasks.base import Batch, check_whole
from rnnjax.tasks.bucketed import BucketedTask, hide, pad_ids, round_up
from rnnjax.text import TrigramHashing, Vocabulary


@dataclasses.dataclass(frozen=True)
class Codec:
    """From words to what a model is given: with `answers`, all that a trained model needs of its task; base class.

    vocabulary: of what is read. answers: what can be said, by number.
    encoding, trigrams: as in the task.
    """

    vocabulary: Vocabulary
    answers: Vocabulary
    encoding: str
    trigrams: int

    def symbols(self, words: Sequence[str]) -> list[str]:
        """What is read one after the other."""
        raise TypeError(f"{type(self).__name__} has to define symbols(words)")

    @property
    def input_size(self) -> int:
        """How many ids there are."""
        return self.trigrams if self.encoding == "trigrams" else len(self.vocabulary)

    @property
    def output_size(self) -> int:
        """How many answers there are."""
        return len(self.answers)

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """int32 [T] or, with trigrams, [T, K]."""
        if self.encoding == "trigrams":
            return TrigramHashing(self.trigrams).indices(self.symbols(words))
        return self.vocabulary.encode(self.symbols(words))

    def unknown(self, words: Sequence[str]) -> tuple[str, ...]:
        """What is read as the unknown word, as it is read, each once; with trigrams nothing is."""
        if self.encoding == "trigrams":
            return ()
        return tuple(dict.fromkeys(symbol for symbol in self.symbols(words) if symbol not in self.vocabulary))

    def batch_of(self, lines: Sequence[Sequence[str]]) -> Batch:
        """The lines, of one word at least each, in one of few shapes, so that few programs are compiled."""
        inputs = [self.encode(words) for words in lines]
        time = round_up(max(len(given) for given in inputs))
        width = round_up(max(given.shape[1] for given in inputs)) if self.encoding == "trigrams" else 0
        ids, lengths = pad_ids(inputs, time, len(lines), -1, width)
        none = np.zeros(ids.shape[:2], np.int32)
        return Batch(ids, none, none.astype(np.float32), lengths)


class EncodedTask(BucketedTask):
    """A corpus of sentences whose words are told by number, by character or by their trigrams; base class.

    A task that is one has the fields below and defines

        sentences              {split: sentences}
        answers_of(sentence)   what is to be said of it: a tag for each word, or one class
        codec                  a Codec of vocabulary, answers, encoding and trigrams

    Vocabulary and answers are those of the training split. An answer that it has not is -1, so that it is never given
    and wrong in every score.
    """

    corpus: str
    encoding: str
    trigrams: int
    unknown: float
    sentences: dict[str, list[Sentence]]
    codec: Codec

    def answers_of(self, sentence: Sentence) -> Sequence[str]:
        """What is to be said of a sentence."""
        raise TypeError(f"{type(self).__name__} has to define answers_of(sentence)")

    def check_fields(self, **choices: Sequence[str]) -> None:
        """Raises ValueError for a field that is none of its choices, and for numbers that can't be."""
        check_whole(self, 1, "buckets", "trigrams")
        name = type(self).__name__
        for field, allowed in choices.items():
            if getattr(self, field) not in allowed:
                raise ValueError(f"{field} of {name} is {getattr(self, field)!r}: expected one of {', '.join(allowed)}")
        if not 0 <= self.unknown <= 1:
            raise ValueError(f"unknown of {name} is {self.unknown!r}: expected a probability, 0 to 1")

    @functools.cached_property
    def answers(self) -> Vocabulary:
        """The answers of the training split, the most frequent first."""
        return Vocabulary.build([self.answers_of(one) for one in self.sentences["train"]], other=None)

    @property
    def vocabulary(self) -> Vocabulary:
        """What the training split reads; 0 is what it has not."""
        return self.codec.vocabulary

    @property
    def input_size(self) -> int:
        """How many ids there are."""
        return self.codec.input_size

    @property
    def output_size(self) -> int:
        """How many answers there are."""
        return self.codec.output_size

    @functools.cached_property
    def encoded(self) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
        """{split: (inputs, answers) of every sentence}."""
        known = {answer: number for number, answer in enumerate(self.answers.words)}
        return {
            split: (
                [self.codec.encode(one.words) for one in sentences],
                [np.array([known.get(answer, -1) for answer in self.answers_of(one)], np.int32) for one in sentences],
            )
            for split, sentences in self.sentences.items()
        }

    @functools.cached_property
    def _once(self) -> np.ndarray:
        """[V], what occurs once in training."""
        return np.bincount(np.concatenate(self.encoded["train"][0]), minlength=len(self.vocabulary)) == 1

    @functools.cached_property
    def chance(self) -> float:
        """Nats an answer on the validation split of guessing its frequency in training, add-one smoothed.

        Raises DataError where training has none of its answers.
        """
        train, valid = (np.concatenate(self.encoded[split][1]) for split in ("train", "valid"))
        if valid.max() < 0:
            first = self.answers_of(self.sentences["valid"][0])[0]
            raise DataError(
                f"{self.path or self.corpus}: the valid split has no answer that the train split has, {first!r} for "
                "one\nGive splits of one corpus."
            )
        counts = np.bincount(train, minlength=self.output_size) + 1.0
        return float(-np.log(counts / counts.sum())[valid[valid >= 0]].mean())

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The training batch of `step`, a pure function of its arguments."""
        batch = super().batch(step, batch_size, seed)
        if self.encoding == "trigrams" or not self.unknown:
            return batch
        return batch._replace(inputs=hide(batch.inputs, self._once, self.unknown, step, seed))

    def lengths(self, split: str) -> np.ndarray:
        """[n], what is read of every sentence."""
        return np.array([len(given) for given in self.encoded[split][0]])

    def pad_inputs(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """(ids, lengths) of these sentences."""
        inputs = self.encoded[split][0]
        return pad_ids([inputs[index] for index in indices], end, batch_size, *self._nothing_and_width)

    @functools.cached_property
    def _nothing_and_width(self) -> tuple[int, int]:
        """(what stands in a pad, the most trigrams of a word)."""
        if self.encoding != "trigrams":
            return 0, 0
        return -1, max(given.shape[1] for inputs, _ in self.encoded.values() for given in inputs)

    def predicted(self, split: str, batch_size: int, apply: Any, read_off: Any) -> list[Any]:
        """What `read_off(outputs, lengths)` makes of `apply(batch) -> outputs` for every sentence of a split, in the
        order of the corpus."""
        plan = self.ordered(split, batch_size)
        found: list[Any] = [None] * len(self.sentences[split])
        for end, indices in plan:
            batch = self.pad(split, end, indices, batch_size)
            for index, answer in zip(indices, read_off(apply(batch), batch.lengths), strict=False):
                found[index] = answer
        return found
