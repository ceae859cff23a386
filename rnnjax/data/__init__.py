"""Readers of file formats, where files are looked for, and batches in buckets. Nothing is read at import."""

from rnnjax.data.buckets import bucket_ends, epoch_batches, ordered_batches
from rnnjax.data.columns import read_columns
from rnnjax.data.errors import DataError
from rnnjax.data.images import read_idx, read_numbers
from rnnjax.data.labelled import read_labelled
from rnnjax.data.lines import read_lines, read_text
from rnnjax.data.locate import locate
from rnnjax.data.pairs import Pair, read_cmudict, read_pairs, read_parallel
from rnnjax.data.pianoroll import read_pianoroll
from rnnjax.data.sentences import Sentence
from rnnjax.data.series import LabelledSeries, Series, read_series, read_ts
from rnnjax.data.slots import read_jointslu, read_slot_files
from rnnjax.data.tag_schemes import scheme_of, to_scheme
from rnnjax.data.vectors import read_vectors

__all__ = [
    "DataError",
    "LabelledSeries",
    "Pair",
    "Sentence",
    "Series",
    "bucket_ends",
    "epoch_batches",
    "locate",
    "ordered_batches",
    "read_cmudict",
    "read_columns",
    "read_idx",
    "read_jointslu",
    "read_labelled",
    "read_lines",
    "read_numbers",
    "read_pairs",
    "read_parallel",
    "read_pianoroll",
    "read_series",
    "read_slot_files",
    "read_text",
    "read_ts",
    "read_vectors",
    "scheme_of",
    "to_scheme",
]
