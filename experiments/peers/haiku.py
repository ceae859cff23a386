"""Haiku: dynamic_unroll, time-major."""

import haiku
import numpy as np

from experiments.peers.base import Runner, Work, in_jax

VARIANTS = {"elman": {"activation": "relu"}, "gru": {"reset": "before"}}
"""What its VanillaRNN and its GRU compute, in terms of ours."""


def prepare(work: Work) -> Runner:
    """LSTM gates in the order i, g, f, o of one matmul of [x, h], and 1 is added to f outside the parameters; GRU gates
    in the order z, r, n, where z = 1 - u, so that its weights are -u's."""
    hidden, batch = work.cell.hidden_size, work.inputs.shape[1]

    def apply(inputs):
        cores = {"elman": lambda: haiku.VanillaRNN(hidden, double_bias=False), "lstm": lambda: haiku.LSTM(hidden),
                 "gru": lambda: haiku.GRU(hidden)}  # fmt: skip
        core = cores[work.name]()
        return haiku.dynamic_unroll(core, inputs, core.initial_state(batch))[0]

    W_ih, W_hh, b = work.blocks("W_ih"), work.blocks("W_hh"), work.blocks("b")
    if work.name == "elman":
        params = {
            "vanilla_rnn/linear": {"w": W_ih[0], "b": b[0]},
            "vanilla_rnn/linear_1": {"w": W_hh[0]},
        }
    elif work.name == "lstm":
        order = [0, 2, 1, 3]
        w = np.concatenate([_join(W_ih, order), _join(W_hh, order)])
        params = {"lstm/linear": {"w": w, "b": _join([b[0], b[1] - 1, b[2], b[3]], order)}}
    else:
        parts = {"w_i": W_ih, "w_h": W_hh, "b": b}
        params = {"gru": {name: _join([r, -u, n], [1, 0, 2]) for name, (r, u, n) in parts.items()}}
    unrolled = haiku.without_apply_rng(haiku.transform(apply))
    return in_jax(unrolled.apply, params, work)


def _join(blocks: list[np.ndarray], order: list[int]) -> np.ndarray:
    return np.concatenate([blocks[at] for at in order], axis=-1)
