"""Skip-gram with negative sampling: vectors of words, learned from what stands around them."""

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.data.errors import DataError
from rnnjax.data.lines import read_lines, split_words
from rnnjax.data.locate import expanded
from rnnjax.tasks.base import (
    SPLITS,
    Batch,
    CorpusTask,
    check_batch_size,
    check_split,
    check_step,
    check_whole,
    widen,
)
from rnnjax.tasks.contexts import context_sentences
from rnnjax.text.skipgram import draw_noise, draw_pairs, keep_probabilities, noise_distribution
from rnnjax.text.vocabulary import Vocabulary

CORPORA = ("generated", "text")
_SHARES = (0.9, 0.95)  # where valid and test begin
_EPOCH, _NEGATIVES, _EVALUATION = range(3)


class SkipGramOutputs(NamedTuple):
    """What the loss takes of a model: the vectors of the centres [T, B, D], and those of all contexts [V, D]."""

    vectors: jax.Array
    contexts: jax.Array


@dataclasses.dataclass(frozen=True)
class SkipGram(CorpusTask):
    """Words that stand together are told from words drawn by chance. With v of the centre, u of a context, k negatives:

        loss = - log sigmoid(u_context . v) - sum_{i = 1 .. k} log sigmoid(- u_{n_i} . v),    n_i ~ count^.75, in nats

    A batch of B pairs has one step of time: inputs [1, B] are centres, targets [1, B, 1 + k] the context and then the
    negatives, all int32. A pass over the training split thins out frequent words and draws a window for every word
    that is left (`rnnjax.text.draw_pairs`), both anew, and shuffles the pairs; an epoch has as many batches as pass 0
    of seed 0 fills, so that a few pairs of another pass are left out, or come twice.

    The first 90 % of the words are the training split, then 5 % each. The vocabulary is that of the training split;
    rarer words are taken out of the text before windows are laid. An evaluation draws its pairs and negatives once and
    for all. Source: Mikolov et al. 2013, "Distributed representations of words and phrases and their compositionality",
    section 2.2 and 2.3.

    Worked example, "we flew to Taipei" with window=1 and negatives=2:

        input   we           flew        flew        to           to             Taipei
        target  flew a last  we the of   to in ripe  flew is the  Taipei was a   to the cow

    corpus: generated (`rnnjax.tasks.contexts`), or text, a file of sentences, one a line, of words between spaces.
    path: of the corpus text, the file.
    window: the most words to either side that a word is paired with.
    negatives: k, how many words are drawn for each pair.
    subsample: the frequency above which words are thinned out; 0 for none.
    charset: of the corpus text, such as utf-8 or latin-1.
    min_count: how often a word of the training split has to be seen.
    """

    path: str = ""
    corpus: str = dataclasses.field(default="generated", metadata={"choices": CORPORA})
    window: int = 5
    negatives: int = 5
    subsample: float = 1e-3
    min_count: int = 5
    charset: str = "utf-8"

    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "sigmoid"
    unit: ClassVar[str] = "nats a pair"

    def __post_init__(self):
        check_whole(self, 1, "window", "negatives", "min_count")
        if self.corpus not in CORPORA:
            raise ValueError(f"corpus of SkipGram is {self.corpus!r}: expected one of {', '.join(CORPORA)}")
        if (self.corpus == "text") != bool(self.path):
            wanted = "the file" if self.corpus == "text" else "none"
            raise ValueError(f"path of SkipGram is {self.path!r} but corpus is {self.corpus!r}: expected {wanted}")
        unlike = isinstance(self.subsample, bool) or not isinstance(self.subsample, int | float)
        if unlike or not 0 <= self.subsample <= 1:
            raise ValueError(f"subsample of SkipGram is {self.subsample!r}: expected a frequency, 0 to 1")

    @functools.cached_property
    def sentences(self) -> dict[str, list[tuple[str, ...]]]:
        """{split: sentences}, read at first use; a cut may go through one. Raises DataError where a split is empty."""
        text = (
            context_sentences()
            if self.corpus == "generated"
            else map(split_words, read_lines(self._source, encoding=self.charset))
        )
        whole = [words for words in text if words]
        ends = np.cumsum([len(words) for words in whole])
        first, second = (int(share * ends[-1]) for share in _SHARES)
        if not 0 < first < second < ends[-1]:
            raise DataError(f"{self._source}: {ends[-1]} words are too few for three splits\nGive a longer text.")
        found = {split: [] for split in SPLITS}
        for words, end in zip(whole, ends, strict=True):
            start = end - len(words)
            for split, low, high in zip(SPLITS, (0, first, second), (first, second, end), strict=True):
                if part := words[max(0, low - start) : max(0, high - start)]:
                    found[split].append(part)
        return found

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training split. Raises DataError where none is frequent enough."""
        train = self.sentences["train"]
        try:
            return Vocabulary.build(train, min_count=self.min_count, other=None)
        except ValueError as error:
            raise DataError(
                f"{self._source}: no word is seen {self.min_count} times in the training split\nTake a lower min_count."
            ) from error

    @property
    def input_size(self) -> int:
        return len(self.vocabulary)

    @property
    def output_size(self) -> int:
        return len(self.vocabulary)

    @property
    def chance(self) -> float:
        """Nats a pair of scores that are all 0, where training starts: (1 + k) log 2."""
        return (1 + self.negatives) * math.log(2)

    @functools.cached_property
    def noise(self) -> np.ndarray:
        """[V], the distribution of the negatives."""
        return noise_distribution(self.vocabulary.counts)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Training batches in one pass over the training split."""
        check_batch_size(batch_size)
        return max(1, self._pairs_of_a_pass // batch_size)

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The training batch of `step` >= 0, a pure function of its arguments; `seed` in 0 .. 2^64 - 1."""
        check_step(step, seed)
        epoch, index = divmod(step, self.steps_per_epoch(batch_size))
        if self._passes.get(seed, (None, None))[0] != epoch:
            self._passes[seed] = epoch, self._shuffled_pass(seed, epoch)
        pairs = self._passes[seed][1]
        chosen = pairs[np.arange(index * batch_size, (index + 1) * batch_size) % len(pairs)]
        return self._with_negatives(chosen, _generator(seed, _NEGATIVES, step))

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Every pair of one pass over `split` (train, valid, test); rows that fill up the last batch don't count."""
        check_split(split)
        check_batch_size(batch_size)
        return self._evaluation(split, batch_size)

    def _evaluation(self, split: str, batch_size: int) -> Iterator[Batch]:
        generator = _generator(0, _EVALUATION, SPLITS.index(split))
        pairs = self._pairs(split, generator)
        for start in range(0, len(pairs), batch_size):
            part = pairs[start : start + batch_size]
            filled = np.concatenate([part, np.zeros((batch_size - len(part), 2), np.int32)])
            batch = self._with_negatives(filled, generator)
            yield batch._replace(mask=(np.arange(batch_size) < len(part)).astype(np.float32)[None])

    def loss(self, outputs: SkipGramOutputs, batch: Batch) -> jax.Array:
        """Nats: vectors [1, B, D] and contexts [V, D] -> [1, B]."""
        scores = _scores(outputs, batch)
        return jax.nn.softplus(-scores[..., 0]) + jax.nn.softplus(scores[..., 1:]).sum(-1)

    def metrics(self, outputs, batch):
        """accuracy [1, B]: 1 where the context's score is above those of all negatives, by chance in one of 1 + k."""
        scores = _scores(outputs, batch)
        return {"accuracy": ((scores[..., 0] > scores[..., 1:].max(-1)).astype(jnp.float32), batch.mask)}

    @property
    def _source(self) -> str:
        return "the generated corpus" if self.corpus == "generated" else str(expanded(self.path))

    @functools.cached_property
    def _passes(self) -> dict[int, tuple[int, np.ndarray]]:
        """{seed: (epoch, its shuffled pairs)}, the one that each seed is at."""
        return {}

    @functools.cached_property
    def _pairs_of_a_pass(self) -> int:
        return len(self._pairs("train", _generator(0, _EPOCH, 0)))

    def _shuffled_pass(self, seed: int, epoch: int) -> np.ndarray:
        generator = _generator(seed, _EPOCH, epoch)
        return generator.permutation(self._pairs("train", generator))

    @functools.cached_property
    def _texts(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """{split: (ids, the number of the sentence of each)} of the words that are in the vocabulary."""
        found = {}
        for split, sentences in self.sentences.items():
            known = [[word for word in words if word in self.vocabulary] for words in sentences]
            ids = self.vocabulary.encode(word for words in known for word in words)
            found[split] = ids, np.repeat(np.arange(len(known)), [len(words) for words in known])
        return found

    def _pairs(self, split: str, generator: np.random.Generator) -> np.ndarray:
        kept = keep_probabilities(self.vocabulary.counts, self.subsample)
        pairs = draw_pairs(generator, *self._texts[split], kept, self.window)
        if not len(pairs):
            raise DataError(
                f"{self._source}: no two words are left together in the {split} split\nTake a higher subsample or a "
                "lower min_count, or give a longer text."
            )
        return pairs

    def _with_negatives(self, pairs: np.ndarray, generator: np.random.Generator) -> Batch:
        negatives = draw_noise(generator, self.noise, (len(pairs), self.negatives))
        targets = np.concatenate([pairs[:, 1:], negatives], axis=1)
        return Batch(pairs[None, :, 0], targets[None], np.ones((1, len(pairs)), np.float32))


def _scores(outputs: SkipGramOutputs, batch: Batch) -> jax.Array:
    """[1, B, 1 + k]."""
    contexts = outputs.contexts[batch.targets]
    return widen(jnp.einsum("tbd,tbkd->tbk", outputs.vectors, contexts))


def _generator(seed: int, which: int, number: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, which, number))))
