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
from rnnjax.tasks.base import SPLITS, Batch, correct, cross_entropy
from rnnjax.tasks.bucketed import pad_ids
from rnnjax.tasks.crf import CRFScores, step_losses, viterbi
from rnnjax.tasks.encoded import Codec, EncodedTask
from rnnjax.tasks.travel import SIZES, travel_sentences
from rnnjax.text import Vocabulary

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
class Tagging(EncodedTask):
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
    charset: of the files, such as utf-8 or latin-1.
    buckets: at most how many lengths the sentences of a split are padded to.
    """

    path: str = ""
    corpus: str = dataclasses.field(default="travel", metadata={"choices": CORPORA})
    encoding: str = dataclasses.field(default="words", metadata={"choices": ENCODINGS})
    trigrams: int = 4096
    unknown: float = 0.5
    charset: str = "utf-8"
    buckets: int = 4

    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats a word"
    monitor: ClassVar[str] = "tag_error"

    def __post_init__(self):
        self.check_fields(corpus=CORPORA, encoding=ENCODINGS)

    @functools.cached_property
    def sentences(self) -> dict[str, list[Sentence]]:
        """{split: sentences}, read at first use. Raises DataError where there is no such corpus."""
        return read_corpus(self.corpus, self.path, self.charset)

    def answers_of(self, sentence: Sentence) -> Sequence[str]:
        """Its tags."""
        return sentence.tags

    @functools.cached_property
    def codec(self) -> "TagCodec":
        """From words to what the model is given, and from its outputs to tags."""
        vocabulary = Vocabulary.build([normal(one.words) for one in self.sentences["train"]])
        return TagCodec(vocabulary, self.answers, self.encoding, self.trigrams)

    def predictions(self, split: str, batch_size: int, apply: Any) -> list[list[str]]:
        """The tags that `apply(batch) -> outputs` gives every sentence of a split, in the order of the corpus."""
        return self.predicted(split, batch_size, apply, self.codec.best)

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these sentences."""
        ids, lengths = self.pad_inputs(split, end, indices, batch_size)
        tags = self.encoded[split][1]
        targets, _ = pad_ids([tags[index] for index in indices], end, batch_size, -1)
        known = (np.arange(end)[:, None] < lengths) & ((targets >= 0) | (np.arange(end)[:, None] >= lengths)).all(0)
        return Batch(ids, targets, known.astype(np.float32), lengths)

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


class TagCodec(Codec):
    """From words to what a model is given, and from its outputs to tags."""

    def symbols(self, words: Sequence[str]) -> list[str]:
        """The words as `normal` has them."""
        return normal(words)

    def best(self, outputs: Any, lengths: np.ndarray) -> list[list[str]]:
        """The most probable tags of every row, up to its length: of each word, or with a CRF of the whole sentence."""
        best = viterbi(outputs, lengths)[0] if isinstance(outputs, CRFScores) else jnp.argmax(outputs, -1)
        best = np.asarray(best)
        return [self.answers.decode(best[:length, row]) for row, length in enumerate(lengths)]

    def tag(self, lines: Sequence[Sequence[str]], apply: Any) -> list[list[str]]:
        """The tags that `apply(batch) -> outputs` gives the words of every line; a line has one word at least."""
        batch = self.batch_of(lines)
        return self.best(apply(batch), batch.lengths)


def normal(words: Sequence[str]) -> list[str]:
    """The words in lower case, every digit as 0."""
    return [re.sub(r"\d", "0", word.lower()) for word in words]


def read_corpus(corpus: str, path: str, charset: str = "utf-8") -> dict[str, list[Sentence]]:
    """{split: sentences} with tags in IOB2. Raises DataError where a file is missing or malformed."""
    if corpus == "travel":
        return {split: list(travel_sentences(split)) for split in SIZES}
    names = _NAMES[corpus]
    place = locate(path, names=names, corpus=corpus)
    if place.name == "seq.in":
        found = {split: read_slot_files(place.parent.parent / split, encoding=charset) for split in SPLITS}
    elif corpus == "atis":
        found = {split: read_jointslu(place.parent / name, encoding=charset) for split, name in _ATIS.items()}
    elif corpus == "conll2000":
        train, test = (read_columns(_of_split(place, name), encoding=charset) for name in ("train", "test"))
        if len(train) <= _HELD_OUT:
            problem = f"{len(train):,} sentences to train: expected more than the {_HELD_OUT:,} that are held out"
            raise malformed(place.parent, "", problem, "Get the corpus again.")
        found = {"train": train[:-_HELD_OUT], "valid": train[-_HELD_OUT:], "test": test}
    else:
        found = {split: read_columns(_of_split(place, split), encoding=charset) for split in SPLITS}
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
