"""Flax linen: nn.RNN, time-major."""

from flax import linen

from experiments.peers.base import Runner, Work, in_jax


def prepare(work: Work) -> Runner:
    """Gates stand apart; the bias of an LSTM belongs to the recurrent layer, else to that of the inputs."""
    cells = {"elman": linen.SimpleCell, "lstm": linen.OptimizedLSTMCell, "gru": linen.GRUCell}
    rnn = linen.RNN(cells[work.name](work.cell.hidden_size), time_major=True)
    names = {"elman": [""], "lstm": list("ifgo"), "gru": list("rzn")}[work.name]
    cell = {}
    parts = (work.blocks("W_ih"), work.blocks("W_hh"), work.blocks("b"))
    for gate, W_ih, W_hh, b in zip(names, *parts, strict=True):
        cell[f"i{gate}"], cell[f"h{gate}"] = {"kernel": W_ih}, {"kernel": W_hh}
        cell[f"{'h' if work.name == 'lstm' else 'i'}{gate}"]["bias"] = b
    if work.name == "gru":
        cell["hn"]["bias"] = work.params["b_hn"]
    return in_jax(lambda params, x: rnn.apply({"params": params}, x), {"cell": cell}, work)
