"""The tables of the battery: the row of a cell beside those of others, its conformance, what it could not do."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.common.battery_parts import FAILED, PASSES
from experiments.common.study_report import Table
from rnnjax import probes
from rnnjax.report.tables import number

SHOWN = 100
"""Steps back from the loss that the gradient at the start is drawn and fitted over."""
SOLVED = 0.06
"""A test loss below this share of chance: 0.01 of the adding problem's 1/6."""


class Learned(NamedTuple):
    """What a training came to.

    losses {replica: {step: test loss}}; norms [step, distance, quartile], log10, before and after; chance: the loss of
    a guess; unit: of it; failed: why there was none, in a line.
    """

    losses: Mapping[int, Mapping[int, float]]
    norms: np.ndarray | None
    chance: float
    unit: str
    failed: str = ""

    def solved(self) -> list[int | None]:
        """The first evaluated step of every seed whose loss is below SOLVED of chance; None where there is none."""
        bound = SOLVED * self.chance
        return [min((step for step, loss in one.items() if loss < bound), default=None) for one in self.losses.values()]

    def told(self) -> str:
        """In a few words."""
        if self.failed:
            return FAILED
        steps = sorted(step for step in self.solved() if step is not None)
        if steps:
            return f"{len(steps)} of {len(self.losses)}, step {steps[(len(steps) - 1) // 2]}"
        seen = [loss for one in self.losses.values() for loss in one.values() if math.isfinite(loss)]
        return f"no, {number(min(seen) / self.chance, 2)} of chance" if seen else "diverged"


class Findings(NamedTuple):
    """All that the battery has found, by cell, the user's first.

    mine: its name; untrained {cell: what `battery_parts.untrained` gives}; learned {task: {cell: Learned}}; speed: as
    `battery_parts.speed` gives it; conformance likewise.
    """

    mine: str
    untrained: Mapping[str, Mapping[str, np.ndarray]]
    learned: Mapping[str, Mapping[str, Learned]]
    speed: Mapping[str, Any]
    conformance: list[dict[str, str]]

    @property
    def cells(self) -> tuple[str, ...]:
        """Names."""
        return tuple(self.untrained)


def tables(found: Findings, config: Any) -> list[Table]:
    """The row of every cell, conformance, and what could not be measured."""
    mine, sizes = found.mine, config.untrained
    of_cells = Table(
        "Beside the others",
        (
            "cell", "parameters", "slope at the start", "largest exponent", f"log10 sigma_1, {sizes.product} steps",
            "radius of a step", *(f"{task}: solved" for task in found.learned), "forward, ms", "training step, ms",
            f"{mine} / it, training",
        ),
        [_row(found, cell) for cell in found.cells],
        f"""Parameters of {sizes.hidden_size} units with {sizes.input_size} inputs, of the cell alone. At the start,
with inputs of unit variance, means over {sizes.seeds} networks, half their range in brackets: the slope of log
||dL/dcarry_t|| over {SHOWN} steps back and the largest Lyapunov exponent, with its standard error, in nats a step;
log10 of the largest singular value of the product of {sizes.product} steps' Jacobians; the largest |eigenvalue| of one.
Solved: how many seeds came below {SOLVED} of chance on the test set, and the step at which the middle one of them first
did. Times are of {config.speed.size}, steps x batch x inputs x units, interleaved, medians.""".replace("\n", " "),
    )  # fmt: skip
    rows = [(row["check"], "failed" if row[FAILED] else "passed", row[FAILED] or None) for row in found.conformance]
    note = "Of rnnjax.testing.check_cell, one by one; what a failed check means for the rest is seen there."
    made = [of_cells, Table("Conformance", ("check", "verdict", "what it says"), rows, note)]
    if lost := _lost(found):
        made.append(Table("What could not be measured", ("what", "why"), lost))
    return made


def _lost(found: Findings) -> list[tuple[str, str]]:
    """(what, why) of all that could not be measured of the user's cell."""
    untrained = found.untrained[found.mine]
    lost = [(name, str(untrained[f"{FAILED}.{name}"])) for name in ("gradient", "jacobian", "lyapunov")]
    lost += [(task, of[found.mine].failed) for task, of in found.learned.items()]
    return [(what, why) for what, why in [*lost, ("speed", found.speed[FAILED])] if why]


def _row(found: Findings, cell: str) -> tuple:
    held = found.untrained[cell]
    slope = exponent = sigma = radius = None
    if "norms" in held:
        of_seeds = slopes(held["norms"])
        slope = _told(of_seeds.mean(), (of_seeds.max() - of_seeds.min()) / 2)
    if "exponents" in held:
        first, error = held["exponents"][:, 0], np.mean(held["error"][:, 0]) / math.sqrt(len(held["error"]))
        exponent = _told(first.mean(), error)
    if "product" in held:
        sigma = float(held["product"][:, 0].mean() / math.log(10))
        radius = float(np.abs(held["eigenvalues"]).max(-1).mean())
    times = {row["pass"]: row for row in found.speed["rows"] if row["cell"] == cell}
    ms = [times[kind]["ms"] if times else None for kind in PASSES]
    ratio = times["train"]["ratio"] if times else None
    learned = (of[cell].told() for of in found.learned.values())
    parameters = int(held["parameters"]) if "parameters" in held else None
    return (cell, parameters, slope, exponent, sigma, radius, *learned, *ms, ratio)


def _told(value: float, spread: float) -> str:
    """A rate in nats a step."""
    return f"{value:+.4f} ({spread:.4f})" if np.isfinite(value) else f"{value:+}".replace("+nan", "nan")


def slopes(norms: np.ndarray) -> np.ndarray:
    """[seed], nats a step back over the first SHOWN distances, of log10 norms [seed, T]."""
    return np.asarray(probes.slope(np.asarray(norms[:, :SHOWN].T, np.float32)), np.float64)
