"""Trained vectors into a model's encoder."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from rnnjax.nn.encoders import Embedding
from rnnjax.text.vocabulary import Vocabulary


class Loaded(NamedTuple):
    """found: how many words of the vocabulary have a vector. missing: those that have none, in its order."""

    found: int
    missing: tuple[str, ...]


def load_vectors(encoder: Embedding, vocabulary: Vocabulary, words: Sequence[str], vectors: ArrayLike) -> Loaded:
    """Writes the vectors [N, D] of N words into the rows that these have in an encoder; other rows stay as they are.

        read = read_vectors("glove.6B.100d.txt", only=set(task.vocabulary.words))
        loaded = load_vectors(model.encoder, task.vocabulary, *read)
        print(f"{loaded.found} of {len(task.vocabulary)} words have a vector")

    Raises ValueError where the encoder is of another size than the vocabulary or the vectors.
    """
    vectors = np.asarray(vectors)
    if encoder.size != len(vocabulary):
        raise ValueError(f"the encoder has {encoder.size} rows but the vocabulary {len(vocabulary)} words")
    if vectors.shape != (len(words), encoder.features):
        raise ValueError(
            f"vectors have the shape {vectors.shape}: expected {(len(words), encoder.features)}, a row for each word "
            "with the features of the encoder"
        )
    rows = {word: row for row, word in enumerate(words)}
    known = [(number, rows[word]) for number, word in enumerate(vocabulary.words) if word in rows]
    if known:
        numbers, taken = np.array(known).T
        table = encoder.table[...]
        encoder.table[...] = table.at[numbers].set(jnp.asarray(vectors[taken], table.dtype))
    return Loaded(len(known), tuple(word for word in vocabulary.words if word not in rows))
