"""What is measured of words without training: one-hot distances, trigram collisions, lookup against product."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.common.timing import interleaved
from rnnjax.data import DataError, locate, read_cmudict
from rnnjax.nn import Embedding, OneHot
from rnnjax.tasks import SkipGram
from rnnjax.text import TrigramHashing


@dataclasses.dataclass(frozen=True)
class Shuffled(SkipGram):
    """`SkipGram` on the same words in a random order: what is learned of their company is gone."""

    @functools.cached_property
    def sentences(self) -> dict[str, list[tuple[str, ...]]]:
        """{split: sentences} of the same lengths."""
        found = super().sentences
        every = [word for sentences in found.values() for words in sentences for word in words]
        order = np.random.Generator(np.random.Philox(key=0)).permutation(len(every))
        words = iter([every[at] for at in order])
        return {
            split: [tuple(next(words) for _ in sentence) for sentence in sentences]
            for split, sentences in found.items()
        }


def one_hot_distances(size: int) -> tuple[float, float]:
    """(smallest, largest) distance between the one-hot vectors of two of `size` words: all pairs of them, and of more
    than 1,000 words of so many, evenly spread."""
    vectors = np.asarray(OneHot(size)(np.linspace(0, size - 1, min(size, 1000)).astype(int)))
    products = (vectors @ vectors.T).astype(np.float64)
    squares = np.diag(products)
    distances = np.sqrt(squares[:, None] + squares - 2 * products)[np.triu_indices(len(vectors), 1)]
    return float(distances.min()), float(distances.max())


def lexicon(path: str) -> tuple[list[str], str]:
    """(the words of the CMU Pronouncing Dictionary, ""), or ([], why there are none)."""
    try:
        found = locate(path, names=("cmudict.dict.gz", "cmudict.dict"), corpus="cmudict")
    except DataError as error:
        if path:
            raise
        return [], str(error).partition("\n")[0]
    return sorted({"".join(pair.source) for pair in read_cmudict(found)}), ""


def count_collisions(words: Sequence[str], sizes: Iterable[int]) -> list[dict[str, Any]]:
    """A row a size, of `TrigramHashing.collisions`."""
    return [{"size": size, **TrigramHashing(size).collisions(words)._asdict()} for size in sizes]


def time_lookup(sizes: Iterable[int], features: int, count: int, rounds: int) -> list[dict[str, Any]]:
    """A row a size of the table: what a lookup of `count` ids costs less than the product of their one-hot vectors
    with the table, and how far the two results are apart.

    product: seconds of the product over seconds of the lookup, medians of rounds in which both took turns, the one-hot
    vectors being there. both: the same where they are made first. difference: the largest.
    """
    return [_time_lookup(size, features, count, rounds) for size in sizes]


def _time_lookup(size: int, features: int, count: int, rounds: int) -> dict[str, Any]:
    table = Embedding(size, features, rngs=nnx.Rngs(0)).table[...]
    ids = jnp.asarray(np.random.default_rng(0).integers(0, size, count), jnp.int32)
    multiply = functools.partial(jnp.matmul, precision="highest")

    @jax.jit
    def lookup(table, ids):
        return Embedding(size, features, vectors=table)(ids)

    @jax.jit
    def product(table, vectors):
        return multiply(vectors, table)

    @jax.jit
    def both(table, ids):
        return multiply(OneHot(size)(ids), table)

    vectors = OneHot(size)(ids)
    ways = {
        "lookup": lambda: lookup(table, ids),
        "product": lambda: product(table, vectors),
        "both": lambda: both(table, ids),
    }
    results = [way() for way in ways.values()]
    difference = max(float(jnp.max(jnp.abs(results[0] - other))) for other in results[1:])
    taken = {name: float(np.median(times)) for name, times in interleaved(ways, rounds).items()}
    ratios = {name: taken[name] / taken["lookup"] for name in ("product", "both")}
    return {"size": size, **ratios, "difference": difference}
