"""Slot filling and chunking: a tag for every word."""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.data import DataError, read_columns, read_jointslu, read_slot_files, to_scheme
from rnnjax.data.errors import malformed
from rnnjax.data.locate import locate
from rnnjax.data.sentences import Sentence
from rnnjax.tasks.base import SPLITS, Batch, check_whole, correct, cross_entropy
from rnnjax.tasks.bucketed import BucketedTask, hide, pad_ids, round_up
from rnnjax.tasks.crf import CRFScores, step_losses, viterbi
from rnnjax.tasks.travel import SIZES, travel_sentences
from rnnjax.text import TrigramHashing, Vocabulary

CORPORA = ("travel", "atis", "conll2000", "files")
ENCODINGS = ("words", "trigrams")
_ATIS = {"train": "atis-2.train.w-intent.iob", "valid": "atis-2.dev.w-intent.iob", "test": "atis.test.w-intent.iob"}
_SLOT_FILES = "test/seq.in"
_NAMES = {
    "atis": (f"jointslu/{_ATIS['test']}", _ATIS["test"], f"slotgated/{_SLOT_FILES}", _SLOT_FILES),
    "conll2000": ("test.txt.gz", "test.txt"),
    "files": ("test.txt", "test.txt.gz", _SLOT_FILES),
}
_HELD_OUT = 1000  # sentences of CoNLL-2000, which has no validation split


@dataclasses.dataclass(frozen=True)
class Tagging(BucketedTask):
    """From the words w_1 .. w_T, the tag of each: a slot in IOB2, or O.

        loss_t = - log softmax(output_t)[tag_t],    in nats; with a CRF the steps' shares of - log p(tags | words)

    Inputs are word ids [T, B], or with trigrams the places of their letter trigrams [T, B, K], -1 where a word has
    fewer. The vocabulary and the tags are those of the training split. A tag that it has not is -1: it is never given,
    so that it is wrong in every score; the loss leaves its sentence out. What the literature prints is the F1 of
    chunks, that of `rnnjax.tasks.scores` on `predictions`.

    Sources: travel, generated (`rnnjax.tasks.travel`); atis, Hemphill et al. 1990, the split of 4,478, 500 and 893;
    conll2000, Tjong Kim Sang, Buchholz 2000, the last 1,000 sentences of the training part held out; files, one's own:
    a folder with train.txt, valid.txt and test.txt, the first column the word and the last the tag, or with the
    folders train, valid and test, a seq.in and a seq.out in each.

    Worked example (travel):

        word  i want to arrive Taipei         on November 2nd
        tag   O O    O  O      B-destination  O  B-date   I-date

    path: the folder of the corpus, or "" for where `rnnjax.data.locate` looks; of no effect for travel.
    corpus: travel, atis, conll2000 or files.
    encoding: what a word is to the model: its number in the vocabulary, or its letter trigrams.
    trigrams: how many places the letter trigrams are hashed to.
    unknown: the probability with which a word that occurs once in training is taken for an unknown one there.
    buckets: at most how many lengths the sentences of a split are padded to.
    """

    path: str = ""
    corpus: str = dataclasses.field(default="travel", metadata={"choices": CORPORA})
    encoding: str = dataclasses.field(default="words", metadata={"choices": ENCODINGS})
    trigrams: int = 4096
    unknown: float = 0.5
    buckets: int = 4

    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats a word"
    monitor: ClassVar[str] = "tag_error"

    def __post_init__(self):
        check_whole(self, 1, "buckets", "trigrams")
        for name, choices in (("corpus", CORPORA), ("encoding", ENCODINGS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} of Tagging is {getattr(self, name)!r}: expected one of {', '.join(choices)}")
        if not 0 <= self.unknown <= 1:
            raise ValueError(f"unknown of Tagging is {self.unknown!r}: expected a probability, 0 to 1")

    @functools.cached_property
    def sentences(self) -> dict[str, list[Sentence]]:
        """{split: sentences}, read at first use. Raises DataError where there is no such corpus."""
        return read_corpus(self.corpus, self.path)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training split as `normal` has them; 0 is the unknown word."""
        return Vocabulary.build([normal(sentence.words) for sentence in self.sentences["train"]])

    @functools.cached_property
    def tags(self) -> Vocabulary:
        """The tags of the training split."""
        return Vocabulary.build([sentence.tags for sentence in self.sentences["train"]], other=None)

    @functools.cached_property
    def codec(self) -> "TagCodec":
        """From words to what the model is given, and from its outputs to tags."""
        return TagCodec(self.vocabulary, self.tags, self.encoding, self.trigrams)

    @property
    def input_size(self) -> int:
        """How many ids there are."""
        return self.codec.input_size

    @property
    def output_size(self) -> int:
        """How many tags there are."""
        return self.codec.output_size

    @functools.cached_property
    def _encoded(self) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
        """{split: (inputs, tags) of every sentence}; a tag that training has not is -1."""
        known = {tag: number for number, tag in enumerate(self.tags.words)}
        return {
            split: (
                [self.codec.encode(sentence.words) for sentence in sentences],
                [np.array([known.get(tag, -1) for tag in sentence.tags], np.int32) for sentence in sentences],
            )
            for split, sentences in self.sentences.items()
        }

    @functools.cached_property
    def _once(self) -> np.ndarray:
        """[V], which words occur once in training."""
        inputs = np.concatenate(self._encoded["train"][0])
        return np.bincount(inputs, minlength=len(self.vocabulary)) == 1

    @functools.cached_property
    def chance(self) -> float:
        """Nats a word on the validation split of guessing each tag's frequency in training, add-one smoothed."""
        train, valid = (np.concatenate(self._encoded[split][1]) for split in ("train", "valid"))
        counts = np.bincount(train, minlength=self.output_size) + 1.0
        return float(-np.log(counts / counts.sum())[valid[valid >= 0]].mean())

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The training batch of `step`, a pure function of its arguments."""
        batch = super().batch(step, batch_size, seed)
        if self.encoding == "trigrams" or not self.unknown:
            return batch
        return batch._replace(inputs=hide(batch.inputs, self._once, self.unknown, step, seed))

    def predictions(self, split: str, batch_size: int, apply: Any) -> list[list[str]]:
        """The tags that `apply(batch) -> outputs` gives every sentence of a split, in the order of the corpus."""
        found: list[list[str]] = [[] for _ in self.sentences[split]]
        for end, indices in self.ordered(split, batch_size):
            batch = self.pad(split, end, indices, batch_size)
            for index, tags in zip(indices, self.codec.best(apply(batch), batch.lengths), strict=False):
                found[index] = tags
        return found

    def lengths(self, split: str) -> np.ndarray:
        """[n], the words of every sentence."""
        return np.array([len(tags) for tags in self._encoded[split][1]])

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these sentences."""
        inputs, tags = self._encoded[split]
        ids, lengths = pad_ids([inputs[index] for index in indices], end, batch_size, *self._nothing_and_width)
        targets, _ = pad_ids([tags[index] for index in indices], end, batch_size, -1)
        known = (np.arange(end)[:, None] < lengths) & ((targets >= 0) | (np.arange(end)[:, None] >= lengths)).all(0)
        return Batch(ids, targets, known.astype(np.float32), lengths)

    @functools.cached_property
    def _nothing_and_width(self) -> tuple[int, int]:
        """(what stands in a pad, the most trigrams of a word)."""
        if self.encoding == "words":
            return 0, 0
        return -1, max(given.shape[1] for inputs, _ in self._encoded.values() for given in inputs)

    def loss(self, outputs: Any, batch: Batch) -> jax.Array:
        """Nats of every step: logits [T, B, tags] or CRFScores -> [T, B]."""
        if isinstance(outputs, CRFScores):
            return step_losses(outputs, jnp.maximum(batch.targets, 0), batch.lengths)
        return cross_entropy(outputs, jnp.maximum(batch.targets, 0))

    def metrics(self, outputs, batch):
        """tag_error [T, B]: 1 where the tag is wrong, which one that training has not always is."""
        if isinstance(outputs, CRFScores):
            right = (viterbi(outputs, batch.lengths)[0] == batch.targets).astype(jnp.float32)
        else:
            right = correct(outputs, batch.targets)
        there = jnp.arange(batch.mask.shape[0])[:, None] < jnp.asarray(batch.lengths)[None]
        return {"tag_error": (1 - right, there.astype(jnp.float32))}


@dataclasses.dataclass(frozen=True)
class TagCodec:
    """From words to what a model is given, and from its outputs to tags: all that a trained tagger needs of its task.

    vocabulary, tags, encoding, trigrams: as in Tagging.
    """

    vocabulary: Vocabulary
    tags: Vocabulary
    encoding: str
    trigrams: int

    @property
    def input_size(self) -> int:
        """How many ids there are."""
        return len(self.vocabulary) if self.encoding == "words" else self.trigrams

    @property
    def output_size(self) -> int:
        """How many tags there are."""
        return len(self.tags)

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """int32 [T] or, with trigrams, [T, K]."""
        if self.encoding == "words":
            return self.vocabulary.encode(normal(words))
        return TrigramHashing(self.trigrams).indices(normal(words))

    def best(self, outputs: Any, lengths: np.ndarray) -> list[list[str]]:
        """The most probable tags of every row, up to its length: of each word, or with a CRF of the whole sentence."""
        best = viterbi(outputs, lengths)[0] if isinstance(outputs, CRFScores) else jnp.argmax(outputs, -1)
        best = np.asarray(best)
        return [self.tags.decode(best[:length, row]) for row, length in enumerate(lengths)]

    def tag(self, lines: Sequence[Sequence[str]], apply: Any) -> list[list[str]]:
        """The tags that `apply(batch) -> outputs` gives the words of every line; a line has one word at least."""
        inputs = [self.encode(words) for words in lines]
        time = max(len(words) for words in lines)
        width = round_up(max(given.shape[1] for given in inputs)) if self.encoding == "trigrams" else 0
        ids, lengths = pad_ids(inputs, round_up(time), len(lines), -1, width)
        none = np.zeros(ids.shape[:2], np.int32)
        return self.best(apply(Batch(ids, none, none.astype(np.float32), lengths)), lengths)


def normal(words: Sequence[str]) -> list[str]:
    """The words in lower case, every digit as 0."""
    return [re.sub(r"\d", "0", word.lower()) for word in words]


def read_corpus(corpus: str, path: str) -> dict[str, list[Sentence]]:
    """{split: sentences} with tags in IOB2. Raises DataError where a file is missing or malformed."""
    if corpus == "travel":
        return {split: list(travel_sentences(split)) for split in SIZES}
    names = _NAMES[corpus]
    place = locate(path, names=names, corpus=corpus)
    if place.name == "seq.in":
        found = {split: read_slot_files(place.parent.parent / split) for split in SPLITS}
    elif corpus == "atis":
        found = {split: read_jointslu(place.parent / name) for split, name in _ATIS.items()}
    elif corpus == "conll2000":
        train, test = (read_columns(_of_split(place, name)) for name in ("train", "test"))
        found = {"train": train[:-_HELD_OUT], "valid": train[-_HELD_OUT:], "test": test}
    else:
        found = {split: read_columns(_of_split(place, split)) for split in SPLITS}
    for split, sentences in found.items():
        if not sentences:
            raise DataError(f"{place.parent}: the {split} split of {corpus} has no sentence\nGet the corpus again.")
    return {split: _in_iob2(sentences, place.parent, split) for split, sentences in found.items()}


def _of_split(place: pathlib.Path, split: str) -> pathlib.Path:
    """The file of another split beside the one of `place`, plain or gzipped."""
    own = next((name for name in SPLITS if name in place.name), None)
    if own is None:
        problem = "is of no split: expected files called train, valid and test"
        raise malformed(place, "", problem, "Name them so, and give their folder as `path`.")
    name = place.name.replace(own, split).removesuffix(".gz")
    files = (place.with_name(name), place.with_name(f"{name}.gz"))
    return next((file for file in files if file.is_file()), files[0])


def _in_iob2(sentences: list[Sentence], folder: pathlib.Path, split: str) -> list[Sentence]:
    converted = []
    for at, sentence in enumerate(sentences, start=1):
        try:
            converted.append(sentence._replace(tags=to_scheme(sentence.tags, "IOB2")))
        except ValueError as error:
            where = f"sentence {at} of {split}, {' '.join(sentence.words)[:60]!r}"
            raise malformed(folder, where, str(error), "Give tags of chunks in IOB1, IOB2 or IOBES.") from error
    return converted
