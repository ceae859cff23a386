"""Flax NNX modules around the cells. The trainer takes any NNX module; these are the ones built of `unroll`."""

from rnnjax.nn.encoders import Embedding, OneHot, Trigrams
from rnnjax.nn.feedforward import FeedForward, FlatFeedForward
from rnnjax.nn.models import SequenceModel
from rnnjax.nn.parts import context_window
from rnnjax.nn.rnn import RNN, Bidirectional, Stack
from rnnjax.nn.seq2seq import Seq2Seq
from rnnjax.nn.skipgram import WordVectors
from rnnjax.nn.text_models import LanguageModel, Tagger, TextClassifier
from rnnjax.nn.vectors import Loaded, load_vectors

__all__ = [
    "RNN",
    "Bidirectional",
    "Embedding",
    "FeedForward",
    "FlatFeedForward",
    "LanguageModel",
    "Loaded",
    "OneHot",
    "Seq2Seq",
    "SequenceModel",
    "Stack",
    "Tagger",
    "TextClassifier",
    "Trigrams",
    "WordVectors",
    "context_window",
    "load_vectors",
]
