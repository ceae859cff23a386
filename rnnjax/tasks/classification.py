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
from rnnjax.tasks.encoded import Codec, EncodedTask
from rnnjax.tasks.labelled import CORPORA, read_corpus
from rnnjax.text import Vocabulary

ENCODINGS = ("words", "characters", "trigrams")


@dataclasses.dataclass(frozen=True)
class Classification(EncodedTask):
    """From the words or characters of a sentence, its class.

        loss = - log softmax(output)[class],    in nats

    Inputs are the ids of words or of characters [T, B], or with trigrams the places of the words' letter trigrams
    [T, B, K], -1 where a word has fewer. Vocabulary and classes are those of the training split. A class that it has
    not is never given, so that it is wrong in every score; the loss leaves its sentence out. Words are in lower case,
    characters as they are.

    Sources: questions, generated (`rnnjax.tasks.questions`); trec, the six coarse classes of Li, Roth 2002, "Learning
    question classifiers", 500 of the 5,452 training questions held out; names, surnames of 18 languages of the PyTorch
    tutorial, a tenth of the spellings for validation and one for the test, so that no name of the test is in training;
    atis, what a request to ATIS wants (Hemphill et al. 1990), in the split of `Tagging`;
    files, one's own lines `CLASS word word ...`: a file, or a folder with train.txt and, if they are there, test.txt
    and valid.txt; for each that is not, a tenth of the training part is held out.

    Worked example (trec):

        where is the Loop ?      LOC

    path: the file or folder of the corpus, or "" for where `rnnjax.data.locate` looks; of no effect for questions.
    corpus: questions, trec, atis, names or files.
    encoding: what the model reads one after the other, words by their numbers, characters, or words by their trigrams.
    trigrams: how many places the letter trigrams are hashed to.
    unknown: the probability with which what occurs once in training is taken for an unknown word there.
    charset: of one's own files and those of ATIS, such as utf-8 or latin-1.
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
        self.check_fields(corpus=CORPORA, encoding=ENCODINGS)
        check_whole(self, 0, "split_seed")

    @functools.cached_property
    def sentences(self) -> dict[str, list[Sentence]]:
        """{split: sentences}, read at first use. Raises DataError where there is no such corpus."""
        return read_corpus(self.corpus, self.path, self.charset, self.split_seed)

    def answers_of(self, sentence: Sentence) -> Sequence[str]:
        """Its class."""
        return (sentence.label,)

    @functools.cached_property
    def codec(self) -> "ClassCodec":
        """From words to what the model is given, and from its outputs to classes."""
        vocabulary = Vocabulary.build([symbols(one.words, self.encoding) for one in self.sentences["train"]])
        return ClassCodec(vocabulary, self.answers, self.encoding, self.trigrams)

    def predictions(self, split: str, batch_size: int, apply: Any) -> list[str]:
        """The class that `apply(batch) -> outputs` gives every sentence of a split, in the order of the corpus."""

        def best(outputs, lengths):
            return self.answers.decode(np.argmax(np.asarray(outputs), -1)[: np.sum(lengths > 0)])

        return self.predicted(split, batch_size, apply, best)

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these sentences."""
        ids, lengths = self.pad_inputs(split, end, indices, batch_size)
        targets = np.full(batch_size, -1, np.int32)
        targets[: len(indices)] = [self.encoded[split][1][index][0] for index in indices]
        return Batch(ids, targets, (targets >= 0).astype(np.float32), lengths)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Nats: logits [B, classes] -> [B]."""
        return cross_entropy(outputs, jnp.maximum(batch.targets, 0))

    def metrics(self, outputs, batch):
        """error [B]: 1 where the class is wrong, which one that training has not always is."""
        return {"error": (1 - correct(outputs, batch.targets), (batch.lengths > 0).astype(jnp.float32))}


class ClassCodec(Codec):
    """From words to what a model is given, and from its outputs to classes."""

    def symbols(self, words: Sequence[str]) -> list[str]:
        """The words in lower case, or the characters."""
        return symbols(words, self.encoding)

    def probabilities(self, words: Sequence[str], apply: Any) -> dict[str, float]:
        """{class: probability} that `apply(batch) -> outputs` gives a line, of one word at least."""
        shares = np.asarray(jax.nn.softmax(jnp.asarray(apply(self.batch_of([words])))[0]))
        return dict(zip(self.answers.words, shares.tolist(), strict=True))


def symbols(words: Sequence[str], encoding: str) -> list[str]:
    """What is read one after the other: the words in lower case, or the characters with blanks between words."""
    return list(" ".join(words)) if encoding == "characters" else [word.lower() for word in words]
