"""Numbers of words as vectors."""

import numpy as np
from numpy.typing import ArrayLike


def one_hot(ids: ArrayLike, size: int) -> np.ndarray:
    """float32 [..., size], 1 at each id and 0 elsewhere; all 0 at the pads, whose id is -1.

    Of ids that a `Vocabulary` with `other` gave, entry 0 stands for every word that it has not. Any two different words
    are sqrt(2) apart, whatever they mean.

    Raises ValueError, naming place and value, for an id that is not in -1 .. size - 1.
    """
    ids = np.asarray(ids)
    if ids.size and ids.dtype.kind not in "iu":
        raise ValueError(f"ids are {ids.dtype}: expected whole numbers")
    wrong = np.argwhere((ids < -1) | (ids >= size))
    if len(wrong):
        place, value = wrong[0].tolist(), ids[tuple(wrong[0])]
        raise ValueError(f"ids{place} is {value}: expected 0 .. {size - 1}, or -1 at a pad")
    return (ids[..., None] == np.arange(size)).astype(np.float32)
