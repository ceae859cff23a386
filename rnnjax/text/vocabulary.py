"""Words and their numbers."""

import collections
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence

import numpy as np

from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.text.files import read_json, write_text


class UnknownWord(ValueError):
    """A word has no number, and there is no entry for others."""


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words that have a number of their own, and one entry for all others.

        vocabulary = Vocabulary.build([["flights", "to", "Boston"], ["to", "Denver"]], min_count=2)
        vocabulary.words                           ("<unk>", "to")
        vocabulary.encode(["to", "Taipei"])        [1, 0]

    Hashable and equal by content. Build it from training data alone: what is in the test data and not in it has to
    fall to `other`, as it does when the model is used.

    words: in the order of their numbers, no two alike.
    other: the entry that words without one fall to, number 0; None where every word has to be there.
    counts: how often each was seen in the training data, of `other` all that fell to it; () where it is not known.

    Raises ValueError where words repeat, `other` is not number 0, or there are not as many counts as words.
    """

    words: tuple[str, ...]
    other: str | None = None
    counts: tuple[int, ...] = ()

    def __post_init__(self):
        if not self.words:
            raise ValueError("words are empty: expected at least one")
        if len(self._numbers) < len(self.words):
            twice = next(word for i, word in enumerate(self.words) if self._numbers[word] != i)
            raise ValueError(f"words hold {shown(twice)} twice: expected every word once")
        if self.other is not None and self.words[0] != self.other:
            raise ValueError(f"other is {shown(self.other)} but word 0 is {shown(self.words[0])}: expected it there")
        if self.counts and len(self.counts) != len(self.words):
            raise ValueError(f"counts are {len(self.counts)} for {len(self.words)} words: expected one each, or none")

    @classmethod
    def build(
        cls,
        sequences: Iterable[Iterable[str]],
        *,
        min_count: int = 1,
        size: int | None = None,
        other: str | None = "<unk>",
        specials: Sequence[str] = (),
    ) -> "Vocabulary":
        """The words of the training data, the most frequent first, alike frequent ones in alphabetical order.

        sequences: of words; a string is one of its characters.
        min_count: how often a word has to be seen.
        size: how many entries there are at most, `other` and specials among them.
        other: None for no such entry; a word of the data that is called so is counted with it.
        specials: entries after `other` that are there whether they are seen or not.

        Raises ValueError where nothing is seen, and where `size` leaves no room for a word.
        """
        seen = collections.Counter()
        for sequence in sequences:
            seen.update(sequence)
        if not seen:
            raise ValueError("sequences hold no word: expected the training data")
        first = (*(() if other is None else (other,)), *specials)
        if min_count < 1:
            raise ValueError(f"min_count is {min_count}: expected at least 1")
        if size is not None and size <= len(first):
            raise ValueError(f"size is {size}: expected more than the {len(first)} entries that are no words")
        kept = sorted((-count, word) for word, count in seen.items() if count >= min_count and word not in first)
        words = (*first, *(word for _, word in kept))[:size]
        counts = [seen[word] for word in words]
        if other is not None:
            counts[0] = seen.total() - sum(counts[1:])
        return cls(words, other, tuple(counts))

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._numbers

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words, other={self.other!r})"

    @functools.cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def index(self, word: str) -> int:
        """The word's number, or that of `other`. Raises UnknownWord as `encode` does."""
        return int(self.encode((word,))[0])

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """int32 [n], the numbers of n words. Raises UnknownWord, naming place and word, where one has none."""
        words = list(words)
        numbers = self._numbers
        if self.other is not None:
            return np.array([numbers.get(word, 0) for word in words], np.int32)
        try:
            return np.array([numbers[word] for word in words], np.int32)
        except KeyError as error:
            at = next(i for i, word in enumerate(words) if word not in numbers)
            raise UnknownWord(
                f"word {at} is {shown(words[at])}, not one of the {len(self)} known ones: build it with an entry for "
                "others, or of data that holds it"
            ) from error

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of so many numbers. Raises ValueError, naming place and number, where there is no such word."""
        ids = np.asarray(ids).tolist()
        for at, number in enumerate(ids):
            if not 0 <= number < len(self):
                raise ValueError(f"ids[{at}] is {number}: expected 0 .. {len(self) - 1}")
        return [self.words[number] for number in ids]

    def save(self, path: str | os.PathLike) -> None:
        """Writes JSON, a word a line, and a digest: what is changed later is not what a model was trained with."""
        words = ",\n".join(json.dumps(word, ensure_ascii=False) for word in self.words)
        rest = f'"other": {json.dumps(self.other, ensure_ascii=False)},\n"counts": {json.dumps(self.counts)}'
        rest = f'"digest": "{self._digest}",\n{rest}'
        write_text(path, f'{{{rest},\n"words": [\n{words}\n]}}\n')

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Vocabulary":
        """What `save` wrote; the digest may be missing. Raises DataError, naming file and entry, for anything else."""
        held = read_json(path)
        if not isinstance(held, dict) or set(held) - {"digest"} != {"words", "other", "counts"}:
            names = ", ".join(map(shown, held)) if isinstance(held, dict) else shown(held)
            raise malformed(path, "", f"holds {names}: expected words, other and counts, as Vocabulary.save", AGAIN)
        _check_list(path, "words", held["words"], str, "a string")
        _check_list(path, "counts", held["counts"], int, "a whole number of at least 0")
        if not isinstance(held["other"], str | None):
            raise malformed(path, "other", f"is {shown(held['other'])}: expected a string or null", AGAIN)
        try:
            found = cls(tuple(held["words"]), held["other"], tuple(held["counts"]))
        except ValueError as error:
            raise malformed(path, "", str(error), AGAIN) from error
        if held.get("digest", found._digest) != found._digest:
            raise malformed(path, "", "words, other or counts were changed after they were saved", AGAIN)
        return found

    @property
    def _digest(self) -> str:
        return hashlib.sha256(json.dumps([self.words, self.other, self.counts]).encode()).hexdigest()[:16]

    def describe(self, sequences: Iterable[Iterable[str]] = (), top: int = 10) -> str:
        """A few lines on its size and its most frequent words and, of the sequences of another text, on what share of
        it is covered and which words fall to `other`; `top` words of each kind are named."""
        named = "none for others" if self.other is None else f"{shown(self.other)} for others"
        lines = [f"{len(self):,} entries, {named}"]
        if self.counts:
            total = sum(self.counts)
            own = [(word, n) for word, n in zip(self.words, self.counts, strict=True) if word != self.other]
            lines.append(f"most frequent: {_listed(own, total, top)}")
            if self.other is not None:
                lines.append(f"of {total:,} words of the training data fall to it: {_share(self.counts[0], total)}")
        seen = collections.Counter()
        for sequence in sequences:
            seen.update(sequence)
        if total := seen.total():
            missing = {word: count for word, count in seen.items() if word not in self or word == self.other}
            covered, distinct = total - sum(missing.values()), len(seen) - len(missing)
            lines.append(
                f"of {total:,} words of this text covered: {_share(covered, total)}; of {len(seen):,} different ones: "
                f"{_share(distinct, len(seen))}"
            )
            if missing:
                lines.append(f"not covered: {_listed(missing.items(), total, top)}")
        return "\n".join(lines)


def _share(part: int, total: int) -> str:
    return f"{part:,} ({part / max(total, 1):.1%})"


def _listed(counts: Iterable[tuple[str, int]], total: int, top: int) -> str:
    """The `top` most frequent words with their shares."""
    counts = sorted(counts, key=lambda one: (-one[1], one[0]))
    more = f" and {len(counts) - top:,} more" if len(counts) > top else ""
    return ", ".join(f"{shown(word)} {_share(count, total)}" for word, count in counts[:top]) + more


def _check_list(path, name: str, values, kind: type, expected: str) -> None:
    if not isinstance(values, list):
        raise malformed(path, name, f"is {shown(values)}: expected a list", AGAIN)
    for at, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool) or (kind is int and value < 0):
            raise malformed(path, f"{name}, entry {at}", f"is {shown(value)}: expected {expected}", AGAIN)
