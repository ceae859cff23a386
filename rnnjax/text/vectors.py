"""Vectors of words: which point the same way, and files of them."""

import os
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rnnjax.data.errors import shown
from rnnjax.text.files import write_text

_NO_WORD = re.compile(r"[\x00- \x7f]")  # what ends a word in such a file, or makes it one of other content


def cosine_similarity(a: ArrayLike, b: ArrayLike) -> np.ndarray:
    """a.b / (|a| |b|) in float64: [..., D] and [..., D] -> [...], which broadcast; 0 where a vector is 0."""
    return np.sum(_directions(a) * _directions(b), -1)


def neighbours(vectors: ArrayLike, ids: ArrayLike, count: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """(numbers int32 [n, count], cosine similarities [n, count]) of the rows of vectors [V, D] that are nearest to the
    rows `ids` [n], the nearest first; a row is not among its own. There are V - 1 where count is larger.

    Raises ValueError for an id that is no row.
    """
    directions, ids = _directions(vectors), np.atleast_1d(ids)
    for at, number in enumerate(ids.tolist()):
        if not 0 <= number < len(directions):
            raise ValueError(f"ids[{at}] is {number}: expected 0 .. {len(directions) - 1}")
    similarities = directions[ids] @ directions.T
    similarities[np.arange(len(ids)), ids] = -np.inf
    nearest = np.argsort(-similarities, axis=1, kind="stable")[:, : min(count, len(directions) - 1)]
    return nearest.astype(np.int32), np.take_along_axis(similarities, nearest, axis=1)


def write_vectors(path: str | os.PathLike, words: Sequence[str], vectors: ArrayLike) -> None:
    """Writes word2vec's text format, a line "N D" and then a word and its D numbers a line, from which
    `rnnjax.data.read_vectors` reads the same float32.

    Raises ValueError, naming the word, where there is not one finite row of vectors [N, D] for each, and for a word
    with space or a control character in it.
    """
    vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or len(vectors) != len(words) or not vectors.size:
        raise ValueError(f"vectors have the shape {vectors.shape}: expected [{len(words)}, D], a row for each word")
    for word, row in zip(words, vectors, strict=True):
        if not word or _NO_WORD.search(word):
            raise ValueError(f"a word is {shown(word)}: the format has none that is empty or holds space")
        if not np.isfinite(row).all():
            raise ValueError(f"the vector of {shown(word)} holds {row[~np.isfinite(row)][0]}: expected finite numbers")
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip(words, vectors, strict=True)]
    write_text(path, "\n".join([f"{len(words)} {vectors.shape[1]}", *lines, ""]))


def _directions(vectors: ArrayLike) -> np.ndarray:
    vectors = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
