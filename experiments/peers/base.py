"""What every peer is given to do, and what it gives back."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.cell import Cell
from rnnjax.train.config import UsageError
from rnnjax.train.step import root_key

TOLERANCE = 1e-3
"""Largest difference of outputs and gradients, relative to their largest: float32 added up in another order over up to
1,000 steps, or a GPU's TF32. Another gate order or a bias left out shows at 0.1 and more."""


MOST_UNITS = 2**16
"""Their square alone takes 16 GiB; at far larger sizes XLA aborts the process."""


class Size(NamedTuple):
    """time: T; batch: B; inputs: D, features; hidden: H, units. Written TxBxDxH."""

    time: int
    batch: int
    inputs: int
    hidden: int

    def __str__(self):
        return "x".join(map(str, self))

    @classmethod
    def of(cls, text: str) -> "Size":
        """Reads TxBxDxH. Raises UsageError where that is not four whole numbers of at least 1."""
        parts = text.split("x")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() and int(part) for part in parts):
            raise UsageError(
                f"--config.sizes has {text!r}: expected steps x batch x features x units, as in 100x20x10x50"
            )
        size = cls(*map(int, parts))
        if max(size.inputs, size.hidden) > MOST_UNITS:
            raise UsageError(f"--config.sizes has {text!r}: expected at most {MOST_UNITS} features and units")
        return size


@dataclasses.dataclass(frozen=True, eq=False)
class Work:
    """A training step: the gradient of sum(outputs * targets) by all parameters.

    name: of the cell; cell: ours; params: ours, which every peer starts from; inputs [T, B, D]; targets [T, B, H].
    """

    name: str
    cell: Cell
    params: dict[str, np.ndarray]
    inputs: np.ndarray
    targets: np.ndarray

    @classmethod
    def of(cls, name: str, cell: Cell, size: Size) -> "Work":
        """Drawn from fixed seeds."""
        rng = np.random.default_rng(0)
        inputs = rng.standard_normal((size.time, size.batch, size.inputs), np.float32)
        targets = rng.standard_normal((size.time, size.batch, size.hidden), np.float32)
        return cls(name, cell, jax.tree.map(np.asarray, cell.init(root_key(0))), inputs, targets)

    @property
    def gates(self) -> int:
        """Blocks [*, H] of the weights."""
        return self.params["W_hh"].shape[1] // self.cell.hidden_size

    def blocks(self, name: str) -> list[np.ndarray]:
        """The gates' blocks of a parameter, in our order: i, f, g, o of an LSTM; r, u, n of a GRU."""
        return np.split(self.params[name], self.gates, axis=-1)


class Runner(NamedTuple):
    """Work that is ready to run: compiled at the first call, on arrays that are where it wants them.

    forward: () -> outputs; train: () -> (loss, gradients of all parameters). Both have finished when they return, or
        jax.block_until_ready knows how to wait for them.
    batch_major: outputs are [B, T, H].
    weights: gradients -> those of the weight matrices, in any layout; None where there are no outputs to check.
    """

    forward: Callable[[], Any]
    train: Callable[[], tuple[Any, Any]]
    batch_major: bool = False
    weights: Callable[[Any], list] | None = lambda gradients: [g for g in jax.tree.leaves(gradients) if np.ndim(g) == 2]


def in_jax(
    apply: Callable[[Any, jax.Array], jax.Array], params: Any, work: Work, batch_major: bool = False, **options: Any
) -> Runner:
    """The Runner of a JAX library: `apply(params, inputs) -> outputs`, batch-major where the library wants that."""
    turned = [x.swapaxes(0, 1) if batch_major else x for x in (work.inputs, work.targets)]
    params, inputs, targets = jax.device_put((params, *map(np.ascontiguousarray, turned)))

    def loss(params, inputs, targets):
        return jnp.sum(apply(params, inputs) * targets)

    forward, train = jax.jit(apply), jax.jit(jax.value_and_grad(loss))
    return Runner(
        lambda: forward(params, inputs), lambda: train(params, inputs, targets), batch_major=batch_major, **options
    )


def plain_scan(cell: Cell, params: dict[str, jax.Array], inputs: jax.Array) -> jax.Array:
    """The outputs [T, B, H] as jax.lax.scan gives them with nothing around it: what our engine is measured against."""
    params = cell.prepare(params)

    def step(carry, z):
        carry = cell.step(params, carry, z)
        return carry, cell.read(params, carry, z)

    first = cell.initial_carry(params, inputs.shape[1:-1])
    return jax.lax.scan(step, first, cell.project(params, inputs))[1]


def check_same(runner: Runner, work: Work, variant: dict[str, Any]) -> None:
    """Raises ValueError unless the runner's outputs, loss and gradients are those of a plain scan of our cell.

    variant: fields in which the peer's cell differs from ours. Gradients of weight matrices are compared by their norm,
    which no order of gates and no transposition changes.
    """
    cell = dataclasses.replace(work.cell, **variant)
    wanted, wanted_loss, wanted_norm = _reference(work, cell)
    outputs, (loss, gradients) = _array(runner.forward()), runner.train()
    outputs = outputs.swapaxes(0, 1) if runner.batch_major else outputs
    if outputs.shape != wanted.shape:
        raise ValueError(f"the outputs have the shape {outputs.shape}: expected {wanted.shape}")
    errors = {
        "outputs": np.max(np.abs(outputs - wanted)) / np.max(np.abs(wanted)),
        "loss": abs(float(loss) - wanted_loss) / np.sum(np.abs(wanted * work.targets)),
        "gradients": abs(_norm(runner.weights(gradients)) / wanted_norm - 1),
    }
    for what, error in errors.items():
        if not error <= TOLERANCE:
            raise ValueError(f"the {what} are not those of our {cell}: off by {error:.3g}, relative")
    if not all(np.isfinite(_array(gradient)).all() for gradient in jax.tree.leaves(gradients)):
        raise ValueError("a gradient is not finite")


@functools.lru_cache(maxsize=4)
def _reference(work: Work, cell: Cell) -> tuple[np.ndarray, float, float]:
    """(outputs, loss, norm of the gradients of the weight matrices) of plain scan."""
    params = {name: work.params[name] for name in jax.eval_shape(cell.init, root_key(0))}
    scan = in_jax(functools.partial(plain_scan, cell), params, work)
    loss, gradients = scan.train()
    return np.asarray(scan.forward()), float(loss), _norm(scan.weights(gradients))


def _norm(arrays: list) -> float:
    return float(np.sqrt(sum(np.sum(np.square(_array(array), dtype=np.float64)) for array in arrays)))


def _array(array: Any) -> np.ndarray:
    """In numpy, from JAX or from torch on whatever device."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)
