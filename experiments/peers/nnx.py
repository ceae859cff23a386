"""Flax NNX: nnx.RNN, time-major."""

from flax import nnx

from experiments.peers.base import Runner, Work, in_jax


def prepare(work: Work) -> Runner:
    """Gates in our order. Its GRU has no b_hn."""
    cells = {"elman": nnx.SimpleCell, "lstm": nnx.OptimizedLSTMCell, "gru": nnx.GRUCell}
    cell = cells[work.name](work.cell.input_size, work.cell.hidden_size, rngs=nnx.Rngs(0))
    cell.dense_i.kernel = nnx.Param(work.params["W_ih"])
    cell.dense_h.kernel = nnx.Param(work.params["W_hh"])
    biased = cell.dense_h if work.name == "lstm" else cell.dense_i
    biased.bias = nnx.Param(work.params["b"])
    graph, params, rest = nnx.split(nnx.RNN(cell, time_major=True, rngs=False), nnx.Param, ...)
    carry = cell.initialize_carry(work.inputs.shape[1:], nnx.Rngs(0))  # zeros; given, since RNN would draw it each time
    return in_jax(lambda params, x: nnx.merge(graph, params, rest)(x, initial_carry=carry), params, work)
