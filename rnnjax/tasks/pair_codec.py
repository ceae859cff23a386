"""How lines become the numbers that a model of pairs reads, and what it writes becomes a line again."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.data.lines import is_blank, split_words
from rnnjax.tasks.parallel import START, STOP, tokens
from rnnjax.text import Subwords, Vocabulary

_FILES = ("source_vocabulary.json", "target_vocabulary.json", "source_pieces.json", "target_pieces.json")


@dataclasses.dataclass(frozen=True)
class PairCodec:
    """source, target: what is read and written, of the target with START and STOP.
    corpus: of `rnnjax.tasks.parallel.CORPORA`, which says what the symbols of a line are.
    reverse_source: whether a line is read from its end.
    pieces: what cuts words into pieces, those that are read and those that are written; None for whole words.
    """

    source: Vocabulary
    target: Vocabulary
    corpus: str
    reverse_source: bool = False
    pieces: tuple[Subwords, Subwords] | None = None

    @property
    def input_size(self) -> int:
        """How many symbols are read."""
        return len(self.source)

    @property
    def output_size(self) -> int:
        """How many symbols are written."""
        return len(self.target)

    @property
    def start(self) -> int:
        """The id of START."""
        return self.target.index(START)

    @property
    def stop(self) -> int:
        """The id of STOP."""
        return self.target.index(STOP)

    def symbols(self, line: str) -> tuple[str, ...]:
        """What a line is to the corpus, in the order of writing: letters, words or pieces; () of a blank one."""
        if is_blank(line):
            return ()
        if self.corpus in ("reversal", "g2p"):
            return tuple("".join(split_words(line.lower())))
        words = tokens(line) if self.corpus == "multi30k" else split_words(line)
        return words if self.pieces is None else in_pieces(self.pieces[0], words)

    def text(self, symbols: Sequence[str]) -> str:
        """The line that written symbols stand for."""
        return " ".join(symbols) if self.pieces is None else "".join(symbols).replace("▁", " ").strip()

    def read(self, lines: Sequence[Sequence[str]], steps: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(ids int32 [S, B], lengths [B]) of symbols in the order of writing; S is `steps`, or the longest line's."""
        ids = [self.source.encode(line[::-1] if self.reverse_source else line) for line in lines]
        lengths = np.array([len(line) for line in ids], np.int32)
        source = np.zeros((lengths.max(initial=0) if steps is None else steps, len(ids)), np.int32)
        for row, line in enumerate(ids):
            source[: len(line), row] = line
        return source, lengths

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the vocabularies and, where there are pieces, what cuts into them, as JSON."""
        for name, part in zip(_FILES, (self.source, self.target, *(self.pieces or ())), strict=False):
            part.save(pathlib.Path(folder) / name)

    @classmethod
    def load(cls, folder: str | os.PathLike, corpus: str, reverse_source: bool, pieces: bool) -> "PairCodec":
        """What `save` wrote. Raises DataError where a file is missing or something else.

        Each vocabulary has an entry for unknown symbols; the one of the targets has START and STOP.
        """
        paths = [pathlib.Path(folder) / name for name in _FILES]
        cut = (Subwords.load(paths[2]), Subwords.load(paths[3])) if pieces else None
        read, written = map(Vocabulary.load, paths[:2])
        for path, vocabulary, needed in ((paths[0], read, ()), (paths[1], written, (START, STOP))):
            if vocabulary.other is None:
                raise malformed(path, "other", "is null: expected an entry for unknown symbols", AGAIN)
            if missing := [symbol for symbol in needed if symbol not in vocabulary]:
                raise malformed(path, "words", f"{shown(missing[0])} is not among them", AGAIN)
        return cls(read, written, corpus, reverse_source, cut)


def in_pieces(cut: Subwords, words: Sequence[str]) -> tuple[str, ...]:
    """Words as pieces."""
    return tuple(cut.pieces(cut.encode(" ".join(words))))
