"""What the battery measures of one cell before training: conformance, gradients, Jacobians, exponents, time."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common.named_cell import told
from experiments.common.timing import interleaved
from experiments.common.untrained import draw, norms_by_distance, root_keys
from experiments.peers import Size, Work, ours
from rnnjax import probes
from rnnjax.cell import Cell
from rnnjax.testing import cell_checks
from rnnjax.train.config import UsageError
from rnnjax.train.signals import Interrupted
from rnnjax.train.step import root_key

FAILED = "failed"
PASSES = ("forward", "train")


def guarded(measure: Callable[[], Any]) -> tuple[Any, str]:
    """(what it gives, "") or, where the user's cell raises, (None, the error in a line): the battery goes on."""
    try:
        return measure(), ""
    except (Interrupted, UsageError, OSError, MemoryError):
        raise  # of the machine, and not of the cell
    except (Exception, SystemExit) as error:
        return None, told(error)


def conformance(cell: Cell) -> list[dict[str, str]]:
    """[{"check", "failed": why, or ""}] of every check of `rnnjax.testing.check_cell`."""
    return [{"check": name, FAILED: guarded(check)[1]} for name, check in cell_checks(cell).items()]


def untrained(cell: Cell, config: Any) -> dict[str, np.ndarray]:
    """What is measured of `config.seeds` networks that were drawn, in float64.

    norms [seed, T]: log10 ||dL/dcarry_t|| by distance, L a random projection of the last output.
    exponents, error [seed, K]: of `lyapunov_spectrum` over the steps from `burn_in` to `burn_in` before the end.
    one, product [seed, S]: log singular values, in nats, of a step's Jacobian and of the product over config.product.
    eigenvalues [seed, S], complex: of the step's Jacobian.
    parameters: their number.
    failed.gradient, failed.lyapunov, failed.jacobian: why a measurement could not be taken, in a line, or "".
    """
    drawn, failed = guarded(lambda: _draw(cell, config))
    found = {} if failed else {"parameters": np.asarray(_count(drawn[0]) // config.seeds)}
    parts = {"gradient": _gradient, "lyapunov": _lyapunov, "jacobian": _jacobian}
    for name, measure in parts.items():
        values, why = (None, failed) if failed else guarded(functools.partial(measure, cell, drawn, config))
        found |= values or {}
        found[f"{FAILED}.{name}"] = np.asarray(why)
    return found


def _draw(cell: Cell, config: Any) -> tuple[Any, jax.Array, jax.Array]:
    """(params, inputs [T, 1, I], weights of the loss [1, O]), each with the seeds on a first axis.

    Not under jit, so that an `init` is served that calls numpy.
    """
    each = [draw(cell, key, 1.0, {}, config.time, 1) for key in root_keys(config)]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)


def _gradient(cell: Cell, drawn: Any, config: Any) -> dict[str, np.ndarray]:
    del config
    norms = jax.jit(jax.vmap(norms_by_distance(cell)))
    return {"norms": np.asarray(norms(*drawn))[..., 0]}


def _lyapunov(cell: Cell, drawn: Any, config: Any) -> dict[str, np.ndarray]:
    params, inputs, _ = drawn
    first = jax.tree.map(lambda leaf: leaf[0], params)
    count = min(_count(cell.initial_carry(first)), config.exponents)

    def of_one(params, inputs):
        found = probes.lyapunov_spectrum(cell, params, inputs, count=count, burn_in=config.burn_in)
        return found.exponents, found.error

    exponents, error = jax.jit(jax.vmap(of_one))(params, inputs[:, : config.time - config.burn_in, 0])
    return {"exponents": np.asarray(exponents), "error": np.asarray(error)}


def _jacobian(cell: Cell, drawn: Any, config: Any) -> dict[str, np.ndarray]:
    """At the step burn_in + product, when the state has forgotten its start."""
    params, inputs, _ = drawn

    def of_one(params, inputs):
        jacobians = probes.step_jacobians(cell, params, inputs)[-config.product - 1 :]
        products = probes.jacobian_products(jacobians)
        ends = jnp.array([-2, 0])  # of one step, and of all
        values = probes.log_singular_values(jax.tree.map(lambda leaf: leaf[ends], products))
        return values, jacobians[-1]

    values, last = jax.jit(jax.vmap(of_one))(params, inputs[:, : config.burn_in + config.product + 1, 0])
    last = np.asarray(last)
    eigenvalues = np.full(last.shape[:-1], np.nan + 0j)
    for at in np.flatnonzero(np.isfinite(last).all((-2, -1))):  # LAPACK takes no nan
        eigenvalues[at] = np.linalg.eigvals(last[at])
    return {"one": np.asarray(values[:, 0]), "product": np.asarray(values[:, 1]), "eigenvalues": eigenvalues}


def _count(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def speed(cells: dict[str, Cell], mine: str, size: Size, rounds: int) -> dict[str, Any]:
    """{"rows": [{"cell", "pass", "ms", "ratio": of mine over it, the median over rounds}], "failed": of mine}."""
    runners, failed = {}, ""
    for name, cell in cells.items():
        runner, why = guarded(functools.partial(_runner, name, cell, size))
        if why and name != mine:
            raise RuntimeError(f"{name} could not be timed: {why}")
        failed = why or failed
        runners |= {} if why else {name: runner}
    functions = {(name, kind): getattr(runner, kind) for name, runner in runners.items() for kind in PASSES}
    seconds = interleaved(functions, rounds)
    rows = []
    for (name, kind), taken in seconds.items():
        ratio = float(np.median(seconds[mine, kind] / taken)) if mine in runners else None  # of pairs of a round
        rows.append({"cell": name, "pass": kind, "ms": float(np.median(taken)) * 1e3, "ratio": ratio})
    return {"rows": rows, FAILED: failed}


def _runner(name: str, cell: Cell, size: Size) -> Any:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((size.time, size.batch, size.inputs), np.float32)
    targets = rng.standard_normal((size.time, size.batch, cell.output_size), np.float32)
    runner = ours.engine(Work(name, cell, cell.init(root_key(0), jnp.float32), inputs, targets))
    jax.block_until_ready((runner.forward(), runner.train()))
    return runner
