"""cuDNN's LSTM as JAX binds it, batch-major: an NVIDIA GPU alone has it."""

import jax.numpy as jnp
import numpy as np
from jax.experimental import rnn

from experiments.peers.base import Runner, Work, in_jax


def prepare(work: Work) -> Runner:
    """Gates in our order; weights [out, in] and two biases one after another in one vector."""
    inputs, hidden = work.cell.input_size, work.cell.hidden_size
    b = work.params["b"]
    flat = np.concatenate([work.params["W_ih"].T.ravel(), work.params["W_hh"].T.ravel(), b, np.zeros_like(b)])
    time, batch, _ = work.inputs.shape
    zeros = jnp.zeros((1, batch, hidden))
    lengths = jnp.full(batch, time, jnp.int32)

    def apply(flat, x):
        return rnn.lstm(x, zeros, zeros, flat, lengths, inputs, hidden, 1, 0.0, False)[0]

    matrices = 4 * hidden * (inputs + hidden)
    return in_jax(apply, flat, work, batch_major=True, weights=lambda gradients: [gradients[:matrices]])
