"""What studies of networks that were never trained share: draws, gradients over time, and what is kept of a run."""

import dataclasses
import pathlib
import time
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.lines import Line2D

from rnnjax import probes, unroll
from rnnjax.cell import Cell, Params
from rnnjax.report.style import CellStyle
from rnnjax.train import cli
from rnnjax.train.config import UsageError
from rnnjax.train.records import replacing
from rnnjax.train.step import root_key


def draw(cell: Cell, key: jax.Array, scale: Any, options: dict[str, Any], time: int, batch: int):
    """(params, inputs [T, B, I] of standard deviation `scale`, weights of the loss [B, O]), in float64.

    options: hyper-parameters of the cell that only `init` uses. These and `scale` may be traced.
    """
    params_key, input_key, loss_key = jax.random.split(key, 3)
    cell = dataclasses.replace(cell, **options) if options else cell  # which need not be a dataclass
    params = cell.init(params_key, jnp.float64)
    inputs = scale * jax.random.normal(input_key, (time, batch, cell.input_size), jnp.float64)
    return params, inputs, jax.random.normal(loss_key, (batch, cell.output_size), jnp.float64)


def norms_by_distance(cell: Cell, field: str = "carry") -> Callable[[Params, jax.Array, jax.Array], jax.Array]:
    """A function of what `draw` gives: log10 ||dL/dcarry_t|| by the distance from the loss [T, B].

    The loss is a random projection of the last output. field: of the carry, whose norm it is; "carry" for the whole.
    """

    def loss(params, inputs, weights):
        return jnp.vdot(unroll(cell, params, inputs, name="cell").outputs[-1], weights)

    gradients = probes.carry_gradients(loss)

    def run(params, inputs, weights):
        return probes.by_distance(probes.gradient_norms(gradients(params, inputs, weights))["cell"][field])

    return run


_slope = jax.jit(probes.slope)


def slopes(norms: np.ndarray) -> np.ndarray:
    """Slopes of log ||dL/dcarry_t|| in nats a step back, mean over sequences: [...] of log10 norms [..., T, B]."""
    with jax.enable_x64(True):
        return np.asarray(_slope(np.moveaxis(norms, -2, 0))).mean(-1)


def one_by_one(function: Callable) -> Callable:
    """A function mapped over the first axis of its arguments, and compiled.

    By jax.vmap a draw of orthogonal matrices and an unroll in one program wait for themselves for good on a CPU, before
    JAX 0.12 and without `rnnjax.train.devices.without_deadlock`.
    """
    return jax.jit(lambda *given: jax.lax.map(lambda one: function(*one), given))


def root_keys(config: Any) -> jax.Array:
    """[config.seeds], the keys of the seeds from config.seed on."""
    return jax.vmap(root_key)(jnp.arange(config.seed, config.seed + config.seeds))


def kept(workdir: pathlib.Path, measure: Callable[[], dict[str, np.ndarray]]) -> tuple[dict[str, np.ndarray], float]:
    """(What `measure()` gives in float64, the seconds it took), or what an earlier call of the run left of it.

    It stands in measured.npz.
    """
    path = workdir / "measured.npz"
    if not path.exists():
        started = time.monotonic()
        with jax.enable_x64(True):
            found = {name: np.asarray(values) for name, values in measure().items()}
        with replacing(path) as temporary:
            np.savez(temporary, seconds=time.monotonic() - started, **found)
    try:
        with np.load(path, allow_pickle=False) as held:
            arrays = dict(held)
        return arrays, float(arrays.pop("seconds"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UsageError(f"{path} is damaged ({error}): remove it, and the same command measures again") from None


_MOST = 2**32 - 1000
"""Seeds are below 2^32, some in a row; no count comes near."""


def check_counts(config: Any, where: str = "config", /, **least: int) -> None:
    """Raises UsageError unless every named field of the config is at least so much, and the seed at least 0.

    where: the config stands among the flags, such as "config.untrained" of a group.
    """
    for name, floor in {"seed": 0, **least}.items():
        if (value := getattr(config, name)) < floor:
            raise UsageError(f"--{where}.{name} is {value}: expected at least {floor}")
        if value > _MOST:
            raise UsageError(f"--{where}.{name} is {value}: expected at most {_MOST}")


def check_values(config: Any, name: str, above: float) -> None:
    """Raises UsageError unless a field that holds numbers has some, each once, finite and above `above`."""
    values = getattr(config, name)
    if not values or len(set(values)) < len(values) or not all(above < value < float("inf") for value in values):
        raise UsageError(f"--config.{name} is {cli.show(values)}: expected one or more above {above:g}, each once")


def line_keys(styles: dict[str, CellStyle]) -> list[Line2D]:
    """Entries of a legend, one a line."""
    return [Line2D([], [], color=color, linestyle=dashes, label=label) for label, (color, dashes) in styles.items()]
