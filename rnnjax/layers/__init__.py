"""What stands around cells.

    wrappers.py, dropout.py   a cell around a cell: LearnedCarry; InputDropout, RecurrentDropout, Zoneout, DropConnect
    masks.py                  how their masks are drawn and how one is put in front of a matrix
    stack.py                  Bidirectional and Stack, and `run`, which takes any of it over a sequence

Two layers of LSTMs with dropout between them and in the recurrence of the upper one, in training:

    layer = Stack((LSTM(3, 8), InputDropout(RecurrentDropout(LSTM(8, 8), 0.25), 0.5)))
    params = layer.init(jax.random.key(0))
    outputs = run(layer, params, inputs, lengths=lengths, key=jax.random.key(1)).outputs

Without `key` it is evaluated: nothing is dropped.
"""

from rnnjax.layers.dropout import DropConnect, InputDropout, RecurrentDropout, Zoneout
from rnnjax.layers.stack import Bidirectional, Directions, Layer, Stack, advance, is_random, run
from rnnjax.layers.wrappers import LearnedCarry, Wrapper

__all__ = [
    "Bidirectional",
    "Directions",
    "DropConnect",
    "InputDropout",
    "Layer",
    "LearnedCarry",
    "RecurrentDropout",
    "Stack",
    "Wrapper",
    "Zoneout",
    "advance",
    "is_random",
    "run",
]
