"""Corpora of sequences of many lengths, in batches of few shapes."""

import functools
from collections.abc import Iterator

import numpy as np

from rnnjax.data.buckets import bucket_ends, epoch_batches, ordered_batches
from rnnjax.tasks.base import Batch, CorpusTask, check_batch_size, check_split, check_step

Plan = list[tuple[int, np.ndarray]]
"""The batches of a pass: (where the bucket ends, the numbers of the sequences)."""


class BucketedTask(CorpusTask):
    """A corpus whose batches are formed as `rnnjax.data.buckets` has it, as numpy arrays; base class.

    A task that is one has `buckets`, a field, or 1 where all sequences are equally long, and defines

        lengths(split) -> [n]                     the length of every sequence, at least 1
        pad(split, end, indices, batch_size)      -> the Batch of these sequences, padded to the bucket's end; rows
                                                  beyond them are masked, of length 0 where there are lengths

    Every epoch of `steps_per_epoch` batches sees each training sequence exactly once.
    """

    buckets: int

    def lengths(self, split: str) -> np.ndarray:
        """[n], the length of every sequence of a split."""
        raise TypeError(f"{type(self).__name__} has to define lengths(split)")

    def ends(self, split: str) -> tuple[int, ...]:
        """Where the buckets of a split end, the last exactly at its longest sequence.

        Where the longest hundredth is more than twice as long as all others, it has a bucket of its own: a few that
        stand out pad no others.
        """
        lengths = self.lengths(split)
        usual = lengths[lengths <= np.quantile(lengths, 0.99, method="inverted_cdf")]
        if self.buckets == 1 or lengths.max() <= 2 * usual.max():
            return bucket_ends(lengths, self.buckets)
        return (*bucket_ends(usual, self.buckets - 1), int(lengths.max()))

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these sequences."""
        raise TypeError(f"{type(self).__name__} has to define pad(split, end, indices, batch_size)")

    def steps_per_epoch(self, batch_size: int) -> int:
        """Training batches in one pass over the training split."""
        return len(self.ordered("train", batch_size))

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The training batch of `step` >= 0, a pure function of its arguments; `seed` in 0 .. 2^64 - 1."""
        check_step(step, seed)
        epoch, index = divmod(step, self.steps_per_epoch(batch_size))
        return self.pad("train", *self._of_epoch(batch_size, seed, epoch)[index], batch_size)

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Every sequence of `split` exactly once, in the shapes of its own buckets."""
        plan = self.ordered(split, batch_size)
        return (self.pad(split, end, indices, batch_size) for end, indices in plan)

    def ordered(self, split: str, batch_size: int) -> Plan:
        """Every sequence of a split once, bucket by bucket, in the order of the corpus inside a bucket."""
        check_split(split)
        check_batch_size(batch_size)
        if (split, batch_size) not in self._kept:
            self._kept[split, batch_size] = ordered_batches(self.lengths(split), self.ends(split), batch_size)
        return self._kept[split, batch_size]

    def _of_epoch(self, batch_size: int, seed: int, epoch: int) -> Plan:
        """The batches of an epoch; those of the last one asked for are kept."""
        if self._epochs.get((batch_size, seed), (None, []))[0] != epoch:
            plan = epoch_batches(self.lengths("train"), self.ends("train"), batch_size, seed=seed, epoch=epoch)
            self._epochs[batch_size, seed] = epoch, plan
        return self._epochs[batch_size, seed][1]

    @functools.cached_property
    def _kept(self) -> dict[tuple[str, int], Plan]:
        return {}

    @functools.cached_property
    def _epochs(self) -> dict[tuple[int, int], tuple[int | None, Plan]]:
        return {}


def pad_ids(
    sequences: list[np.ndarray], time: int, rows: int, nothing: int, width: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(ids [time, rows], lengths [rows]) of sequences [T] of ids, filled up with `nothing`; with a width K, ids [time,
    rows, K] of sequences [T, at most K]."""
    ids = np.full((time, rows, width) if width else (time, rows), nothing, np.int32)
    lengths = np.zeros(rows, np.int32)
    for row, one in enumerate(sequences):
        lengths[row] = len(one)
        ids[(slice(len(one)), row, *map(slice, one.shape[1:]))] = one
    return ids, lengths


def round_up(size: int) -> int:
    """The next power of 2: of many sizes, few shapes and few compilations."""
    return 1 << (size - 1).bit_length()


def hide(ids: np.ndarray, which: np.ndarray, probability: float, step: int, seed: int) -> np.ndarray:
    """The ids with those of `which` [V] replaced by 0, the unknown word, with this probability, drawn from (seed,
    step)."""
    draws = np.random.default_rng([seed, step]).random(ids.shape)
    return np.where(which[ids] & (draws < probability), np.int32(0), ids)
