"""The other libraries that compute the same cells, a file each. `PEERS` is the table of contents.

    base.py      what a peer is given (our weights, inputs, targets), what it gives back, and the check that it is equal
    ours.py      our own columns
    LIBRARY.py   prepare(work) -> Runner; its docstring says how the library lays out the weights

None is needed: what isn't installed is named and left out.
"""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from experiments.peers.base import Runner, Size, Work, check_same

__all__ = ["PEERS", "Peer", "Runner", "Size", "Work", "check_same", "find"]


class Peer(NamedTuple):
    """module: in this folder; imports: what has to be there; package: what pip calls it; cells: what it has of ours;
    gpu: whether it needs one."""

    module: str
    imports: str
    package: str
    cells: tuple[str, ...] = ("elman", "lstm", "gru")
    gpu: bool = False

    def load(self) -> tuple[Callable[[Work], Runner], dict[str, dict[str, Any]]]:
        """(prepare, {cell: the fields in which the library's differs from ours})."""
        module = importlib.import_module(f"experiments.peers.{self.module}")
        return module.prepare, getattr(module, "VARIANTS", {})


PEERS = {
    "flax.linen": Peer("linen", "flax", "flax"),
    "flax.nnx": Peer("nnx", "flax", "flax"),
    "equinox": Peer("equinox", "equinox", "equinox", ("lstm", "gru")),
    "haiku": Peer("haiku", "haiku", "dm-haiku"),
    "keras": Peer("keras", "keras", "keras"),
    "torch": Peer("torch", "torch", "torch"),
    "cudnn": Peer("cudnn", "jax", "jax", ("lstm",), gpu=True),
}


def find(names: tuple[str, ...]) -> tuple[dict[str, Peer], dict[str, str]]:
    """({name: peer} of those that can run here, {name: why not} of the others)."""
    missing = {}
    for name in names:
        if importlib.util.find_spec(PEERS[name].imports) is None:
            missing[name] = f"{PEERS[name].package} is not installed"
        elif PEERS[name].gpu and jax.default_backend() != "gpu":
            missing[name] = "JAX is not on a GPU"
    return {name: PEERS[name] for name in names if name not in missing}, missing
