"""Equinox: the cell in a lax.scan, vmapped over the batch, as its documentation has it."""

import equinox
import jax
import jax.numpy as jnp

from experiments.peers.base import Runner, Work, in_jax


def prepare(work: Work) -> Runner:
    """Gates in our order, weights [out, in]."""
    hidden = work.cell.hidden_size
    cls = {"lstm": equinox.nn.LSTMCell, "gru": equinox.nn.GRUCell}[work.name]
    cell = cls(work.cell.input_size, hidden, key=jax.random.key(0))
    ours = [work.params["W_ih"].T, work.params["W_hh"].T, work.params["b"]]
    cell = equinox.tree_at(lambda cell: (cell.weight_ih, cell.weight_hh, cell.bias), cell, ours)
    if work.name == "gru":
        cell = equinox.tree_at(lambda cell: cell.bias_n, cell, work.params["b_hn"])

    def over_time(cell, inputs):
        def step(state, x):
            state = cell(x, state)
            return state, state[0] if work.name == "lstm" else state

        zeros = jnp.zeros(hidden)
        return jax.lax.scan(step, (zeros, zeros) if work.name == "lstm" else zeros, inputs)[1]

    return in_jax(jax.vmap(over_time, in_axes=(None, 1), out_axes=1), cell, work)
