"""torch: nn.RNN, nn.LSTM, nn.GRU, time-major, on the GPU where JAX is on one and torch has it; default threads."""

import jax
import torch

from experiments.peers.base import Runner, Work


def prepare(work: Work) -> Runner:
    """Gates in our order, weights [out, in]; two biases, whose second is 0 but for b_hn."""
    layers = {"elman": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
    on_gpu = jax.default_backend() == "gpu" and torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    layer = layers[work.name](work.cell.input_size, work.cell.hidden_size)
    with torch.no_grad():
        layer.weight_ih_l0.copy_(torch.tensor(work.params["W_ih"].T.copy()))
        layer.weight_hh_l0.copy_(torch.tensor(work.params["W_hh"].T.copy()))
        layer.bias_ih_l0.copy_(torch.tensor(work.params["b"]))
        layer.bias_hh_l0.zero_()
        if work.name == "gru":
            layer.bias_hh_l0[2 * work.cell.hidden_size :] = torch.tensor(work.params["b_hn"])
    layer.to(device)
    inputs, targets = (torch.tensor(array, device=device) for array in (work.inputs, work.targets))
    params = tuple(layer.parameters())

    def finished(result):
        if on_gpu:
            torch.cuda.synchronize()
        return result

    def forward():
        with torch.no_grad():
            return finished(layer(inputs)[0])

    def train():
        loss = (layer(inputs)[0] * targets).sum()
        return finished((loss.detach(), torch.autograd.grad(loss, params)))

    return Runner(forward, train)
