"""The slope law: how fast dL/dh_t changes with distance is set by the recurrent matrix alone, until there are inputs.

Question: when does the spectrum of the recurrent matrix say how dL/dh_t grows or vanishes, and when does it not?
Source: Bengio, Simard, Frasconi 1994; Pascanu, Mikolov, Bengio 2013, section 2.1.
Command: python -m experiments.slope_law --workdir=runs/slope_law
Expected: without input and with W = r Q, Q orthogonal, log ||dL/dh_t|| of a linear and of a tanh network changes by
    log r a step. With a Gaussian W a linear one tends to log rho, the largest |eigenvalue|, and not to log sigma, the
    largest singular value. With inputs of unit variance tanh vanishes at r = 1.5 too: rho > 1 does not suffice.
Runtime: quick, under 1 minute on 1 core; full, about 5 minutes.
"""

import dataclasses
import pathlib

import jax
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim
from experiments.common.study import is_default, unclaimed
from experiments.common.study_report import Study, Table, write_report
from experiments.common.untrained import (
    check_counts,
    check_values,
    draw,
    kept,
    line_keys,
    norms_by_distance,
    root_keys,
    slopes,
)
from rnnjax.cells import Elman
from rnnjax.report.figures import DISTANCE, WIDTH
from rnnjax.report.style import FAINT, STYLE, cell_styles, frame
from rnnjax.train import cli
from rnnjax.train.config import to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("orthogonal_and_gaussian",)
PASCANU = "Pascanu, Mikolov, Bengio 2013, section 2.1"
LINEAR, TANH, SMALL, UNIT = "linear, no input", "tanh, no input", "tanh, inputs of sd 0.05", "tanh, inputs of sd 1"
CASES = {LINEAR: ("identity", 0.0), TANH: ("tanh", 0.0), SMALL: ("tanh", 0.05), UNIT: ("tanh", 1.0)}
"""{case: (activation, standard deviation of the inputs)}"""


@dataclasses.dataclass
class Config:
    """hidden_size: units, and features of the inputs.
    length: steps.
    batch: sequences a network, each with a loss of its own.
    radii: the r of W = r Q.
    seeds: how many networks are drawn of each kind.
    seed: the first.
    """

    hidden_size: int = 64
    length: int = 100
    batch: int = 8
    radii: tuple[float, ...] = (0.7, 0.9, 1.0, 1.2, 1.5)
    seeds: int = 5
    seed: int = 4100


def get_config(variant: str, preset: str) -> Config:
    """The config: `quick`, or more and larger networks for longer."""
    del variant  # there is but one
    return Config() if preset == "quick" else Config(hidden_size=128, length=200, seeds=20)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    check_counts(config, hidden_size=2, length=4, batch=1, seeds=1)  # a slope of the farther half takes two steps
    check_values(config, "radii", above=0)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures and writes the report. What is measured in `workdir` is not measured again."""
    check(config)
    claim_workdir(workdir, {"experiment": "slope_law", "config": to_dict(config)})
    found, seconds = kept(workdir, lambda: measure(config))
    default = is_default(config, get_config, VARIANTS[0], "seed")
    study = report(config, found, claims(config, found) if default else [])
    write_report(workdir, study if default else unclaimed(study), seconds)


def measure(config: Config) -> dict[str, np.ndarray]:
    """{case: log10 norms by distance [radius, seed, T, B]}, and of linear networks with a Gaussian W of gain 1
    "gaussian" [seed, T, B] with "rho" and "sigma" [seed], the largest |eigenvalue| and singular value of W.
    """
    size, keys = config.hidden_size, root_keys(config)
    found = {}
    for activation in ("identity", "tanh"):
        run = _runner(config, Elman(size, size, activation=activation))
        for case, (of, scale) in CASES.items():
            if of == activation:
                found[case] = np.stack([run(keys, radius, scale)[1] for radius in config.radii])
    gaussian = _runner(config, Elman(size, size, activation="identity", recurrent_init="scaled_normal"))
    matrices, found["gaussian"] = jax.device_get(gaussian(keys, 1.0, 0.0))
    found["rho"] = np.max(np.abs(np.linalg.eigvals(matrices)), axis=-1)
    found["sigma"] = np.linalg.norm(matrices, 2, axis=(-2, -1))
    return found


def _runner(config: Config, cell: Elman):
    """(keys [seed], gain, standard deviation of the inputs) -> (W [seed, H, H], log10 norms [seed, T, B])."""
    norms = norms_by_distance(cell, field="h")

    @jax.jit
    def run(keys, gain, scale):
        def of_one(key):
            drawn = draw(cell, key, scale, {"gain": gain}, config.length, config.batch)
            return drawn[0]["W_hh"], norms(*drawn)

        return jax.vmap(of_one)(keys)

    return run


def late_slopes(found: dict[str, np.ndarray]) -> np.ndarray:
    """[seed], those of Gaussian networks over the farther half of the distances."""
    values = found["gaussian"]
    return slopes(values[:, values.shape[1] // 2 :])


def claims(config: Config, found: dict[str, np.ndarray]) -> list[Claim]:
    """What theory says of every network, and where it says nothing."""
    of = {case: slopes(found[case]) for case in CASES}  # [radius, seed]
    law = np.log(np.array(config.radii))[:, None]
    listed = ", ".join(map(str, config.radii))
    made = []
    for kind, case in {"linear": LINEAR, "tanh": TANH}.items():
        worst = float(np.max(np.abs(of[case] - law)))
        text = f"With W = r Q and no input, dL/dh_t of a {kind} network changes by log r nats a step, for r in {listed}"
        made.append(Claim(text, PASCANU, "largest |slope - log r| <= 1e-3", worst, worst <= 1e-3))
    largest = float(np.max(of[UNIT][config.radii.index(1.5)]))
    text = (
        "Control: with inputs of unit variance tanh vanishes at r = 1.5 too, so rho > 1 does not suffice to explode "
        "(the largest slope of all seeds, nats a step)"
    )
    made.append(Claim(text, PASCANU, "< 0", largest, largest < 0))
    excess = float(np.max([of[case] - law for case in (SMALL, UNIT)]))
    text = "Inputs only take away: no slope of a driven tanh network is above log r (the largest slope - log r)"
    made.append(Claim(text, "derived: the Jacobian is W diag(tanh'), and tanh' <= 1", "<= 0", excess, excess <= 0))
    late = late_slopes(found)
    worst = float(np.max(np.abs(late - np.log(found["rho"]))))
    text = "With a Gaussian W, a linear network's slope over the farther half of the distances is log rho"
    made.append(Claim(text, PASCANU, "largest |slope - log rho| <= 0.05", worst, worst <= 0.05))
    least = float(np.min(np.log(found["sigma"]) - late))
    text = "Control: it is not log sigma, which bounds every step (the least log sigma - slope)"
    source = "derived: sigma of a Gaussian W tends to 2 and rho to 1, log 2 = 0.69"
    made.append(Claim(text, source, ">= 0.5", least, least >= 0.5))
    return made


def report(config: Config, found: dict[str, np.ndarray], made: list[Claim]) -> Study:
    """The table of slopes and the pictures."""
    of = {case: slopes(found[case]) for case in CASES}
    rows = []
    for at, radius in enumerate(config.radii):
        told = (f"{of[case][at].mean():+.4f} ({np.ptp(of[case][at]) / 2:.4f})" for case in CASES)
        rows.append((f"{radius:g}", f"{np.log(radius):+.4f}", *told))
    note = "The mean over seeds and, in brackets, half their range, in nats a step back from the loss."
    late, rho = late_slopes(found), np.log(found["rho"])
    gaussian = [
        (config.seed + at, *(f"{value:+.4f}" for value in row))
        for at, row in enumerate(zip(late, rho, np.log(found["sigma"]), strict=True))
    ]
    text = f"""
{config.seeds} networks of {config.hidden_size} units a row, {config.batch} sequences of {config.length} steps each. The
loss is a random projection of the last hidden state; everything is in float64. Slopes are least-squares ones of
log ||dL/dh_t|| over the distance from the loss."""
    tables = [
        Table("Slopes by radius", ("W = r Q, r", "log r", *CASES), rows, note),
        Table(
            "Linear networks with a Gaussian W",
            ("seed", "late slope", "log rho", "log sigma"),
            gaussian[:20],
            "Nats a step; late is the farther half of the distances.",
        ),
    ]
    drawn = {
        "curves": (draw_curves(config, found), "The gradient on its way back, without and with inputs"),
        "slopes": (draw_slopes(config, of, late, rho), "Slopes against what the spectrum of W says"),
    }
    return Study("slope_law", "The slope law", " ".join(text.split()), tables, drawn, made)


def draw_curves(config: Config, found: dict[str, np.ndarray]) -> Figure:
    """log10 norms by distance, a panel a case of tanh: lines of every r, the law dotted."""
    shown = {"no input (linear is the same)": TANH, "inputs of sd 0.05": SMALL, "inputs of sd 1": UNIT}
    styles = cell_styles(tuple(f"r = {radius:g}" for radius in config.radii))
    distance = np.arange(config.length)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        panels = figure.subplots(1, len(shown), sharey=True)
        for axes, (title, case) in zip(panels, shown.items(), strict=True):
            axes.set_title(title)
            for values, radius, style in zip(found[case], config.radii, styles.values(), strict=True):
                middle = np.median(np.moveaxis(values, 1, 0).reshape(config.length, -1), axis=1)
                law = middle[0] + distance * np.log10(radius)
                axes.plot(distance, law, color=FAINT, linestyle=":", linewidth=1.2)
                axes.plot(distance, middle, color=style.color, linestyle=style.linestyle)
            axes.set_xlabel(DISTANCE)
        panels[0].set_ylabel(r"$\log_{10}\,\Vert \partial L\,/\,\partial h_t \Vert$")
        notes = ["Lines: median over seeds and sequences. Dotted: the law, log r nats a step."]
        frame(figure, "tanh with W = r Q: inputs end the slope law", notes, line_keys(styles))
    return figure


def draw_slopes(config: Config, of: dict[str, np.ndarray], late: np.ndarray, rho: np.ndarray) -> Figure:
    """Slopes against log r of all cases, and the late slope of Gaussian networks against log rho."""
    styles = cell_styles(tuple(CASES))
    law = np.log(np.array(config.radii))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for at, (case, style) in enumerate(styles.items()):
            size = 9 if at == 0 else 5  # tanh without input lies on linear: both are seen
            face = "none" if at == 0 else style.color
            left.plot(law, of[case], "o", color=style.color, markersize=size, markerfacecolor=face)
            left.plot(law, of[case].mean(1), color=style.color, linestyle=style.linestyle, linewidth=1.4)
        left.axhline(0, color=FAINT, linewidth=0.8)
        left.set(title="W = r Q", xlabel="log r (nats)", ylabel="slope (nats a step)")
        ends = np.array([min(rho.min(), late.min()) - 0.02, max(rho.max(), late.max()) + 0.02])
        right.fill_between(ends, ends - 0.05, ends + 0.05, color=FAINT, alpha=0.15, linewidth=0)
        right.plot(ends, ends, color=FAINT, linestyle=":", linewidth=1.2)
        right.plot(rho, late, "o", color=styles[LINEAR].color, markersize=5)
        right.set(title="linear, Gaussian W", xlabel=r"log $\rho$ (nats)", ylabel="late slope (nats a step)")
        notes = ["Dots: seeds. Dotted and band: slope = log rho, and 0.05 around it."]
        frame(figure, "The slope of the gradient, and the spectrum of W", notes, line_keys(styles))
    return figure


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
