"""What the battery claims of a cell, and of those beside it: what is law, and nothing of taste."""

import math
from typing import Any

import numpy as np

from experiments.common.battery_parts import FAILED
from experiments.common.battery_report import Findings
from experiments.common.claims import Claim

TOLERANCE, WINDOW = 0.02, 300
"""Nats a step, and the steps it is meant for. Over one window the growth of a vector that goes back and of one that
goes on differ by their angles to the directions that grow alone: a few nats, whatever the window. 0.02 allows 6."""
OSELEDETS = "Oseledets 1968: a matrix and its transpose have the same exponents; Vogt et al. 2022"
CONTRACT = "rnnjax/cell.py"


def rates(held: dict[str, np.ndarray], config: Any) -> np.ndarray:
    """[seed], how log ||dL/dcarry_t|| changes a step back over the window that the exponents were taken over."""
    first, last = config.burn_in, config.time - config.burn_in
    return math.log(10) * (held["norms"][:, last] - held["norms"][:, first]) / (last - first)


def claims(config: Any, found: Findings) -> list[Claim]:
    """What is law, of this cell and of those beside it."""
    failed = sum(bool(row[FAILED]) for row in found.conformance)
    text = f"{found.mine} keeps the contract (how many of its {len(found.conformance)} checks fail)"
    others = [cell for cell in found.cells if cell != found.mine]
    return [
        Claim(text, CONTRACT, "0", failed, failed == 0),
        _rate_is_exponent(config.untrained, found, [found.mine], found.mine),
        _rate_is_exponent(config.untrained, found, others, "the cells beside it"),
        _control(config.untrained, found, others),
    ]


def _rate_is_exponent(config: Any, found: Findings, cells: list[str], who: str) -> Claim:
    text = (
        f"Far from the loss log ||dL/dcarry_t|| of {who} changes a step back by the largest Lyapunov exponent of the "
        "same steps (the largest difference over networks, nats a step)"
    )
    expected = f"<= {TOLERANCE}"
    if why := next(filter(None, (_untried(config, found.untrained[cell]) for cell in cells)), ""):
        return Claim.unmeasured(text, OSELEDETS, expected, why)
    of_cells = [found.untrained[cell] for cell in cells]
    worst = float(np.max([np.abs(rates(held, config) - held["exponents"][:, 0]) for held in of_cells]))
    return Claim(text, OSELEDETS, expected, worst, worst <= TOLERANCE)


def _untried(config: Any, held: dict[str, np.ndarray]) -> str:
    """Why rate and exponent can't be compared; "" where they can, or are no numbers, which is no agreement."""
    for name in ("gradient", "lyapunov"):
        if why := str(held[f"{FAILED}.{name}"]):
            return f"no {name}: {why}"
    if (steps := config.time - 2 * config.burn_in) < WINDOW:
        return f"the window has {steps} steps, the rule is meant for {WINDOW} and more"
    if np.isinf(held["norms"][:, [config.burn_in, config.time - config.burn_in]]).any():
        return "within the window the gradient is 0 or beyond the largest float64"
    return ""


def _control(config: Any, found: Findings, cells: list[str]) -> Claim:
    text = (
        "Control: it does not change by the last of the exponents that were measured, of any cell beside it (the least "
        "difference, nats a step)"
    )
    source, expected = (
        "derived: a vector drawn at random has a share in the direction that grows most",
        f"> {TOLERANCE}",
    )
    if why := next(filter(None, (_untried(config, found.untrained[cell]) for cell in cells)), ""):
        return Claim.unmeasured(text, source, expected, why)
    of_cells = [found.untrained[cell] for cell in cells]
    least = float(np.min([np.abs(rates(held, config) - held["exponents"][:, -1]) for held in of_cells]))
    return Claim(text, source, expected, least, least > TOLERANCE)
