"""Flax NNX modules around the cells. The trainer takes any NNX module; these are the ones built of `unroll`."""

from rnnjax.nn.models import SequenceModel
from rnnjax.nn.rnn import RNN, Bidirectional, Stack

__all__ = ["RNN", "Bidirectional", "SequenceModel", "Stack"]
