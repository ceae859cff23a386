"""The parts of skip-gram with negative sampling that are counting and drawing.

Source: Mikolov, Sutskever, Chen, Corrado, Dean 2013, "Distributed representations of words and phrases and their
compositionality".
"""

import numpy as np
from numpy.typing import ArrayLike


def keep_probabilities(counts: ArrayLike, threshold: float) -> np.ndarray:
    """float64 [V], with which an occurrence of each word is kept, min(1, sqrt(threshold / frequency)): equation 5.

    counts: [V], how often each word occurs. threshold: of the frequency, above which words are thinned out; the paper
    has 1e-5 for a corpus of 1e9 words; 0 keeps all.
    """
    counts = np.asarray(counts, np.float64)
    if not threshold:
        return np.ones(len(counts))
    return np.minimum(1, np.sqrt(threshold * counts.sum() / np.maximum(counts, 1)))


def noise_distribution(counts: ArrayLike) -> np.ndarray:
    """float64 [V], the probabilities with which negatives are drawn: the counts [V] to the power 3/4, section 2.2."""
    raised = np.asarray(counts, np.float64) ** 0.75
    return raised / raised.sum()


def draw_noise(generator: np.random.Generator, distribution: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """int32 `shape`, words drawn from a distribution [V]; none of them is left out for being the true context, so that
    the best score of a pair is log p(centre, context) / (p(centre) p_noise(context)) - log k (Levy, Goldberg 2014)."""
    below = np.cumsum(distribution)
    return np.searchsorted(below, generator.random(shape) * below[-1], side="right").astype(np.int32)


def skip_gram_pairs(ids: np.ndarray, sentences: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """int32 [P, 2], (centre, context) for every word and each other within its window and its sentence.

    ids: [N], a text. sentences: [N], the sentence that each word is of, ascending. windows: [N], how many words to the
    left and to the right each sees: drawn from 1 .. w, near words are pairs more often.
    """
    parts = [np.zeros((0, 2), np.int32)]
    for distance in range(1, windows.max(initial=0) + 1):
        left, right = slice(None, -distance), slice(distance, None)
        together = sentences[left] == sentences[right]
        for centre, context in ((left, right), (right, left)):
            kept = together & (windows[centre] >= distance)
            parts.append(np.stack([ids[centre][kept], ids[context][kept]], axis=1).astype(np.int32))
    return np.concatenate(parts)


def draw_pairs(
    generator: np.random.Generator, ids: np.ndarray, sentences: np.ndarray, kept: np.ndarray, window: int
) -> np.ndarray:
    """int32 [P, 2], the pairs of one pass over a text: frequent words are thinned out first, which brings those around
    them nearer, and every word that is left draws its window from 1 .. `window`.

    ids, sentences: as in `skip_gram_pairs`. kept: [V], with which probability a word is.
    """
    stays = generator.random(len(ids)) < kept[ids]
    ids, sentences = ids[stays], sentences[stays]
    return skip_gram_pairs(ids, sentences, generator.integers(1, window + 1, len(ids)))
