"""Flax NNX modules around the cells. The trainer takes any NNX module; these are the ones built of `unroll`."""

from rnnjax.nn.models import SequenceModel
from rnnjax.nn.rnn import RNN

__all__ = ["RNN", "SequenceModel"]
