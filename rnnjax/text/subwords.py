"""Words in pieces, by the `tokenizers` library: pip install 'rnnjax[text]'."""

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.text.files import read_json, write_text

KINDS = ("bpe", "wordpiece")
OTHER = "<unk>"
MAX_SIZE = 2**24
"""Far above what any has; the library takes the memory at once, or fails."""


@dataclasses.dataclass(frozen=True)
class Subwords:
    """A trained tokenizer: lines to the numbers of pieces, and back.

        subwords = Subwords.train(lines, "bpe", 500)
        subwords.pieces(subwords.encode("the cats"))        ["▁the", "▁cat", "s"]

    Hashable and equal by content. `len` is the number of pieces.

    content: JSON in the format of the `tokenizers` library, one written by another program among them. Truncation and
        padding that it asks for are left out: lines are encoded whole.

    Raises ValueError where the library can't read it or can't encode with it, where pieces are not numbered from 0
    without gaps, and where it drops merges at random. Raises ImportError where the library is not installed.
    """

    content: str = dataclasses.field(repr=False)

    def __post_init__(self):
        assert self._tokenizer is not None  # read, so that what is wrong is told here

    @classmethod
    def train(cls, lines: Iterable[str], kind: str, size: int, specials: Sequence[str] = ()) -> "Subwords":
        """A tokenizer of the training data.

        kind: "bpe" merges the most frequent pairs (Sennrich, Haddow, Birch 2016), and a space is the "▁" that a word
            begins with; "wordpiece" (Schuster, Nakajima 2012) goes on in a word with pieces that begin with "##", and
            all space between words is alike.
        size: how many pieces there are at most. All characters of the data are among them.
        specials: pieces after number 0, which is "<unk>", that are there whether they are seen or not.

        Number 0 is what unknown characters fall to, of wordpiece the whole word. "<unk>" and specials that stand in a
        line are taken as such.

        Raises ValueError for another kind, no data, a line that is no text, a size that is no whole number of 1 to
        `MAX_SIZE`, and one too small for the characters.
        """
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}: expected one of {', '.join(KINDS)}")
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if not (whole and 1 <= size <= MAX_SIZE):
            raise ValueError(f"size is {shown(size)}: expected a whole number of 1 to {MAX_SIZE}")
        lines, first = [_as_text(line) for line in lines], (OTHER, *map(_as_text, specials))
        tokenizer = (_bpe if kind == "bpe" else _wordpiece)(lines, size, first)
        least = len(specials) + 1
        if tokenizer.get_vocab_size() <= least:
            raise ValueError("lines hold nothing but space: expected the training data")
        if tokenizer.get_vocab_size() > size:
            raise ValueError(f"size is {size}: expected at least {tokenizer.get_vocab_size()}, for every character")
        return cls(_canonical(json.loads(tokenizer.to_str())))

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()

    @functools.cached_property
    def _tokenizer(self) -> Any:
        library = _library()
        with _told("content is no tokenizer"):
            tokenizer = library.Tokenizer.from_str(self.content)
            tokenizer.no_truncation()
            tokenizer.no_padding()
        _check(tokenizer)
        return tokenizer

    def encode(self, line: str) -> np.ndarray:
        """int32 [n], the numbers of the line's pieces. Raises ValueError where it is no text."""
        line = _as_text(line)
        with _told(f"{shown(line)} cannot be encoded"):
            return np.array(self._tokenizer.encode(line, add_special_tokens=False).ids, np.int32)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces of so many numbers. Raises ValueError, naming place and number, where there is no such piece."""
        found = [self._tokenizer.id_to_token(number) if number >= 0 else None for number in np.asarray(ids).tolist()]
        if None in found:
            at = found.index(None)
            raise ValueError(f"ids[{at}] is {np.asarray(ids)[at]}: expected 0 .. {len(self) - 1}")
        return found

    def decode(self, ids: Iterable[int]) -> str:
        """The line of so many numbers: the one that was encoded where all of it is known, but for repeated space of
        wordpiece. Raises ValueError as `pieces` does."""
        ids = np.asarray(ids).tolist()
        self.pieces(ids)
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def save(self, path: str | os.PathLike) -> None:
        """Writes JSON that `load` and the `tokenizers` library read."""
        write_text(path, self.content)

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Subwords":
        """What `save` wrote, or a tokenizer.json of another program. Raises DataError for anything else."""
        held = read_json(path)
        try:
            return cls(_canonical(held))
        except ValueError as error:
            raise malformed(path, "", str(error), AGAIN) from error


def _canonical(content: Any) -> str:
    """The same text for the same content, however a file spaced it."""
    return json.dumps(content, ensure_ascii=False)


def _library():
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError("tokenizers is not installed: pip install 'rnnjax[text]'") from error
    return tokenizers


def _bpe(lines: Sequence[str], size: int, first: Sequence[str]) -> Any:
    """A trained tokenizer that merges pairs."""
    library = _library()
    tokenizer = library.Tokenizer(library.models.BPE(unk_token=OTHER))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Metaspace()
    tokenizer.decoder = library.decoders.Metaspace()
    trainer = library.trainers.BpeTrainer(vocab_size=size, special_tokens=list(first), show_progress=False)
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def _wordpiece(lines: Sequence[str], size: int, first: Sequence[str]) -> Any:
    """A trained tokenizer whose pieces go on with "##".

    The library numbers "##x" in the order of a hash table, which differs from run to run, and breaks ties by number.
    So they are numbered before, and what was learned is put into a tokenizer to which they are no specials.
    """
    library = _library()
    inner = sorted({f"##{letter}" for line in lines for word in line.split() for letter in word[1:]})
    split = library.pre_tokenizers.WhitespaceSplit()
    learner = library.Tokenizer(library.models.WordPiece(unk_token=OTHER))
    learner.pre_tokenizer = split
    trainer = library.trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*first, *inner], show_progress=False)
    learner.train_from_iterator(lines, trainer)
    tokenizer = library.Tokenizer(library.models.WordPiece(learner.get_vocab(), unk_token=OTHER))
    tokenizer.pre_tokenizer, tokenizer.decoder = split, library.decoders.WordPiece(cleanup=False)
    tokenizer.add_special_tokens(list(first))
    return tokenizer


def _as_text(line: str) -> str:
    if not isinstance(line, str):
        raise ValueError(f"a line is {shown(line)}: expected a string")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        problem = f"holds half a surrogate pair, {line[error.start]!r}, as character {error.start + 1}"
        raise ValueError(f"a line {problem}: expected text of whole characters") from None
    return line


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Makes a ValueError of what the library raises, its panics too, which are no Exception and have no public name."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"{what}: {shown(str(error))}") from error


def _check(tokenizer: Any) -> None:
    """Raises ValueError for a tokenizer that would fail, or give other numbers, on some line or at some time."""
    numbers = sorted(tokenizer.get_vocab().values())
    if numbers != list(range(len(numbers))):
        at = next((at for at, number in enumerate(numbers) if number != at), len(numbers))
        raise ValueError(f"content has no single piece of number {at}: expected 0 .. {len(numbers) - 1}, each once")
    if dropout := getattr(tokenizer.model, "dropout", None):
        raise ValueError(f"content has dropout {dropout}, which cuts a line otherwise each time: expected none")
    unknown = getattr(tokenizer.model, "unk_token", None)
    if unknown is not None and tokenizer.model.token_to_id(unknown) is None:
        raise ValueError(f"content has no piece {shown(unknown)}, which unknown characters fall to: expected it")
    with _told("content is a tokenizer that fails"):
        tokenizer.decode(tokenizer.encode("a \U000f0000", add_special_tokens=False).ids)  # a letter and an unknown one
