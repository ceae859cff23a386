"""Readers of file formats, where files are looked for, and batches in buckets. Nothing is read at import."""

from rnnjax.data.buckets import bucket_ends, epoch_batches, ordered_batches
from rnnjax.data.errors import DataError
from rnnjax.data.locate import locate
from rnnjax.data.pianoroll import read_pianoroll

__all__ = ["DataError", "bucket_ends", "epoch_batches", "locate", "ordered_batches", "read_pianoroll"]
