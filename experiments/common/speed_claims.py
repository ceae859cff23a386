"""What the study of speed is to show, as rules over its rows. The targets of the ratios to peers were set before the
engine was written, those of SOURCE."""

from collections.abc import Iterable

import numpy as np

from experiments.common.claims import Claim, worst

SOURCE = "docs: target, from prototypes on 2 cores"
LINEN, LINEN_WORST = 0.62, 0.95
TORCH = {1: {"lstm": 0.95, "gru": 0.42, "elman": 0.33}, 2: {"lstm": 0.82, "gru": 0.35, "elman": 0.31}}
OTHER_CELLS = 1.05
COMPILE = 1.5
"""A loop that is not written out compiles in the same time, which varies by a third from run to run; one that is takes
ten times as long for ten times the steps."""


def judge(found: dict) -> list[Claim]:
    """Every claim that a speed.json is asked for. One whose peer was not timed at every point is not measured."""
    claims = [*_linen(found)]
    for devices, targets in TORCH.items():
        claims += [_torch(found, cell, devices, target) for cell, target in targets.items() if cell in _cells(found)]
    return [*claims, _forward(found), _other_cells(found), _compiling(found)]


def over(devices: int) -> str:
    """The name of our column with the batch split over `devices`."""
    return "ours" if devices == 1 else f"ours, {devices} devices"


def geometric_mean(ratios: Iterable[float]) -> float | None:
    """exp of the mean log, None of none."""
    ratios = list(ratios)
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else None


def _linen(found: dict) -> list[Claim]:
    ratios, why = _ratios(found, "train", "flax.linen")
    text = "A training step against flax.linen.RNN of the same cell"
    mean = f"{text}: geometric mean over {len(_points(found))} points"
    return [
        _at_most(mean, LINEN, geometric_mean(ratios), why),
        _at_most(f"{text}: the worst point", LINEN_WORST, worst(ratios), why),
    ]


def _torch(found: dict, cell: str, devices: int, target: float) -> Claim:
    ratios, why = _ratios(found, "train", "torch", over(devices), cell)
    how = "" if devices == 1 else f", the batch over {devices} devices"
    text = f"A training step of {cell} against torch{how}: geometric mean over the sizes"
    return _at_most(text, target, geometric_mean(ratios), why)


def _forward(found: dict) -> Claim:
    ratios, why = _ratios(found, "forward", "flax.linen")
    return _at_most("The forward pass alone against flax.linen.RNN: the worst point", 1.0, worst(ratios), why)


def _other_cells(found: dict) -> Claim:
    ratios = [row["ratio"] for row in found["other_cells"]]
    text = "A training step of a cell without a backward of its own against plain lax.scan: the worst of "
    return _at_most(f"{text}{len(ratios)}", OTHER_CELLS, worst(ratios), "no such cell was timed")


def _compiling(found: dict) -> Claim:
    """From one length to a longer one, both beyond a chunk of the engine; a loop written out would grow with it."""
    seconds = {(row["cell"], row["time"]): row["seconds"] for row in found["compile"]}
    times = sorted({time for _, time in seconds})[-2:]
    if len(times) < 2:
        return _at_most(
            "Compiling takes no longer for a longer sequence", COMPILE, None, "no two lengths were compiled"
        )
    growth = [seconds[cell, times[1]] / seconds[cell, times[0]] for cell in sorted({cell for cell, _ in seconds})]
    text = f"Compiling a training step of T = {times[1]:,} against T = {times[0]:,}: the worst cell"
    return _at_most(text, COMPILE, worst(growth), "", "a scan is compiled once, whatever its length")


def _at_most(text: str, target: float, ratio: float | None, why: str, source: str = SOURCE) -> Claim:
    return Claim.at_most(text, source, "ratio", target, ratio, why)


def _points(found: dict) -> set[tuple[str, str]]:
    return {(row["cell"], row["size"]) for row in found["rows"]}


def _cells(found: dict) -> set[str]:
    return {row["cell"] for row in found["rows"]}


def _ratios(found: dict, kind: str, peer: str, mine: str = "ours", cell: str | None = None):
    """(ms of our column `mine` over the peer's at every point; or none, and why)."""
    ms = {(row["peer"], row["cell"], row["size"]): row["ms"] for row in found["rows"] if row["pass"] == kind}
    points = sorted(point for point in _points(found) if cell in (None, point[0]))
    for name in (mine, peer):
        for point in points:
            if (name, *point) not in ms:
                reasons = [
                    lost["why"] for lost in found["left_out"]
                    if lost["peer"] == name and (lost["cell"], lost["size"]) in (point, (None, None))
                ]  # fmt: skip
                return [], reasons[0] if reasons else f"{name} was not timed at {' '.join(point)}"
    return [ms[mine, *point] / ms[peer, *point] for point in points], ""
