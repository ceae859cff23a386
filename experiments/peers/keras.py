"""Keras on JAX: keras.layers.LSTM and its kin, batch-major as they are."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # is read at the import

import keras  # noqa: E402
import numpy as np  # noqa: E402

from experiments.peers.base import Runner, Work, in_jax  # noqa: E402


def prepare(work: Work) -> Runner:
    """LSTM gates in our order; GRU gates in the order u, r, n with two biases, whose one holds b_hn alone.

    Raises ValueError where Keras runs on another backend.
    """
    if keras.backend.backend() != "jax":
        raise ValueError(f"Keras runs on {keras.backend.backend()}: set KERAS_BACKEND=jax")
    layers = {"elman": keras.layers.SimpleRNN, "lstm": keras.layers.LSTM, "gru": keras.layers.GRU}
    layer = layers[work.name](work.cell.hidden_size, return_sequences=True)
    time, batch, features = work.inputs.shape
    layer.build((batch, time, features))
    order = {"elman": [0], "lstm": [0, 1, 2, 3], "gru": [1, 0, 2]}[work.name]
    W_ih, W_hh, b = (np.concatenate([work.blocks(name)[at] for at in order], axis=-1) for name in ("W_ih", "W_hh", "b"))
    if work.name == "gru":
        hidden = work.cell.hidden_size
        b = np.stack([b, np.concatenate([np.zeros(2 * hidden, b.dtype), work.params["b_hn"]])])
    layer.set_weights([W_ih, W_hh, b])
    rest = [variable.value for variable in layer.non_trainable_variables]
    return in_jax(
        lambda params, x: layer.stateless_call(params, rest, x)[0],
        [variable.value for variable in layer.trainable_variables],
        work,
        batch_major=True,
        weights=lambda gradients: gradients[:2],
    )
