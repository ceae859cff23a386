"""Batches of sequences of many lengths in few shapes.

Sequences are sorted into buckets by length, and a batch is formed inside a bucket and padded to the bucket's
end; one that is smaller than the batch size is filled with empty rows. There are then at most as many shapes,
and compilations, as there are buckets, and every sequence is seen exactly once a pass. These functions deal
in indices only.

    ends = bucket_ends([3, 9, 4, 7, 9], 2)                    (7, 9)
    ordered_batches([3, 9, 4, 7, 9], ends, 2)                 [(7, [0, 2]), (7, [3]), (9, [1, 4])]
"""

from collections.abc import Sequence

import numpy as np


def bucket_ends(lengths: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` increasing lengths, quantiles of `lengths`; the last is exactly the largest.

    Raises ValueError where there are no lengths, one is below 1, or `count` is.
    """
    lengths = np.asarray(lengths)
    if lengths.size == 0 or lengths.min() < 1:
        found = "empty" if lengths.size == 0 else f"at least {lengths.min()}"
        raise ValueError(f"lengths are {found}: expected at least one, and all of them at least 1")
    if count < 1:
        raise ValueError(f"count is {count}: expected at least 1 bucket")
    quantiles = np.arange(1, count + 1) / count
    ends = np.quantile(lengths, quantiles, method="inverted_cdf")  # the method that returns lengths that occur
    return tuple(int(end) for end in np.unique(ends))


def epoch_batches(
    lengths: Sequence[int], ends: Sequence[int], batch_size: int, *, seed: int, epoch: int
) -> list[tuple[int, np.ndarray]]:
    """The batches of one epoch in their order, as (end, indices [at most batch_size]).

    A pure function of its arguments: drawn anew from (seed, epoch), so that a run can start again anywhere.
    """
    generator = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], np.uint64)))
    order = generator.permutation(len(lengths))
    batches = _split(np.asarray(lengths), ends, batch_size, order)
    return [batches[i] for i in generator.permutation(len(batches))]


def ordered_batches(lengths: Sequence[int], ends: Sequence[int], batch_size: int) -> list[tuple[int, np.ndarray]]:
    """Every index once, bucket by bucket, in the order of the corpus inside a bucket."""
    return _split(np.asarray(lengths), ends, batch_size, np.arange(len(lengths)))


def _split(lengths, ends, batch_size: int, order) -> list[tuple[int, np.ndarray]]:
    buckets = np.searchsorted(ends, lengths[order])
    batches = []
    for bucket, end in enumerate(ends):
        members = order[buckets == bucket]
        batches += [(end, members[start : start + batch_size]) for start in range(0, len(members), batch_size)]
    return batches
