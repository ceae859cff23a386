"""What is measured of a torch.nn.LSTM in a file: dL/dcarry of every unroll, and how far a plain loop is from it."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.claims import Claim
from experiments.common.curves import QUANTILES, Curve, quartiles
from experiments.common.torch_lstm import Nudge, derivative, run_lstm
from rnnjax import probes
from rnnjax.cell import Cell
from rnnjax.cells import LSTM
from rnnjax.data.safetensors import list_safetensors, read_safetensors
from rnnjax.interop import from_torch, to_torch
from rnnjax.layers import Bidirectional, Stack, run

SAME = 1e-9
"""Allowed between the loop and the layer, both in float64: rounding, and what a long sequence makes of it."""
TORCH = "the equations in the documentation of torch.nn.LSTM"


@dataclasses.dataclass(frozen=True)
class Measured:
    """norms: {unroll: log10 ||dL/dcarry|| by distance from the loss, quartiles over the batch, [D, 3]}.
    outputs: largest difference of the layer's outputs from those of the loop over the file's tensors.
    written: of these from the outputs of the loop over what `to_torch` writes. Both relative to the largest output.
    gradients: largest difference of dL/dcarry after the first step of an unroll, along a random direction, from the
        derivative of the loop, relative to the norms of gradient and direction.
    """

    norms: dict[str, np.ndarray]
    outputs: float
    written: float
    gradients: float


def read_lstm(path: pathlib.Path, prefix: str) -> tuple[Any, dict[str, Any], dict[str, np.ndarray]]:
    """(layer, params, the file's tensors by torch's names), in float64, of an LSTM in a file.

    Raises ValueError where there is none under the prefix, DataError where the file can't be read.
    """
    above = f"{prefix.removesuffix('.')}." if prefix else ""
    with jax.enable_x64(True):
        layer, _ = from_torch(path, prefix=prefix)  # tells what is wrong by the names of the file
        names = [name for name in list_safetensors(path) if name.startswith(above)]
        stored = read_safetensors(path, names)
        tensors = {name.removeprefix(above): array.astype(np.float64) for name, array in stored.items()}
        _, params = from_torch(tensors)  # torch's two biases add up in float64 then
    for name, _, cell in unrolls(layer):
        if type(cell) is not LSTM:
            raise ValueError(f"{path}: {name} is a torch.nn.{type(cell).__name__}: expected an LSTM")
    return layer, params, tensors


def unrolls(layer: Any) -> Iterator[tuple[str, str, Cell]]:
    """(what probes call it, the ending of torch's names, cell) of every unroll of a layer."""
    layers = enumerate(layer.layers) if isinstance(layer, Stack) else [(0, layer)]
    for k, part in layers:
        above = f"layer_{k}/" if isinstance(layer, Stack) else ""
        if isinstance(part, Bidirectional):
            yield f"{above}forward", f"_l{k}", part.forward
            yield f"{above}backward", f"_l{k}_reverse", part.backward
        else:
            yield above.removesuffix("/") or type(part).__name__.lower(), f"_l{k}", part


def measure(path: pathlib.Path, prefix: str, inputs: np.ndarray, seed: int) -> Measured:
    """Of the LSTM in a file, with inputs [T, B, features]; the seed draws the loss and the directions."""
    layer, params, tensors = read_lstm(path, prefix)
    rng = np.random.default_rng(seed)
    outputs, last = run_lstm(tensors, inputs)
    weights = [rng.standard_normal(h.shape) for h in last]
    with jax.enable_x64(True):
        gradients = _gradients(layer)(params, inputs, weights)
        ours = _outputs(layer, params, inputs)
        norms = {name: fields["carry"] for name, fields in probes.gradient_norms(gradients).items()}
        norms = {name: probes.by_distance(values, reverse=_is_backward(name)) for name, values in norms.items()}
    errors = []
    for name, suffix, _ in unrolls(layer):
        of_first = -1 if _is_backward(name) else 0
        first = jax.tree.map(lambda leaf, at=of_first: np.asarray(leaf[at]), gradients[name])
        direction = Nudge(suffix, *(rng.standard_normal(leaf.shape) for leaf in first))
        along = np.vdot(first.h, direction.h) + np.vdot(first.c, direction.c)
        size = np.linalg.norm([*map(np.linalg.norm, first)]) * np.linalg.norm([*map(np.linalg.norm, direction[1:])])
        difference = abs(along - derivative(tensors, inputs, weights, direction))
        errors.append(difference / size if size else difference)
    written = to_torch(layer, params, bias="bias_ih_l0" in tensors)
    same_names = {name: array.shape for name, array in written.items()} == {n: a.shape for n, a in tensors.items()}
    again = run_lstm(written, inputs)[0] if same_names else np.full(outputs.shape, np.nan)
    scale = np.max(np.abs(outputs)) or 1.0
    return Measured(
        {name: quartiles(np.asarray(norms[name])) for name, _, _ in unrolls(layer)},
        float(np.max(np.abs(np.asarray(ours) - outputs)) / scale),
        float(np.max(np.abs(again - outputs)) / scale),
        float(np.max(errors)),
    )


def judge(measured: list[Measured]) -> list[Claim]:
    """The claims about the conversion and, of an LSTM before and after training, about what training did."""
    outputs, written, gradients = (
        float(np.max([getattr(one, what) for one in measured])) for what in ("outputs", "written", "gradients")
    )
    claims = [
        Claim.at_most(
            "A plain loop of torch's equations over the tensors of the file gives the outputs of the converted layer",
            TORCH, "largest difference, relative", SAME, outputs, "",
        ),
        Claim.at_most(
            "That loop, differentiated by complex steps, gives its dL/dcarry at the far end of the sequence",
            f"{TORCH}; Squire, Trapp 1998", "largest difference, relative", SAME, gradients, "",
        ),
        Claim.at_most(
            "It gives the same outputs over what to_torch makes of the layer, under the same names",
            TORCH, "largest difference, relative", SAME, written, "",
        ),
    ]  # fmt: skip
    if len(measured) == 2:
        before, after = (
            Curve.of(norms[:, QUANTILES.index(0.5)]).kept for one in measured for norms in one.norms.values()
        )
        claims.append(
            Claim(
                "Training on the adding problem leaves more of dL/dcarry at the far end of the sequence (decades more)",
                "Hochreiter, Schmidhuber 1997",
                "> 0",
                after - before,
                after - before > 0,
            )
        )
    return claims


@functools.partial(jax.jit, static_argnums=0)
def _outputs(layer: Any, params: Any, inputs: jax.Array) -> jax.Array:
    return run(layer, params, inputs).outputs


@functools.lru_cache(maxsize=1)  # compiled once for the weights before and after training
def _gradients(layer: Any) -> Callable:
    """(params, inputs, weights) -> dL/dcarry of a projection of the top layer's last h, where each direction ends."""

    def loss(params, inputs, weights):
        carry = run(layer, params, inputs).carry
        top, part = (carry[-1], layer.layers[-1]) if isinstance(layer, Stack) else (carry, layer)
        last = [side.h for side in top] if isinstance(part, Bidirectional) else [top.h]
        return sum(jnp.vdot(h, weight) for h, weight in zip(last, weights, strict=True))

    return probes.carry_gradients(loss)


def _is_backward(name: str) -> bool:
    return name.endswith("backward")
