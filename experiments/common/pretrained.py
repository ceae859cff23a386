"""Word vectors from a file, that a study's models start with."""

from typing import Any, NamedTuple

import numpy as np
from flax import nnx

from experiments.common.study import say
from rnnjax.data import read_vectors
from rnnjax.data.locate import expanded
from rnnjax.nn import Embedding, load_vectors
from rnnjax.tasks.encoded import Codec
from rnnjax.text import Vocabulary
from rnnjax.train.config import UsageError


class Vectors(NamedTuple):
    """words: that have a vector. vectors: float32 [N, D]."""

    words: list[str]
    vectors: np.ndarray


def read_start(model: Any, codec: Codec) -> Vectors | None:
    """The vectors of config.model.vectors for what a codec reads; None where no file is given.

    A word of the file stands for what the codec makes of it: Taipei for taipei. Of several the one that is written just
    so counts, else the first.

    Raises DataError for a malformed file, UsageError where its vectors are of another size than
    config.model.embedding_size, or of nothing that is read.
    """
    if not model.vectors:
        return None
    words, vectors = read_vectors(expanded(model.vectors), only=_Read(codec))
    if not words:
        raise UsageError(
            f"--config.model.vectors is {model.vectors}: it has a vector of nothing that is read, of "
            f"{len(codec.vocabulary):,} words or characters; give another file, or leave it out"
        )
    if vectors.shape[1] != model.embedding_size:
        raise UsageError(
            f"--config.model.vectors is {model.vectors}, of {vectors.shape[1]} features a word, but "
            f"--config.model.embedding_size is {model.embedding_size}: give --config.model.embedding_size="
            f"{vectors.shape[1]}"
        )
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        (symbol,) = codec.symbols([word])
        if symbol == word or symbol not in rows:
            rows[symbol] = row
    say(f"{len(rows):,} of {len(codec.vocabulary):,} words start with a vector of {model.vectors}")
    return Vectors(list(rows), vectors[list(rows.values())])


class _Read:
    """The words that a codec makes one symbol of its vocabulary of."""

    def __init__(self, codec: Codec):
        self.codec = codec

    def __contains__(self, word: str) -> bool:
        symbols = self.codec.symbols([word])
        return len(symbols) == 1 and symbols[0] in self.codec.vocabulary


def embedding(vocabulary: Vocabulary, features: int, start: Vectors | None, rngs: nnx.Rngs) -> Embedding:
    """A lookup of the words, drawn, and where there are vectors with these."""
    encoder = Embedding(len(vocabulary), features, rngs=rngs)
    if start is not None:
        load_vectors(encoder, vocabulary, *start)
    return encoder
