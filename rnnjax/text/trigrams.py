"""Words as the letter trigrams that they are made of: unseen words and slips of the pen get vectors too."""

import collections
import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np


def letter_trigrams(word: str) -> list[str]:
    """The three-letter windows of #word#, in order: "good" -> #go goo ood od#. Empty for the empty word.

    Source: Huang et al. 2013, "Learning deep structured semantic models for web search using clickthrough data", 3.2.
    """
    marked = f"#{word}#"
    return [marked[i : i + 3] for i in range(len(marked) - 2)]


class Collisions(NamedTuple):
    """What a vocabulary loses when its words are hashed.

    words: how many different ones there are.
    sharing: of them, how many have the vector of another.
    inseparable: of them, how many have the trigrams of another, so that no size tells them apart.
    trigrams: how many different ones the words are made of.
    trigrams_sharing: of them, how many have the index of another.
    load: trigrams over the size.
    """

    words: int
    sharing: int
    inseparable: int
    trigrams: int
    trigrams_sharing: int
    load: float


@dataclasses.dataclass(frozen=True)
class TrigramHashing:
    """A word as the sum of the one-hot vectors of its letter trigrams, each hashed to one of `size` entries.

    The hash is that of the trigram's UTF-8 bytes (BLAKE2b) and the same on every machine and in every run. No list of
    trigrams is kept: any word gets a vector, and different trigrams may share an entry.

    Huang et al. 2013 keep a list of all trigrams instead, one entry each: 500,000 words are made of 30,621 of them, and
    22 words (0.0044 %) have the vector of another; 40,000 words of 10,306, and 2 have. `collisions` tells the same of
    any list of words, as `inseparable`, and beside it what hashing to a smaller size adds.

    size: entries of a vector, at least 1.
    """

    size: int

    def __post_init__(self):
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise ValueError(f"size of TrigramHashing is {self.size!r}: expected a whole number of at least 1")

    def indices(self, words: Sequence[str]) -> np.ndarray:
        """int32 [n, K], the entries that each word's trigrams add 1 to, padded with -1; K is of the longest word."""
        rows = [self._entries(word) for word in words]
        found = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int32)
        for row, entries in zip(found, rows, strict=True):
            row[: len(entries)] = entries
        return found

    def vectors(self, words: Sequence[str]) -> np.ndarray:
        """float32 [n, size], how many trigrams of each word have which entry: the sum of their one-hot vectors."""
        found = np.zeros((len(words), self.size), np.float32)
        for row, word in zip(found, words, strict=True):
            np.add.at(row, self._entries(word), 1)
        return found

    def collisions(self, words: Iterable[str]) -> Collisions:
        """How many of the words can't be told apart, and why."""
        words = set(words)
        trigrams = {trigram for word in words for trigram in letter_trigrams(word)}
        return Collisions(
            words=len(words),
            sharing=_sharing(tuple(sorted(self._entries(word))) for word in words),
            inseparable=_sharing(tuple(sorted(letter_trigrams(word))) for word in words),
            trigrams=len(trigrams),
            trigrams_sharing=_sharing(map(self._entry, trigrams)),
            load=len(trigrams) / self.size,
        )

    def _entries(self, word: str) -> list[int]:
        return [self._entry(trigram) for trigram in letter_trigrams(word)]

    def _entry(self, trigram: str) -> int:
        return _hash(trigram) % self.size


@functools.lru_cache(maxsize=2**17)  # more than the trigrams of any alphabetic language
def _hash(trigram: str) -> int:
    digest = hashlib.blake2b(trigram.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _sharing(values: Iterable) -> int:
    """How many of the values are equal to another."""
    return sum(count for count in collections.Counter(values).values() if count > 1)
