"""Words to numbers and vectors. Only `Subwords` needs a package of its own, `tokenizers`, and only when it is used."""

from rnnjax.text.encodings import one_hot
from rnnjax.text.skipgram import draw_noise, draw_pairs, keep_probabilities, noise_distribution, skip_gram_pairs
from rnnjax.text.subwords import Subwords
from rnnjax.text.trigrams import Collisions, TrigramHashing, letter_trigrams
from rnnjax.text.vectors import cosine_similarity, neighbours, write_vectors
from rnnjax.text.vocabulary import Vocabulary

__all__ = [
    "Collisions",
    "Subwords",
    "TrigramHashing",
    "Vocabulary",
    "cosine_similarity",
    "draw_noise",
    "draw_pairs",
    "keep_probabilities",
    "letter_trigrams",
    "neighbours",
    "noise_distribution",
    "one_hot",
    "skip_gram_pairs",
    "write_vectors",
]
