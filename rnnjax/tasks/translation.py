"""From one sequence of symbols to another: a word's pronunciation, a sentence's translation."""

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import jax
import numpy as np

from rnnjax.data.buckets import bucket_ends
from rnnjax.data.errors import DataError, malformed, shown
from rnnjax.data.pairs import Pair
from rnnjax.tasks.base import Batch, SourceTarget, check_whole, correct, cross_entropy
from rnnjax.tasks.bucketed import BucketedTask
from rnnjax.tasks.pair_codec import PairCodec, in_pieces
from rnnjax.tasks.parallel import CORPORA, START, STOP, read_corpus
from rnnjax.text import Subwords, Vocabulary


@dataclasses.dataclass(frozen=True)
class Translation(BucketedTask):
    """From a source x_1 .. x_S and y_1 .. y_{t-1}, the next symbol y_t of the target, and its end.

        loss_t = - log softmax(output_t)[y_t],    in nats a symbol

    Inputs are `SourceTarget`(source [S, B], target [T, B]) of ids: target is y_{t-1}, "<s>" first; the targets [T, B]
    are y_t, "</s>" last. lengths [B] are the source's, the mask is 1 up to "</s>". Vocabularies are those of the
    training split. Batches come in at most `buckets` shapes, the same for all splits.

    Sources: reversal, generated (`rnnjax.tasks.parallel`); g2p, the CMU dictionary from letters to phones without
    stress, 90, 5 and 5 % of its words; multi30k, Elliott et al. 2016, English to German in lower case, tested on
    test_2016_flickr; pairs, one's own: a table (`rnnjax.data.read_pairs`), split as g2p. No target
    holds "<s>" or "</s>"; "<unk>" is the unknown symbol.

    Worked example (g2p):

        source   c o u g h
        target   <s> K  AA F           fed
        targets  K   AA F  </s>

    path: the file, or of multi30k the folder of the files; "" for where `rnnjax.data.locate` looks; of no effect for
        reversal.
    corpus: reversal, g2p, multi30k or pairs.
    reverse_source: whether the source is read from its end (Sutskever, Vinyals, Le 2014).
    subwords: the number of pieces that each side of multi30k and pairs is cut into by BPE (Sennrich et al. 2016); 0 for
        words.
    min_count: symbols that are rarer in the training split are unknown ones.
    charset: of the file of pairs, such as utf-8 or latin-1.
    buckets: at most how many shapes batches come in, the longest hundredth of the pairs in one of its own.
    """

    path: str = ""
    corpus: str = dataclasses.field(default="reversal", metadata={"choices": CORPORA})
    reverse_source: bool = False
    subwords: int = 0
    min_count: int = 1
    charset: str = "utf-8"
    buckets: int = 4

    aligned: ClassVar[bool] = False
    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "softmax"
    unit: ClassVar[str] = "nats a symbol"

    def __post_init__(self):
        check_whole(self, 1, "buckets", "min_count")
        check_whole(self, 0, "subwords")
        if self.corpus not in CORPORA:
            raise ValueError(f"corpus of Translation is {self.corpus!r}: expected one of {', '.join(CORPORA)}")
        if self.subwords and self.corpus not in ("multi30k", "pairs"):
            raise ValueError(f"subwords of Translation is {self.subwords} but {self.corpus} has no words: expected 0")

    @functools.cached_property
    def _in_words(self) -> dict[str, list[Pair]]:
        return read_corpus(self.corpus, self.path, self.charset)

    @functools.cached_property
    def pairs(self) -> dict[str, list[Pair]]:
        """{split: pairs} of symbols or pieces, in the order of reading. DataError where there is no such file."""
        found = self._in_words
        if self._pieces is not None:
            found = {
                split: [Pair(*map(in_pieces, self._pieces, pair)) for pair in pairs] for split, pairs in found.items()
            }
            for target in (pair.target for pairs in found.values() for pair in pairs):
                if held := {START, STOP}.intersection(target):
                    problem = f"the target {shown(''.join(target))} is cut into pieces of which one is {min(held)!r}"
                    raise malformed(self.path, "", problem, "Write it in another way, or ask for subwords=0.")
        if self.reverse_source:
            found = {split: [Pair(s[::-1], t) for s, t in pairs] for split, pairs in found.items()}
        return found

    @functools.cached_property
    def _pieces(self) -> tuple[Subwords, Subwords] | None:
        """What cuts words into pieces, learned from the training split. DataError where they are too few for it."""
        if not self.subwords:
            return None
        sides = zip(*self._in_words["train"], strict=True)
        try:
            return tuple(Subwords.train([" ".join(words) for words in side], "bpe", self.subwords) for side in sides)
        except ValueError as error:
            raise DataError(f"subwords of Translation is {self.subwords}: {error}\nAsk for more, or for 0.") from None

    @functools.cached_property
    def codec(self) -> PairCodec:
        """The vocabularies, and what becomes of a line. 0 is the unknown symbol, then come START and STOP."""
        sources, targets = zip(*self.pairs["train"], strict=True)
        written = Vocabulary.build(
            [(*target, STOP) for target in targets], min_count=self.min_count, specials=(START, STOP)
        )
        read = Vocabulary.build(sources, min_count=self.min_count)
        return PairCodec(read, written, self.corpus, self.reverse_source, self._pieces)

    @property
    def input_size(self) -> int:
        """How many symbols are read."""
        return self.codec.input_size

    @property
    def output_size(self) -> int:
        """How many symbols are written."""
        return self.codec.output_size

    @functools.cached_property
    def longest(self) -> int:
        """Symbols in the longest target of the training split, "</s>" included: what does not end before is cut."""
        return max(len(target) for _, target in self._encoded["train"])

    @functools.cached_property
    def _encoded(self) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
        """{split: (ids of the source, ids of the target and "</s>") of every pair}."""
        source, target = self.codec.source.encode, self.codec.target.encode
        return {
            split: [(source(pair.source), target((*pair.target, STOP))) for pair in pairs]
            for split, pairs in self.pairs.items()
        }

    @functools.cached_property
    def chance(self) -> float:
        """Nats a symbol on the validation split of guessing each symbol's frequency in training, add-one smoothed."""
        train, valid = (np.concatenate([target for _, target in self._encoded[split]]) for split in ("train", "valid"))
        counts = np.bincount(train, minlength=self.output_size) + 1.0
        counts[self.codec.start] = 0  # is never written
        return float(-np.log((counts / counts.sum())[valid]).mean())

    def written(self, split: str, batch_size: int, write: Callable[[Batch], tuple]) -> list[tuple[str, ...]]:
        """What `write(batch) -> (symbols [T, B], lengths [B])` writes for every pair of a split, in its order."""
        found: list[tuple[str, ...]] = [()] * len(self.pairs[split])
        for end, indices in self.ordered(split, batch_size):
            symbols, lengths = map(np.asarray, write(self.pad(split, end, indices, batch_size)))
            for row, index in enumerate(indices):
                found[index] = tuple(self.codec.target.decode(symbols[: lengths[row], row]))
        return found

    def references(self, split: str) -> list[list[tuple[str, ...]]]:
        """All targets that the source of each pair has in its split."""
        of_source: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for source, target in self.pairs[split]:
            of_source.setdefault(source, []).append(target)
        return [of_source[pair.source] for pair in self.pairs[split]]

    @functools.cached_property
    def _lengths(self) -> dict[str, np.ndarray]:
        """{split: [n], of every pair the longer side's}."""
        return {
            split: np.array([max(len(source), len(target)) for source, target in pairs])
            for split, pairs in self._encoded.items()
        }

    @functools.cached_property
    def _shapes(self) -> dict[int, tuple[int, int]]:
        """{end of a bucket: (S, T), the longest source and target in it}, over all splits.

        The longest hundredth has a bucket of its own where there are several, so that a few pairs pad no others.
        """
        lengths = np.concatenate(list(self._lengths.values()))
        sides = np.array([[len(side) for side in pair] for pairs in self._encoded.values() for pair in pairs])
        usual = lengths[lengths <= np.quantile(lengths, 0.99, method="inverted_cdf")]
        ends = bucket_ends(usual, self.buckets - 1) if self.buckets > 1 else ()
        ends = tuple(dict.fromkeys((*ends, int(lengths.max()))))
        members = np.searchsorted(ends, lengths)
        return {end: tuple(map(int, sides[members == i].max(axis=0))) for i, end in enumerate(ends)}

    def lengths(self, split: str) -> np.ndarray:
        """[n], of every pair the longer side's."""
        return self._lengths[split]

    def ends(self, split: str) -> tuple[int, ...]:
        """Where the buckets end, those of all splits."""
        del split
        return tuple(self._shapes)

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these pairs."""
        read, write = self._shapes[end]
        source, lengths = np.zeros((read, batch_size), np.int32), np.zeros(batch_size, np.int32)
        fed, targets = np.zeros((write, batch_size), np.int32), np.zeros((write, batch_size), np.int32)
        mask = np.zeros((write, batch_size), np.float32)
        for row, index in enumerate(indices):
            given, wanted = self._encoded[split][index]
            lengths[row] = len(given)
            source[: len(given), row] = given
            fed[0, row], fed[1 : len(wanted), row] = self.codec.start, wanted[:-1]
            targets[: len(wanted), row], mask[: len(wanted), row] = wanted, 1
        return Batch(SourceTarget(source, fed), targets, mask, lengths)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Nats: logits [T, B, V] -> [T, B]."""
        return cross_entropy(outputs, batch.targets)

    def metrics(self, outputs, batch):
        """symbol_error [T, B]: 1 where the likeliest next symbol, the target's own before it, is another."""
        return {"symbol_error": (1 - correct(outputs, batch.targets), batch.mask)}
