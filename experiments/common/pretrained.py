"""Word vectors from a file, that a study's models start with."""

from typing import Any, NamedTuple

import numpy as np
from flax import nnx

from experiments.common.study import say
from rnnjax.data import read_vectors
from rnnjax.data.locate import expanded
from rnnjax.nn import Embedding, load_vectors
from rnnjax.text import Vocabulary
from rnnjax.train.config import UsageError


class Vectors(NamedTuple):
    """words: that have a vector. vectors: float32 [N, D]."""

    words: list[str]
    vectors: np.ndarray


def read_start(model: Any, vocabulary: Vocabulary) -> Vectors | None:
    """The vectors of config.model.vectors for the words of a vocabulary; None where no file is given.

    Raises DataError for a malformed file, UsageError where its vectors are of another size than
    config.model.embedding_size, or of none of the words.
    """
    if not model.vectors:
        return None
    read = Vectors(*read_vectors(expanded(model.vectors), only=set(vocabulary.words)))
    if not read.words:
        raise UsageError(
            f"--config.model.vectors is {model.vectors}: it has a vector of none of the {len(vocabulary):,} words of "
            "the training split, which are in lower case; give another file, or leave it out"
        )
    if read.vectors.shape[1] != model.embedding_size:
        raise UsageError(
            f"--config.model.vectors is {model.vectors}, of {read.vectors.shape[1]} features a word, but "
            f"--config.model.embedding_size is {model.embedding_size}: give --config.model.embedding_size="
            f"{read.vectors.shape[1]}"
        )
    say(f"{len(read.words):,} of {len(vocabulary):,} words start with a vector of {model.vectors}")
    return read


def embedding(vocabulary: Vocabulary, features: int, start: Vectors | None, rngs: nnx.Rngs) -> Embedding:
    """A lookup of the words, drawn, and where there are vectors with these."""
    encoder = Embedding(len(vocabulary), features, rngs=rngs)
    if start is not None:
        load_vectors(encoder, vocabulary, *start)
    return encoder
